// eval.js - the page of kvik eval --report, drawn from the figures in it: a plot of quality against bytes, a table, and the method.
const o = JSON.parse(document.getElementById("figures").textContent);
const measured = o.caches.filter((c) => !c.refused);
const reference = measured[0];
const others = measured.filter((c) => !c.reference);
const MIB = 2 ** 20;

function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let k = 0;
    while (n >= 1024 && k < units.length - 1) n /= 1024, k++;
    return k ? `${n.toFixed(1)} ${units[k]}` : `${n} B`;
}
const small = (v) => v === 0 ? "0" : v < 1e-4 ? v.toExponential(1) : v < .1 ? v.toFixed(v < .01 ? 5 : 4) : v.toPrecision(3);
const same = (c) => `${(100 * c.same_top_token / o.scored).toFixed(2)} %`;

// A plot of points.  plot: title; x and y, what the axes show; points [{name, x, y, group}]; the heights are logarithms.  Points of a
// group are joined.  Each point has its name beside it.
function dots(plot, width) {
    const left = 64, right = 130, top = 32, height = width < 480 ? 360 : 430, bottom = height - 44;
    const X = axis(Math.max(...plot.points.map((p) => p.x)));
    const logs = plot.points.map((p) => Math.log10(p.y)), low = Math.floor(Math.min(...logs)), high = Math.max(low + 1, Math.ceil(Math.max(...logs)));
    const x = (v) => left + v / X.end * (width - left - right), y = (v) => bottom - (Math.log10(v) - low) / (high - low) * (bottom - top);
    const out = [svg("title", {}, plot.title), label(0, 14, "soft", plot.y)], figure = (v) => String(Number(v.toPrecision(6)));
    for (let k = low; k <= high; k++)
        out.push(svg("line", {x1: left, x2: width - right, y1: y(10 ** k), y2: y(10 ** k), class: "rule"}),
            label(left - 8, y(10 ** k) + 5, "soft", k < -4 ? `1e${k}` : figure(10 ** k), "end"));
    for (let v = 0; v <= X.end * 1.001; v += X.step) out.push(label(x(v), bottom + 20, "soft", figure(v), "middle"));
    out.push(label((left + width - right) / 2, height - 4, "soft", plot.x, "middle"));
    const groups = [...new Set(plot.points.map((p) => p.group))];
    const places = spread(plot.points.map((p) => y(p.y) + 5), 15, top, bottom);
    groups.forEach((g, i) => {
        const mine = plot.points.filter((p) => p.group === g).sort((a, b) => a.x - b.x), {style, dash} = look(i);
        out.push(svg("g", {style},
            svg("polyline", {class: "line", "stroke-dasharray": dash, points: mine.map((p) => `${x(p.x)},${y(p.y)}`).join(" ")}),
            mine.map((p) => [svg("circle", {class: "dot", cx: x(p.x), cy: y(p.y), r: 4}),
                label(x(p.x) + 9, places[plot.points.indexOf(p)], "name", p.name)]).flat()));
    });
    return svg("svg", {role: "img", "aria-label": plot.title, width, height, viewBox: `0 0 ${width} ${height}`}, out);
}

function plot() {
    const points = others.filter((c) => c.kld > 0).map((c) => ({name: c.rows, x: c.cache_bytes / MIB, y: c.kld, group: c.rows.split(" ")[0]}));
    return {title: `Mean KLD against the bytes of a cache of ${o.window} tokens. The figures stand in the table below.`,
        x: `MiB of a cache of ${o.window} tokens (not quantized: ${(reference.cache_bytes / MIB).toFixed(1)})`, y: "mean KLD in nats, lower is better", points};
}

function overview() {
    return table(`${o.scored} tokens of ${o.text}`, ["rows", "bits of a value", `cache of ${o.window} tokens`, "perplexity", "mean KLD", "99.9 % of KLD", "same top token"],
        o.caches.map((c) => c.refused ? [c.rows, {text: c.refused, why: true}] : [c.rows, c.bits_per_value.toFixed(2), bytes(c.cache_bytes), c.perplexity.toFixed(4),
            c.reference ? "–" : {text: small(c.kld), more: [`±${small(c.kld_standard_error)}`]}, c.reference ? "–" : small(c.kld_99_9), c.reference ? "–" : same(c)]));
}

// The smallest cache that changes little: a mean KLD of 0.01 nats at most.
function headline() {
    const good = others.filter((c) => c.kld <= .01).sort((a, b) => a.cache_bytes - b.cache_bytes)[0];
    if (!good) return `What quantizing the cache of ${o.model} costs`;
    return `${good.rows}: ${(100 * good.cache_bytes / reference.cache_bytes).toFixed(0)} % of the bytes at a mean KLD of ${small(good.kld)}`;
}

function page() {
    const drawing = plot(), out = [el("h1", {}, headline()), el("p", {class: "soft"}, o.method + ".")];
    if (drawing.points.length) {
        const button = el("button", {type: "button"}, "Save this plot as SVG");
        button.addEventListener("click", () => save(dots(drawing, 800), "kvik-quality.svg"));
        out.push(el("figure", {class: "chart"}, drawn((width) => dots(drawing, width)), button));
    }
    out.push(el("h2", {}, "All caches"), overview(), el("h2", {}, "Method"),
        el("p", {}, `A window has ${o.window} tokens. The first ${o.prompt} are one prompt, in one call. The others are scored: the logits after each of them have the ` +
            "bits of decoding token by token. KLD is the Kullback-Leibler divergence of the predictions from those with rows that are not quantized, in nats, over the whole " +
            "vocabulary; ± is the standard error of its mean. The bits of a value count scales and zeros. The bytes are those of a whole window, with the rows that are not " +
            `quantized yet. The text has the SHA-256 ${o.text_sha256}.`));
    document.title = "kvik: " + headline();
    document.getElementById("main").append(...out);
    charts.forEach((chart, host) => redraw(host));
}
page();
