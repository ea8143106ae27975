#!/usr/bin/env python3
"""guide-report.py FILE... - writes docs/caches.svg, docs/growth.svg and the tables between the markers of README.md, docs/GUIDE.md and
docs/COMPARISON.md, for scripts/report.sh.

Each FILE is what `kvik bench MODEL --caches --depths 0,512,1024,2048 --json` has printed; of several, speeds are medians.  The
measurements go to bench/results/caches.json.  Speeds that scatter are refused, and nothing is written.  Without a FILE the pages and the pictures are made anew from those.
"""
import json
import os
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEPT = os.path.join(ROOT, "bench", "results", "caches.json")
# Lines of the picture: strategy, colour on white, colour on black.
LINES = [("dynamic", "#0b6fb8", "#4aa3e8"), ("static", "#59636e", "#9198a1"), ("offloaded", "#8250df", "#b794f6"),
         ("quanto 4 bits", "#b3590a", "#f0883e"), ("window of 512", "#116329", "#56d364"),
         ("4 sinks, window of 508", "#a40e26", "#ff7b72")]
MIB = 2**20


def gather(paths):
    """Returns the measurements of several runs as one: medians of speeds, and the bytes, which are the same in all."""
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            runs.append(json.load(f))
    doubtful = [f"{path}: {s['strategy']} at {d['depth']}" for path, r in zip(paths, runs) for s in r["strategies"]
                for d in s.get("depths", []) if "scatters" in d.get("marks", [])]
    doubtful += [f"{path}: {s['strategy']}: {s['refused']}" for path, r in zip(paths, runs) for s in r["strategies"] if "refused" in s]
    if doubtful:
        sys.exit("guide-report: these speeds scatter or are missing, and no page shows them; measure again on a quiet machine:\n"
                 + "\n".join(doubtful))
    out = {k: runs[0][k] for k in ("model", "cpu", "threads", "date", "kvik")}
    out["runs"] = sum(min(s.get("runs", r["runs"]) for s in r["strategies"]) for r in runs)
    out["in_turn"] = all(r.get("in_turn") for r in runs)
    out["strategies"] = []
    for i, s in enumerate(runs[0]["strategies"]):
        rows = [r["strategies"][i]["depths"] for r in runs]
        prompt = {k: s["prompt_in_one_call"][k] for k in ("tokens", "peak_bytes", "memory_bytes", "disk_bytes", "quality")}
        out["strategies"].append({"strategy": s["strategy"], "memory": s["memory"], "prompt": prompt, "depths": [
            {"depth": d["depth"], "tokens_per_second": round(statistics.median(
                row[k]["decode_tokens_per_second"] for row in rows), 1)} for k, d in enumerate(s["depths"])]})
    return out


def memory_at(s, tokens):
    """Returns the bytes in memory after so many tokens: those of the last sample up to there."""
    return [b for n, b in s["memory"] if n <= max(tokens, s["memory"][0][0])][-1]


def method(o):
    """Returns how the speeds were measured."""
    return f"medians of {o['runs']} runs" + (", in turn with dynamic" if o.get("in_turn") else "")


def summary(o):
    """Returns the table of the README."""
    base = o["strategies"][0]["depths"][-1]["tokens_per_second"]
    lines = [f"| {o['strategies'][0]['prompt']['tokens']} tokens | in memory | peak | tokens/s | of dynamic | same next token |", "|---" * 6 + "|"]
    for s in o["strategies"]:
        p, rate = s["prompt"], s["depths"][-1]["tokens_per_second"]
        q, disk = p["quality"], f", {p['disk_bytes'] / MIB:.1f} MiB on disk" if p["disk_bytes"] else ""
        same = "-" if s is o["strategies"][0] else "identical" if q["identical"] else f"{q['same_token']} of {q['positions']}"
        lines.append(f"| {s['strategy']} | {p['memory_bytes'] / MIB:.1f} MiB{disk} | {p['peak_bytes'] / MIB:.1f} MiB | {rate:.0f} "
                     f"| {rate / base:.2f} | {same} |")
    lines += ["", f"{o['model']}, {o['threads']} threads of {o['cpu']}, {o['date']}, kvik {o['kvik']}; {method(o)}."]
    return "\n".join(lines)


