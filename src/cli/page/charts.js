// charts.js - tables, bar charts and plots of lines for the pages of kvik.  Texts enter a page as text nodes only, so a name
// that holds markup stays text.  Charts are SVG of the width that they have, and are drawn again when that changes.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children.flat().filter((c) => c !== null && c !== undefined));
    return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const label = (x, y, css, text, anchor) => svg("text", {x, y, class: css, "text-anchor": anchor || "start"}, text);

// The width of a text in the charts' font, in pixels, measured so that bars leave the room that it needs.
const ruler = document.createElement("canvas").getContext("2d");
function wide(text, font) {
    ruler.font = font || "600 14px system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
    return ruler.measureText(text).width;
}

// Returns an element whose chart redraw() draws, when the element has a place in the page, and again whenever its width changes.
const charts = new Map();
function redraw(host) {
    const chart = charts.get(host), width = Math.floor(host.clientWidth);
    if (width === chart.width || width < 1) return;
    chart.width = width;
    host.replaceChildren(...[chart.draw(width)].flat());
}
const resized = new ResizeObserver((seen) => seen.forEach((s) => redraw(s.target)));
function drawn(draw) {
    const host = el("div");
    charts.set(host, {draw, width: 0});
    resized.observe(host);
    return host;
}

// A table with a caption.  head: texts; rows: arrays of texts, nodes or {text, more, lost, why}; a row of one text is the name of
// the rows behind it.
function table(caption, head, rows) {
    const body = rows.map((row) => el("tr", row.length === 1 ? {class: "group"} : {}, row.map((cell, i) => {
        const first = i === 0, c = typeof cell === "object" && !(cell instanceof Node) ? cell : {text: cell};
        const span = row.length === 1 ? head.length : c.why ? head.length - i : 1;
        const attributes = {class: c.why ? "why" : c.lost ? "lost" : ""};
        if (span > 1) attributes.colspan = span;
        if (first) attributes.scope = row.length === 1 ? "colgroup" : "row";
        return el(first ? "th" : "td", attributes, c.text,
            (c.more || []).map((m) => el("span", {class: m.lost ? "more lost" : "more"}, m.text || m)));
    })));
    return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
        el("table", {}, el("caption", {}, caption),
            el("thead", {}, el("tr", {}, head.map((h) => el("th", {scope: "col"}, h)))), el("tbody", {}, body)));
}

// The bar of one value: {full, rest, mark, text, lost}.  full is solid, rest behind it an outline, mark a line with an end.
function bar(v, k, x, y, scale) {
    const full = Math.max(v.full * scale, 1), rest = (v.rest || 0) * scale, mark = (v.mark || 0) * scale, end = Math.max(full + rest, mark);
    return [svg("rect", {x, y, width: full, height: 17, class: "bar" + k}),
        rest ? svg("rect", {x: x + full, y: y + .5, width: rest, height: 16, class: "rest" + k}) : null,
        mark > full ? svg("path", {d: `M${x + full} ${y + 8.5}H${x + mark}M${x + mark} ${y}v17`, class: "mark" + k}) : null,
        label(x + end + 6, y + 13, v.lost ? "lost" : "", v.text)];
}

// A bar chart.  chart: title (for screen readers); columns [{title, note, short}]; last {title, note}; rows [{name, strong, values, last,
// lost}] with one value for each column.  From `NARROW` pixels down, each bar has a line of its own.
const NARROW = 640;
function bars(chart, width) {
    const narrow = width < NARROW, n = chart.columns.length;
    const most = chart.columns.map((c, k) => Math.max(1e-9, ...chart.rows.map((r) => Math.max(r.values[k].full + (r.values[k].rest || 0), r.values[k].mark || 0))));
    const text = chart.columns.map((c, k) => Math.max(...chart.rows.map((r) => wide(r.values[k].text))) + 12);
    const names = narrow ? 0 : Math.max(...chart.rows.map((r) => wide(r.name))) + 24;
    const last = narrow ? 0 : Math.max(wide(chart.last.title), ...chart.rows.map((r) => wide(r.last))) + 24;
    const room = chart.columns.map((c, k) => narrow ? width - text[k] : Math.max(40, (width - names - last - text.reduce((a, b) => a + b)) / n - 12));
    const at = chart.columns.map((c, k) => narrow ? 0 : names + room.slice(0, k).reduce((a, b) => a + b, 0) + text.slice(0, k).reduce((a, b) => a + b, 0) + 12 * k);
    const top = narrow ? 28 + 22 * n + 14 : 62, step = narrow ? 28 + 22 * n + 8 : 31, height = top + step * chart.rows.length;
    const out = [svg("title", {}, chart.title)];
    if (narrow) {
        out.push(label(0, 16, "strong", chart.first), label(width, 16, "strong", chart.last.title + " " + chart.last.note, "end"));
        chart.columns.forEach((c, k) => out.push(svg("rect", {x: 0, y: 28 + 22 * k, width: 12, height: 12, class: "bar" + k}),
            label(18, 39 + 22 * k, "soft", c.short)));
    } else {
        chart.columns.forEach((c, k) => out.push(label(at[k], 18, "strong", c.title), label(at[k], 36, "soft", c.note)));
        out.push(label(0, 18, "strong", chart.first), label(width, 18, "strong", chart.last.title, "end"), label(width, 36, "soft", chart.last.note, "end"));
    }
    out.push(svg("line", {x1: 0, x2: width, y1: top - 14, y2: top - 14, class: "rule"}));
    chart.rows.forEach((r, i) => {
        const y = top + step * i;
        out.push(label(0, y + 13, r.strong ? "strong" : "", r.name), label(width, y + 13, r.lost ? "lost" : "", r.last, "end"));
        r.values.forEach((v, k) => out.push(...bar(v, k, at[k], narrow ? y + 22 * (k + 1) : y, room[k] / most[k])));
    });
    return svg("svg", {role: "img", "aria-label": chart.title, width, height, viewBox: `0 0 ${width} ${height}`}, out);
}

