"""Connections: what comes between a request and its answer, headers that two servers could read differently, answers that
go out while the server ends, and connections that the process has no descriptors for."""
import json
import os
import re
import resource
import signal
import socket
import time

from harness import PATIENCE, Server, check, far, finish, skip, tiny, until, work

MODEL = tiny("llama-mha")
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = HEALTH.replace(b"Host: a", b"Host: a\r\nConnection: close")


def request(path, body, *headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [b"POST " + path + b" HTTP/1.1", b"Host: a", *(headers or [b"Content-Length: %d" % len(body)])]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def answered(out):
    """Counts the answers that are whole."""
    n = at = 0
    while (end := out.find(b"\r\n\r\n", at)) >= 0:
        length = re.search(rb"\r\nContent-Length: (\d+)", out[at:end])
        at = end + 4 + (int(length[1]) if length else 0)
        n += at <= len(out)
    return n


def talk(server, *parts, pause=0.05, answers=None):
    """Sends parts with pauses; returns all that comes until the server closes, or has sent so many answers."""
    out = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as c:
        try:
            for p in parts:
                c.sendall(p)
                time.sleep(pause)
            while got := c.recv(1 << 16):
                out += got
                if answers and answered(out) >= answers:
                    break
        except OSError:
            pass
    return out


s = Server(MODEL)
LONG = {"prompt": [5] * 20, "max_tokens": 230, "ignore_eos": True, "temperature": 0}

# --- Bytes between a request and its answer wait.
for stream in [False, True]:
    got = talk(s, request(b"/v1/completions", dict(LONG, stream=stream)), *[HEALTH] * 19, LAST, pause=0.002)
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
got = talk(s, request(b"/tokenize", b"f\r\n" + A + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), LAST)
check("a chunked body is read", got.count(b"HTTP/1.1 200") == 2, got)
# Chunks and headers that a proxy could read otherwise.
CODED, hidden = b"Transfer-Encoding: chunked", LAST.replace(b"/health", b"/props")
plain = b"f\r\n" + A + b"\r\n0\r\n\r\n"
many = []
for body in [*(size + plain[1:] for size in [b"0xf", b"+f", b" f", b"f ", b"f g", b"f ;a", b"f;a=b", b"f\0", b"\tf", b"f\r", b"", b"g", b"-f", b"f" * 16]),
             plain.replace(b"\r\n", b"\n"), plain.replace(b"}\r\n", b"}"), plain.replace(b"}\r\n", b"}XX\r\n"), plain[:-2] + b"X: \0\r\n\r\n", plain[:-2] + b"X: y\n\r\n"]:
    got = talk(s, request(b"/tokenize", body, CODED) + hidden)
    if not got.startswith(b"HTTP/1.1 400") or got.count(b"HTTP/1.1 ") != 1 or b"Connection: close" not in got:
        many.append((body, got))
check("chunks that are not plain: refused, and the connection closed", not many, many)
many = []
for head in [b"Content-Length: 15\0", b"Content-Length: 15\0 3", b"Content-Length: 15\r", CODED + b"\0", b"X: a\rTransfer-Encoding: chunked", b"\0: a\r\nContent-Length: 15", b"X: \0\r\nContent-Length: 15"]:
    got = talk(s, request(b"/tokenize", plain if b"chunked" in head else A, head) + hidden)
    if not got.startswith(b"HTTP/1.1 400") or got.count(b"HTTP/1.1 ") != 1:
        many.append((head, got))
check("CR and NUL in headers: refused, and the connection closed", not many, many)
for body in (plain, plain.replace(b"f\r", b"0000F\r"), plain[:-2] + b"X: y\r\nZ:\r\n\r\n", b"1\r\n{\r\ne\r\n" + A[1:] + b"\r\n0\r\n\r\n"):
    for cut in (0, 1):
        got = talk(s, *([request(b"/tokenize", body, CODED) + hidden] if not cut else [bytes([b]) for b in request(b"/tokenize", body, CODED) + hidden]), pause=0.0005)
        check(f"{body}: read, and the next request, too (cut: {cut})", got.count(b"HTTP/1.1 200") == 2 and b"build_info" in got, got)
# The body of a request is never taken for another request, whatever its method: a proxy would send it as one request.
inside, many = HEALTH.replace(b"/health", b"/props"), []
for method in [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"BREW"]:
    for frame, body in [(b"Content-Length: %d" % len(inside), inside), (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(inside), inside))]:
        with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) as c:
            c.sendall(method + b" /health HTTP/1.1\r\nHost: a\r\n" + frame + b"\r\n\r\n" + body)
            try:
                c.sendall(LAST)
                got = b"".join(iter(lambda c=c: c.recv(1 << 16), b""))
            except OSError:
                got = b""  # the connection was closed behind the first answer
        if b"build_info" in got or got.count(b"HTTP/1.1") > 2 or b"<HTML>" in got:
            many.append((method, frame, got))
