"""package.py MODEL [THREADS [RUNS [STRATEGY...]]] - decodes with the command and with the Python package, for every strategy or for
those that are named.

Both run at the same time, in turns of 30 ms, while the other is stopped: the memory of a shared machine is faster in one second than
in the next, and so both meet the same seconds.  Two runs one after the other differ by 10 % and more, whatever they run.
Prints the medians of tokens a second without the time for which each was stopped, the median of the ratios of the runs, and the bytes
of the cache, which are equal.  The package's store has room for one sequence, as the command's.  make bench calls it where a Python with
numpy is at hand.
"""
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import steady

PROMPT, NEW, TURN = "The history of the lighthouse begins with", 512, 0.03
STRATEGIES = {
    "dynamic": {}, "static": {}, "offloaded": {}, "offloaded_static": {}, "quantized": {"backend": "quanto", "nbits": 4},
    "sliding_window": {"sliding_window": 64}, "sink": {"window_length": 64, "num_sink_tokens": 4},
}
PACKAGE = """
import json, sys, time
import kvik
model, strategy, config, prompt, new = sys.argv[1:]
t = kvik.AutoTokenizer.from_pretrained(model)
m = kvik.AutoModelForCausalLM.from_pretrained(model, max_sequences=1)
print("ready", file=sys.stderr, flush=True)
out = m.generate(**t(prompt, return_tensors="np"), max_new_tokens=int(new), min_new_tokens=int(new), do_sample=False,
                 cache_implementation=strategy, cache_config=json.loads(config) or None, return_dict_in_generate=True)
end = time.monotonic()
print(json.dumps([out.stats["steps"], out.stats["decode_seconds"], out.past_key_values.memory()["bytes"],
                  out.sequences[0].tolist()[-int(new):], end]))
"""


class Run:
    """A process that is stopped most of the time."""

    def __init__(self, command, **environment):
        self.said, self.stops, self.ended = tempfile.TemporaryFile("w+"), [], None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.said, env=dict(os.environ, **environment))

    def turn(self, seconds):
        """Lets it run; false when it prints what it has measured, or ends."""
        if self.stops:
            self.stops[-1][1] = time.monotonic()
        self.process.send_signal(signal.SIGCONT)
        if select.select([self.process.stdout], [], [], seconds)[0]:
            self.ended = time.monotonic()
            return False
        if seconds:
            self.process.send_signal(signal.SIGSTOP)
            self.stops.append([time.monotonic(), None])
        return True

    def result(self):
        """Waits for its end, and returns what it printed."""
        if self.ended is None:
            self.turn(None)
        out = self.process.stdout.read()
        if self.process.wait():
            self.said.seek(0)
            sys.exit(f"{self.process.args[0]}: {self.said.read()}")
        return json.loads(out)

    def close(self):
        """Ends it, also where it is stopped: nobody else would wake it."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.said.close()

    def stopped(self, begin, end):
        """The seconds between two times in which it was stopped."""
        return sum(max(0, min(end, b) - max(begin, a)) for a, b in self.stops)


def compare(model, threads, strategy, config):
    options = ["--max-new-tokens", str(NEW), "--min-new-tokens", str(NEW), "--do-sample", "false", "--json", "--threads", threads,
               "--cache-implementation", strategy, "--cache-config", json.dumps(config)]
    begun = []
    try:
        two = Run([sys.executable, "-c", PACKAGE, model, strategy, json.dumps(config), PROMPT, str(NEW)], KVIK_THREADS=threads,
                  PYTHONPATH="python")
        begun.append(two)
        while os.fstat(two.said.fileno()).st_size == 0 and two.turn(0.01):  # Python takes longer to begin
            pass
        one = Run(["./kvik", "generate", model, PROMPT, *options])
        begun.append(one)
        runs = one, two
        while all(r.turn(TURN) for r in runs):
            time.sleep(TURN / 6)  # Linux takes 5 % of each second from programs of the real-time class, from one of the two
        r = one.result()
        found = [[r["usage"]["steps"], r["timings"]["decode_seconds"], r["cache"]["bytes"], r["sequences"][0][-NEW:], one.ended],
                 two.result()]
    finally:
        for run in begun:
            run.close()
    if found[0][2:4] != found[1][2:4]:
        sys.exit(f"{strategy}: the package and the command differ: {found[1][2]} and {found[0][2]} bytes")
    rates = [steps / (seconds - run.stopped(end - seconds, end)) for run, (steps, seconds, _, _, end) in zip(runs, found)]
    return (*rates, r["cache"]["bytes"])


def main():
    model = sys.argv[1]
    threads = sys.argv[2] if len(sys.argv) > 2 else str(os.cpu_count())
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    print(f"{'strategy':<17} command  package  ratio    bytes")
    for strategy in sys.argv[4:] or STRATEGIES:
        found = [compare(model, threads, strategy, STRATEGIES[strategy]) for _ in range(runs)]
        a, b, ratio = map(statistics.median, zip(*((a, b, b / a) for a, b, _ in found)))
        print(f"{strategy:<17} {a:7.1f}  {b:7.1f}  {ratio:.3f}  {found[0][2]}{steady.mark(b / a for a, b, _ in found)}", flush=True)


if __name__ == "__main__":
    main()
