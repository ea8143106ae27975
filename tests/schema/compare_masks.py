#!/usr/bin/env python3
"""Compares masks with llguidance and xgrammar on the same vocabulary, token by token along valid texts.

The languages differ on purpose where the schema leaves a choice of spelling: llguidance keeps properties in the order of the schema, allows
other white space, and forbids DEL; xgrammar allows control characters, which JSON does not, and forbids -0.  So such tokens are left out, and an object
of these schemas has one property at most.
Skips by name where the package is missing.

usage: compare_masks.py BENCH_SCHEMA TOKENIZER_DIR
"""
import json
import os
import subprocess
import sys

try:
    import llguidance
    import tokenizers
except ImportError as e:
    print(f"skipped: {e.name} is not installed (pip install llguidance tokenizers)")
    sys.exit(0)
try:
    import xgrammar
except ImportError:
    xgrammar = None

CASES = [
    ({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}, {"name": "Anna \u00e9 B"}),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, [12, -7, 0]),
    ({"type": "array", "items": {"enum": ["red", "green", "greenish", None, True]}, "minItems": 1}, ["red", None, "greenish", True]),
    ({"type": "string", "pattern": "^[a-z]{2,5}-[0-9]+$"}, "abc-123"),
    ({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 6}}, ["a", "abcdef"]),
    ({"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 255}}, [10, 99, 255]),
    ({"type": "array", "items": {"type": "array", "items": {"type": ["null", "boolean"]}}}, [[None], [True, False], []]),
    ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"k": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
                                           "required": ["k"], "additionalProperties": False}}}, {"k": [{"k": []}, {"k": [{"k": []}]}]}),
]


class Llguidance:
    """Masks of llguidance."""

    def __init__(self, folder):
        self.tok = llguidance.LLTokenizer(os.path.join(folder, "tokenizer.json"))

    def masks(self, schema, ids):
        """Yields the allowed ids before each id, and after the last."""
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps({**schema, "x-guidance": {"whitespace_flexible": False}}))
        matcher = llguidance.LLMatcher(self.tok, grammar)
        for i in range(len(ids) + 1):
            bits = matcher.compute_bitmask()
            # where the bytes are forced, llguidance allows the one token of its own tokenization
            yield {k for k in range(self.tok.vocab_size) if bits[k // 8] >> (k % 8) & 1} - {self.tok.eos_token}
            if i < len(ids) and not matcher.consume_token(ids[i]):
                return


class Xgrammar:
    """Masks of xgrammar."""

    def __init__(self, folder, tok):
        vocab = [""] * tok.get_vocab_size()
        for piece, i in tok.get_vocab().items():
            vocab[i] = piece
        self.n, self.stop = len(vocab), len(vocab) - 1
        info = xgrammar.TokenizerInfo(vocab, vocab_type=xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=[self.stop])
        self.compiler = xgrammar.GrammarCompiler(info)
        self.added = {i for i, t in tok.get_added_tokens_decoder().items()}

    def masks(self, schema, ids):
        """Yields the allowed ids before each id, and after the last."""
        matcher = xgrammar.GrammarMatcher(self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=False, separators=(",", ":")))
        bits = xgrammar.allocate_token_bitmask(1, self.n)
        for i in range(len(ids) + 1):
            matcher.fill_next_token_bitmask(bits)
            words = bits[0].tolist()
            yield {k for k in range(self.n) if words[k // 32] >> (k % 32) & 1} - {self.stop} - self.added
            if i < len(ids) and not matcher.accept_token(ids[i]):
                return


def spelling(piece):
    """True for tokens about which the languages differ on purpose."""
    if any(c < 0x20 for c in piece):
        return True
    inner = (b": ", b", ", b"{ ", b"[ ", b" ]", b" }", b"\\", b"\x7f")
    return piece.strip(b" \t\r\n") != piece or any(c in piece for c in inner)


def compare(name, other, tok, pieces, program):
    """Prints the differences that are not ones of spelling, and returns their number."""
    total = differ = 0
    for schema, value in CASES:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        ids = tok.encode(text, add_special_tokens=False).ids
        program.stdin.write(json.dumps({"schema": schema, "ids": ids}) + "\n")
        program.stdin.flush()
        masks, seen = json.loads(program.stdout.readline())["masks"], 0
        for i, (mine, theirs) in enumerate(zip(masks, other.masks(schema, ids))):
            for k in sorted(set(mine) ^ theirs if len(theirs) > 1 else theirs - set(mine)):
                if spelling(pieces(k)) or (pieces(k)[:1] == b"0" and tok.decode(ids[:i]).endswith("-")):
                    continue
                differ += 1
                if differ <= 20:
                    print(f"{'kvik' if k in mine else name} alone allows {pieces(k)!r} behind {tok.decode(ids[:i])!r} under {json.dumps(schema)[:90]}")
            total += len(theirs)
            seen += 1
        if seen <= len(ids):
            print(f"{name} refuses {text}")
    print(f"{name}: {total} allowed tokens compared, {differ} differ")
    return differ


def main():
    """Compares with each package that is installed."""
    tok = tokenizers.Tokenizer.from_file(os.path.join(sys.argv[2], "tokenizer.json"))
    program = subprocess.Popen([sys.argv[1], sys.argv[2], "masks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    guidance = Llguidance(sys.argv[2])

    def pieces(k):
        return bytes(guidance.tok.decode_bytes([k]))

    differ = compare("llguidance", guidance, tok, pieces, program)
    if xgrammar:
        differ += compare("xgrammar", Xgrammar(sys.argv[2], tok), tok, pieces, program)
    else:
        print("skipped: xgrammar is not installed (pip install xgrammar)")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
