"""serve.py --server NAME=COMMAND... [--rounds N] [--json FILE] [--plot FILE] - measures servers side by side (make bench-serve).

COMMAND starts a server of OpenAI's protocol with a model; PORT in it becomes a free port.  The servers run one after
another, --rounds times in turn, and a figure is the median of its rounds.  All ask for the likeliest token, so all compute the same.

  streams     1, 4 and 16 clients at once, each with a prompt of its own of about 120 tokens and an answer of 128
  agents      16 clients at once with one beginning of 4 000 tokens, each with a question of its own and an answer of 64
  again       the same prompt of 4 000 tokens a second time
  in turn     two conversations of about 3 000 tokens that ask in turn, each three times
  turns       a conversation of 30 turns of which every second is the result of a tool
  health      GET /health again and again, each by a connection of its own, while a prompt of 4 000 tokens is computed
"""
import argparse
import http.client
import json
import re
import selectors
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WORDS = ("river stone garden winter letter captain window market silver engine forest island morning teacher bridge shadow "
         "harbour machine village thunder kitchen soldier painter valley ocean doctor ladder mirror basket candle").split()
FIRST = re.compile(rb'"(?:text|content)": ?"[^"]')


def words(seed, n):
    """Returns n words that no other seed gives in this order."""
    out = []
    for _ in range(n):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(WORDS[(seed >> 33) % len(WORDS)])
    return " ".join(out)


class Stream:
    """A request whose answer streams: when its first text and its end came, and how many events with text."""

    def __init__(self, port, path, body):
        body = json.dumps({**body, "stream": True, "temperature": 0, "stream_options": {"include_usage": True}}).encode()
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.begun = time.perf_counter()
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        self.data, self.first, self.end = b"", None, None

    def read(self):
        """Takes what has come; False at the end."""
        got = self.socket.recv(1 << 16)
        self.data += got
        if self.first is None and FIRST.search(self.data):
            self.first = time.perf_counter() - self.begun
        if got and b"data: [DONE]" not in self.data[-64 - len(got):]:
            return True
        self.end = time.perf_counter() - self.begun
        self.first = self.first or self.end  # an answer without a text
        self.socket.close()
        if not self.data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self.data[:600].decode(errors="replace"))
        return False

    def events(self):
        for line in self.data.split(b"\n"):
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])

    def tokens(self):
        return [e["usage"]["completion_tokens"] for e in self.events() if e.get("usage")][-1]

    def text(self):
        return "".join(c.get("delta", {}).get("content") or c.get("text") or "" for e in self.events() for c in e.get("choices", []))


def run(port, path, bodies):
    """Runs requests at once.  Returns the streams and the seconds until the last has ended."""
    begun = time.perf_counter()
    all_streams = [Stream(port, path, b) for b in bodies]
    with selectors.DefaultSelector() as ready:
        for s in all_streams:
            ready.register(s.socket, selectors.EVENT_READ, s)
        while ready.get_map():
            for key, _ in ready.select():
                ready.unregister(key.fileobj)
                if key.data.read():
                    ready.register(key.data.socket, selectors.EVENT_READ, key.data)
    return all_streams, time.perf_counter() - begun


def text_body(prompt, n):
    return {"prompt": prompt, "max_tokens": n, "ignore_eos": True}


def streams(port, out, seed):
    for n in (1, 4, 16):
        got, seconds = run(port, "/v1/completions", [text_body(f"Story {seed} {i}: " + words(seed * 100 + n * 20 + i, 100), 128) for i in range(n)])
        out[f"streams {n}: tokens a second"] = sum(s.tokens() for s in got) / seconds
        out[f"streams {n}: first text, ms"] = 1000 * statistics.median(s.first for s in got)


def agents(port, out, seed):
    common = f"Rules {seed}: " + words(seed + 7000, 3300)
    got, seconds = run(port, "/v1/completions", [text_body(common + f"\nQuestion {i}: " + words(seed * 50 + i, 12), 64) for i in range(16)])
    out["agents: tokens a second"] = sum(s.tokens() for s in got) / seconds
    out["agents: first text, ms"] = 1000 * statistics.median(s.first for s in got)


def again(port, out, seed):
    body = text_body(f"Report {seed}: " + words(seed + 9000, 3300), 8)
    for name in ("first time", "again"):
        got, _ = run(port, "/v1/completions", [body])
        out[f"4 000 tokens, {name}: first text, ms"] = 1000 * got[0].first


def chat(port, messages, n=32):
    got, _ = run(port, "/v1/chat/completions", [{"messages": messages, "max_tokens": n}])
    messages.append({"role": "assistant", "content": got[0].text()})
    return 1000 * got[0].first


def in_turn(port, out, seed):
    talks = [[{"role": "system", "content": words(seed * 10 + i, 2400)}] for i in range(2)]
    firsts = []
    for turn in range(3):
        for i, talk in enumerate(talks):
            talk.append({"role": "user", "content": words(seed + 31 * turn + i, 20)})
            firsts.append(chat(port, talk))
    out["in turn: first text of later turns, ms"] = statistics.median(firsts[2:])


