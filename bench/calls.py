"""calls.py [MODEL [PAIRS]] - how much slower generate() of the Python package is than kvik generate.

Runs each in a process of its own, in turn and each first in every second pair: 64 tokens of a prompt of 128, greedily, two threads.
Seconds are those of a generation: the command tells its own, Python those of the call, with its arguments, results and callbacks.
Processor time is what 64 tokens take more than 2 do, so that loading is in neither.  Prints medians, and the median of the ratios.
"""
import json
import os
import resource
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT = [504 + i * 37 % 900 for i in range(128)]
CALL = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import kvik
m, ids = kvik.AutoModelForCausalLM.from_pretrained(sys.argv[2], threads=2, no_prefix_cache=True), np.array([eval(sys.argv[3])])
spent = []
for n in (2, 64):
    begin, busy = time.perf_counter(), time.process_time()
    m.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False)
    seconds = time.perf_counter() - begin
    spent.append(time.process_time() - busy)
print(seconds, spent[1] - spent[0])
"""


def python(model):
    """Returns the seconds of a generation in Python, and its processor time."""
    out = subprocess.run([sys.executable, "-c", CALL, os.path.join(ROOT, "python"), model, repr(PROMPT)], capture_output=True, text=True,
                         check=True).stdout.split()
    return float(out[0]), float(out[1])


def command(model):
    """Returns those of the command."""
    busy = []
    for n in ("2", "64"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = json.loads(subprocess.run([os.path.join(ROOT, "kvik"), "generate", model, "--input-ids", ",".join(map(str, PROMPT)), "--threads", "2",
                                         "--max-new-tokens", n, "--min-new-tokens", n, "--json"], capture_output=True, check=True).stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return out["timings"]["prefill_seconds"] + out["timings"]["decode_seconds"], busy[1] - busy[0]


def main():
    model = sys.argv[1] if sys.argv[1:] else os.environ["KVIK_TEST_MODEL"]
    pairs, sides = int(sys.argv[2]) if sys.argv[2:] else 12, (command, python)
    found = {side: [] for side in sides}
    for side in sides:
        side(model)  # the files are in memory then
    for pair in range(pairs):
        for side in sides if pair % 2 else sides[::-1]:
            found[side].append(side(model))
    for which, name in enumerate(("seconds", "processor seconds")):
        theirs, ours = ([one[which] for one in found[side]] for side in sides)
        ratios = sorted(b / a for a, b in zip(theirs, ours))
        print(f"{name}: command {statistics.median(theirs):.3f}, python {statistics.median(ours):.3f}; ratio of a pair: median "
              f"{statistics.median(ratios):.3f}, quartiles {ratios[pairs // 4]:.3f} to {ratios[-1 - pairs // 4]:.3f}; {pairs} pairs")


if __name__ == "__main__":
    main()
