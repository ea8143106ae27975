"""The scheduler: each text is the one that kvik generate gives alone, whatever joins, leaves or is parked; prefixes that
requests share are computed once; and clients take turns."""
import json
import os
import random
import socket
import threading
import time

from harness import Server, at_once, check, far, finish, generate, tiny, until, work

SEED = int(os.environ.get("KVIK_TEST_SEED") or 20261127)
MANY = 12 if os.environ.get("KVIK_TEST_SHORT") else 40
draw = random.Random(SEED)


def drawn():
    """Draws a request, and the same for kvik generate."""
    n = draw.choice([1, 5, 30, 100, 200])
    ids = [draw.randrange(5, 60) for _ in range(n)] if draw.random() < 0.5 else [5 + (i * 7) % 50 for i in range(n)]
    new = draw.choice([1, 3, 10, 40])
    body = {"prompt": ids, "max_tokens": new, "seed": draw.randrange(1000), "temperature": draw.choice([0, 0.5, 1.0, 2.0]),
            "return_token_ids": True}
    options = ["--input-ids", ",".join(map(str, ids)), "--max-new-tokens", str(new), "--seed", str(body["seed"])]
    options += ["--do-sample", "true", "--temperature", str(body["temperature"])] if body["temperature"] else ["--do-sample", "false"]
    if draw.random() < 0.3:
        body["top_k"] = 5
        options += ["--top-k", "5"]
    if draw.random() < 0.3:
        body["repetition_penalty"] = 1.3
        options += ["--repetition-penalty", "1.3"]
    if draw.random() < 0.15:
        body.update(num_beams=3, temperature=0)
        options = options[:4] + (["--repetition-penalty", "1.3"] if "repetition_penalty" in body else []) + ["--num-beams", "3", "--do-sample", "false"]
    return body, options


def leave(server, body):
    """Sends a request and closes the connection at once, or after the first bytes."""
    import json
    text = json.dumps(dict(body, stream=True, max_tokens=200)).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        if draw.random() < 0.5:
            c.recv(1)


for name, options in [("llama-mha", []), ("gemma3", []), ("llama-mha", ["--cache-memory", "MEMORY"]), ("qwen3-mixed", ["--parallel", "5"]),
                      ("mamba", ["--prefix-cache", os.path.join(work, "prompts")])]:
    model = tiny(name)
    label = " ".join([name, *options])
    if "MEMORY" in options: # what five long texts need, found by asking
        options = ["--cache-memory", os.environ.get("KVIK_TEST_MEMORY") or "700K"]
    cases = [drawn() for _ in range(MANY)]
    want = [generate(model, "--generation-config", '{"top_p":1.0}', *o) for b, o in cases]
    s = Server(model, "--generation-config", '{"top_p":1.0}', *options)
    stop = threading.Event()
    leavers = threading.Thread(target=lambda: [leave(s, cases[i % len(cases)][0]) for i in range(12) if not stop.is_set()])
    leavers.start()
    got = at_once([lambda b=b: s.post("/v1/completions", b) for b, o in cases])
    stop.set()
    leavers.join()
    bad = []
    for (body, o), w, (code, g) in zip(cases, want, got):
        ids = w["sequences"][0][len(body["prompt"]):]
        if code != 200 or g["choices"][0]["token_ids"] != ids or g["usage"]["completion_tokens"] != len(ids):
            bad.append((body, ids, code, g))
    check(f"{label}: {MANY} texts are those of kvik generate (seed {SEED})", not bad, bad[:1])
    if any("memory" in x for x in options) and "KVIK_TEST_SHORT" not in os.environ:  # a slow build may get them one by one
        check(f"{label}: some were parked", s.metric("vllm:num_preemptions_total") > 0)
    check(f"{label}: ends", s.stop() == 0, s.said)

# --- Agents that begin alike at the same moment compute their common prefix once.
s = Server(tiny("llama-mha"))
common = [5 + (i * 11) % 50 for i in range(200)]
got = at_once([lambda i=i: s.post("/v1/completions", {"prompt": common + [6 + i] * 5, "max_tokens": 4, "temperature": 0}) for i in range(16)])
computed = sum(g["kvik"]["computed"] for code, g in got)
check("16 agents compute their prefix once", computed < 200 + 16 * (16 + 5 + 4), [g["kvik"] for c, g in got])
check("16 agents: cached_tokens is what was reused", sum(g["usage"]["prompt_tokens_details"]["cached_tokens"] for c, g in got)
      + computed == sum(g["usage"]["prompt_tokens"] + g["usage"]["completion_tokens"] - 1 for c, g in got), [g["usage"] for c, g in got])
check("agents: ends", s.stop() == 0)

# --- A short request does not wait until a long text is read.
s = Server(tiny("llama-mha"))
ends = []
long = threading.Thread(target=lambda: ends.append("long" if s.post("/tokenize", {"content": "word and more " * 150000})[0] == 200 else "error"))
long.start()
time.sleep(0.3) # until the server has it
while "long" not in ends:
    ends.append("short" if s.post("/tokenize", {"content": "a"})[0] == 200 else "error")
long.join()
check("short requests are answered before a long one that came before them", ends.index("long") > 12 and "error" not in ends, ends[:9])
check("long texts: ends", s.stop() == 0)

# --- Short requests that are hard to read do not keep both readers from another client. The log has the order in which texts ended.
def ended(s):
    """Returns the new tokens of each text, in the order in which the server, which has stopped, has ended them."""
    return [json.loads(line)["new_tokens"] for line in s.said if line.startswith("{")]


def send(s, body, address="127.0.0.1"):
    """Sends a request without waiting for its answer."""
    c = s.connect(address)
    c.request("POST", "/v1/completions", json.dumps(body))
    return c


s = Server(tiny("llama-mha"), "--log")
many = [send(s, {"prompt": "a", "max_tokens": 1, "json_schema": {"type": "string", "pattern": "^" + "b" * i + ".*a.{14}$"}})
        for i in range(6)]  # a schema that was read before is not read again
many.append(send(s, {"prompt": [9], "max_tokens": 3, "ignore_eos": True}, "127.0.0.2"))
codes = [c.getresponse().status for c in many]
check("schemas: all are answered, and it ends", codes == [200] * 7 and s.stop() == 0, (codes, s.said))
check("another client is read between the schemas of one", ended(s).index(3) < 3, ended(s))

# --- Which waiting text comes first; a priority needs permission. The first text lasts until its client leaves.
for options, want in ([], [21, 22, 23]), (["--max-priority", "3"], [23, 22, 21]):
    s = Server(far(), "--parallel", "1", "--log", *options)
    many = []
    for n, (new, priority) in enumerate([(30000, -9), (21, 1), (22, 2), (23, 2**40)]):
        many.append(send(s, {"prompt": [9], "temperature": 0, "ignore_eos": True, "max_tokens": new, "priority": priority}))
        until(lambda n=n: s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") == n + 1)
    many[0].close()
    codes = [c.getresponse().status for c in many[1:]]
    check("priority: all are answered, and it ends", codes == [200] * 3 and s.stop() == 0, (codes, s.said))
    check(f"the order of texts by priority {options}", ended(s)[1:] == want, ended(s))
finish()
