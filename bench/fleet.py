"""fleet.py --model FILE [--json FILE] [--ways LIST] - three replicas behind routers, on one recorded workload (make bench-fleet).

The workload is bench/fleet.jsonl: the requests of 32 conversations of three turns and of 16 agents with one beginning, in the order
in which they came; six clients take them in that order, each turn behind the answer of the one before.  --record writes it anew.

  round robin   smg (PyPI), which sends requests to the replicas in turn
  smg           its policy cache_aware, which remembers what it has sent where
  nginx         examples/serve/nginx.conf: the header X-Session-Id of a conversation names its replica

Each way has replicas of its own that begin empty.  A figure is of one run: the share of prompt tokens that were reused, as the
answers say it, and the time to the first text.
"""
import argparse
import json
import os
import random
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "serve"))
import gateway  # noqa: E402
from harness import Server  # noqa: E402

WORKLOAD = os.path.join(HERE, "fleet.jsonl")
CLIENTS = 6
WORDS = ("river stone garden winter letter captain window market silver engine forest island morning teacher bridge shadow "
         "harbour machine village thunder kitchen soldier painter valley ocean doctor ladder mirror basket candle").split()


def record():
    """Writes the requests of a workload: turns of a conversation come in order, and conversations mixed."""
    draw = random.Random(20261127)
    some = [(f"conversation {i}", turn) for turn in range(3) for i in range(32)]
    order = sorted(some, key=lambda r: r[1] * 24 + draw.random() * 40)
    agents = [(f"agent {i}", 0) for i in range(16)]
    order[40:40] = agents  # they come together
    common = "You are one of many agents. " + " ".join(draw.choice(WORDS) for _ in range(420))
    with open(WORKLOAD, "w") as f:
        seen = {}
        for who, _ in order:
            turn = seen.get(who, 0)
            seen[who] = turn + 1
            text = " ".join(draw.choice(WORDS) for _ in range(12 if "agent" in who else 30))
            line = {"session": who, "turn": turn, "text": text}
            if turn == 0:
                line["system"] = common if "agent" in who else f"You talk with guest {who[13:]}. " + " ".join(draw.choice(WORDS) for _ in range(60))
            f.write(json.dumps(line) + "\n")


class Run:
    """One way: sends the workload and notes what the answers say."""

    def __init__(self, router, requests):
        self.router, self.requests = router, requests
        self.talks, self.done, self.rows, self.lock = {}, {}, [], threading.Condition()
        self.next, self.failed = 0, None

    def take(self):
        """Returns the next request, once the turn before it is answered; None at the end."""
        with self.lock:
            if self.failed or self.next == len(self.requests):
                return None
            r = self.requests[self.next]
            self.next += 1
            self.lock.wait_for(lambda: self.failed or self.done.get(r["session"], 0) == r["turn"])
        talk = self.talks.setdefault(r["session"], [])
        if r.get("system"):
            talk.append({"role": "system", "content": r["system"]})
        talk.append({"role": "user", "content": r["text"]})
        return r

    def ask(self, r):
        talk, text, first, usage = self.talks[r["session"]], "", None, None
        body = {"model": "kvik", "messages": talk, "max_tokens": 12, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        begun = time.perf_counter()
        c = self.router.connect()
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", "X-Session-Id": r["session"]})
        answer = c.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read())
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            o = json.loads(line[6:])
            usage = o.get("usage") or usage
            for choice in o.get("choices", []):
                piece = choice["delta"].get("content") or ""
                first = first or (piece and time.perf_counter() - begun) or None
                text += piece
        c.close()
        talk.append({"role": "assistant", "content": text})
        with self.lock:
            self.rows.append({"session": r["session"], "turn": r["turn"], "first": first or time.perf_counter() - begun, "prompt": usage["prompt_tokens"],
                              "cached": usage["prompt_tokens_details"]["cached_tokens"]})
            self.done[r["session"]] = r["turn"] + 1
            self.lock.notify_all()

    def client(self):
        try:
            while not self.failed and (r := self.take()) is not None:
                self.ask(r)
        except Exception as error:
            with self.lock:
                self.failed = error
                self.lock.notify_all()

    def all(self):
        begun = time.perf_counter()
        threads = [threading.Thread(target=self.client) for _ in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if self.failed:
            sys.exit(f"fleet.py: {self.failed!r}")
        return time.perf_counter() - begun


def figures(rows, seconds):
    firsts = sorted(1000 * r["first"] for r in rows)
    later = [r for r in rows if r["turn"]]
    agents = [r for r in rows if r["session"].startswith("agent")]

    def share(some):
        some = some or rows
        return 100 * sum(r["cached"] for r in some) / sum(r["prompt"] for r in some)
    return {"prompt tokens reused, %": share(rows), "of later turns, %": share(later), "of agents, %": share(agents),
            "first text, median, ms": statistics.median(firsts), "first text, 95 of 100 within, ms": firsts[len(firsts) * 95 // 100],
            "first text of later turns, median, ms": 1000 * statistics.median(r["first"] for r in later or rows), "all answers, s": seconds}


def measure(way, model, requests):
    replicas = [Server(model, "--alias", "kvik", "--cache-memory", "512M", "--parallel", "8", env={"KVIK_THREADS": "1"}) for _ in range(3)]
    start = {"round robin": lambda: gateway.smg(replicas, "round_robin"), "smg": lambda: gateway.smg(replicas, "cache_aware"), "nginx": lambda: gateway.nginx(replicas)}
    router = start[way]()
    run = Run(router, requests)
    seconds = run.all()
    out = figures(run.rows, seconds)
    out["prompt tokens of the replicas"] = [int(s.metric("vllm:prompt_tokens_total")) for s in replicas]
    router.stop()
    for s in replicas:
        s.stop()
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--json")
    p.add_argument("--ways", default="round robin,smg,nginx")
    p.add_argument("--requests", type=int, default=0, help="only the first of the workload")
    p.add_argument("--record", action="store_true")
    a = p.parse_args()
    if a.record:
        return record()
    with open(WORKLOAD) as f:
        requests = [json.loads(line) for line in f]
    ways = a.ways.split(",")
    table = {}
    for way in ways:
        print(way, file=sys.stderr, flush=True)
        table[way] = measure(way, a.model, requests[:a.requests] if a.requests else requests)
    print("| | " + " | ".join(ways) + " |\n|---|" + "---:|" * len(ways))
    for key in table[ways[0]]:
        print(f"| {key} | " + " | ".join(", ".join(map(str, v)) if isinstance(v, list) else f"{v:.1f}" for v in (table[w][key] for w in ways)) + " |")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(table, f, indent=1)


main()
