"""package.py MODEL [THREADS [RUNS]] - decodes with the command and with the Python package in turn, for every strategy.

Prints the medians of both in tokens a second, the medians of the ratios of each round, and the bytes of the cache, which are equal.  Each run is a
process of its own, and the package's store has room for one sequence, as the command's.  make bench calls it where a Python with
numpy is at hand.
"""
import json
import os
import statistics
import subprocess
import sys

PROMPT, NEW = "The history of the lighthouse begins with", 256
STRATEGIES = {
    "dynamic": {}, "static": {}, "offloaded": {}, "offloaded_static": {}, "quantized": {"backend": "quanto", "nbits": 4},
    "sliding_window": {"sliding_window": 64}, "sink": {"window_length": 64, "num_sink_tokens": 4},
}
PACKAGE = """
import json, sys
import kvik
model, threads, strategy, config, prompt, new = sys.argv[1:]
t = kvik.AutoTokenizer.from_pretrained(model)
m = kvik.AutoModelForCausalLM.from_pretrained(model, max_sequences=1)
out = m.generate(**t(prompt, return_tensors="np"), max_new_tokens=int(new), min_new_tokens=int(new), do_sample=False,
                 cache_implementation=strategy, cache_config=json.loads(config) or None, return_dict_in_generate=True)
print(json.dumps([out.stats["steps"] / out.stats["decode_seconds"], out.past_key_values.memory()["bytes"],
                  out.sequences[0].tolist()]))
"""


def command(model, threads, strategy, config):
    out = subprocess.run(
        ["./kvik", "generate", model, PROMPT, "--max-new-tokens", str(NEW), "--min-new-tokens", str(NEW), "--do-sample", "false",
         "--json", "--threads", threads, "--cache-implementation", strategy, "--cache-config", json.dumps(config)],
        check=True, capture_output=True, text=True).stdout
    r = json.loads(out)
    return r["usage"]["steps"] / r["timings"]["decode_seconds"], r["cache"]["bytes"], r["sequences"][0]


def package(model, threads, strategy, config):
    environment = dict(os.environ, KVIK_THREADS=threads, PYTHONPATH="python")
    out = subprocess.run([sys.executable, "-c", PACKAGE, model, threads, strategy, json.dumps(config), PROMPT, str(NEW)],
                         check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(out)


def main():
    model = sys.argv[1]
    threads = sys.argv[2] if len(sys.argv) > 2 else str(os.cpu_count())
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    print(f"{'strategy':<17} command  package  ratio    bytes")
    for strategy, config in STRATEGIES.items():
        rates = [], []
        for _ in range(runs):
            one, two = (f(model, threads, strategy, config) for f in (command, package))
            if two[2][-NEW:] != one[2][-NEW:] or two[1] != one[1]:
                sys.exit(f"{strategy}: the package and the command differ: {two[1]} and {one[1]} bytes")
            rates[0].append(one[0])
            rates[1].append(two[0])
        a, b = map(statistics.median, rates)
        print(f"{strategy:<17} {a:7.1f}  {b:7.1f}  {statistics.median(y / x for x, y in zip(*rates)):.3f}  {one[1]}", flush=True)


main()
