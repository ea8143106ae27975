#!/usr/bin/env python3
"""stand_in.py OUT.gguf [TOKEN...]: writes a model that stands in for those of llama-server's tests, which cannot be had.

It is a Llama of two layers with random weights and, as the tests' own has, a SentencePiece vocabulary of 512 pieces, with <s> as token 1 before a
text.  So prompts have about as many tokens as there, and what it writes has no meaning.  TOKENs are added as special tokens.
"""
import array
import random
import struct
import sys
from collections import Counter

WIDTH, HEADS, HIDDEN, LAYERS, CONTEXT, PIECES = 64, 4, 128, 2, 8192, 512
# Words of English, the most frequent first: what the vocabulary is made of.
WORDS = """the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word but not what all were we
when your can said there use an each which she do how their if will up other about out many then them these so some her would make like him into time
has look two more write go see number no way could people my than first water been call who its now find long down day did get come made may part over
new sound take only little work know place year live me back give most very after thing our just name good sentence man think say great where help
through much before line right too mean old any same tell boy follow came want show also around form three small set put end does another well large
must big even such because turn here why ask went men read need land different home us move try kind hand picture again change off play spell air away
animal house point page letter mother answer found study still learn should world""".split()
CHARS = "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?'\"-:;()[]{}<>|_/=*#+&@%$`~\\^\n"
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def merges(n):
    """Returns the n pieces that merging the most frequent pair, again and again, gives."""
    words = [["▁", *w] for w in WORDS]
    made = []
    while len(made) < n:
        pairs = Counter()
        for rank, w in enumerate(words):
            for pair in zip(w, w[1:]):
                pairs[pair] += 1 / (rank + 10)
        a, b = max(pairs, key=lambda p: (pairs[p], p))
        made.append(a + b)
        for w in words:
            for i in range(len(w) - 1, 0, -1):
                if i < len(w) and (w[i - 1], w[i]) == (a, b):
                    w[i - 1:i + 1] = [a + b]
    return made


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def value(v):
    """A value of GGUF's metadata: a number, a text, or an array of one of these."""
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    kind, code = {str: (8, ""), float: (6, "f"), int: (5, "i")}[type(v[0])]
    items = b"".join(map(text, v)) if kind == 8 else struct.pack(f"<{len(v)}{code}", *v)
    return struct.pack("<IIQ", 9, kind, len(v)) + items


def tensors(kinds):
    """Yields names, shapes and values.  Column 0 of the stream is the same for every token, so that the output can be against bytes and special tokens:
    texts are texts and do not end."""
    draw = random.Random(7)

    def matrix(rows, columns, scale):
        return array.array("f", (draw.gauss(0, scale / columns**0.5) for _ in range(rows * columns)))

    ones, embedded, output = array.array("f", [1] * WIDTH), matrix(len(kinds), WIDTH, WIDTH**0.5), matrix(len(kinds), WIDTH, 3)
    for i, kind in enumerate(kinds):
        embedded[i * WIDTH] = 8
        output[i * WIDTH] = 0 if kind == 1 else -10
    yield "token_embd.weight", (len(kinds), WIDTH), embedded
    yield "output.weight", (len(kinds), WIDTH), output
    yield "output_norm.weight", (WIDTH,), ones
    for i in range(LAYERS):
        for name, rows, columns in (("attn_q", WIDTH, WIDTH), ("attn_k", WIDTH, WIDTH), ("attn_v", WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH),
                                    ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN)):
            w = matrix(rows, columns, 2)
            if name in ("attn_output", "ffn_down"):
                w[:columns] = array.array("f", [0] * columns)
            yield f"blk.{i}.{name}.weight", (rows, columns), w
        yield f"blk.{i}.attn_norm.weight", (WIDTH,), ones
        yield f"blk.{i}.ffn_norm.weight", (WIDTH,), ones


def main(out, *special):
    """Makes a model with further special tokens; the first may be --ends: texts get a token behind them, and none before them."""
    ends = special[:1] == ("--ends",)
    special = special[ends:]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    pieces += merges(PIECES - len(pieces) - len(CHARS)) + list(CHARS)
    kinds += [1] * (PIECES - len(kinds)) + [3] * len(special)
    pieces += special
    about = {
        "general.architecture": "llama", "general.name": "stand-in", "llama.context_length": CONTEXT, "llama.embedding_length": WIDTH,
        "llama.block_count": LAYERS, "llama.feed_forward_length": HIDDEN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": WIDTH // HEADS,
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.scores": [-float(i) for i in range(len(pieces))],
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_bos_token": not ends, "tokenizer.ggml.add_eos_token": ends,
        "tokenizer.chat_template": CHATML,
    }
    head, data, infos, count = b"", b"", b"", 0
    for k, v in about.items():
        head += text(k) + value(v)
    for name, shape, values in tensors(kinds):
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += values.tobytes()
        data += b"\0" * (-len(data) % 32)
        count += 1
    head = struct.pack("<IIQQ", 0x46554747, 3, count, len(about)) + head + infos
    with open(out, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


if __name__ == "__main__":
    main(*sys.argv[1:])
