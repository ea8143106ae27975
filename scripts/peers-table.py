#!/usr/bin/env python3
"""Prints the table of scripts/bench-peers.sh and appends its figures to a CSV.

    peers-table.py STATE LOGITS CSV MODEL THREADS [PROGRAM=NAME...]

STATE has lines run,program,rows,what,tokens a second.  LOGITS-program-rows are their logits
as float32, [COUNTED of bench/plan.h][vocab]; those of kvik's exact computation are what the others are compared with.
"""

import array
import datetime
import math
import os
import statistics
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import plan  # noqa: E402
import steady  # noqa: E402


def processor():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0].replace(',', ' ') if names else 'unknown'} {os.cpu_count()} CPUs"


def distributions(path):
    """Returns for each position its most likely token and the logarithms of all probabilities; None if there is no whole file."""
    values = array.array("f")
    try:
        with open(path, "rb") as f:
            values.frombytes(f.read())
    except (OSError, ValueError):
        return None
    vocab, rest = divmod(len(values), plan.COUNTED)
    if rest or not vocab:
        return None
    out = []
    for i in range(plan.COUNTED):
        row = values[i * vocab : (i + 1) * vocab]
        top = max(row)
        norm = top + math.log(sum(math.exp(x - top) for x in row))
        out.append((row.index(top), [x - norm for x in row]))
    return out


def distance(reference, other):
    """Returns the mean KL divergence, and at how many positions the most likely token is the same."""
    total, same = 0.0, 0
    for (token, p), (theirs, q) in zip(reference, other):
        total += sum(math.exp(a) * (a - b) for a, b in zip(p, q))
        same += token == theirs
    return max(total, 0.0) / plan.COUNTED, same


def main():
    state, logits, csv, model, threads, *pairs = sys.argv[1:]
    names = {"kvik": "kvik", "transformers": "Transformers", **dict(p.split("=", 1) for p in pairs)}
    figures, runs = {}, {}
    with open(state) as f:
        for line in f:
            run, program, rows, what, *speed = line.rstrip("\n").split(",")
            if speed:
                figures.setdefault((what, rows, program), {})[run] = float(speed[0])
                runs[run] = True
    if not figures:
        sys.exit("bench-peers: nothing was measured")
    reference, quality = distributions(f"{logits}-kvik-exact"), {}
    for _, rows, program in figures:
        if (program, rows) not in quality:
            found = distributions(f"{logits}-{program}-{rows}")
            quality[program, rows] = distance(reference, found) if reference and found else None

    date, cpu = datetime.date.today().isoformat(), processor()
    print(f"{os.path.basename(model)}, {threads} threads of {cpu}, {date}; medians of {len(runs)} runs in turn")
    print("tokens a second; in brackets kvik's speed as a multiple of it: the median of the ratios of each run; what differs by more\n"
          f"than {100 * steady.MOST_SPREAD:.0f} % from its median scatters, and is compared with nothing")
    programs = list(dict.fromkeys(program for _, _, program in figures))
    for kind in ("f16", "q8_0", "q4_0"):
        columns = [(p, r) for p in programs for r in ((kind, "f32") if kind == "f16" else (kind,)) if any((w, r, p) in figures for w, _, _ in figures)]
        if not columns:
            continue
        print(f"\n| rows in {kind} | " + " | ".join(names.get(p, p) + (", f32" if r == "f32" else "") for p, r in columns) + " |")
        print("|---" * (len(columns) + 1) + "|")
        for what in dict.fromkeys(w for w, _, _ in figures):
            own, cells = figures.get((what, kind, "kvik"), {}), []
            for p, r in columns:
                speeds = figures.get((what, r, p), {})
                cell = f"{statistics.median(speeds.values()):.0f}" if speeds else "-"
                ratios = [own[run] / speed for run, speed in speeds.items() if run in own and speed]
                if p == "kvik" or not ratios:
                    cells.append(cell + (steady.mark(speeds.values()) if speeds else ""))
                else:
                    cells.append(f"{cell} ({statistics.median(ratios):.2f}{steady.mark(ratios)})")
            print(f"| {what} | " + " | ".join(cells) + " |")
        cells = ["not measured" if not quality[c] else f"{quality[c][0]:.1g}, {quality[c][1]} of {plan.COUNTED}" for c in columns]
        print("| KL divergence, same next token | " + " | ".join(cells) + " |")
    print(f"\nThe last line is the quality: how far the {plan.COUNTED} tokens after a prompt of {plan.QUALITY} are from kvik's computation in float32 with\n"
          "an unquantized cache. kvik's rows of 8 bits are those of hqq, its rows of 4 bits those of quanto, which are formats other than\n"
          "q8_0 and q4_0, so compare both lines. Transformers computes in float32.")

    with open(csv, "a") as f:
        for (what, rows, program), speeds in figures.items():
            for speed in speeds.values():
                f.write(f"{date},{cpu},{names.get(program, program)},{rows},{what},tokens a second,{speed:.2f}\n")
        for (program, rows), found in quality.items():
            if found:
                f.write(f"{date},{cpu},{names.get(program, program)},{rows},{plan.COUNTED} tokens after {plan.QUALITY},KL divergence,{found[0]:.3g}\n")


main()
