"""bench/shared.py MODEL [TOKENS [ROUNDS]]: the time to the first token of a prompt in a server that has just started, with a prefix that
another server has put into a Redis, and without it. One after the other, in turn; prints medians as JSON."""
import json
import os
import random
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "serve"))
from harness import Server  # noqa: E402
from redis_server import Redis  # noqa: E402

model, n, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000, int(sys.argv[3]) if len(sys.argv) > 3 else 3
draw = random.Random(5)
prefix = [draw.randrange(1000, 40000) for _ in range(n)]


def first(s, ids):
    """Returns the seconds until the first token, and the tokens that came from the store."""
    t = time.perf_counter()
    for part in s.stream("/v1/completions", {"prompt": ids, "max_tokens": 2, "temperature": 0, "stream": True, "ignore_eos": True}):
        return time.perf_counter() - t, part


def last(s, ids):
    code, o = s.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0})
    return o["kvik"]


redis = Redis()
STORE = f"redis://127.0.0.1:{redis.port}"
a = Server(model, "--prefix-store", STORE)
last(a, prefix)
while redis.values() < n // 128:
    time.sleep(0.05)
a.stop()
with_store, without, came = [], [], []
for i in range(rounds):
    ids = prefix + [draw.randrange(1000, 40000) for _ in range(20)]
    s = Server(model, "--prefix-store", STORE)
    t, _ = first(s, ids)
    with_store.append(t)
    s.stop()
    s = Server(model, "--prefix-store", STORE)
    came.append(last(s, ids)["fetched"])
    s.stop()
    s = Server(model)
    t, _ = first(s, ids)
    without.append(t)
    s.stop()
a, b = statistics.median(with_store), statistics.median(without)
print(json.dumps({"prefix_tokens": n, "fetched_tokens": came, "store_seconds": with_store, "computing_seconds": without,
                  "store_median": round(a, 3), "computing_median": round(b, 3), "ratio": round(a / b, 3)}, indent=1))
redis.stop()
