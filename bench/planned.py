#!/usr/bin/env python3
"""planned.py [--forks] MODEL DEPTH [ROUNDS [CACHE...]] - what `kvik plan` predicts beside what bench_depth measures, as a table in Markdown.

CACHE: a name below; all if there is none.  --forks: eight beams of DEPTH tokens, at most 4 000, instead of one sequence.  `kvik plan` runs before and
after the measurement, because the speed of a machine changes; the prediction is the mean of both.  The last column is the share of the processors
that other programs took, of the prediction and of the measurement: where it is large, the figures say nothing.  A long text takes minutes.
"""
import json
import os
import resource
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
STEPS = 12  # tokens that bench_depth decodes behind DEPTH
CACHES = {
    "dynamic": "{}", "static": "static", "offloaded": '{"offloading":true}', "fp8": '{"backend":"fp8"}',
    **{f"kvik {n} bits": '{"backend":"kvik","nbits":%d}' % n for n in (8, 4, 3, 2)},
    "quanto 4 bits": '{"backend":"quanto","nbits":4}',
    "hqq 4 bits": '{"backend":"hqq","nbits":4,"axis_key":1,"axis_value":1}',
}


def output(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def predicted(model, depth, beams, caches):
    """Returns tokens a second by cache, and the share of other programs."""
    found, others = {}, 0
    configs = {CACHES[c]: c for c in caches if CACHES[c][0] == "{"}
    runs = [[x for config in configs for x in ("--cache-config", config)]] if configs else []
    runs += [["--cache-implementation", c] for c in caches if CACHES[c][0] != "{"]
    for options in runs:
        plan = json.loads(output([os.path.join(ROOT, "kvik"), "plan", model, "--json", "--context", str(depth + STEPS), "--decoded", str(STEPS),
                                  "--beams", str(beams), *options]))
        others = max(others, plan["other_programs"] or 0)
        for c in plan["caches"]:
            found[configs.get(c["cache"], c["cache"])] = c["tokens_per_second"]
    return found, others


def busy_seconds():
    """Returns the seconds of all processors that were not idle, and those of programs that this one has started."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(int, f.readline().split()[1:])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def measured(model, depth, beams, rounds, caches):
    names = ["offloaded" if c == "offloaded" else CACHES[c] for c in caches if c != "dynamic"]
    begun, all_before, own_before = time.monotonic(), *busy_seconds()
    out = output([os.path.join(ROOT, "build/release/bench_depth"), model, "0", str(depth), str(rounds), *names])
    took, all_after, own_after = time.monotonic() - begun, *busy_seconds()
    by_config = {**{v: k for k, v in CACHES.items()}, "native": "dynamic", "offloaded": "offloaded"}
    found = {}
    for line in out.splitlines():
        name, what, median, _ = line.removeprefix("depth,").rsplit(",", 3)
        if what == ("decode at depth" if beams == 1 else f"{beams} forks"):
            found[by_config[name]] = float(median)
    return found, ((all_after - all_before) - (own_after - own_before)) / took / os.cpu_count()


def main():
    forks = sys.argv[1:2] == ["--forks"]
    model, depth, *rest = sys.argv[1 + forks:]
    beams = 8 if forks else 1
    depth, rounds, caches = int(depth), int(rest[0]) if rest else 5, rest[1:] or list(CACHES)
    before, busy_before = predicted(model, depth, beams, caches)
    found, busy = measured(model, depth, beams, rounds, caches)
    after, busy_after = predicted(model, depth, beams, caches)
    print(f"| cache | behind | predicted | measured | predicted / measured | other programs |\n|{'---|' * 6}")
    for c in caches:
        guess = (before[c] + after[c]) / 2
        print(f"| {c} | {depth} | {guess:.0f} ({before[c]:.0f}, {after[c]:.0f}) | {found[c]:.0f} | {guess / found[c]:.2f} | "
              f"{max(busy_before, busy_after):.0%}, {busy:.0%} |")


if __name__ == "__main__":
    main()