check("no body is taken for a request", not many, many)
got = talk(s, HEALTH.replace(b"GET", b"HEAD"), LAST)
check("HEAD has the headers alone", got.count(b'{"status":"ok"}') == 1 and got.count(b"Content-Length: 15") == 2, got)

# --- Methods that a path does not have.
METHODS = [b"TRACE", b"CONNECT", b"PUT", b"POST", b"BREW"]
got = talk(s, *[HEALTH.replace(b"GET", m) for m in METHODS], b"GET /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n", LAST)
check("other methods: 405 in JSON, with the methods that a path has", got.count(b"HTTP/1.1 405") == 6 and got.count(b'"invalid_request_error"') == 6
      and got.count(b"\r\nAllow: GET, HEAD, OPTIONS\r\n") == 5 and got.count(b"\r\nAllow: POST, OPTIONS\r\n") == 1
      and got.endswith(b'{"status":"ok"}'), got)

# --- Paths that are no text.
for name, path in {"bytes that are not UTF-8": b"/\xff\xfe", "a character cut at the end of a sentence": b"/a" + "é".encode() * 99}.items():
    got = talk(s, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    check(f"a path with {name} is not found", got.startswith(b"HTTP/1.1 404") and b"there is nothing at" in got, got)
check("ends", s.stop() == 0, s.said)

# --- What libevent itself refuses is JSON, too.
def refusal(got):
    """Returns the status, the headers, and the parsed body of the last answer."""
    head, _, body = got[max(got.rfind(b"HTTP/1.1 "), 0):].partition(b"\r\n\r\n")
    try:
        return int(head.split()[1]), head, json.loads(body)
    except (ValueError, IndexError):
        return 0, got[-600:], {"error": {"code": -1, "message": ""}}


s = Server(MODEL, "--max-body", "100K")
for name, sent, want in [("no HTTP", b"what is this\r\n\r\n", 400), ("a header without a colon", HEALTH.replace(b"Host:", b"Host"), 400),
                         ("long headers", HEALTH.replace(b"Host: a", b"Host: a\r\nX: " + b"x" * 70000), 400),
                         ("a long line", b"GET /" + b"x" * 70000, 400),
                         ("a length that is none", request(b"/tokenize", b"", b"Content-Length: x"), 400),
                         ("an expectation", request(b"/tokenize", b"", b"Content-Length: 5", b"Expect: cake"), 417),
                         ("a long body", request(b"/tokenize", b"x" * 102401), 413),
                         ("a long chunk", request(b"/tokenize", b"19001\r\n", b"Transfer-Encoding: chunked"), 413)]:
    for before in (b"", HEALTH, request(b"/tokenize", A)):  # also behind other requests of the connection
        code, head, said = refusal(talk(s, before, sent, pause=0.01))
        check(f"{name}: JSON with status {want}", code == want == said["error"]["code"] and b"\r\nConnection: close" in head and b"HTML" not in head
              and said["error"]["message"], (code, head, said))
for path, kind in [(b"/v1/messages", lambda e: e["type"] == "error" and e["error"]["message"]), (b"/api/chat", lambda e: isinstance(e["error"], str)),
                   (b"/v1/chat/completions", lambda e: e["error"]["type"])]:
    said = refusal(talk(s, request(path, b"x" * 200000)))[2]
    check(f"the shape of {path.decode()}'s errors", kind(said), said)
check("a body of the longest length is read", b" 200 " in talk(s, request(b"/tokenize", b'{"content":"' + b"x" * (102400 - 14) + b'"}'), answers=1)[:20])
with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) as c:
    c.sendall(request(b"/tokenize", b"", b"Content-Length: 15", b"Expect: 100-continue"))
    got = [c.recv(99)]
    c.sendall(A)
    got.append(c.recv(99))
