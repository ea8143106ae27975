#!/usr/bin/env python3
"""Compares masks with llguidance on the same vocabulary, token by token along valid texts.

The languages differ on purpose where the schema leaves a choice of spelling: llguidance keeps properties in the order of the schema, allows
other white space, and forbids DEL.  So such tokens are left out, and an object of these schemas has one property at most.
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


def main():
    """Prints the differences that are not ones of spelling."""
    tok = tokenizers.Tokenizer.from_file(os.path.join(sys.argv[2], "tokenizer.json"))
    ll = llguidance.LLTokenizer(os.path.join(sys.argv[2], "tokenizer.json"))
    program = subprocess.Popen([sys.argv[1], sys.argv[2], "masks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    total = differ = 0
    for schema, value in CASES:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        ids = tok.encode(text, add_special_tokens=False).ids
        program.stdin.write(json.dumps({"schema": schema, "ids": ids}) + "\n")
        program.stdin.flush()
        masks = json.loads(program.stdout.readline())["masks"]
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps({**schema, "x-guidance": {"whitespace_flexible": False}}))
        other = llguidance.LLMatcher(ll, grammar)
        for i, mine in enumerate(masks):
            bits = other.compute_bitmask()
            # where the bytes are forced, llguidance allows the one token of its own tokenization
            theirs = {k for k in range(ll.vocab_size) if bits[k // 8] >> (k % 8) & 1} - {ll.eos_token}
            for k in sorted(set(mine) ^ theirs if len(theirs) > 1 else theirs - set(mine)):
                piece = bytes(ll.decode_bytes([k]))
                if b"\\" in piece or b"\x7f" in piece or piece.strip(b" \t\r\n") != piece or any(c in piece for c in (b": ", b", ", b"\n", b"\r", b"\t", b"{ ", b"[ ", b" ]", b" }")):
                    continue
                differ += 1
                if differ <= 40:
                    print(f"{'kvik' if k in mine else 'llguidance'} alone allows {piece!r} behind {tok.decode(ids[:i])!r} under {json.dumps(schema)[:90]}")
            total += len(theirs)
            if i < len(ids) and not other.consume_token(ids[i]):
                print(f"llguidance refuses {text}")
                break
    print(f"{total} allowed tokens compared, {differ} differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
