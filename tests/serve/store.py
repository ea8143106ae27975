"""A store of prefixes that servers share: a real redis-server, and a proxy before it that drops, delays, cuts and changes bytes."""
import os
import shutil
import socket
import subprocess
import time

from harness import PATIENCE, Server, check, finish, skip, tiny, work
from harness import servers as all_servers

if not shutil.which("redis-server"):
    skip("redis-server is not installed (Debian: redis-server)")
    finish()


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


class Redis:
    """A redis-server of this test, without files."""

    def __init__(self, *options, port=None):
        self.port = port or free_port()
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                         "--dir", work, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        all_servers.append(self)
        end = time.time() + PATIENCE
        while time.time() < end:
            try:
                if self.say("PING"):
                    return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("redis-server did not start")

    def say(self, *words):
        """Sends a command; returns the first bytes of the reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as c:
            words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
            c.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            return c.recv(1 << 16)

    def values(self):
        return int(self.say("DBSIZE")[1:].split(b"\r")[0])

    def stop(self):
        self.process.kill()
        self.process.wait()


model = tiny("llama-bf16-long")
IDS = [5 + (i * 11 + i * i) % 50 for i in range(1100)]


def ask(s, ids=IDS, key=None, **more):
    """Returns the tokens that the cache had, those that came from the store, and the new ones."""
    body = {"prompt": ids, "max_tokens": 8, "temperature": 0, "return_token_ids": True, **more}
    code, o = s.post("/v1/completions", body, {"Authorization": "Bearer " + key} if key else {})
    assert code == 200, o
    return o["usage"]["prompt_tokens_details"]["cached_tokens"], o["kvik"]["fetched"], o["choices"][0]["token_ids"]


def written(redis, n, seconds=PATIENCE):
    """Waits until the store has n values."""
    end = time.time() + seconds
    while redis.values() < n and time.time() < end:
        time.sleep(0.02)
    return redis.values()


def second(store, *options, ids=IDS, key=None):
    """Starts servers until one of them is slower in computing a prompt than in reading it: with a tiny model either may be first.
    Returns it, and what each has fetched and said."""
    tries = []
    for _ in range(12):
        s = Server(model, "--prefix-store", store, *options)
        _, came, got = ask(s, ids, key)
        tries.append((came, got))
        if came:
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
check("ends", a.stop() == 0 and b.stop() == 0, a.said + b.said)
finish()
