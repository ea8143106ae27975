// report.js - the page of kvik bench --report, drawn from the figures in it: a headline, a chart of all strategies, the same as a
// table, plots by length, a table of every depth, and the method.
const o = JSON.parse(document.getElementById("figures").textContent);
const measured = o.strategies.filter((s) => !s.refused);
const prompts = measured.filter((s) => s.prompt_in_one_call);
const deepest = (s) => s.depths[s.depths.length - 1];
const dynamic = o.strategies[0];
const MIB = 2 ** 20;

function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let k = 0;
    while (n >= 1024 && k < units.length - 1) n /= 1024, k++;
    return k ? `${n.toFixed(1)} ${units[k]}` : `${n} B`;
}
const rate = (v) => v >= 10 ? v.toFixed(0) : v.toPrecision(2);

function quality(s) {
    const q = s.prompt_in_one_call.quality;
    return s === dynamic ? "reference" : !q ? "–" : q.identical ? "identical" : `${q.same_token} of ${q.positions}`;
}

// The speed with what it is of the dynamic cache's, or why it does not compare.
function speed(s) {
    const d = deepest(s), text = `${rate(d.decode_tokens_per_second)} /s`;
    const marks = d.marks.filter((m) => m !== "prefill scatters");
    if (!s.comparable) return `${text} (${marks[0] || "unsteady"})`;
    return s === dynamic ? text : `${text} (${(100 * d.ratio_to_dynamic).toFixed(0)} %)`;
}

function chart() {
    return {
        title: `${o.said.headline}. The figures stand in the table below.`, first: "Strategy",
        columns: [{title: "Memory of the cache", note: "bar: after the prompt; line: peak", short: "memory after the prompt (line: peak)"},
            {title: "Decoding, tokens/s", note: "share of dynamic", short: "decoding, tokens/s (share of dynamic)"}],
        last: {title: "Same next token", note: "as dynamic"},
        rows: prompts.map((s) => {
            const p = s.prompt_in_one_call, above = p.peak_bytes > 1.05 * p.memory_bytes;
            const more = p.disk_bytes ? ` + ${bytes(p.disk_bytes)} disk` : above ? `, peak ${bytes(p.peak_bytes)}` : "";
            return {
                name: s.strategy, strong: s === dynamic, last: quality(s), lost: s.lost,
                values: [{full: p.memory_bytes, rest: p.disk_bytes, mark: above ? p.peak_bytes : 0, text: bytes(p.memory_bytes) + more},
                    {full: deepest(s).decode_tokens_per_second, text: speed(s), lost: !s.comparable}],
            };
        }),
    };
}

function overview() {
    const kld = (s) => s.prompt_in_one_call.quality ? s.prompt_in_one_call.quality.kld.toPrecision(1) : "–";
    return table(`After a prompt of ${o.tokens} tokens in one call`, ["strategy", "in memory", "peak", "tokens/s", "same token", "KLD, nats"],
        o.strategies.map((s) => {
            if (s.refused) return [s.strategy, {text: s.refused, why: true}];
            if (!s.prompt_in_one_call) return [s.strategy, {text: "no prompt was measured", why: true}];
            const p = s.prompt_in_one_call, d = deepest(s);
            const marks = d.marks.filter((m) => m !== "prefill scatters").map((m) => ({text: m, lost: true}));
            return [s.strategy, {text: bytes(p.memory_bytes), more: p.disk_bytes ? [`+ ${bytes(p.disk_bytes)} disk`] : []}, bytes(p.peak_bytes),
                {text: rate(d.decode_tokens_per_second), more: [...(s.runs > 1 ? [`±${(100 * d.decode_spread).toFixed(0)} %`] : []), ...marks]},
                {text: quality(s), lost: s.lost, more: s.lost ? [{text: "differs much", lost: true}] : []}, kld(s)];
        }));
}