check("a client that waits for 100 Continue gets it", got[0] == b"HTTP/1.1 100 Continue\r\n\r\n" and got[1].startswith(b"HTTP/1.1 200 "), got)
check("refusals: ends", s.stop() == 0, s.said)

# --- Without a known key no body is stored, and the answer comes behind it: a client that still sends reads nothing.
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write("sesame\n")
s = Server(MODEL, "--api-key-file", keys, "--max-body", "64M")
KEY, X_KEY, WRONG = b"Authorization: Bearer sesame", b"X-Api-Key: sesame", b"Authorization: Bearer other"


def memory():
    with open(f"/proc/{s.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


LARGE = b"x" * (48 << 20)
used = memory()
for headers in ([], [WRONG], [b"X-Api-Key: other"]):
    code, head, said = refusal(talk(s, request(b"/v1/messages", LARGE, b"Content-Length: %d" % len(LARGE), *headers)))
    check(f"a large body with {headers}: 401 behind it", code == 401 and b"WWW-Authenticate: Bearer" in head and said["type"] == "error" and "API key" in said["error"]["message"],
          (code, said))
if "KVIK_TEST_SHORT" not in os.environ:  # a sanitizer keeps what was freed
    check("and it was not stored", memory() - used < 16 << 10, (memory(), used))
code, _, said = refusal(talk(s, request(b"/tokenize", b"30d40\r\n", b"Transfer-Encoding: chunked", WRONG)))
check("a large chunk: 401", code == 401 and "API key" in said["error"]["message"], (code, said))
got = talk(s, request(b"/tokenize", A, b"Content-Length: 15"), request(b"/tokenize", A, b"Content-Length: 15", KEY), answers=2)
check("a short body without a key: 401, and the connection stays", got.count(b"HTTP/1.1 401") == got.count(b"HTTP/1.1 200") == 1, got)
MUCH = json.dumps({"content": "x" * 300000}).encode()
for key in (KEY, X_KEY, b"authorization:bearer sesame"):
    sent = request(b"/tokenize", MUCH, b"Content-Length: %d" % len(MUCH), key)
    check(f"{key}: a large body is read", b" 200 " in talk(s, sent, answers=1)[:20])
    check(f"{key}: also behind another, in one piece", talk(s, HEALTH + sent + HEALTH + sent, answers=4).count(b"HTTP/1.1 200") == 4)
    head = sent[:sent.index(b"\r\n\r\n") + 4]
    check(f"{key}: also with a head that comes byte for byte", b" 200 " in talk(s, *[head[i:i + 1] for i in range(len(head))], sent[len(head):], pause=0.001, answers=1)[:20])
    check(f"{key}: with ends of lines that are no CRLF", b" 200 " in talk(s, head.replace(b"\r\n", b"\n") + sent[len(head):], answers=1)[:20])
got = talk(s, request(b"/tokenize", A, b"Content-Length: 15", KEY) + request(b"/tokenize", MUCH, b"Content-Length: %d" % len(MUCH)))
check("a key counts for its own request", got.count(b"HTTP/1.1 200") == 1 and refusal(got)[0] == 401, got[-300:])
check("keys: ends", s.stop() == 0, s.said)

# --- One client leaves room for others: of requests at once, and of generations that wait.
with open(keys, "w") as f:
    f.write("sesame\nother\n")
s = Server(far(), "--api-key-file", keys, "--max-waiting", "60", "--parallel", "2", "--max-body", "1M")


def asks(n, body, *headers):
    """Sends a request by each of n connections, whose answers nobody reads."""
    sent = request(b"/v1/completions", body, b"Content-Length: %d" % len(json.dumps(body)), *headers)
    out = []
    for _ in range(n):
        c = socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE)
        c.sendall(sent)
        out.append(c)
    return out


