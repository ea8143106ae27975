"""A store of prefixes that servers share: a real redis-server, and a proxy before it that drops, delays, cuts and changes bytes."""
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

from harness import KVIK, PATIENCE, Server, check, finish, skip, tiny, until, work
from redis_server import PROGRAM, Redis, free_port

if not PROGRAM:
    skip("redis-server is not installed (Debian: redis-tools)")
    finish()


class Proxy:
    """Stands before a Redis and does to its replies what `mode` says."""

    def __init__(self, port, seed=1):
        self.to, self.mode, self.random, self.flips = port, "pass", random.Random(seed), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            c, _ = self.listener.accept()
            if self.mode == "refuse":
                c.close()
                continue
            r = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.carry, args=(c, r, False), daemon=True).start()
            threading.Thread(target=self.carry, args=(r, c, True), daemon=True).start()

    def carry(self, a, b, reply):
        sent = 0
        try:
            while True:
                data = bytearray(a.recv(1 << 16))
                if not data:
                    break
                if reply and self.mode == "hang":
                    continue
                if reply and self.mode == "slow":
                    for i in range(0, len(data), 512):
                        b.sendall(data[i:i + 512])
                        time.sleep(0.2)
                    continue
                if reply and self.mode == "flip" and sent + len(data) > 200:
                    data[self.random.randrange(max(0, 200 - sent), len(data))] ^= 1 << self.random.randrange(8)
                    self.flips += 1
                if self.mode == ("cut" if reply else "drop") and sent + len(data) > 5000:
                    b.sendall(data[:self.random.randrange(len(data))])
                    break
                b.sendall(data)
                sent += len(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


LONG = os.environ.get("KVIK_TEST_LONG") == "1" or "long" in sys.argv
model = tiny("llama-bf16-long")
IDS = [5 + (i * 11 + i * i) % 50 for i in range(1100)]


def ask(s, ids=IDS, key=None, **more):
    """Returns the tokens that the cache had, those that came from the store, and the new ones."""
    body = {"prompt": ids, "max_tokens": 8, "temperature": 0, "return_token_ids": True, **more}
    code, o = s.post("/v1/completions", body, {"Authorization": "Bearer " + key} if key else {})
    assert code == 200, o
    return o["usage"]["prompt_tokens_details"]["cached_tokens"], o["kvik"]["fetched"], o["choices"][0]["token_ids"]


def written(redis, n):
    """Waits until the store has n values."""
    until(lambda: redis.values() >= n)
    return redis.values()


def second(store, *options, ids=IDS, key=None, env=None):
    """Starts servers until one of them is slower in computing a prompt than in reading it: with a tiny model either may be first.
    Returns it, and what each has fetched and said."""
    tries = []
    for _ in range(60):
        s = Server(model, "--prefix-store", store, *options, env=env)
        _, came, got = ask(s, ids, key)
        tries.append((came, got))
        if came == len(ids) // 128 * 128:  # and not a part: then computing was ahead of the rest
            break
        s.stop()
    return s, tries


redis = Redis()
STORE = f"redis://127.0.0.1:{redis.port}"
alone = Server(model)
_, _, want = ask(alone)
alone.stop()
a = Server(model, "--prefix-store", STORE)
check("the first computes", ask(a) == (0, 0, want))
check("what it computed is written: 8 values of 128 tokens", written(redis, 8) == 8)
b, tries = second(STORE)
check("a second server reads it, and has the same tokens", tries[-1] == (1024, want) and all(t[1] == want for t in tries), tries)
check("and then it is in its cache", ask(b)[:2] == (1099, 0))
check("the numbers say so", b.metric("kvik:store_reads_total") == 8 and b.metric("kvik:store_damaged_total") == 0)
check("ends", a.stop() == 0 and b.stop() == 0, a.said + b.said)

# --- The command, through the Redis and a directory.
for store in (STORE, f"file://{work}/store"):
    said, got = [], []
    for _ in range(60):  # until reading is ahead of computing
        r = subprocess.run([KVIK, "generate", model, "--input-ids", ",".join(map(str, IDS)), "--max-new-tokens", "8", "--json", "--verbose",
                            "--prefix-store", store], capture_output=True, text=True, timeout=PATIENCE)
        got.append(r.returncode == 0 and json.loads(r.stdout)["sequences"][0][-8:])
        said.append("1024 of 1100 tokens of the prompt come from the store" in r.stderr)
        if said[-1]:
            break
    check(f"generate: {store}: reads, and has the same tokens", said[-1] and all(g == want for g in got), (said, got, r.stderr))
first = [KVIK, "chat", model, "a long beginning " * 40, "--max-new-tokens", "8", "--greedy", "--cache-report"]
plain = subprocess.run(first, capture_output=True, text=True, timeout=PATIENCE)
for _ in range(6):
    r = subprocess.run([*first, "--prefix-store", STORE], capture_output=True, text=True, timeout=PATIENCE)
    if r.stderr != plain.stderr and "reused" in r.stderr:
        break
check("chat: the same answer", r.returncode == 0 and r.stdout == plain.stdout, (r.stdout, plain.stdout, r.stderr))
for name, place, why in (("nobody listens", f"redis://127.0.0.1:{free_port()}", "Connection refused"), ("a directory that cannot be written", "file:///proc/1", "/proc/1: ")):
    r = subprocess.run([KVIK, "generate", model, "--input-ids", ",".join(map(str, IDS)), "--max-new-tokens", "8", "--json", "--prefix-store", place],
                       capture_output=True, text=True, timeout=PATIENCE)
    check(f"generate: {name}: the same tokens, and a line that says so", r.returncode == 0 and json.loads(r.stdout)["sequences"][0][-8:] == want
          and r.stderr.count("kvik: --prefix-store: ") == 1 and why in r.stderr, r)
r = subprocess.run([KVIK, "generate", model, "x", "--prefix-store", "http://h"], capture_output=True, text=True, timeout=PATIENCE)
check("a wrong address is an error", r.returncode == 1 and "--prefix-store: the address of a store begins with redis://" in r.stderr, r.stderr)

# Computing is not ahead of a proxy or of TLS then; for who writes and who reads, since some sets of instructions round on their own.
slow = {"KVIK_ISA": "ref"}

# --- A store that misbehaves: the answers are right, and in time.
proxy = Proxy(redis.port)
THROUGH = f"redis://127.0.0.1:{proxy.port}"
for mode in ["flip", "cut", "drop", "refuse", "hang", "slow"]:
    for turn in range(12 if LONG and mode in ("flip", "cut", "drop") else 1):
        proxy.mode = mode
        s = Server(model, "--prefix-store", THROUGH)
        tokens = [ask(s)[2], ask(s, IDS[1:])[2] and ask(s)[2]]
        check(f"{mode}: the same tokens", tokens == [want, want], tokens)
        proxy.mode = "refuse" if mode in ("hang", "slow") else mode  # a hanging write would be waited for
        check(f"{mode}: ends", s.stop() == 0, s.said)
# While a store may still answer, steps are short, so that its rows can be taken. That ends after a tenth of the prompt and a moment.
proxy.mode = "hang"
s = Server(model, "--prefix-store", THROUGH, "--threads", "1", env={"KVIK_ISA": "ref"})
ask(s)
steps = s.metric("kvik:steps_total")
check("a store that hangs does not keep the steps of a prompt short", steps < 8 + 1100 / 64 * 0.5, steps)  # the answer has eight tokens
proxy.mode = "refuse"
s.stop()
for _ in range(60):  # until a value was read before it was computed
    if proxy.flips:
        break
    proxy.mode = "flip"
    s = Server(model, "--prefix-store", THROUGH, env=slow)
    check("flip: the same tokens", ask(s)[2] == want)
    s.stop()
check("bytes were changed", proxy.flips > 0)
proxy.mode = "pass"
a = Server(model, "--prefix-store", THROUGH, env=slow)
ask(a)
check("damaged values are written again", written(redis, 8) >= 8)
a.stop()
b, tries = second(THROUGH, env=slow)
check("and read", tries[-1] == (1024, want), tries)
b.stop()

# --- It dies, and comes back: whoever runs the server is told.
def lines():
    return [json.loads(x)["prefix_store"] for x in s.said if x.startswith("{") and "prefix_store" in x]


port = redis.port
s = Server(model, "--prefix-store", STORE)
check("it works: /props and /metrics say so", s.get("/props")[1]["prefix_store"] == {"status": "ok", "reads_fail": False, "writes_fail": False,
      "failures": 0, "error": ""} and s.metric("kvik:store_failing") == 0, s.get("/props")[1])
redis.stop()
check("dead: the same tokens", ask(s)[2] == want)
check("dead: /metrics says so", until(lambda: s.metric("kvik:store_failing") == 1))
shown = s.get("/props")[1]["prefix_store"]
check("dead: and /props says why", shown["status"] == "failing" and f"redis://127.0.0.1:{port}/0" in shown["error"] and shown["failures"] > 0, shown)
check("dead: a line without --log", until(lines) and lines()[0]["status"] == "failing" and lines()[0]["error"] == shown["error"], s.said)
check("dead: and so does the map that the page shows", s.get("/kvik/store")[1]["prefix_store"]["status"] == "failing")
for i in range(3):
    ask(s, IDS[i:])
check("dead: one line, however often it fails", len(lines()) == 1, lines())
redis = Redis(port=port)
check("it comes back empty: the same tokens", ask(s, IDS[:1090])[2] is not None and ask(s)[2] == want)


def works():
    ask(s, [draw.randrange(5, 55) for _ in range(300)])
    time.sleep(0.2)
    return s.get("/props")[1]["prefix_store"]["status"] == "ok"


draw = random.Random(3)
check("it comes back: /props says so", until(works))
if LONG:
    check("it comes back: a line, a minute after the first", until(lambda: works() and len(lines()) > 1) and lines()[1]["status"] == "ok", lines())
check("dead: ends", s.stop() == 0, s.said)

# --- A socket of this machine, with a password.
local = Redis("--unixsocket", os.path.join(work, "redis.sock"), "--requirepass", "pw")
LOCAL = f"unix://:pw@{work}/redis.sock?db=2"
a = Server(model, "--prefix-store", LOCAL)
check("unix: computed", ask(a)[2] == want)
a.stop()
b, tries = second(LOCAL)
check("unix: a second server reads it", tries[-1] == (1024, want), tries)
check("unix: ends", b.stop() == 0, b.said)
local.stop()

# --- It evicts what was used longest ago: prompts come and go, and none is wrong.
lru = Redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
prompts = [[5 + (i * (7 + 2 * k) + i * i) % 50 for i in range(1100)] for k in range(8)]
a = Server(model, "--prefix-store", f"redis://127.0.0.1:{lru.port}")
wants = [ask(a, p)[2] for p in prompts]
check("evicting: all are written", written(lru, 60) >= 60, lru.values())
a.stop()


def used():
    return int(lru.say("INFO", "memory").split(b"used_memory:")[1].split(b"\r")[0])


lru.say("CONFIG", "SET", "maxmemory", used() - 1)  # some have to go, and more with each that comes
b = Server(model, "--prefix-store", f"redis://127.0.0.1:{lru.port}")
for round in range(3):
    check("evicting: the same tokens", [ask(b, p, cache_salt=str(round % 2))[2] for p in prompts] == wants)
until(lambda: b.metric("kvik:store_waiting_bytes") == 0)
gone = int(lru.say("INFO", "stats").split(b"evicted_keys:")[1].split(b"\r")[0])
check("evicting: values went, and that is no failure", gone > 0 and b.metric("kvik:store_failures_total") == 0 and b.metric("kvik:store_damaged_total") == 0,
      (gone, b.get("/props")[1]["prefix_store"]))
check("evicting: ends", b.stop() == 0, b.said)
lru.stop()

# --- It is full: what was there is read, and nothing else is lost.
full = Redis("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
s = Server(model, "--prefix-store", f"redis://127.0.0.1:{full.port}")
check("full: the same tokens", ask(s)[2] == want and ask(s)[2] == want)
check("full: ends", s.stop() == 0, s.said)
full.stop()

# --- Keys of clients.
ANN, BOB = "sk-of-annabella", "sk-of-bobolink"
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write(f"{ANN}\n{BOB}\n")
# --- Values that go by themselves.
redis.say("FLUSHALL")
a = Server(model, "--prefix-store", STORE + "/3?ttl=1000")
ask(a)


def kept():
    """Returns the seconds for which a value of the third database stays."""
    with socket.create_connection(("127.0.0.1", redis.port), timeout=PATIENCE) as c:
        c.sendall(b"SELECT 3\r\nRANDOMKEY\r\n")
        time.sleep(0.05)
        key = c.recv(999).split(b"\r\n")[2]
        c.sendall(b"TTL " + (key or b"none") + b"\r\n")
        return int(c.recv(99)[1:].split(b"\r")[0])


check("ttl and a database: values are there, and stay so long", until(lambda: 0 < kept() <= 1000) and redis.values() == 0, (kept(), redis.values()))
a.stop()
redis.say("FLUSHALL")
a = Server(model, "--prefix-store", STORE, "--api-key-file", keys)
ask(a, key=ANN)
check("keys: written", written(redis, 8) == 8)
check("keys: another key computes, and the store has its rows apart", ask(a, key=BOB)[0] == 0 and written(redis, 16) == 16)
a.stop()
redis.say("FLUSHALL")
a = Server(model, "--prefix-store", STORE, "--api-key-file", keys)
ask(a, key=ANN)
written(redis, 8)
a.stop()
b, tries = second(STORE, "--api-key-file", keys, key=ANN)
check("keys: the same key reads", tries[-1] == (1024, want), tries)
check("keys: another does not", ask(b, key=BOB)[:2] == (0, 0))
b.stop()

# --- A password, and TLS.
crt, pem = (os.path.join(work, n) for n in ("redis.crt", "redis.key"))
made = shutil.which("openssl") and subprocess.run(
    ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
     "subjectAltName=DNS:localhost", "-keyout", pem, "-out", crt], capture_output=True).returncode == 0
if made:
    tls = free_port()
    safe = Redis("--tls-port", str(tls), "--tls-cert-file", crt, "--tls-key-file", pem, "--tls-ca-cert-file", crt, "--tls-auth-clients", "no")
    safe.say("CONFIG", "SET", "requirepass", "of the store")

    def values():
        with socket.create_connection(("127.0.0.1", safe.port), timeout=PATIENCE) as c:
            c.sendall(b"AUTH \"of the store\"\r\nDBSIZE\r\nQUIT\r\n")
            return int(b"".join(iter(lambda: c.recv(99), b"")).split(b":")[1].split(b"\r")[0])
    TLS = f"rediss://localhost:{tls}/0?ssl_ca_certs={crt}"
    word = os.path.join(work, "password")
    with open(word, "w") as f:
        f.write("of the store\n")
    a = Server(model, "--prefix-store", TLS, env={"REDISCLI_AUTH": "of the store", **slow})
    check("TLS: computed", ask(a)[2] == want)
    a.stop()
    check("TLS: written with the password of the environment", values() == 8, values())
    b, tries = second(f"{TLS}&password_file={word}", env=slow)
    check("TLS: read with the password of a file", tries[-1] == (1024, want), tries)
    b.stop()
    right = TLS.replace("rediss://", "rediss://:of%20the%20store@")
    for name, store, why in [("the wrong password", f"rediss://:wrong@localhost:{tls}/0?ssl_ca_certs={crt}", "refuses the password"),
                             ("no password", TLS, "NOAUTH"),
                             ("a certificate that nobody vouches for", f"rediss://:of%20the%20store@localhost:{tls}/0", "certificate"),
                             ("a certificate of another host", right.replace("localhost", "127.0.0.1"), "certificate"),
                             ("no TLS", f"redis://:of%20the%20store@localhost:{tls}/0", "")]:
        s = Server(model, "--prefix-store", store, env=slow)
        check(f"{name}: the same tokens, and nothing from the store", ask(s)[1:] == (0, want))
        check(f"{name}: fails", until(lambda: s.metric("kvik:store_failing") == 1))
        check(f"{name}: says why", why in s.get("/props")[1]["prefix_store"]["error"], s.get("/props")[1]["prefix_store"])
        check(f"{name}: ends", s.stop() == 0, s.said)
    s = Server(model, "--prefix-store", right, env=slow)
    check("all of it right: no failure", ask(s)[2] == want and s.metric("kvik:store_failing") == 0, s.get("/props")[1]["prefix_store"])
    s.stop()
    check("nothing else was written", values() == 8, values())
else:
    skip("openssl is not installed")
finish()
