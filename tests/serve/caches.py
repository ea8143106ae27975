"""Strategies that requests choose: each text is the one that kvik generate gives with that strategy alone, while all caches share
one budget that is never exceeded and short enough to park; what is not allowed is named."""
import json
import os
import random
import threading
import time

from harness import Server, at_once, check, finish, generate, tiny, work

SEED = int(os.environ.get("KVIK_TEST_SEED") or 20261127)
MANY = 20 if os.environ.get("KVIK_TEST_SHORT") else 60
draw = random.Random(SEED)
STRATEGIES = [("dynamic", None), ("sliding_window", {"sliding_window": 32}), ("sink", {"window_length": 64, "num_sink_tokens": 4}),
              ("quantized", {"nbits": 4, "q_group_size": 16, "residual_length": 32}), ("static", None),
              ("dynamic", {"sliding_window": 16})]


def allow(strategies):
    return [w for name, config in strategies
            for w in ("--allow-cache", name + (":" + json.dumps(config) if config else ""))]


def chosen(name, config):
    """The fields of a request, and the options of kvik generate."""
    fields, options = {"cache_implementation": name}, ["--cache-implementation", name]
    if config:
        fields["cache_config"] = config
        options += ["--cache-config", json.dumps(config)]
    return fields, options


def drawn(i):
    fields, options = chosen(*STRATEGIES[i % len(STRATEGIES)])
    if i % len(STRATEGIES) == 0 and i % 4:
        fields = {}  # the server's own
    ids = [5 + (k * 7 + i % 3) % 50 for k in range(draw.choice([1, 30, 100, 200]))]
    new, hot = draw.choice([1, 5, 40]), draw.choice([0, 1.0])
    body = {"prompt": ids, "max_tokens": new, "seed": draw.randrange(1000), "temperature": hot, "return_token_ids": True, **fields}
    options += ["--input-ids", ",".join(map(str, ids)), "--max-new-tokens", str(new), "--seed", str(body["seed"]),
                "--do-sample", "true" if hot else "false", *(["--temperature", "1.0"] if hot else [])]
    return body, options


TOP = ["--generation-config", '{"top_p":1.0}']
model = tiny("llama-mha")
cases = [drawn(i) for i in range(MANY)]
want = [generate(model, *TOP, *o)["sequences"][0][len(b["prompt"]):] for b, o in cases]
for label, options in [("room for all", []), ("a small budget", ["--cache-memory", os.environ.get("KVIK_TEST_MEMORY") or "900K"]),
                       ("a small budget and a directory", ["--cache-memory", "1M", "--prefix-cache", os.path.join(work, "prompts")])]:
    s = Server(model, *TOP, *allow(STRATEGIES[1:]), *options)
    budget = s.get("/kvik/store")[1]["usage"]["budget"]
    over, stop = [], threading.Event()

    def watch():
        while not stop.wait(0.002):
            caches = s.get("/kvik/store")[1]["caches"]
            if sum(c["budget"] for c in caches) > budget or any(c["used"] > c["budget"] for c in caches):
                over.append(caches)
    watcher = threading.Thread(target=watch)
    watcher.start()
    got = at_once([lambda b=b: s.post("/v1/completions", b) for b, o in cases])
    stop.set()
    watcher.join()
    bad = [(b, w, c, g) for (b, o), w, (c, g) in zip(cases, want, got) if c != 200 or g["choices"][0]["token_ids"] != w]
    check(f"{label}: {MANY} texts are those of kvik generate (seed {SEED})", not bad, f"{len(bad)} are not: {[(b.get('cache_implementation'), b.get('cache_config'), len(b['prompt']), w, g) for b, w, c, g in bad]}")
    check(f"{label}: the budget holds over all caches", not over, over[:1])
    if "small" in label:
        check(f"{label}: some were parked", s.metric("vllm:num_preemptions_total") > 0)
    check(f"{label}: ends", s.stop() == 0, s.said)

# --- What a request may say.
s = Server(model, *TOP, *allow(STRATEGIES[1:4]))
ids = [5 + k % 50 for k in range(64)]
base = {"prompt": ids, "max_tokens": 2, "temperature": 0}
for fields, part in [({"cache_implementation": "offloaded"}, ['field "cache_implementation"', '"dynamic", "sliding_window" with']),
                     ({"cache_implementation": "no_such"}, ["cache_implementation"]),
                     ({"cache_implementation": 7}, ['field "cache_implementation" must be a string']),
                     ({"cache_config": {"sliding_window": 9}}, ['field "cache_config"', '"quantized" with {"nbits":4']),
                     ({"cache_config": {"windw": 9}}, ["windw"]), ({"cache_config": 7}, ['field "cache_config" must be an object'])]:
    code, o = s.post("/v1/completions", {**base, **fields})
    check(f"refused: {fields}", code == 400 and all(p in o["error"]["message"] for p in part), o)