def table(o):
    """Returns the table of the guide."""
    depths = [d["depth"] for d in o["strategies"][0]["depths"]]
    later = [d for d in depths if d]
    lines = ["| a conversation in pieces | " + " | ".join(f"MiB at {d}" for d in later) + " | "
             + " | ".join(f"tokens/s at {d}" for d in depths) + " |", "|---" * (1 + len(later) + len(depths)) + "|"]
    for s in o["strategies"]:
        lines.append(f"| {s['strategy']} | " + " | ".join(f"{memory_at(s, d) / MIB:.1f}" for d in later) + " | "
                     + " | ".join(f"{d['tokens_per_second']:.0f}" for d in s["depths"]) + " |")
    lines += ["", f"{o['model']}, {o['threads']} threads of {o['cpu']}, {o['date']}, kvik {o['kvik']}; {method(o)}."]
    return "\n".join(lines)


# The guide's columns, as **guide → kvik**: the name of the measurements, the guide's words for memory, initialization, speed and
# long contexts, and kvik's for initialization and long contexts.
SAYS = [("Dynamic", "dynamic", "no", "no", "mid", "no", "no", "up to the budget, then from disk (`on_full=\"offload\"`)"),
        ("Static", "static", "no", "yes", "high", "no", "no", "up to `max_cache_len`"),
        ("Offloaded", "offloaded", "yes", "no", "low", "yes", "no", "yes"),
        ("Offloaded static", "offloaded static", "no", "yes", "high", "yes", "no", "yes"),
        ("Quantized (quanto, 4 bits)", "quanto 4 bits", "yes", "no", "low", "yes", "no", "yes"),
        ("Sliding window (512)", "window of 512", "no", "yes", "high", "no", "no", "yes, memory does not grow"),
        ("Sink (4 and 508)", "4 sinks, window of 508", "yes", "yes", "mid", "yes", "no, the name is `sink`", "yes, without an end")]


def comparison(o):
    """Returns the first table of the comparison."""
    by = {s["strategy"]: s for s in o["strategies"]}
    base = by["dynamic"]["depths"][-1]["tokens_per_second"]
    lines = ["| cache | memory efficient | initialization recommended | speed | long contexts | logits |", "|---|---|---|---|---|---|"]
    for title, name, memory, made, speed, long, made_here, long_here in SAYS:
        p, rate = by[name]["prompt"], by[name]["depths"][-1]["tokens_per_second"]
        held = f"{p['memory_bytes'] / MIB:.1f} MiB"
        if p["disk_bytes"]:
            held += f", {p['disk_bytes'] / MIB:.1f} on disk"
        if p["peak_bytes"] > p["memory_bytes"]:
            held += f", peak {p['peak_bytes'] / MIB:.1f}"
        q = p["quality"]
        same = "identical" if q["identical"] else f"{q['same_token']} of {q['positions']} next tokens, mean KLD {q['kld']:.2g}"
        lines.append(f"| {title} | {memory} → {held} | {made} → {made_here} | {speed} → {rate:.0f} tokens/s ({rate / base:.2f}) "
                     f"| {long} → {long_here} | {same} |")
    lines += ["", f"Memory after a prompt of {by['dynamic']['prompt']['tokens']} tokens in one call, speed with as many tokens cached (and as a share of "
              f"dynamic). {o['model']}, {o['threads']} threads of {o['cpu']}, {o['date']}, kvik {o['kvik']}; speeds are {method(o)}."]
    return "\n".join(lines)


def line(points, box, most_x, most_y, css):
    """Returns a polyline in a box (x, y, width, height)."""
    x, y, w, h = box
    at = " ".join(f"{x + w * a / most_x:.1f},{y + h - h * b / most_y:.1f}" for a, b in points)
    return f'<polyline points="{at}" class="{css}"/>'


def axes(box, most_x, most_y, step_y, title, unit):
    """Returns the frame of a plot."""
    x, y, w, h = box
    out = [f'<text x="{x}" y="{y - 26}" class="ink" font-weight="600">{title}</text>',
           f'<text x="{x}" y="{y - 10}" class="soft" font-size="12">{unit}</text>']
    for v in range(0, int(most_y) + 1, step_y):
        at = y + h - h * v / most_y
        out.append(f'<line x1="{x}" x2="{x + w}" y1="{at:.1f}" y2="{at:.1f}" class="rule"/>'
                   f'<text x="{x - 6}" y="{at + 4:.1f}" class="soft" font-size="12" text-anchor="end">{v}</text>')
    for v in range(0, most_x + 1, 512):
        out.append(f'<text x="{x + w * v / most_x:.1f}" y="{y + h + 18}" class="soft" font-size="12" text-anchor="middle">{v}</text>')
    return out


