"""What the tests of kvik serve share: a server as a child, a client, checks, and closing lines in cmocka's format."""
import atexit
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KVIK = os.environ.get("KVIK") or os.path.join(ROOT, "kvik")
PATIENCE = int(os.environ.get("KVIK_TEST_PATIENCE") or 300)
work = tempfile.mkdtemp()
counts = {"PASSED": 0, "FAILED": 0, "SKIPPED": 0}
servers = []


@atexit.register
def clean():
    for s in servers:
        s.process.kill()
    shutil.rmtree(work, ignore_errors=True)


def check(name, good, shown=""):
    """Counts one test; `shown` helps to understand a failure."""
    counts["PASSED" if good else "FAILED"] += 1
    if not good:
        print(f"FAIL {name}\n  {str(shown)[:1500]}", flush=True)
    return good


def skip(reason):
    counts["SKIPPED"] += 1
    print(f"skipped: {reason}")


def finish():
    for name, n in counts.items():
        if n or name == "PASSED":
            print(f"[  {name:8}] {n} test(s){'.' if name == 'PASSED' else ', listed above.'}")
    sys.exit(1 if counts["FAILED"] else 0)


def tiny(name):
    """Returns a tiny model with a byte tokenizer and a chat template."""
    out = os.path.join(work, name)
    if not os.path.isdir(out):
        subprocess.run([sys.executable, os.path.join(ROOT, "tests/cli/tiny.py"),
                        os.path.join(ROOT, "tests/golden/models", name), out], check=True)
    return out


def far():
    """Returns a tiny model whose texts may have 32768 tokens."""
    out = os.path.join(work, "far")
    if not os.path.isdir(out):
        shutil.copytree(tiny("llama-mha"), out)
        path = os.path.join(out, "config.json")
        with open(path) as f:
            config = json.load(f)
        with open(path, "w") as f:
            json.dump(dict(config, max_position_embeddings=32768), f)
    return out


class Server:
    """A running kvik serve on a free port."""

    def __init__(self, model, *options, env=None, start=None):
        self.log = tempfile.TemporaryFile("w+", dir=work)
        self.process = subprocess.Popen([KVIK, "serve", model, "--port", "0", *options], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
                                        env=dict(os.environ, **(env or {})), preexec_fn=start)
        servers.append(self)
        self.said = []
        self.port = None
        ready = threading.Event()

        def read():
            for line in self.process.stderr:
                self.said.append(line)
                found = re.search(r"http://.*:(\d+)", line)
                if found and not self.port:
                    self.port = int(found.group(1))
                    ready.set()
            ready.set()
        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        ready.wait(PATIENCE)
        if not self.port:
            raise RuntimeError("the server did not start: " + "".join(self.said))

    def connect(self, address="127.0.0.1"):
        """Connects from an address of this machine; another one is another client."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE, source_address=(address, 0))

    def ask(self, method, path, body=None, headers=None, address="127.0.0.1"):
        """Returns the status and the body, which is parsed if it is JSON."""
        c = self.connect(address)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        if "json" in (r.getheader("Content-Type") or ""):
            data = json.loads(data)
        return r.status, data

    def post(self, path, body, headers=None, address="127.0.0.1"):
        return self.ask("POST", path, body, headers, address)

    def get(self, path, headers=None):
        return self.ask("GET", path, None, headers)

    def stream(self, path, body, headers=None):
        """Yields the events of a stream, parsed, without the last [DONE]."""
        c = self.connect()
        c.request("POST", path, json.dumps(body), headers or {})
        r = c.getresponse()
        assert r.status == 200, (r.status, r.read())
        for line in r:
            line = line.decode().rstrip("\n")
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[6:])
            self.last = line or self.last if hasattr(self, "last") else line
        c.close()

    def metric(self, name, headers=None):
        for line in self.get("/metrics", headers)[1].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def cpu_seconds(self):
        """Returns the CPU time that the server has used."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """Ends the server as systemd does; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        rc = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return rc


def until(done, seconds=PATIENCE):
    """Waits until done() is true, or for so long; returns what it returned last."""
    end = time.time() + seconds
    while not (got := done()) and time.time() < end:
        time.sleep(0.01)
    return got


def at_once(jobs):
    """Calls all functions at the same time; returns their results in order."""
    out = [None] * len(jobs)

    def run(i):
        out[i] = jobs[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def generate(model, *options):
    """Runs kvik generate and returns its JSON."""
    r = subprocess.run([KVIK, "generate", model, "--json", *options], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, timeout=PATIENCE)
    if r.returncode:
        raise RuntimeError(r.stderr)
    return json.loads(r.stdout)