def turns(port, out, seed):
    talk, firsts = [{"role": "system", "content": "You use tools. " + words(seed + 5, 300)}], []
    for turn in range(30):
        if turn % 2:
            talk.append({"role": "tool", "content": json.dumps({"result": words(seed + turn, 40)})})
        else:
            talk.append({"role": "user", "content": words(seed + turn, 20)})
        firsts.append(chat(port, talk))
    out["turns: first text of turn 2, ms"] = statistics.median(firsts[1:4])
    out["turns: first text of turn 30, ms"] = statistics.median(firsts[27:])


def health(port, out, seed):
    over, times = threading.Event(), []

    def long():
        run(port, "/v1/completions", [text_body(f"Log {seed}: " + words(seed + 11000, 3300), 1)])
        over.set()
    t = threading.Thread(target=long)
    t.start()
    while not over.is_set():
        begun = time.perf_counter()
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        c.request("GET", "/health")
        c.getresponse().read()
        c.close()
        times.append(1000 * (time.perf_counter() - begun))
        time.sleep(0.002)
    t.join()
    times.sort()
    out["/health beside a prompt: the worst, ms"] = times[-1]
    out["/health beside a prompt: 99 of 100 within, ms"] = times[len(times) * 99 // 100]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_ready(process, port):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError("the server has ended")
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server is not ready after a minute")


def step_seconds(port):
    """The seconds of kvik's scheduler between steps of the model and in them, as /metrics says; zeros elsewhere."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    found = {name: float(value) for name, value in re.findall(r"^kvik:(step|between_steps)_seconds_total (\S+)", text, re.M)}
    return found.get("between_steps", 0), found.get("step", 0)


def measure(command, seed, parts):
    port, out = free_port(), {}
    log = tempfile.TemporaryFile("w+")
    process = subprocess.Popen([w.replace("PORT", str(port)) for w in shlex.split(command)], stdout=log, stderr=log)
    try:
        wait_ready(process, port)
        run(port, "/v1/completions", [text_body("Hello", 4)])
        for part in parts:
            if part is streams:
                before = step_seconds(port)
            part(port, out, seed)
            if part is streams and before[1]:
                own, step = (b - a for a, b in zip(before, step_seconds(port)))
                out["streams: scheduler, % of a step"] = 100 * own / step
    except (RuntimeError, OSError, IndexError) as error:
        log.seek(0)
        sys.exit(f"serve.py: {command}: {error}\n{log.read()[-2000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
    return out


def plot(path, table, names):
    """Draws bars: the tokens a second of every server."""
    rows = [k for k in table if "tokens a second" in k]
    high, wide, step = 30, 720, 22
    lines, y = [], high
    most = max(table[k].get(n, 0) for k in rows for n in names)
    for k in rows:
        lines.append(f'<text x="0" y="{y + 14}" class="k">{k.split(":")[0]}</text>')
        for i, n in enumerate(names):
            v = table[k].get(n, 0)
            lines.append(f'<rect x="110" y="{y}" width="{500 * v / most:.1f}" height="16" class="s{i}"/>'
                         f'<text x="{116 + 500 * v / most:.1f}" y="{y + 13}">{v:.0f} {n}</text>')
            y += step
        y += 10
    style = "text{font:13px sans-serif;fill:#555}.k{font-weight:bold}.s0{fill:#2a7}.s1{fill:#99a}.s2{fill:#c93}"
    with open(path, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {y}" role="img"><title>Tokens a second</title><style>{style}</style>'
                f'<text x="0" y="16" class="k">tokens a second, all streams together</text>{"".join(lines)}</svg>\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--parts", default="streams,again,in_turn,turns,health,agents")
    p.add_argument("--json")
    p.add_argument("--plot")
    a = p.parse_args()
    servers = dict(s.split("=", 1) for s in a.server)
    parts = [globals()[x] for x in a.parts.split(",")]
    rounds = {name: [] for name in servers}
    for seed in range(1, a.rounds + 1):
        for name, command in servers.items():
            print(f"round {seed}: {name}", file=sys.stderr, flush=True)
            rounds[name].append(measure(command, seed, parts))
    table = {}
    for name, got in rounds.items():
        for key in got[0]:
            table.setdefault(key, {})[name] = statistics.median(r[key] for r in got)
    names = list(servers)
    print("| | " + " | ".join(names) + " | ratio |\n|---|" + "---:|" * (len(names) + 1))
    for key, row in table.items():
        ratio = f"{row[names[0]] / row[names[1]]:.2f}" if len(names) > 1 and names[1] in row else ""
        print(f"| {key} | " + " | ".join(f"{row[n]:.1f}" if n in row else "" for n in names) + f" | {ratio} |")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"median": table, "rounds": rounds}, f, indent=1)
    if a.plot:
        plot(a.plot, table, names)


main()
