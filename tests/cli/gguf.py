"""Copies a GGUF file with more or other metadata: gguf.py IN OUT [KEY=TEXT | KEY:=NUMBER | tokens=TOKEN,TOKEN... | split=N]
tokens: adds a tokenizer of bytes, with these special tokens behind <pad>, <eos>, <bos> and <unk>.
split: writes OUT-00001-of-0000N.gguf and so on, as llama-gguf-split does; the first has the metadata and no tensors."""
import struct
import sys

SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
source, target, *more = sys.argv[1:]
data = open(source, "rb").read()
version, n_tensors, n_values = struct.unpack_from("<IQQ", data, 4)
at = 24


def number(code):
    global at
    (v,) = struct.unpack_from("<" + code, data, at)
    at += struct.calcsize(code)
    return v


def skip(kind):
    global at
    if kind == 8:
        n = number("Q")
        at += n
    elif kind == 9:
        item, n = number("I"), number("Q")
        for _ in range(n):
            skip(item)
    else:
        at += SIZE[kind]


given = {}
for _ in range(n_values):
    begin = at
    skip(8)
    key = data[begin + 8 : at].decode()
    skip(number("I"))
    given[key] = data[begin:at]
infos = []  # (all but the offset, the offset)
for _ in range(n_tensors):
    begin = at
    skip(8)
    n = number("I")
    at += 8 * n + 4
    infos.append((data[begin:at], number("Q")))
tensors = data[-(-at // 32) * 32 :]


def text(s):
    s = s.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(s)) + s


def array(kind, code, items):
    return struct.pack("<IIQ", 9, kind, len(items)) + (
        b"".join(map(text, items)) if kind == 8 else struct.pack(f"<{len(items)}{code}", *items))


def put(target, given, infos, tensors):
    head = struct.pack("<IIQQ", 0x46554747, version, len(infos), len(given)) + b"".join(given.values()) + b"".join(
        info + struct.pack("<Q", offset) for info, offset in infos)
    open(target, "wb").write(head + b"\0" * (-len(head) % 32) + tensors)


parts = 1
for word in more:
    if word.startswith("split="):
        parts = int(word[6:])
        continue
    if word.startswith("tokens="):
        names = ["<pad>", "<eos>", "<bos>", "<unk>"] + [t for t in word[7:].split(",") if t]
        size = 384  # the vocabulary of the tiny models
        tokens = names + [f"<0x{b:02X}>" for b in range(256)]
        kinds = [3] * len(names) + [6] * 256
        while len(tokens) < size:
            tokens.append(f"w{len(tokens)}")
            kinds.append(1)
        added = [("tokenizer.ggml.model", struct.pack("<I", 8) + text("llama")),
                 ("tokenizer.ggml.tokens", array(8, "", tokens)),
                 ("tokenizer.ggml.scores", array(6, "f", [-float(i) for i in range(size)])),
                 ("tokenizer.ggml.token_type", array(5, "i", kinds)),
                 ("tokenizer.ggml.bos_token_id", struct.pack("<II", 4, 2)),
                 ("tokenizer.ggml.eos_token_id", struct.pack("<II", 4, 1)),
                 ("tokenizer.ggml.add_space_prefix", struct.pack("<IB", 7, 0))]
    elif ":=" in word:
        key, v = word.split(":=", 1)
        added = [(key, struct.pack("<If", 6, float(v)) if "." in v or v == "nan" else struct.pack("<II", 4, int(v)))]
    else:
        key, v = word.split("=", 1)
        added = [(key, struct.pack("<I", 8) + text(v))]
    for key, v in added:
        given[key] = text(key) + v
if parts == 1:
    put(target, given, infos, tensors)
    sys.exit()
infos.sort(key=lambda info: info[1])
ends = [offset for _, offset in infos[1:]] + [len(tensors)]
share = -(-len(infos) // (parts - 1))
for no in range(parts):
    mine = range(share * (no - 1), min(share * no, len(infos))) if no else ()
    start = infos[mine[0]][1] if mine else 0
    own = dict(given) if no == 0 else {}
    for key, kind, code, v in (("split.no", 2, "H", no), ("split.count", 2, "H", parts), ("split.tensors.count", 5, "i", len(infos))):
        own[key] = text(key) + struct.pack("<I" + code, kind, v)
    put(f"{target}-{no + 1:05}-of-{parts:05}.gguf", own, [(infos[i][0], infos[i][1] - start) for i in mine],
        tensors[start : ends[mine[-1]]] if mine else b"")