def refused(many):
    """Counts those that were answered by 503, once each of them has an answer, waits or computes."""
    said = {}
    for c in many:
        c.setblocking(False)

    def settled():
        for c in many:
            try:
                said[c] = said.get(c) or c.recv(12)
            except BlockingIOError:
                pass
        return len(said) + sum(s.metric(f"vllm:num_requests_{what}", {"x-api-key": "other"}) for what in ("running", "waiting")) >= len(many)
    check("each of many requests has an answer, waits or computes", until(settled), said)
    return list(said.values()).count(b"HTTP/1.1 503")


def beside(many, address, headers=None):
    """Returns the status of a request that comes behind many others, which then leave: they would compute for minutes."""
    c = s.connect(address)
    c.request("POST", "/v1/completions", json.dumps({"prompt": [9], "max_tokens": 1}), headers or {})
    s.get("/health")  # the server has read what came before this
    for other in many:
        other.close()
    return c.getresponse().status


long_text = dict(LONG, max_tokens=30000)
many = asks(100, long_text, KEY)
count = refused(many)
check("a client that asks for more than there is room for is refused", 0 < count < 100, count)
status = beside(many, "127.0.0.1", {"x-api-key": "other"})
check("and another client is not", status == 200, status)
chunk = json.dumps(dict(LONG, max_tokens=500)).encode()
chunk = request(b"/v1/completions", b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk), CODED, KEY)
many = [socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) for _ in range(20)]
for c in many:
    c.sendall(chunk)
refused(many)
got = talk(s, request(b"/tokenize", plain, CODED, KEY), answers=1)
check("chunked bodies count as what they are once they are there", b" 200 " in got[:20], got)
for c in many:
    c.close()
HEAD = request(b"/tokenize", b"", b"Content-Length: 1048576", KEY)
many = [socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) for _ in range(16)]
for c in many:
    c.sendall(HEAD + b"{")
MUCH = json.dumps({"content": "x" * 300000}).encode()
sent = request(b"/tokenize", MUCH, b"Content-Length: %d" % len(MUCH), KEY)
code, head, said = refusal(talk(s, sent))
check("bodies that are announced have a limit together", code == 503 == said["error"]["code"] and "memory" in said["error"]["message"], (code, head, said))
check("short ones go on", b" 200 " in talk(s, request(b"/tokenize", A, b"Content-Length: 15", KEY), answers=1)[:20])
for c in many:
    c.close()
check("and long ones when there is memory again", until(lambda: b" 200 " in talk(s, sent, answers=1)[:20]))
check("room: ends", s.stop() == 0, s.said)

# --- Without keys anybody can invent some: they make no further clients of one address.
s = Server(far(), "--max-waiting", "60", "--parallel", "2")
many = [c for i in range(100) for c in asks(1, long_text, b"X-Api-Key: %d" % i)]
count = refused(many)
check("invented keys are one client, which leaves half of the places", 50 < count < 100, count)
status = beside(many, "127.0.0.2")
check("and a client of another address is not", status == 200, status)
check("invented keys: ends", s.stop() == 0, s.said)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if hard >= 1400:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1400, hard))
    s = Server(MODEL, "--api-key-file", keys, "--max-waiting", "3000", "--parallel", "1")
    many = asks(1100, LONG, KEY)
    status = s.get("/v1/models", {"x-api-key": "other"})[0]
    check("1100 requests of one client leave room for another", status == 200, status)
    for c in many:
        c.close()
    check("requests: ends", s.stop() == 0, s.said)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
else:
    skip("1400 descriptors cannot be had")