// The length of an axis and its steps: at most six, of 1, 2 or 5 times a power of ten.
function axis(most) {
    const p = most > 0 ? 10 ** (Math.floor(Math.log10(most)) - 1) : .1;
    const step = [1, 2, 5, 10, 20].map((k) => k * p).find((s) => s * 6 >= most) || 20 * p;
    return {step, end: step * Math.max(1, Math.ceil(most / step - 1e-9))};
}

// How many earlier lines each line is drawn beside: lines that are nearer than APART pixels over a piece would hide each other.
const APART = 3;
function ranks(lines, pixels) {
    const near = (a, b) => {
        let run = 0;
        const n = Math.min(a.points.length, b.points.length);
        for (let k = 0; k < n; k++) {
            run = Math.abs(a.points[k][1] - b.points[k][1]) * pixels < APART ? run + 1 : 0;
            if (run > 1 || (run && n === 1)) return true;
        }
        return false;
    };
    const rank = [];
    lines.forEach((line, i) => {
        const taken = new Set(rank.filter((r, j) => near(line, lines[j])));
        let r = 0;
        while (taken.has(r)) r++;
        rank.push(r);
    });
    return rank;
}

// Heights of the names at the ends of lines: near `y`, at least `apart` from each other, between top and bottom.
function spread(y, apart, top, bottom) {
    const order = y.map((v, i) => i).sort((a, b) => y[a] - y[b]), at = y.slice();
    let least = top, most = bottom;
    for (const i of order) at[i] = Math.max(at[i], least), least = at[i] + apart;
    for (const i of order.reverse()) at[i] = Math.min(at[i], most), most = at[i] - apart;
    return at;
}

const DASHES = ["none", "7 4", "2 3", "9 3 2 3"];
const look = (i) => ({style: `--c: var(--c${i % 8})`, dash: DASHES[(i + Math.floor(i / 8)) % DASHES.length]});

// A plot of lines.  plot: title; x and y, what the axes show with their units; lines [{name, points [[x, y]]}].  Each line has its
// name at its end, and in a narrow plot a number whose name stands below.  Lines differ by colour and by dashes.
function lines(plot, width) {
    const narrow = width < 420, names = plot.lines.map((l, i) => narrow ? String(i + 1) : l.name);
    const left = 54, right = Math.max(...names.map((t) => wide(t, "13px system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"))) + 34;
    const top = 32, height = narrow ? 300 : 350, bottom = height - 44;
    const X = axis(Math.max(...plot.lines.flatMap((l) => l.points.map((p) => p[0])))), Y = axis(Math.max(...plot.lines.flatMap((l) => l.points.map((p) => p[1]))));
    const x = (v) => left + v / X.end * (width - left - right), y = (v) => bottom - v / Y.end * (bottom - top);
    const rank = ranks(plot.lines, (bottom - top) / Y.end), ends = plot.lines.map((l, i) => y(l.points.at(-1)[1]) - APART * rank[i]);
    const at = spread(ends, narrow ? 14 : 16, top, bottom), out = [svg("title", {}, plot.title), label(0, 14, "soft", plot.y)];
    const figure = (v) => String(Number(v.toPrecision(6)));
    for (let v = 0; v <= Y.end * 1.001; v += Y.step)
        out.push(svg("line", {x1: left, x2: width - right, y1: y(v), y2: y(v), class: "rule"}), label(left - 8, y(v) + 5, "soft", figure(v), "end"));
    const skip = Math.ceil((wide(figure(X.end)) + 8) / (X.step / X.end * (width - left - right)));
    for (let v = 0, k = 0; v <= X.end * 1.001; v += X.step, k++)
        if (k % skip === 0) out.push(label(x(v), bottom + 20, "soft", figure(v), "middle"));
    out.push(label((left + width - right) / 2, height - 4, "soft", plot.x, "middle"));
    plot.lines.forEach((l, i) => {
        const end = l.points.at(-1), {style, dash} = look(i);
        out.push(svg("g", {style},
            svg("polyline", {class: "line", "stroke-dasharray": dash, points: l.points.map((p) => `${x(p[0])},${y(p[1]) - APART * rank[i]}`).join(" ")}),
            svg("circle", {class: "dot", cx: x(end[0]), cy: ends[i], r: 3.2}),
            svg("line", {class: "lead", x1: x(end[0]) + 4, x2: width - right + 22, y1: ends[i], y2: at[i]}),
            label(width - right + 26, at[i] + 5, "name", names[i])));
    });
    const picture = svg("svg", {role: "img", "aria-label": plot.title, width, height, viewBox: `0 0 ${width} ${height}`}, out);
    if (!narrow) return picture;
    return [picture, el("ol", {class: "key"}, plot.lines.map((l, i) => el("li", {},
        svg("svg", {width: 28, height: 8, "aria-hidden": "true"}, svg("line", {class: "line", x1: 0, x2: 28, y1: 4, y2: 4, style: look(i).style, "stroke-dasharray": look(i).dash})),
        `${i + 1} ${l.name}`)))];
}

// Saves a chart as a file of its own: the style of the page goes with it.
function save(chart, name) {
    const paper = svg("rect", {width: "100%", height: "100%", fill: "var(--paper)"});
    chart.setAttribute("xmlns", SVG);
    chart.prepend(svg("style", {}, document.querySelector("style").textContent), paper);
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(chart)], {type: "image/svg+xml"}));
    el("a", {href: url, download: name}).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}