def picture(o):
    """Returns the picture: memory and speed by the length of the text."""
    by = {s["strategy"]: s for s in o["strategies"]}
    left, right = (48, 96, 330, 220), (444, 96, 330, 220)
    fast = max(d["tokens_per_second"] for s in o["strategies"] for d in s["depths"])
    most = 50 * (int(fast) // 50 + 1)
    css = "".join(f".l{i}{{stroke:{a}}}.t{i}{{fill:{a}}}" for i, (_, a, _) in enumerate(LINES))
    dark = "".join(f".l{i}{{stroke:{b}}}.t{i}{{fill:{b}}}" for i, (_, _, b) in enumerate(LINES))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 414" role="img" '
           "style=\"font:14px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif\">",
           "<style>.paper{fill:#fff;stroke:#d1d9e0}.ink{fill:#1f2328}.soft{fill:#59636e}.rule{stroke:#d1d9e0}"
           f"polyline{{fill:none;stroke-width:2.2}}{css}"
           "@media (prefers-color-scheme:dark){.paper{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.soft{fill:#9198a1}"
           f".rule{{stroke:#3d444d}}{dark}}}</style>",
           "<title>Windows and sinks stop growing, quantized caches grow slowly, offloaded ones stop in memory</title>",
           '<rect x="0.5" y="0.5" width="799" height="413" rx="6" class="paper"/>',
           '<text x="16" y="34" class="ink" font-size="17" font-weight="600">What grows with the text, and what does not</text>']
    out += axes(left, 2048, 50, 10, "Memory of the cache, MiB", "by tokens in the cache")
    out += axes(right, 2048, most, 50, "Decoding, tokens/s", "by tokens in the cache")
    for i, (name, _, _) in enumerate(LINES):
        s = by[name]
        points = [(n, b / MIB) for n, b in s["memory"] if n <= 2048]
        out.append(line(points, left, 2048, 50, f"l{i}"))
        out.append(line([(d["depth"], d["tokens_per_second"]) for d in s["depths"]], right, 2048, most, f"l{i}"))
        column, row = i % 3, i // 3
        out.append(f'<text x="{48 + 250 * column}" y="{362 + 22 * row}" class="t{i}" font-weight="600">— {name}</text>')
    out.append(f'<text x="16" y="406" class="soft" font-size="11.5">{o["model"]}, {o["threads"]} threads of {o["cpu"]}, {o["date"]}, '
               f'kvik {o["kvik"]}; {method(o)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


BAR = 17  # height of a bar


def text(x, y, words, css="ink", more=""):
    """Returns a text of a picture."""
    words = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{css}"{more}>{words}</text>'


def bars(o):
    """Returns the picture of all strategies: bars of memory and of speed, and the quality as text."""
    rows, base, right = o["strategies"], o["strategies"][0], ' text-anchor="end"'
    rate = {s["strategy"]: s["depths"][-1]["tokens_per_second"] for s in rows}
    most = max(max(s["prompt"]["peak_bytes"], s["prompt"]["memory_bytes"] + s["prompt"]["disk_bytes"]) for s in rows) / MIB
    fast, height = max(rate.values()), 158 + 31 * len(rows)
    # The headline is that of the command: the smallest cache that keeps every token, most of the quality and half of the speed.
    kept = [s for s in rows if not any(w in s["strategy"] for w in ("window", "sinks")) and 2 * rate[s["strategy"]] >= rate["dynamic"]
            and 5 * s["prompt"]["quality"]["same_token"] >= 4 * s["prompt"]["quality"]["positions"]]
    best = min(kept, key=lambda s: s["prompt"]["memory_bytes"])
    found = (f"{base['prompt']['tokens']} tokens in {best['prompt']['memory_bytes'] / MIB:.1f} MiB instead of {base['prompt']['memory_bytes'] / MIB:.1f} MiB, "
             f"at {100 * rate[best['strategy']] / rate['dynamic']:.0f} % of the speed")
    strong, small = ' font-weight="600"', ' font-size="12.5"'
    light = (".paper{fill:#fff;stroke:#d1d9e0}.ink{fill:#1f2328}.soft{fill:#59636e}.mem{fill:#0b6fb8}.disk{fill:none;stroke:#0b6fb8;"
             "stroke-dasharray:3 2}.peak{fill:none;stroke:#0b6fb8;stroke-width:2}.speed{fill:#b3590a}.rule{stroke:#d1d9e0}.lost{fill:#a40e26}")
    dark = (".paper{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.soft{fill:#9198a1}.mem{fill:#4aa3e8}.disk,.peak{stroke:#4aa3e8}"
            ".speed{fill:#f0883e}.rule{stroke:#3d444d}.lost{fill:#ff7b72}")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img" '
           "style=\"font:14px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif\">",
           f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>", f"<title>{found}</title>",
           f'<rect x="0.5" y="0.5" width="799" height="{height - 1}" rx="6" class="paper"/>',
           text(16, 36, found, "ink", ' font-size="19"' + strong), text(200, 74, "Memory of the cache, MiB", "ink", strong),
           text(200, 92, "bar: after the prompt; line: peak", "soft", small), text(486, 74, "Decoding, tokens/s", "ink", strong),
           text(486, 92, "share of dynamic", "soft", small), text(784, 74, "Same next token", "ink", strong + right),
           text(784, 92, "as dynamic", "soft", small + right), '<line x1="16" x2="784" y1="104" y2="104" class="rule"/>']
    for i, s in enumerate(rows):
        p, y, speed = s["prompt"], 118 + 31 * i, rate[s["strategy"]]
        q, held, disk, peak = p["quality"], p["memory_bytes"] / MIB, p["disk_bytes"] / MIB, p["peak_bytes"] / MIB
        scale, above = 150 / most, p["peak_bytes"] > 1.05 * p["memory_bytes"]
        same = "reference" if s is base else "identical" if q["identical"] else f"{q['same_token']} of {q['positions']}"
        out += [text(16, y + 13, s["strategy"], "ink", strong if s is base else ""),
                text(784, y + 13, same, "lost" if 5 * q["same_token"] < 4 * q["positions"] else "ink", right),
                f'<rect x="200" y="{y}" width="{held * scale:.1f}" height="{BAR}" class="mem"/>']
        words = f"{held:.1f}" if held < 10 else f"{held:.0f}"
        if disk:
            out.append(f'<rect x="{200 + held * scale:.1f}" y="{y}.5" width="{disk * scale:.1f}" height="{BAR - 1}" class="disk"/>')
            words += f" + {disk:.1f} disk" if disk < 10 else f" + {disk:.0f} disk"
        elif above:
            words += f", peak {peak:.1f}" if peak < 10 else f", peak {peak:.0f}"
        if above:
            out.append(f'<path d="M{200 + held * scale:.1f} {y + 8.5}H{200 + peak * scale:.1f}M{200 + peak * scale:.1f} {y}v{BAR}" class="peak"/>')
        out += [text(206 + max(held + disk, peak) * scale, y + 13, words),
                f'<rect x="486" y="{y}" width="{90 * speed / fast:.1f}" height="{BAR}" class="speed"/>',
                text(492 + 90 * speed / fast, y + 13, f"{speed:.0f}" + ("" if s is base else f" ({100 * speed / rate['dynamic']:.0f} %)"))]
    out += [text(16, height - 20, f"{o['model']}, {o['threads']} threads of {o['cpu']}, {o['date']}, kvik {o['kvik']}; {method(o)}", "soft", small), "</svg>"]
    return "\n".join(out) + "\n"


def replace(path, marker, new):
    """Puts text between the markers <!-- marker --> and <!-- /marker --> of a page."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin, end = text.index(f"<!-- {marker} -->") + len(f"<!-- {marker} -->"), text.index(f"<!-- /{marker} -->")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text[:begin] + "\n\n" + new + "\n\n" + text[end:])


def main():
    """Writes the files."""
    if sys.argv[1:]:
        gathered = gather(sys.argv[1:])
        with open(KEPT, "w", encoding="utf-8") as f:
            json.dump(gathered, f, indent=1)
            f.write("\n")
    with open(KEPT, encoding="utf-8") as f:
        measured = json.load(f)
    for name, drawing in (("caches.svg", bars(measured)), ("growth.svg", picture(measured))):
        with open(os.path.join(ROOT, "docs", name), "w", encoding="utf-8") as f:
            f.write(drawing)
    for page, marker, text in (("README.md", "caches", summary(measured)), ("docs/GUIDE.md", "growth", table(measured)),
                               ("docs/COMPARISON.md", "measured", comparison(measured))):
        replace(os.path.join(ROOT, page), marker, text)


if __name__ == "__main__":
    main()