// A plot with its figures as a table that opens: at most `most` rows, the first and the last among them.
function plot(title, note, y, series, digits) {
    const shown = series.filter((l) => l.points.length), most = 12;
    if (!shown.length) return null;
    const all = [...new Set(shown.flatMap((l) => l.points.map((p) => p[0])))].sort((a, b) => a - b);
    const at = all.length <= most ? all : [...new Set(Array.from({length: most}, (v, k) => all[Math.round(k * (all.length - 1) / (most - 1))]))];
    const value = (l, x) => (l.points.filter((p) => p[0] <= x).at(-1) || [0, NaN])[1];
    const cell = (v) => Number.isNaN(v) ? "–" : v.toFixed(digits);
    return el("figure", {}, el("figcaption", {}, el("strong", {}, title + "."), " " + note),
        drawn((width) => lines({title, x: "cached tokens", y, lines: shown}, width)),
        el("details", {}, el("summary", {}, "Figures"), table(`${title}, ${y}`, ["tokens", ...shown.map((l) => l.name)],
            at.map((x) => [String(x), ...shown.map((l) => cell(value(l, x)))]))));
}

function plots() {
    const memory = (points) => points.map(([n, b]) => [n, b / MIB]);
    return el("div", {class: "plots"},
        plot("Memory while one prompt is read", "Quantized strategies first hold the prompt twice: its tokens read each other unquantized, as in " +
            "Transformers, so the unquantized rows leave only when the prompt ends.", "MiB of memory",
            prompts.map((s) => ({name: s.strategy, points: memory(s.prompt_in_one_call.memory)})), 2),
        plot("Memory of a conversation that grows in turns", "Each turn is quantized when it ends. Lines that coincide are drawn side by side.", "MiB of memory",
            measured.map((s) => ({name: s.strategy, points: memory(s.memory)})), 2),
        plot("Decoding speed", "More cached tokens take longer to read.", "decoded tokens per second",
            measured.map((s) => ({name: s.strategy, points: s.depths.map((d) => [d.depth, d.decode_tokens_per_second])})), 0));
}

function depths() {
    const marks = (d) => d.marks.map((m) => ({text: m, lost: true}));
    return table(`In turns of ${o.turn_tokens} tokens`, ["cached tokens", "rows", "prefill, tokens/s", "decoding, tokens/s", "× dynamic", "× floor"],
        o.strategies.flatMap((s) => [[s.strategy], ...(s.refused ? [["", {text: s.refused, why: true}]] : s.depths.map((d) => [String(d.depth), bytes(d.cache_bytes),
            d.prefill_tokens_per_second > 0 ? rate(d.prefill_tokens_per_second) : "–", {text: rate(d.decode_tokens_per_second), more: marks(d)},
            d.ratio_to_dynamic.toFixed(2), d.ratio_to_floor.toFixed(2)]))]));
}

function method() {
    const q = prompts.length && prompts[0].prompt_in_one_call.quality;
    return [el("p", {}, `${o.said.method}. A decode step reads ${bytes(o.weight_bytes)} of weights; memory was read at ` +
            `${(o.read_bandwidth / 1e9).toFixed(1)} GB/s in the same run. “× floor” compares decoding with reading the weights and the rows once at ` +
            "that rate: 1.00 would be as fast as memory allows."),
        el("p", {}, `Memory is what a cache has in use or set aside. The text is ${o.text || "what the model writes by sampling at temperature 1"}.` +
            (q ? ` Quality: after the prompt, ${q.positions} more tokens of the text are fed one by one. “Same token” counts where the most likely next ` +
                "token is that of the dynamic cache; KLD is the mean divergence of the two distributions, in nats; “identical” means that all " +
                "logits have the same bits." : "") +
            (o.strategies.length > 1 && o.window ? ` Windows keep ${o.window} tokens, sinks included; quality shows what the forgotten text was worth.` : ""))];
}

function page() {
    const out = [el("h1", {}, o.said.headline.replace(/(\d) (?=[KMG]iB|%)/g, "$1\u00a0")), o.said.lead ? el("p", {}, o.said.lead) : null, el("p", {class: "soft"}, o.said.method + "."),
        o.said.warning ? el("p", {class: "warning"}, o.said.warning) : null];
    if (prompts.length) {
        const button = el("button", {type: "button"}, "Save this chart as SVG");
        button.addEventListener("click", () => save(bars(chart(), 800), "kvik-caches.svg"));
        out.push(el("figure", {class: "chart"}, drawn((width) => bars(chart(), width)), button));
    }
    out.push(el("h2", {}, "All strategies"), overview(), el("h2", {}, "By length"), plots(), el("h2", {}, "At every depth"), depths(),
        el("h2", {}, "Method"), method());
    document.title = "kvik: " + o.said.headline;
    document.getElementById("main").append(...out.flat().filter((n) => n));
    charts.forEach((chart, host) => redraw(host));
}
page();
