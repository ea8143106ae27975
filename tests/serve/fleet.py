"""Three replicas behind smg and nginx, whole programs: conversations stay where their past is, a replica that is killed loses no answer
that another can give, and one that is drained takes no new work. make test-serve installs smg; what is not there is skipped."""
import json
import os
import shutil
import signal
import socket
import threading
import time

import gateway
from harness import PATIENCE, Server, at_once, check, finish, skip, tiny, work

# Long texts of a tiny model, so that there is time to end a replica.
model = os.path.join(work, "fleet")
shutil.copytree(tiny("llama-mha"), model)
with open(os.path.join(model, "config.json")) as f:
    config = json.load(f)
with open(os.path.join(model, "config.json"), "w") as f:
    json.dump(dict(config, max_position_embeddings=32768), f)


def replica():
    return Server(model, "--alias", "tiny", "--log", "--do-sample", "false")


def chat(router, messages, n=8, session="s", **more):
    return router.ask("POST", "/v1/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": n, "ignore_eos": True, **more}, **{"X-Session-Id": session})


def converse(router, name, turns=4):
    """Returns the tokens of the prompts of later turns, and those of them that were reused."""
    messages, prompts, reused = [], 0, 0
    for i in range(turns):
        messages.append({"role": "user", "content": f"{name} says {i}: " + name * 20})
        code, a = chat(router, messages, session=name)
        if code != 200:
            return code, a
        messages.append(a["choices"][0]["message"])
        if i:
            prompts += a["usage"]["prompt_tokens"]
            reused += a["usage"]["prompt_tokens_details"]["cached_tokens"]
    return prompts, reused


def began(s):
    """Counts the generations that a replica has ended, by its log."""
    return sum('"prompt_tokens"' in line for line in list(s.said))


def tokens_in(seconds, router):
    """Returns how many tokens a text may have to take about that long on this machine as it is now."""
    begun = time.time()
    code, _ = chat(router, [{"role": "user", "content": "how fast"}], 1000, "how fast")
    assert code == 200
    return int(min(max(1000 * seconds / (time.time() - begun), 2000), 12000))


def refuses(s):
    """True if a replica takes no connection."""
    try:
        socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE).close()
        return False
    except ConnectionRefusedError:
        return True


def whole_answers(label, router, replicas):
    """Kills a replica while each has work: every answer comes, from another if need be."""
    before = [began(s) for s in replicas]
    jobs = [lambda i=i: chat(router, [{"role": "user", "content": f"kill {i} " * 12}], 4000, f"kill {i}") for i in range(12)]
    t = threading.Thread(target=lambda: got.extend(at_once(jobs)))
    got = []
    t.start()
    victim = None
    while victim is None and t.is_alive():
        victim = next((s for s in replicas if s.metric("vllm:num_requests_running")), None)
    victim.process.send_signal(signal.SIGKILL)
    t.join()
    bad = [(code, a) for code, a in got if code != 200 or a["usage"]["completion_tokens"] != 4000]
    check(f"{label}: a replica that is killed loses no answer", len(got) == 12 and not bad, bad[:2])
    check(f"{label}: the others gave them", sum(began(s) for s in replicas if s is not victim) > sum(before) - before[replicas.index(victim)])
    return [s for s in replicas if s is not victim]


def drained(label, router, replicas):
    """Ends a replica as systemd does while it writes a stream: the stream is whole, and new work goes to the other."""
    # A replica that ends has 30 seconds for its answers; the later tokens of a text take longer than the first.
    lines, c, n = [], router.connect(), tokens_in(6, router)
    c.request("POST", "/v1/chat/completions", json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "a long stream"}], "max_tokens": n,
                                                          "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}),
              {"Content-Type": "application/json", "X-Session-Id": "stream"})
    r = c.getresponse()
    lines.append(r.readline())
    leaving = next(s for s in replicas if s.metric("vllm:num_requests_running"))
    stays = next(s for s in replicas if s is not leaving)
    had, other = began(leaving), began(stays)
    leaving.process.send_signal(signal.SIGTERM)
    while not refuses(leaving) and leaving.process.poll() is None:
        time.sleep(1)  # the listener closes when nobody has come for a while
    check(f"{label}: the stream goes on", leaving.process.poll() is None)
    got = at_once([lambda i=i: chat(router, [{"role": "user", "content": f"new {i}"}], 4, f"new {i}") for i in range(8)])
    check(f"{label}: new work is answered", all(code == 200 for code, _ in got), [g for g in got if g[0] != 200][:2])
    for line in r:
        lines.append(line)
    events = [json.loads(x[6:]) for x in lines if x.startswith(b"data: {")]
    usage = [e["usage"] for e in events if e.get("usage")]
    check(f"{label}: the stream of a replica that is drained is whole", usage and usage[-1]["completion_tokens"] == n and b"[DONE]" in b"".join(lines[-3:]), (n, usage, lines[-3:]))
    check(f"{label}: it ends", leaving.process.wait(PATIENCE) == 0, leaving.said)
    check(f"{label}: it took no new work, the other did", began(leaving) == had + 1 and began(stays) == other + 8, (began(leaving) - had, began(stays) - other))
    return stays


def behind(label, start, spreads):
    replicas = [replica() for _ in range(3)]
    router = start(replicas)
    got = at_once([lambda i=i: converse(router, "abcdefghi"[i]) for i in range(9)])
    short = [g for g in got if not isinstance(g[1], int) or g[1] < 0.6 * g[0]]
    check(f"{label}: conversations stay where their past is", not short, got)
    used = [s.metric("vllm:prompt_tokens_total") for s in replicas]
    print(f"{label}: prompt tokens of the replicas {used}, later turns reused {sum(g[1] for g in got) / sum(g[0] for g in got):.0%}")
    check(f"{label}: every replica has some", all(used) or not spreads, used)
    stays = drained(label, router, whole_answers(label, router, replicas))
    router.stop()
    check(f"{label}: ends", stays.stop() == 0, stays.said)


if gateway.has_smg():
    behind("smg", lambda r: gateway.smg(r, "cache_aware"), False)
else:
    skip("smg is not installed")
if shutil.which("nginx"):
    behind("nginx", gateway.nginx, True)
else:
    skip("nginx is not installed")
finish()
