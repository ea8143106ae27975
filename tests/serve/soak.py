"""A server under long load: KVIK_SOAK_SECONDS (1800) in which 1000 streams of every protocol are opened, and read, left or reset at
random, eight at most at a time, after 2000 without pauses, which warm it up. Then no row belongs to anybody but the index, and
memory has not grown by more than 2 %. 20 seconds are a trial. make test-long SECTIONS=soak runs it."""
import json
import os
import random
import socket
import statistics
import struct
import threading
import time

from harness import Server, check, finish
from scripted import scripted

SECONDS = float(os.environ.get("KVIK_SOAK_SECONDS") or 1800)
SEED = int(os.environ.get("KVIK_TEST_SEED") or 20261127)
WARM, STREAMS, AT_ONCE = 2000, 1000, 8
TEXTS = {"plain": "Good day, 20° today.", "think": "<think>\nHm, so.\n</think>\n\nYes: it is so.",
         "call": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'}
TOOL = {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
lock = threading.Lock()
draw = random.Random(SEED)
# Remembered answers are bounded by their number, far above what a soak gives: so chats are drawn from these few.
TALK = [draw.choice(sorted(TEXTS)) + " " + "x" * draw.randrange(200) for _ in range(8)]
done, wrong, sizes = [0], [], []


def drawn(r):
    """Draws a path and the body of a stream."""
    kind = r.randrange(6)
    chat = {"messages": [{"role": "user", "content": "#" + r.choice(TALK)}], "max_tokens": r.choice([3, 30, 150]), "stream": True, "temperature": 0}
    if kind == 0:
        return "/v1/chat/completions", dict(chat, tools=[{"type": "function", "function": TOOL}], n=r.choice([1, 1, 3]))
    if kind == 1:
        return "/v1/messages", chat
    if kind == 2:
        return "/v1/responses", {"input": chat["messages"], "max_output_tokens": chat["max_tokens"], "stream": True, "temperature": 0}
    if kind == 3:
        return "/api/chat", {"messages": chat["messages"], "options": {"num_predict": chat["max_tokens"], "temperature": 0}}
    if kind == 4:
        schema = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"], "additionalProperties": False}
        return "/v1/chat/completions", dict(chat, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    prompt = [r.randrange(10, 250) for _ in range(r.choice([5, 40, 120]))] if r.random() < 0.5 else "abc" * r.randrange(1, 60)
    return "/v1/completions", {"prompt": prompt, "max_tokens": r.choice([1, 20, 100]), "stream": True, "ignore_eos": True, "temperature": 1,
                               "num_beams": r.choice([1, 1, 1, 2])}


def stream(r, port):
    path, body = drawn(r)
    text = json.dumps(body).encode()
    end = r.choice(["read", "read", "leave", "reset", "wait"])
    with socket.create_connection(("127.0.0.1", port), timeout=120) as c:
        c.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(text)) + text)
        if end == "wait":
            time.sleep(r.random())
        if end == "reset":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        got = b""
        while end in ("read", "wait") or (end == "leave" and len(got) < 600):
            part = c.recv(4096)
            got += part
            if not part:
                break
    if end in ("read", "wait") and not (got.startswith(b"HTTP/1.1 200") and got.endswith(b"0\r\n\r\n")):
        wrong.append((path, body, got[:300], got[-200:]))


def client(i, port, stop):
    r = random.Random(SEED + i)
    while not stop.is_set():
        with lock:
            if done[0] == WARM + STREAMS:
                return
            done[0] += 1
            warm = done[0] > WARM
        try:
            stream(r, port)
        except OSError as e:
            wrong.append(repr(e))
        # The streams are spread over the time: each client has an eighth of them.
        if warm:
            stop.wait(max(0, r.uniform(0, 2) * SECONDS / STREAMS * AT_ONCE - 0.02))


def rss(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


s = Server(scripted("hermes", TEXTS), "--cache-memory", "2M", "--threads", "1", "--parallel", "6")
stop, begun = threading.Event(), time.monotonic()
clients = [threading.Thread(target=client, args=(i, s.port, stop)) for i in range(AT_ONCE)]
for t in clients:
    t.start()
while any(t.is_alive() for t in clients):
    time.sleep(min(1, SECONDS / 100))
    sizes.append((done[0], rss(s.process.pid)))
for t in clients:
    t.join()
took = time.monotonic() - begun
for _ in range(600):
    store = s.get("/kvik/store")[1]
    if not store["running"] and not store["waiting"] and not store["usage"]["live"]:
        break
    time.sleep(0.1)
check(f"{WARM} and {STREAMS} streams (seed {SEED}): those that were read are whole", done[0] == WARM + STREAMS and not wrong, wrong[:2])
usage = store["usage"]
check("afterwards nothing runs, and all rows are those of the index", not store["running"] and not store["waiting"]
      and usage["live"] == 0 and usage["shared"] == 0 and usage["index"] > 0 and usage["bytes"] == usage["staging"] + usage["states"], store["usage"])
first = statistics.median(b for n, b in sizes if WARM < n <= WARM + 0.2 * STREAMS)
last = statistics.median(b for n, b in sizes if n > WARM + 0.8 * STREAMS)
print(f"soak: {STREAMS} streams in {took:.0f} s, RSS {first / 2**20:.1f} MiB after the warm-up, {last / 2**20:.1f} MiB at the end, "
      f"{s.metric('vllm:generation_tokens_total'):.0f} tokens, {s.metric('vllm:num_preemptions_total'):.0f} times parked")
check("memory has not grown by more than 2 % since the warm-up", last <= 1.02 * first, (first, last, sizes[:: max(1, len(sizes) // 30)]))
code, a = s.post("/v1/completions", {"prompt": "abc", "max_tokens": 3})
check("the server answers", code == 200, a)
check("SIGTERM", s.stop() == 0, s.said)
finish()
