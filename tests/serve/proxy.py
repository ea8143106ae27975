"""examples/serve: nginx with TLS in front of three replicas, as nginx.conf has it, and kvik.service under what its sandbox forbids.
make test-serve runs this; what is not installed is skipped."""
import ctypes
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time

from harness import KVIK, PATIENCE, ROOT, Server, at_once, check, finish, skip, tiny, work
from harness import servers as all_servers

MODEL = tiny("llama-mha")
EXAMPLES = os.path.join(ROOT, "examples", "serve")


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


def example(name, changes):
    """Returns an example with other ports and paths, each of which must be there."""
    with open(os.path.join(EXAMPLES, name)) as f:
        text = f.read()
    for old, new in changes.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    return text


class Proxy:
    """nginx with the example's configuration in front of servers."""

    def __init__(self, nginx, servers, changes):
        crt, key, conf = (os.path.join(work, n) for n in ("kvik.crt", "kvik.key", "nginx.conf"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-keyout", key, "-out", crt], check=True, capture_output=True)
        self.port = free_port()
        changes = {"127.0.0.1:8081": f"127.0.0.1:{servers[0].port}", "127.0.0.1:8082": f"127.0.0.1:{servers[1].port}",
                   "127.0.0.1:8083": f"127.0.0.1:{servers[2].port}", "listen 8443": f"listen 127.0.0.1:{self.port}",
                   "/etc/nginx/kvik.crt": crt, "/etc/nginx/kvik.key": key, **changes}
        with open(conf, "w") as f:
            f.write(f"error_log {work}/error.log;\npid {work}/nginx.pid;\n" + example("nginx.conf", changes).replace(
                "http {", "http {\n" + "".join(f"    {n}_temp_path {work}/{n};\n" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")), 1))
        self.process = subprocess.Popen([nginx, "-c", conf, "-p", work, "-g", "daemon off; master_process off;"], stderr=subprocess.DEVNULL)
        all_servers.append(self)  # which are ended at exit
        self.trust = ssl.create_default_context(cafile=crt)
        end = time.time() + PATIENCE
        while time.time() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.1)

    def connect(self, room=None):
        """Opens a connection whose socket takes `room` bytes that are not read yet."""
        plain = socket.socket()
        if room:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        plain.settimeout(PATIENCE)
        plain.connect(("127.0.0.1", self.port))
        c = http.client.HTTPConnection("localhost", self.port)
        c.sock = self.trust.wrap_socket(plain, server_hostname="localhost")
        return c

    def post(self, path, body, **headers):
        c = self.connect()
        c.request("POST", path, json.dumps(body), headers)
        r = c.getresponse()
        return r.status, json.loads(r.read())

    def stop(self):
        self.process.terminate()
        return self.process.wait(PATIENCE)


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_affinity(p, servers):
    """Each of 30 conversations (so many that no replica has none by chance) computes only what is new, through two turns; and they are spread."""
    def talk(i):
        who = {"X-Session-Id": f"s{i}"} if i % 2 else {"Authorization": f"Bearer key{i}"}
        ids, reused = [5 + (i * 7 + k * k) % 50 for k in range(80)], []
        for _ in range(3):
            code, a = p.post("/v1/completions", {"prompt": ids, "max_tokens": 8, "temperature": 0, "return_token_ids": True}, **who)
            assert code == 200, a
            reused.append(cached(a))
            have = len(ids) + 7
            ids = ids + a["choices"][0]["token_ids"] + [9, 10, 11]
        return reused, have
    got = at_once([lambda i=i: talk(i) for i in range(30)])
    check("nginx: every turn reuses all that its conversation has", all(r[1] >= 80 and r[2] > r[1] for r, have in got), got)
    share = [s.metric("vllm:prompt_tokens_total") for s in servers]
    check("nginx: conversations are spread over the replicas", sum(n > 0 for n in share) == 3, share)
    return got


def test_streams(p, servers):
    """A stream is not buffered: a client that does not read makes its replica pause, and then has the whole text."""
    body = {"prompt": [5, 9, 12], "n": 64, "max_tokens": 240, "ignore_eos": True, "logprobs": 20, "logit_bias": {"2": -100}, "seed": 3, "temperature": 1}
    who = {"X-Session-Id": "slow"}
    plain = {k: v for k, v in body.items() if k != "logprobs"}  # a whole answer holds no more than 262144 of them
    want = [c["text"] for c in p.post("/v1/completions", plain, **who)[1]["choices"]]
    before = [s.metric("vllm:generation_tokens_total") for s in servers]
    c = p.connect(4096)
    c.request("POST", "/v1/completions", json.dumps(dict(body, stream=True)), who)
    made, still = -1, 0
    while still < 8:  # until its generation pauses
        time.sleep(0.3)
        now = [s.metric("vllm:generation_tokens_total") + s.get("/kvik/store")[1]["writing"] for s in servers]
        still = still + 1 if now == made else 0
        made = now
    made = sum(made) - sum(before)
    check("nginx: a client that does not read makes its replica pause", 0 < made < 64 * 240, made)
    r = c.getresponse()
    text = r.read()
    parts = [""] * 64
    for line in text.split(b"\n"):
        if line.startswith(b"data: {"):
            for one in json.loads(line[6:])["choices"]:
                parts[one["index"]] += one["text"]
    check("nginx: and has all of its stream when it reads", parts == want and text.endswith(b"data: [DONE]\n\n"), (len(text), text[-300:]))
    check("nginx: a stream is a stream", r.getheader("Content-Type") == "text/event-stream", r.getheaders())


def test_death(p, servers):
    """One replica is killed: its conversations go on elsewhere, and those of the others stay."""
    def ask(i):
        code, a = p.post("/v1/completions", {"prompt": [5 + (i * 3 + k) % 50 for k in range(100)], "max_tokens": 2, "temperature": 0}, **{"X-Session-Id": f"d{i}"})
        return code, cached(a) if code == 200 else a
    first = [ask(i) for i in range(12)]
    counts = [s.metric("vllm:prompt_tokens_total") for s in servers]
    home = []
    for i in range(12):
        ask(i)
        now = [s.metric("vllm:prompt_tokens_total") for s in servers]
        home.append(next(k for k in range(3) if now[k] != counts[k]))
        counts = now
    servers[home[0]].process.kill()
    servers[home[0]].process.wait()
    again = [ask(i) for i in range(12)]
    check("nginx: before a replica dies", all(code == 200 for code, n in first), first)
    check("nginx: a replica dies, and every request is answered", all(code == 200 for code, n in again), again)
    check("nginx: conversations of the others stay where they are", all(n >= 96 for i, (code, n) in enumerate(again) if home[i] != home[0])
          and any(h != home[0] for h in home), (home, again))
    check("nginx: those of the dead one begin again", again[0][1] < 96 and ask(0)[1] >= 96, again[0])


def test_nginx():
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not nginx or not shutil.which("openssl"):
        skip("nginx or openssl is not installed (Debian: nginx, openssl)")
        return
    servers = [Server(MODEL) for _ in range(3)]
    p = Proxy(nginx, servers, {})
    test_affinity(p, servers)
    test_streams(p, servers)
    test_death(p, servers)
    check("nginx: ends", p.stop() == 0)
    for s in servers:
        s.process.kill()


def test_unit():
    """systemd reads the unit, and finds little to mind; and the server runs without memory that it can write and execute."""
    tool = shutil.which("systemd-analyze")
    unit = os.path.join(work, "kvik.service")
    with open(unit, "w") as f:
        f.write(example("kvik.service", {"/usr/local/bin/kvik": os.path.abspath(KVIK)}))
    if tool:
        r = subprocess.run([tool, "verify", "--man=no", unit], capture_output=True, text=True)
        said = [x for x in r.stderr.splitlines() if "kvik.service" in x]
        check("systemd-analyze verify says nothing of the unit", r.returncode == 0 and not said, r)
        r = subprocess.run([tool, "security", "--offline=true", "--threshold=15", "--no-pager", unit], capture_output=True, text=True)
        check("systemd-analyze security: exposed at most 1.5 of 10", r.returncode == 0, r.stdout[-3000:] + r.stderr)
    else:
        skip("systemd-analyze is not installed (Debian: systemd)")
    if can_deny():
        s = Server(MODEL, start=deny_executable_memory)
        code, a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello, 20 of them."}], "max_tokens": 4})
        check("the server answers without memory that it can write and execute", code == 200, a)
        check("and ends", s.stop() == 0, s.said)
    else:
        skip("this kernel cannot deny memory that is written and executed (Linux 6.3)")


PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1


def deny_executable_memory():
    ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)


def can_deny():
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0)
    return os.waitpid(pid, 0)[1] == 0


test_unit()
test_nginx()
finish()
