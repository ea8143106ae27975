"""A real redis-server as a child of a test. Debian's package redis-server starts a service; redis-tools has the same program under another name."""
import shutil
import socket
import subprocess
import time

from harness import PATIENCE, work
from harness import servers as all_servers

PROGRAM = shutil.which("redis-server") or shutil.which("redis-check-rdb")


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


class Redis:
    """A redis-server of this test, without files."""

    def __init__(self, *options, port=None):
        self.port = port or free_port()
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                         "--dir", work, *options], executable=PROGRAM, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