# --- A name that a page has made for this machine; a server for this machine alone does not answer to it.
for options, foreign in (([], 403), (["--cors-origins", "https://kvik.example.org:8443"], 403), (["--api-key-file", keys], 401), (["--host", "0.0.0.0"], 200)):
    s = Server(MODEL, *options)
    for host, want in [(b"evil.example.com:8123", foreign), (b"evil.example.com", foreign), (b"127.0.0.1.evil.com", foreign), (b"localhost.evil.com", foreign),
                       (b"kvik.example.org", 200 if "cors" in str(options) else foreign), (b"localhost:1", 200), (b"127.0.0.1", 200), (b"[::1]:80", 200),
                       (b"192.168.1.9", 200), (b"kvik", 200), (b"a.localhost", 200), (b"host.docker.internal", 200), (b"", 200)]:
        got = talk(s, HEALTH.replace(b"/health", b"/props").replace(b"Host: a", b"Host: " + host), answers=1)
        want = 401 if foreign == 401 else want
        check(f"Host {host} with {options}: {want}", got.startswith(b"HTTP/1.1 %d " % want), got[:300])
    check("names: ends", s.stop() == 0, s.said)

# --- An answer that is complete goes out, also if the server ends meanwhile.
s = Server(MODEL)
with socket.socket() as c:
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect(("127.0.0.1", s.port))
    c.sendall(request(b"/tokenize", {"content": "x" * 1500000}))
    c.recv(1, socket.MSG_PEEK)  # the answer is complete, and goes out as far as there is room
    s.process.send_signal(signal.SIGTERM)
    got = bytearray()  # read in pieces of 2 KB: bytes would be copied whole for each
    while True:
        part = c.recv(1 << 16)
        got += part
        if not part:
            break
body = got.split(b"\r\n\r\n", 1)[1]
check("a large answer is whole after SIGTERM", b"Content-Length: %d\r\n" % len(body) in got, (len(body), got[:400]))
check("and the server ends", s.process.wait(PATIENCE) == 0)

# --- A client that does not read leaves its places to others, and has its own text when it reads again.
s = Server(MODEL, "--parallel", "2")
body = {"prompt": [5, 9, 12], "n": 16, "max_tokens": 240, "ignore_eos": True, "logprobs": 20, "logit_bias": {"2": -100}, "seed": 3, "temperature": 1}
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
    other.request("POST", "/v1/completions", json.dumps({"prompt": [9], "max_tokens": 3}))
    try:
        status = other.getresponse().status
    except OSError as e:
        status = e
    check("others go on beside a client that does not read", status == 200, status)
    got = bytearray()
    c.settimeout(PATIENCE)
    while not got.endswith(b"0\r\n\r\n"):
        part = c.recv(1 << 16)
        if not part:
            break
        got += part
texts, said = [""] * 16, bytearray()
at = got.index(b"\r\n\r\n") + 4
while at < len(got):
    end = got.index(b"\r\n", at)
    size = int(got[at:end], 16)
    said += got[end + 2:end + 2 + size]
    at = end + 2 + size + 2
for line in said.decode().splitlines():
    if line.startswith("data: {"):
        choice = json.loads(line[6:])["choices"][0]
        texts[choice["index"]] += choice["text"]
check("and its texts are those of a client that reads", texts == want, [(i, a, b) for i, (a, b) in enumerate(zip(texts, want)) if a != b][:1])
check("slow readers: ends", s.stop() == 0, s.said)

# --- A client that never reads does not keep a server that ends for longer than 30 seconds.
if os.environ.get("KVIK_TEST_LONG") == "1":
    s = Server(MODEL)
    with socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        c.sendall(request(b"/v1/completions", dict(body, n=64, stream=True)))
        c.recv(1, socket.MSG_PEEK)
        begun = time.time()
        check("a client that never reads: the server ends", s.stop() == 0, s.said)
        check("a client that never reads: and not before it had time", time.time() - begun > 29, time.time() - begun)

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


used = s.cpu_seconds()
time.sleep(3)
check("without descriptors the server neither spins nor fills its log", s.cpu_seconds() - used < 1 and len(s.said) < 100, (s.cpu_seconds() - used, len(s.said)))
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
