"""Real routers in front of replicas, for tests and for make bench-fleet: smg (PyPI) and nginx (Debian)."""
import http.client
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

from harness import PATIENCE, ROOT, servers, work


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


class Router:
    """A process that takes requests for replicas."""

    def __init__(self, command, port, log):
        self.port = port
        self.log = os.path.join(work, log)
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        servers.append(self)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, **headers):
        c = self.connect()
        c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", **headers})
        r = c.getresponse()
        data = r.read()
        c.close()
        try:
            return r.status, json.loads(data)
        except ValueError:
            return r.status, data

    def until(self, ready):
        end = time.time() + PATIENCE
        while time.time() < end:
            if self.process.poll() is not None:
                break
            try:
                if ready():
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        with open(self.log) as f:
            raise RuntimeError(f"the router is not ready: {f.read()[-2000:]}")

    def stop(self):
        self.process.kill()
        self.process.wait(PATIENCE)


def has_smg():
    return importlib.util.find_spec("smg") is not None


def smg(replicas, policy, *options):
    """Starts smg with a policy, and waits until it knows the replicas."""
    port = free_port()
    r = Router([sys.executable, "-m", "smg.launch_router", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()), "--log-level", "warn",
                "--policy", policy, *options, "--worker-urls", *[f"http://127.0.0.1:{s.port}" for s in replicas]], port, f"smg-{policy}.log")

    def healthy():
        code, a = r.ask("GET", "/workers")
        return code == 200 and json.dumps(a).count('"is_healthy": true') == len(replicas)
    return r.until(healthy)


def nginx(replicas):
    """Starts nginx with examples/serve/nginx.conf, without TLS and on other ports."""
    port = free_port()
    with open(os.path.join(ROOT, "examples/serve/nginx.conf")) as f:
        text = f.read()
    for i, s in enumerate(replicas):
        text = text.replace(f"127.0.0.1:{8081 + i}", f"127.0.0.1:{s.port}")
    text = re.sub(r"listen 8443 ssl;(?s:.*?)(?=\s*client_max_body_size)", f"listen 127.0.0.1:{port};", text)
    text = f"error_log {work}/nginx-error.log;\npid {work}/nginx.pid;\n" + text.replace(
        "http {", "http {\n" + "".join(f"    {n}_temp_path {work}/{n};\n" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")), 1)
    conf = os.path.join(work, "fleet.conf")
    with open(conf, "w") as f:
        f.write(text)
    r = Router([shutil.which("nginx"), "-c", conf, "-p", work, "-g", "daemon off; master_process off;"], port, "nginx.log")
    return r.until(lambda: r.ask("GET", "/health")[0] == 200)
