"""Copies a GGUF file with more or other metadata: gguf.py IN OUT [KEY=TEXT | KEY:=NUMBER | tokens=TOKEN,TOKEN...]
tokens: adds a tokenizer of bytes, with these special tokens behind <pad>, <eos>, <bos> and <unk>."""
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
values_end = at
for _ in range(n_tensors):
    skip(8)
    n = number("I")
    at += 8 * n + 12
infos = data[values_end:at]
tensors = data[-(-at // 32) * 32 :]


def text(s):
    s = s.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(s)) + s


def array(kind, code, items):
    return struct.pack("<IIQ", 9, kind, len(items)) + (
        b"".join(map(text, items)) if kind == 8 else struct.pack(f"<{len(items)}{code}", *items))


for word in more:
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
head = struct.pack("<IIQQ", 0x46554747, version, n_tensors, len(given)) + b"".join(given.values()) + infos
open(target, "wb").write(head + b"\0" * (-len(head) % 32) + tensors)