code, o = s.post("/v1/completions", {**base, "cache_implementation": "quantized"})
check("a name alone is the first of that name", code == 200, o)
code, o = s.post("/v1/completions", {**base, "cache_implementation": "sliding_window", "cache_config": {"Sliding-Window": 32}})
check("a key spelled otherwise is the same", code == 200 and o["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, o)
code, o = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 40}], "max_tokens": 2, "cache_implementation": "sink"})
check("chats choose as well", code == 200, o)
code, o = s.post("/v1/messages", {"messages": [{"role": "user", "content": "a" * 40}], "max_tokens": 2, "cache_implementation": "sink"})
check("and Anthropic's", code == 200 and o["usage"]["cache_read_input_tokens"] > 0, o)
code, o = s.post("/v1/completions", {**base, "cache_implementation": "sliding_window"})
check("a cache reuses its own rows", o["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, o)
store = s.get("/kvik/store")[1]
check("the store lists the caches", [c["cache_implementation"] for c in store["caches"]] == [n for n, c in STRATEGIES[:4]], store["caches"])
first, second = s.get("/kvik/store")[1]["groups"], s.get("/kvik/store?cache=1")[1]["groups"]
check("?cache= shows another", first != second, second)
code, o = s.get("/kvik/store?cache=9")
check("?cache= beyond the last", code == 400 and "below 4" in o["error"]["message"], o)
check("metrics of each", 'kvik:cache_used_bytes{cache="3",cache_implementation="quantized"}' in s.get("/metrics")[1].decode())
check("slots", len(s.get("/slots")[1]) == 16)
check("ends", s.stop() == 0, s.said)

# --- Memory that lies idle in one cache goes to another, and rows that are kept for reuse give way.
s = Server(model, *TOP, *allow(STRATEGIES[4:5]), "--cache-memory", "700K", "--parallel", "2")
long = {"prompt": [5 + k % 50 for k in range(200)], "max_tokens": 20, "temperature": 0}
for name in ["dynamic", "static", "dynamic", "static"]:
    code, o = s.post("/v1/completions", {**long, "prompt": [draw.randrange(5, 60) for _ in range(200)], "cache_implementation": name})
    check(f"{name} gets the memory", code == 200, o)
check("ends", s.stop() == 0, s.said)

# --- A directory of prompts serves every strategy whose rows do not depend on turns.
def restart():
    return Server(model, *TOP, *allow(STRATEGIES[1:4]), "--prefix-cache", os.path.join(work, "kept"))


s = restart()
kept = [{**base, "prompt": [draw.randrange(5, 60) for _ in range(160)], **chosen(*strategy)[0]} for strategy in STRATEGIES[:4]]
first = [s.post("/v1/completions", {**b, "return_token_ids": True})[1] for b in kept]
check("ends", s.stop() == 0, s.said)
s = restart()
again = [s.post("/v1/completions", {**b, "return_token_ids": True})[1] for b in kept]
check("the next server gives the same tokens", [o["choices"][0]["token_ids"] for o in again] == [o["choices"][0]["token_ids"] for o in first])
reused = [o["usage"]["prompt_tokens_details"]["cached_tokens"] for o in again]
check("and reuses what the directory has", reused[0] > 100 and reused[1] > 100 and reused[3] == 0, reused)
check("ends", s.stop() == 0, s.said)

# --- A prompt that is computed in one cache delays the texts of another by little.
s = Server(tiny("qwen3-mixed"), "--allow-cache", "quantized:" + json.dumps(STRATEGIES[3][1]), "--max-delay", "20")
gaps, last = [], None
done = threading.Event()


def prompts():
    while not done.is_set():
        s.post("/v1/completions", {"prompt": [draw.randrange(5, 60) for _ in range(400)], "max_tokens": 1, "cache_implementation": "quantized"})


crowd = threading.Thread(target=prompts)
crowd.start()
for o in s.stream("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 100, "temperature": 0, "ignore_eos": True, "stream": True}):
    now = time.monotonic()
    gaps += [now - last] if last else []
    last = now
done.set()
crowd.join()
check("texts go on beside prompts of another cache", len(gaps) > 50 and sorted(gaps)[len(gaps) // 2] < 1, sorted(gaps)[-5:])
check("ends", s.stop() == 0, s.said)

for options, part in [(["--allow-cache", "no_such"], "--allow-cache no_such"), (["--allow-cache", "static:{"], "--allow-cache static:{"),
                      (["--allow-cache", "static", "--allow-cache", "quantized", "--cache-memory", "100K"], "cache-memory")]:
    try:
        Server(model, *options)
        check(f"refused: {options}", False)
    except RuntimeError as e:
        check(f"refused: {options}", part.replace("-", "_") in str(e).replace("-", "_"), e)
finish()
