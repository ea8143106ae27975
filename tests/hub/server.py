"""A hub for tests: the routes of the Hugging Face hub on one port, and the contents of large files on another, as of a CDN.

Each request is kept in `Hub.seen`.  `Hub.faults` says what goes wrong: a list of (pattern of the path, fault, times).
"""
import hashlib
import json
import re
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<!DOCTYPE html>\n<html><body>Please sign in.</body></html>\n"


def git_sha(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    """A repository: files by path, those of `large` in LFS; branches and tags name commits, which have all the same files
    unless `commits` says otherwise."""

    def __init__(self, files, large=(), commit="c" * 40, branches=None, tags=None, commits=None, token=None, gated=False):
        self.files, self.large, self.token, self.gated = files, large, token, gated
        self.branches = branches or {"main": commit}
        self.tags = tags or {}
        self.commits = commits or {commit: files}

    def resolve(self, revision):
        commit = self.branches.get(revision) or self.tags.get(revision) or revision
        return commit if commit in self.commits else None

    def is_large(self, path):
        return any(path.endswith(tail) for tail in self.large)

    def entry(self, commit, path):
        data = self.commits[commit][path]
        o = {"type": "file", "oid": git_sha(data), "size": len(data), "path": path}
        if self.is_large(path):
            o["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            o["oid"] = git_sha(b"pointer to " + data)
        return o


class Hub:
    def __init__(self, repos, page=1000):
        self.repos, self.page = repos, page
        self.seen, self.faults, self.lists = [], [], {}
        self.lock = threading.Lock()
        self.hub = self.start("hub")
        self.cdn = self.start("cdn")
        self.url = f"http://127.0.0.1:{self.hub.server_port}"
        self.cdn_url = f"http://localhost:{self.cdn.server_port}"

    def start(self, origin, tls=None):
        """Starts a server of this hub; tls: the files of its certificate and key."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.hub, server.origin, server.daemon_threads = self, origin, True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def fault(self, pattern, what, times=1):
        with self.lock:
            self.faults.append([re.compile(pattern), what, times])

    def take_fault(self, path):
        with self.lock:
            for f in self.faults:
                if f[0].search(path) and f[2]:
                    f[2] -= 1
                    return f[1]
        return None

    def reset(self):
        with self.lock:
            self.seen, self.faults, self.lists = [], [], {}

    def asked(self, pattern, origin=None):
        return [r for r in list(self.seen) if re.search(pattern, r["path"]) and origin in (None, r["origin"])]

    def by_sha(self, sha):
        for repo in self.repos.values():
            for files in repo.commits.values():
                for data in files.values():
                    if hashlib.sha256(data).hexdigest() == sha:
                        return data
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, BrokenPipeError):
            pass

    def reply(self, status, body=b"", headers=(), kind="application/json"):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(n == "Content-Length" for n, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        if body and not any(n == "Content-Type" for n, _ in headers):
            self.send_header("Content-Type", kind)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def say(self, status, code="", message="", headers=()):
        self.reply(status, json.dumps({"error": message or code}).encode(),
                   [("X-Error-Code", code), ("X-Error-Message", message or code), *headers])

    def drop(self):
        self.wfile.flush()
        self.close_connection = True
        self.connection.close()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, url = self.server.hub, urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        with hub.lock:
            hub.seen.append({"origin": self.server.origin, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}})
        fault = hub.take_fault(self.path)
        if fault and self.common_fault(fault):
            return
        if self.server.origin == "cdn":
            data = hub.by_sha(path.strip("/"))
            self.reply(404) if data is None else self.contents(data, fault)
            return
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(refs|tree|revision)(?:/([^?]*))?)?", url.path)
        if found:
            self.api(found.group(1), found.group(2), urllib.parse.unquote(found.group(3) or ""), urllib.parse.parse_qs(url.query), fault)
            return
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found:
            self.resolve(*found.groups(), fault)
            return
        self.say(404, "RepoNotFound")

    def common_fault(self, fault):
        """Faults that need no file.  Returns True if the answer is made."""
        hub = self.server.hub
        if isinstance(fault, int):
            self.say(fault, "", "broken for the test")
        elif fault[0] == "wait":
            self.say(fault[1], "", "slower, please", [("Retry-After", fault[2])])
        elif fault[0] == "say":
            self.say(fault[1], "", fault[2])
        elif fault[0] == "html":
            self.reply(200, PAGE, kind="text/html; charset=utf-8")
        elif fault[0] == "to":
            self.reply(302, b"", [("Location", fault[1].replace("CDN", hub.cdn_url))])
        elif fault[0] == "loop":
            self.reply(302, b"", [("Location", self.path)])
        elif fault[0] == "body":
            self.reply(200, fault[1])
        elif fault[0] == "endless":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            for _ in range(fault[1]):
                self.wfile.write(b"[" * 65536)
            self.drop()
        elif fault[0] == "headers":
            self.send_response(200)
            for i in range(10000):
                self.send_header(f"X-Long-{i}", "a" * 100)
            self.end_headers()
            self.drop()
        elif fault[0] == "drop":
            self.drop()
        elif fault[0] == "silence":
            time.sleep(fault[1])
            self.drop()
        else:
            return False
        return True

    def allowed(self, repo):
        sent = self.headers.get("Authorization")
        if repo is None or (repo.token and sent != "Bearer " + repo.token):
            if sent and repo and repo.gated:
                self.say(403, "GatedRepo", "Access to model is restricted.")
            elif repo and repo.gated:
                self.say(401, "GatedRepo", "Access to model is restricted.")
            else:
                self.say(404 if sent else 401, "RepoNotFound", "Repository not found")
            return False
        return True

    def api(self, name, what, revision, query, fault):
        hub = self.server.hub
        repo = hub.repos.get(name)
        if not self.allowed(repo):
            return
        if what == "refs":
            self.reply(200, json.dumps({"branches": [{"name": n, "ref": "refs/heads/" + n, "targetCommit": c} for n, c in repo.branches.items()],
                                        "tags": [{"name": n, "ref": "refs/tags/" + n, "targetCommit": c} for n, c in repo.tags.items()],
                                        "converts": []}).encode())
            return
        commit = repo.resolve(revision or "main")
        if not commit:
            self.say(404, "RevisionNotFound", "Invalid rev id: " + revision)
        elif what == "tree":
            entries = hub.lists.get(name) or [repo.entry(commit, p) for p in sorted(repo.commits[commit])]
            at = int(query.get("cursor", ["0"])[0])
            headers = []
            if at + hub.page < len(entries):
                link = f"{hub.url}/api/models/{name}/tree/{revision}?recursive=true&cursor={at + hub.page}"
                headers = [("Link", f'<{link}>; rel="next"')]
            if fault and fault[0] == "next":
                headers = [("Link", f'<{fault[1]}>; rel="next"')]
            if fault and fault[0] == "unquoted":
                headers = [(n, v.replace('"', "")) for n, v in headers]
            self.reply(200, json.dumps(entries[at:at + hub.page]).encode(), headers)
        else:
            self.reply(200, json.dumps({"id": name, "sha": commit, "private": False, "gated": False,
                                        "siblings": [{"rfilename": p} for p in repo.commits[commit]]}).encode())

    def resolve(self, name, revision, path, fault):
        hub = self.server.hub
        repo = hub.repos.get(name)
        if not self.allowed(repo):
            return
        commit = repo.resolve(revision)
        if not commit or path not in repo.commits[commit]:
            self.say(404, "EntryNotFound", "Entry not found")
            return
        data = repo.commits[commit][path]
        headers = [("X-Repo-Commit", "d" * 40 if fault and fault[0] == "commit" else commit)]
        if repo.is_large(path):
            sha = hashlib.sha256(data).hexdigest()
            headers += [("X-Linked-Etag", '"%s"' % (sha if not fault or fault[0] != "etag" else "0" * 64)),
                        ("X-Linked-Size", str(len(data) if not fault or fault[0] != "size" else 7)), ("ETag", f'"{sha}"'),
                        ("Location", f"{hub.cdn_url}/{sha}?signature=secret")]
            self.reply(302, b"", headers)
            return
        self.contents(data, fault, headers + [("ETag", f'"{git_sha(data)}"')])

    def contents(self, data, fault, headers=()):
        """Sends a file, with ranges and what can go wrong in it."""
        kind, n = (fault[0], fault[1] if len(fault) > 1 else 0) if isinstance(fault, tuple) else ("", 0)
        headers = list(headers)
        if kind == "wrong":
            data = data[:-1] + bytes([data[-1] ^ 1])
        whole, status = data, 200
        ranged = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if ranged and kind != "norange":
            at = int(ranged.group(1))
            if at >= len(whole) or kind == "416":
                self.reply(416, b"", [("Content-Range", f"bytes */{len(whole)}")])
                return
            shift = 1 if kind == "range" else 0
            data, status = whole[at - shift:], 206
            headers.append(("Content-Range", f"bytes {at - shift}-{len(whole) - 1}/{len(whole)}"))
        if kind == "longer":
            data += b"x" * n
            self.send_response(status)
            for h in headers:
                self.send_header(*h)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.drop()
            return
        if kind in ("cut", "short", "slow"):
            self.send_response(status)
            for h in headers:
                self.send_header(*h)
            self.send_header("Content-Length", str(len(data) if kind != "short" else n))
            self.end_headers()
            if kind == "slow":
                for i in range(0, len(data), 4096):
                    self.wfile.write(data[i:i + 4096])
                    time.sleep(n)
                return
            self.wfile.write(data[:n])
            self.drop()
            return
        self.reply(status, data, headers, "application/octet-stream")
