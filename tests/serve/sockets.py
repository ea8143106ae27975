"""Connections: what comes between a request and its answer, headers that two servers could read differently, answers that
go out while the server ends, and connections that the process has no descriptors for."""
import json
import os
import resource
import signal
import socket
import time

from harness import PATIENCE, Server, check, finish, skip, tiny

MODEL = tiny("llama-mha")
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


def request(path, body, *headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [b"POST " + path + b" HTTP/1.1", b"Host: a", *(headers or [b"Content-Length: %d" % len(body)])]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def talk(server, *parts, pause=0.05):
    """Sends parts with pauses; returns all that comes until the server closes or is quiet for a second."""
    out = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as c:
        try:
            for p in parts:
                c.sendall(p)
                time.sleep(pause)
            while True:
                got = c.recv(1 << 16)
                c.settimeout(1)
                out += got
                if not got:
                    return out
        except OSError:
            return out


s = Server(MODEL)
LONG = {"prompt": [5] * 20, "max_tokens": 230, "ignore_eos": True, "temperature": 0}

# --- Bytes between a request and its answer wait.
for stream in [False, True]:
    got = talk(s, request(b"/v1/completions", dict(LONG, stream=stream)), *[HEALTH] * 20, pause=0.002)
    check(f"20 requests behind one that computes (stream: {stream}) are answered", got.count(b"HTTP/1.1 200") == 21
          and got.count(b'{"status":"ok"}') == 20, got[-300:])
got = talk(s, request(b"/v1/completions", LONG), *[b"x" * 100] * 30, b"\r\n\r\n", pause=0.002)
check("garbage behind a request is refused after its answer", got.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 400" in got, got[-300:])
check("and the server is there", s.get("/health")[0] == 200, s.said)

# --- What says more than once, or unclearly, how long a body is.
A = b'{"content":"a"}'
for name, headers in {
        "two lengths": [b"Content-Length: 15", b"Content-Length: 3"],
        "a length twice": [b"Content-Length: 15", b"Content-Length: 15"],
        "chunked and a length": [b"Content-Length: 15", b"Transfer-Encoding: identity"],
        "two codings": [b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"],
        "a length with a sign": [b"Content-Length: +15"],
        "a length with a space before the colon": [b"Content-Length : 15"]}.items():
    body = b"f\r\n" + A + b"\r\n0\r\n\r\n" if name == "two codings" else A
    got = talk(s, request(b"/tokenize", body, *headers))
    check(f"{name}: refused, and the connection closed", got.startswith(b"HTTP/1.1 400") and got.count(b"HTTP/1.1") == 1
          and b"Connection: close" in got, got)
got = talk(s, request(b"/tokenize", b"f\r\n" + A + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), HEALTH)
check("a chunked body is read", got.count(b"HTTP/1.1 200") == 2, got)
# The body of a request is never taken for another request, whatever its method: a proxy would send it as one request.
inside, many = HEALTH.replace(b"/health", b"/props"), []
for method in [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"BREW"]:
    for frame, body in [(b"Content-Length: %d" % len(inside), inside), (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(inside), inside))]:
        with socket.create_connection(("127.0.0.1", s.port), timeout=60) as c:
            c.sendall(method + b" /health HTTP/1.1\r\nHost: a\r\n" + frame + b"\r\n\r\n" + body)
            try:
                c.sendall(HEALTH.replace(b"Host: a", b"Host: a\r\nConnection: close"))
                got = b"".join(iter(lambda c=c: c.recv(1 << 16), b""))
            except OSError:
                got = b""  # the connection was closed behind the first answer
        if b"build_info" in got or got.count(b"HTTP/1.1") > 2 or b"<HTML>" in got:
            many.append((method, frame, got))
check("no body is taken for a request", not many, many)
got = talk(s, HEALTH.replace(b"GET", b"HEAD"), HEALTH)
check("HEAD has the headers alone", got.count(b'{"status":"ok"}') == 1 and got.count(b"Content-Length: 15") == 2, got)

# --- Methods that a path does not have.
METHODS = [b"TRACE", b"CONNECT", b"PUT", b"POST", b"BREW"]
got = talk(s, *[HEALTH.replace(b"GET", m) for m in METHODS], b"GET /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n", HEALTH)
check("other methods: 405 in JSON, with the methods that a path has", got.count(b"HTTP/1.1 405") == 6 and got.count(b'"invalid_request_error"') == 6
      and got.count(b"\r\nAllow: GET, HEAD, OPTIONS\r\n") == 5 and got.count(b"\r\nAllow: POST, OPTIONS\r\n") == 1
      and got.endswith(b'{"status":"ok"}'), got)

# --- Paths that are no text.
for name, path in {"bytes that are not UTF-8": b"/\xff\xfe", "a character cut at the end of a sentence": b"/a" + "é".encode() * 99}.items():
    got = talk(s, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    check(f"a path with {name} is not found", got.startswith(b"HTTP/1.1 404") and b"there is nothing at" in got, got)
check("ends", s.stop() == 0, s.said)

# --- An answer that is complete goes out, also if the server ends meanwhile.
s = Server(MODEL)
with socket.socket() as c:
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect(("127.0.0.1", s.port))
    c.sendall(request(b"/tokenize", {"content": "x" * 1500000}))
    time.sleep(3)
    before = s.metric("vllm:num_requests_running")
    s.process.send_signal(signal.SIGTERM)
    got = b""
    while True:
        part = c.recv(1 << 16)
        got += part
        if not part:
            break
body = got.split(b"\r\n\r\n", 1)[1]
check("a large answer is whole after SIGTERM", b"Content-Length: %d\r\n" % len(body) in got, (len(body), got[:400]))
check("and the server ends", s.process.wait(60) == 0)

# --- A client that does not read leaves its places to others, and has its own text when it reads again.
s = Server(MODEL, "--parallel", "2")
body = {"prompt": [5, 9, 12], "n": 32, "max_tokens": 240, "ignore_eos": True, "logprobs": 20, "logit_bias": {"2": -100}, "seed": 3, "temperature": 1}
want = [c["text"] for c in s.post("/v1/completions", body)[1]["choices"]]
with socket.socket() as c:
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect(("127.0.0.1", s.port))
    c.sendall(request(b"/v1/completions", dict(body, stream=True)))
    made, still = -1, 0
    while still < 5:  # until its generation pauses
        time.sleep(0.3)
        now = s.metric("vllm:generation_tokens_total")
        still = still + 1 if now == made else 0
        made = now
    other = s.connect()
    other.timeout = 30
    other.request("POST", "/v1/completions", json.dumps({"prompt": [9], "max_tokens": 3}))
    try:
        status = other.getresponse().status
    except OSError as e:
        status = e
    check("others go on beside a client that does not read", status == 200, status)
    got = b""
    c.settimeout(120)
    while not got.endswith(b"0\r\n\r\n"):
        part = c.recv(1 << 16)
        if not part:
            break
        got += part
texts, said = [""] * 32, b""
rest = got.split(b"\r\n\r\n", 1)[1]
while rest:
    size, rest = rest.split(b"\r\n", 1)
    said, rest = said + rest[:int(size, 16)], rest[int(size, 16) + 2:]
for line in said.decode().splitlines():
    if line.startswith("data: {"):
        choice = json.loads(line[6:])["choices"][0]
        texts[choice["index"]] += choice["text"]
check("and its texts are those of a client that reads", texts == want, [(i, a, b) for i, (a, b) in enumerate(zip(texts, want)) if a != b][:1])
check("slow readers: ends", s.stop() == 0, s.said)

# --- An address of IPv6.
try:
    with socket.socket(socket.AF_INET6) as c:
        c.bind(("::1", 0))
    s = Server(MODEL, "--host", "::1")
    check("the URL of an address of IPv6 has brackets", f"http://[::1]:{s.port} " in s.said[0], s.said)
    check("IPv6: ends", s.stop() == 0)
except OSError as e:
    skip(f"no IPv6 here: {e}")

# --- More connections than descriptors.
s = Server(MODEL, start=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
many = []
try:
    for i in range(120):
        many.append(socket.create_connection(("127.0.0.1", s.port), timeout=2))
except OSError:
    pass


def cpu_seconds():
    with open(f"/proc/{s.process.pid}/stat") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


used = cpu_seconds()
time.sleep(3)
check("without descriptors the server neither spins nor fills its log", cpu_seconds() - used < 1 and len(s.said) < 100, (cpu_seconds() - used, len(s.said)))
for c in many:
    c.close()
check("and answers when there are some again", s.get("/health")[0] == 200)
check("descriptors: ends", s.stop() == 0)
# --- SIGTERM behind a burst: every request whose bytes were sent before it is answered or refused.
s = Server(tiny("llama-mha"))
body = json.dumps({"prompt": [5, 6, 7], "max_tokens": 3}).encode()
burst = []
for _ in range(120):
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    burst.append(c)
s.process.send_signal(signal.SIGTERM)


def first_line(c):
    try:
        c.settimeout(PATIENCE)
        return c.recv(12)
    except OSError as e:
        return repr(e).encode()


lines = [first_line(c) for c in burst]
check("SIGTERM behind a burst: none is lost", set(lines) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}, {x: lines.count(x) for x in set(lines)})
check("SIGTERM behind a burst: ends", s.process.wait(PATIENCE) == 0, s.said)
finish()
