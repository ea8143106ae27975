"""events.py [all]: --kv-events, which routers read to know what a server holds. A subscriber of a few lines folds the messages into a
picture, and prompts then reuse what the picture promises. With the argument (make test-serve) the messages are also read by pyzmq with
msgspec as vLLM's own structs, and Dynamo's indexer (ai-dynamo-runtime) builds its own picture, which is the same."""
import http.client
import importlib.util
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time

from harness import PATIENCE, Server, check, finish, servers, skip, tiny, work

BLOCK = 16
draw = random.Random(int(os.environ.get("KVIK_TEST_SEED") or 20261127))


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


class Wire:
    """A socket of ZMQ (ZMTP 3.0, without security): SUB for everything, or DEALER."""

    def __init__(self, port, kind=b"SUB", room=None):
        self.c = socket.socket()
        if room:  # bytes that the socket takes before they are read
            self.c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.c.settimeout(PATIENCE)
        self.c.connect(("127.0.0.1", port))
        self.c.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32))
        self.take(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        self.c.sendall(bytes([4, len(ready)]) + ready)
        self.frame()
        if kind == b"SUB":
            self.c.sendall(b"\0\x01\x01")

    def take(self, n):
        out = b""
        while len(out) < n:
            got = self.c.recv(n - len(out))
            if not got:
                raise EOFError
            out += got
        return out

    def frame(self):
        flags = self.take(1)[0]
        return flags, self.take(struct.unpack(">Q", self.take(8))[0] if flags & 2 else self.take(1)[0])

    def message(self):
        out = []
        while True:
            flags, data = self.frame()
            if flags & 4:
                continue
            out.append(data)
            if not flags & 1:
                return out

    def send(self, *frames):
        self.c.sendall(b"".join(bytes([i + 1 < len(frames), len(f)]) + f for i, f in enumerate(frames)))


def unpack(data, at=0):
    """Reads one value of msgpack; returns it and where it ends."""
    b = data[at]
    at += 1
    if b < 0x80 or b >= 0xe0:
        return (b if b < 0x80 else b - 256), at
    if b in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[b], at
    number = {0xcb: ">d", 0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q"}.get(b)
    if number:
        return struct.unpack_from(number, data, at)[0], at + struct.calcsize(number)
    if 0xa0 <= b < 0xc0 or b == 0xd9:
        n, at = (b & 31, at) if b < 0xc0 else (data[at], at + 1)
        return data[at:at + n].decode(), at + n
    if 0x90 <= b < 0xa0 or b in (0xdc, 0xdd):
        form = {0xdc: ">H", 0xdd: ">I"}.get(b)
        n, at = (struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)) if form else (b & 15, at)
        out = []
        for _ in range(n):
            v, at = unpack(data, at)
            out.append(v)
        return out, at
    raise ValueError(hex(b))


class Picture:
    """What the messages say that the server holds."""

    def __init__(self):
        self.blocks, self.next, self.wrong, self.cleared, self.went = {}, 0, [], 0, 0

    def add(self, topic, number, events, rank):
        if struct.unpack(">Q", number)[0] != self.next:
            self.wrong.append(("number", number, self.next))
        if topic != b"kv@pod@tiny" or rank != 0:
            self.wrong.append((topic, rank))
        self.next += 1
        for e in events:
            if e[0] == "AllBlocksCleared":
                self.blocks.clear()
                self.cleared += 1
            elif e[0] == "BlockRemoved":
                for h in e[1]:
                    if not self.blocks.pop(h, None) or any(p == h for p, _ in self.blocks.values()):
                        self.wrong.append(e)
                self.went += len(e[1])
            else:
                _, hashes, parent, ids, size, lora, medium = e
                if size != BLOCK or len(ids) != BLOCK * len(hashes) or lora is not None or medium != "GPU":
                    self.wrong.append(e)
                for i, h in enumerate(hashes):
                    if h in self.blocks or (parent is not None and parent not in self.blocks):
                        self.wrong.append(e)
                    self.blocks[h] = (parent, tuple(ids[i * BLOCK:(i + 1) * BLOCK]))
                    parent = h

    def promised(self, ids):
        """Returns how many leading blocks of a prompt are there."""
        children = {v: h for h, v in self.blocks.items()}
        at, n = None, 0
        while (at, tuple(ids[n * BLOCK:(n + 1) * BLOCK])) in children:
            at = children[at, tuple(ids[n * BLOCK:(n + 1) * BLOCK])]
            n += 1
        return n


def prompt():
    n, which = draw.randrange(1, 180), draw.randrange(3)
    same = draw.randrange(n + 1)
    return [5 + (i * (7 + 2 * which)) % 50 if i < same else draw.randrange(60, 300) for i in range(n)]


def ask(s, ids, **more):
    code, o = s.post("/v1/completions", {"prompt": ids, "max_tokens": draw.randrange(1, 30), "temperature": 1, "seed": 1, **more})
    assert code == 200, o
    s.get("/kvik/store")  # is read between two steps, and a step's messages are there before the next one
    return o["usage"]["prompt_tokens_details"]["cached_tokens"]


events, replay = free_port(), free_port()
s = Server(tiny("llama-mha"), "--kv-events", f"tcp://127.0.0.1:{events}", "--kv-events-replay", str(replay), "--kv-events-topic", "kv@pod@tiny",
           "--cache-memory", "1200K", "--parallel", "4")
sub = Wire(events)
asks = Wire(replay, b"DEALER")
time.sleep(0.2)  # until the subscription is there: what came before is asked for
mine, theirs = Picture(), []


def catch_up():
    """Reads all that was published until now: what is missed at the beginning comes from the replay socket."""
    global mine
    asks.send(b"", struct.pack(">Q", mine.next))
    while True:
        empty, number, data = asks.message()
        if number == b"\xff" * 8:
            check("the replay ends with an empty message", empty == b"" and data == b"") if data else None
            return
        theirs.append((number, data))
        (_, batch, rank), end = unpack(data)
        mine.add(b"kv@pod@tiny", number, batch, rank)
        mine.wrong += [("rest", data)] if end != len(data) else []


ask(s, prompt())
catch_up()
check("the first message clears", mine.cleared == 1 and mine.next >= 2, (mine.cleared, mine.next))
misses = []
for i in range(60):
    ids = prompt()
    had = mine.promised(ids[:-1])  # the last token is always computed
    cached = ask(s, ids)
    if cached // BLOCK != had:
        misses.append((i, len(ids), had, cached))
    catch_up()
check("prompts reuse what the picture promises", not misses, misses)
check("the picture has no hole", not mine.wrong, mine.wrong[:3])
check("blocks came and went", len(mine.blocks) > 20 and mine.went > 20, (len(mine.blocks), mine.went))
seen = {}
while struct.pack(">Q", mine.next - 1) not in seen:
    topic, number, data = sub.message()
    seen[number] = (topic, data)
kept = dict(theirs)
check("what is published is what can be had again", len(seen) > 30 and all(t == b"kv@pod@tiny" and kept[n] == d for n, (t, d) in seen.items()), len(seen))

# --- What comes from outside: other questions, and bytes that are no protocol.
for frames in [(b"",), (b"x", b"y"), (b"", b"short"), (b"", bytes(8), b"more"), (b"", bytes(9))]:
    Wire(replay, b"DEALER").send(*frames)
for port in (events, replay):
    for junk in [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 200, b""]:
        with socket.create_connection(("127.0.0.1", port)) as c:
            c.sendall(junk)
asks.send(b"", struct.pack(">Q", 2**64 - 2))
check("questions that are none are not answered, and the next one is", asks.message()[1] == b"\xff" * 8 and ask(s, [5] * 20) >= 0)

# --- Many who ask and do not read: each question is for all messages.
def resident():
    with open(f"/proc/{s.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


before, idle = resident(), [Wire(replay, b"DEALER", room=4096) for _ in range(40)]
for w in idle:
    w.c.setblocking(False)
    try:
        for _ in range(60):
            w.send(b"", bytes(8))
    except BlockingIOError:
        pass
for _ in range(60):  # each time one question of everybody is read
    asks.send(b"", struct.pack(">Q", 2**64 - 2))
    check("one who reads is answered beside them", asks.message()[1] == b"\xff" * 8)
if "KVIK_TEST_SHORT" not in os.environ:  # a sanitizer keeps what was freed
    check("those who do not read take no memory", resident() - before < 10, (before, resident(), mine.next))
idle.clear()


def judges():
    """pyzmq and msgspec with vLLM's structs, in the form in which they are published."""
    try:
        import msgspec
        import zmq
    except ImportError as e:
        return skip(str(e))

    class Event(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
        pass

    class BlockStored(Event):
        block_hashes: list[int | bytes]
        parent_block_hash: int | bytes | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None = None
        lora_name: str | None = None

    class BlockRemoved(Event):
        block_hashes: list[int | bytes]
        medium: str | None = None

    class AllBlocksCleared(Event):
        pass

    class Batch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
        ts: float
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]
        data_parallel_rank: int | None = None

    decoder, picture = msgspec.msgpack.Decoder(type=Batch), {}
    context = zmq.Context()
    ask_again = context.socket(zmq.DEALER)
    ask_again.connect(f"tcp://127.0.0.1:{replay}")
    ask_again.send_multipart([b"", bytes(8)])
    times = []
    while True:
        check("pyzmq: the replay answers", ask_again.poll(PATIENCE * 1000)) or sys.exit(1)
        _, number, data = ask_again.recv_multipart()
        if number == b"\xff" * 8:
            break
        batch = decoder.decode(data)
        times.append(batch.ts)
        for e in batch.events:
            if isinstance(e, AllBlocksCleared):
                picture.clear()
            elif isinstance(e, BlockRemoved):
                for h in e.block_hashes:
                    del picture[h]
            else:
                parent = e.parent_block_hash
                for i, h in enumerate(e.block_hashes):
                    picture[h] = (parent, tuple(e.token_ids[i * e.block_size:(i + 1) * e.block_size]))
                    parent = h
    catch_up()
    check("msgspec with vLLM's structs: the same picture", picture == mine.blocks, (len(picture), len(mine.blocks)))
    check("msgspec: times are those of now, in order", times == sorted(times) and abs(times[-1] - time.time()) < 600)
    ask_again.close(0)
    context.term()


class Indexer:
    """Dynamo's indexer as a process of its own."""

    def __init__(self):
        self.port = free_port()
        self.log = open(os.path.join(work, "indexer.log"), "w+")
        self.process = subprocess.Popen([sys.executable, "-c", "import sys; from dynamo._core import run_kv_indexer; run_kv_indexer(sys.argv[1:])",
                                         "--port", str(self.port)], stdout=self.log, stderr=self.log)
        servers.append(self)

    def call(self, method, path, body=None):
        end = time.time() + PATIENCE
        while time.time() < end:
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
                c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
                r = c.getresponse()
                return r.status, json.loads(r.read())
            except ConnectionError:
                time.sleep(0.1)
        raise RuntimeError("the indexer did not start")

    def blocks(self):
        """Returns the hashes of what it holds, each with that of the block before."""
        out = {}
        for index in self.call("GET", "/dump")[1].values():
            for e in index["events"]:
                stored = e["event"]["data"]["stored"]
                parent = stored["parent_hash"]
                for b in stored["blocks"]:
                    out[b["block_hash"]] = parent
                    parent = b["block_hash"]
        return out

    def until(self, want):
        """Waits until it holds that, while something comes."""
        end, seen = time.time() + PATIENCE, None
        while time.time() < end:
            now = self.blocks()
            if now == want:
                return True
            if now != seen:
                seen, end = now, time.time() + PATIENCE / 10
            time.sleep(0.1)
        return False

    def matched(self, ids):
        found = self.call("POST", "/query", {"token_ids": ids, "model_name": "tiny"})[1]["instances"]
        return found["1"]["longest_matched"] if found else 0


def dynamo():
    if importlib.util.find_spec("dynamo") is None:
        return skip("ai-dynamo-runtime is not installed")
    d = Indexer()
    code, a = d.call("POST", "/register", {"instance_id": 1, "endpoint": f"tcp://127.0.0.1:{events}", "replay_endpoint": f"tcp://127.0.0.1:{replay}",
                                           "model_name": "tiny", "block_size": BLOCK})
    check("Dynamo's indexer takes the endpoints", code == 201, a)
    end = time.time() + PATIENCE
    while not d.blocks() and time.time() < end:  # it sees a number once it has subscribed, and asks for those before
        ask(s, prompt())
        time.sleep(0.2)
    for round in range(3):
        catch_up()
        want = {h: parent for h, (parent, _) in mine.blocks.items()}
        if not check(f"Dynamo's picture is the store's, round {round}", d.until(want), (len(want), len(d.blocks()))):
            d.log.seek(0)
            print(d.log.read()[-3000:])
        wrong = []
        for i in range(20):
            ids = prompt()
            promised = d.matched(ids[:-1])
            cached = ask(s, ids)
            catch_up()
            d.until({h: parent for h, (parent, _) in mine.blocks.items()})
            if promised != cached // BLOCK * BLOCK:
                wrong.append((len(ids), promised, cached))
        check(f"prompts reuse what Dynamo's indexer says, round {round}", not wrong, wrong)
    check("ends", s.stop() == 0, s.said)
    check("Dynamo: a server that has ended holds nothing", d.until({}), len(d.blocks()))
    d.process.kill()


if "all" in sys.argv:
    judges()
    dynamo()
if s.process.poll() is None:
    check("ends", s.stop() == 0, s.said)
said = "".join(s.said)
check("an endpoint of this machine needs no warning", "token ids" not in said, said)
s = Server(tiny("llama-mha"), "--kv-events", f"tcp://*:{free_port()}")
check("one that others reach does", "show the token ids" in "".join(s.said), s.said)
check("ends", s.stop() == 0, s.said)
for options, word in [(["--kv-events", "tcp://nowhere.invalid:1"], "cannot be bound"), (["--kv-events", "x://y"], "cannot be bound"),
                      (["--kv-events-replay", "5557"], "need --kv-events")]:
    try:
        Server(tiny("llama-mha"), *options)
        check(f"{options} is an error", False)
    except RuntimeError as e:
        check(f"{options} is an error", word in str(e), e)
finish()
