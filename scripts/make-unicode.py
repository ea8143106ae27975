#!/usr/bin/env python3
"""Writes src/tok/unicode_table.h: where the character tables of the `tokenizers` package (measured
code point by code point) differ from the tables of PCRE2 10.42 and utf8proc.

Needs: Python with unicodedata 14 (3.11; the Unicode version of PCRE2 10.42), tokenizers 0.23.3,
unicodedata2 (of a newer Unicode version than the others), libutf8proc.
usage: scripts/make-unicode.py > src/tok/unicode_table.h"""
import ctypes
import ctypes.util
import sys
import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0", "run with Python 3.11"
CPS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CPS))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()


def matching(pattern):
    """Returns the code points that a one-character pattern of the tokenizers package matches."""
    cut = pre_tokenizers.Split(Regex("(?:" + pattern + ")+"), "removed", invert=True)
    found = set()
    for _, (a, b) in cut.pre_tokenize_str(TEXT):
        found.update(CPS[a:b])
    return found


def alone(cut):
    """The code points that `cut` separates from letters on both sides, and those it drops."""
    apart, seen = set(), set()
    for start in range(0, len(CPS), 65536):
        part = CPS[start : start + 65536]
        for _, (a, b) in cut.pre_tokenize_str("".join("a" + chr(c) for c in part) + "a"):
            seen.update(part[i // 2] for i in range(a, b) if i % 2)
            if b - a == 1 and a % 2:
                apart.add(part[a // 2])
    return apart, set(CPS) - seen


def ranges(cps):
    out = []
    for c in sorted(cps):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, rows, columns):
    print(f"static const uint32_t {name}[]{'[%d]' % columns if columns > 1 else ''} = {{")
    line = "   "
    for row in rows:
        item = "{" + ", ".join("0x%X" % x for x in row) + "}," if columns > 1 else "0x%X," % row
        if len(line) + len(item) + 1 > 99:
            print(line)
            line = "   "
        line += " " + item
    print(line + "\n};")


def utf8_len(c):
    return len(chr(c).encode())


# --- characters newer than PCRE2's tables
reference = {}
for name in CATEGORIES:
    for c in matching("\\p{%s}" % name):
        reference[c] = name
for c in CPS:
    reference.setdefault(c, "Cn")
script = {c: "other" for c in CPS}  # those that patterns name
for name in "Han Hiragana Katakana Hangul Latin Cyrillic Greek Arabic Thai Common".split():
    for c in matching("\\p{%s}" % name):
        script[c] = name
old = {c: unicodedata.category(chr(c)) for c in CPS}
new = [c for c in CPS if old[c] != reference[c]]
stands = {}
for c in CPS:
    if c >= 0x800 and c not in (0x180E, 0xFFFD) and old[c] == reference[c] != "Cn":
        stands.setdefault((reference[c], script[c], utf8_len(c)), c)
        if script[c] != "Han":
            stands.setdefault((reference[c], utf8_len(c)), c)
new_rows = []
for c in new:
    if utf8_len(c) < 3:
        sys.exit("U+%04X: a newer character of two bytes" % c)
    as_ = stands.get((reference[c], script[c], utf8_len(c)))
    if as_ is None and script[c] != "Han":
        as_ = stands.get((reference[c], utf8_len(c)))
    if as_ is None:
        sys.exit("U+%04X: no stand-in for %s" % (c, reference[c]))
    if new_rows and new_rows[-1][1] == c - 1 and new_rows[-1][2] == as_:
        new_rows[-1][1] = c
    else:
        new_rows.append([c, c, as_])

# --- predicates of single pre-tokenizers
word_cut, dropped = alone(pre_tokenizers.Whitespace())
words = set(CPS) - word_cut - dropped
numeric, _ = alone(pre_tokenizers.Digits(individual_digits=False))
punct, _ = alone(pre_tokenizers.Punctuation())
print("white space:", [hex(c) for c in sorted(dropped)], file=sys.stderr)
WORD = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl Pc".split()
word_flip = [c for c in CPS if c >= 0x80 and (reference[c] in WORD) != (c in words)]
numeric_flip = [c for c in CPS if c >= 0x80 and (reference[c][0] == "N") != (c in numeric)]
punct_flip = [c for c in CPS if c >= 0x80 and (reference[c][0] == "P") != (c in punct)]

# --- lower case
lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
lower = normalizers.Lowercase()
lower_rows = []
for c in CPS:
    if c < 0x80 or c == 0x130:
        continue
    want = lower.normalize_str(chr(c))
    if len(want) != 1:
        sys.exit("U+%04X: lower case of several characters" % c)
    if ord(want) == lib.utf8proc_tolower(c):
        continue
    delta = (ord(want) - c) & 0xFFFFFFFF
    if lower_rows and lower_rows[-1][1] == c - 1 and lower_rows[-1][2] == delta:
        lower_rows[-1][1] = c
    else:
        lower_rows.append([c, c, delta])

# --- normalization: characters that Unicode normalizes and the tokenizers package does not
forms = {f: getattr(normalizers, f)() for f in ("NFC", "NFD", "NFKC", "NFKD")}


def reference_inert(c):
    s = chr(c)
    if any(f.normalize_str(s) != s for f in forms.values()):
        return False
    nfd = forms["NFD"].normalize_str
    return nfd("a" + s + "\u0334") == "a" + s + "\u0334" and nfd("a\u0345" + s) == "a\u0345" + s


active = set()
for c in CPS:
    parts = unicodedata2.decomposition(chr(c))
    if parts or unicodedata2.combining(chr(c)):
        active.add(c)
        if old[c] == "Cn":
            active.update(int(x, 16) for x in parts.split() if not x.startswith("<") and old[int(x, 16)] == "Cn")
inert = [c for c in sorted(active) if reference_inert(c)]


class utf8proc_map:
    OPTIONS = {"NFC": 2 | 8, "NFD": 2 | 16, "NFKC": 2 | 4 | 8, "NFKD": 2 | 4 | 16}

    def __call__(self, form, s):
        out = ctypes.c_void_p()
        raw = s.encode()
        n = lib.utf8proc_map(raw, ctypes.c_ssize_t(len(raw)), ctypes.byref(out), self.OPTIONS[form])
        return ctypes.string_at(out, n).decode()


theirs = utf8proc_map()
known = set(inert)
for c in CPS:
    if c in known or c == 0:
        continue
    for form, f in forms.items():
        if theirs(form, chr(c)) != f.normalize_str(chr(c)):
            sys.exit("U+%04X: %s differs and the table cannot say it" % (c, form))

print("/* unicode_table.h - generated by scripts/make-unicode.py; see unicode.c.  Do not edit. */")
print("#pragma once\n#include <stdint.h>\n\n/* clang-format off */")
print("/* Newer than Unicode 14: ranges, and the older stand-in of each range. */")
table("uni_new", [r[:2] for r in new_rows], 2)
table("uni_new_as", [r[2] for r in new_rows], 1)
print("/* Where a predicate is not what the category says. */")
table("uni_word_flip", ranges(word_flip), 2)
table("uni_numeric_flip", ranges(numeric_flip) or [[0x110000, 0x110000]], 2)
table("uni_punct_flip", ranges(punct_flip), 2)
print("/* Not touched by the reference's normalization. */")
table("uni_inert", ranges(inert), 2)
print("/* Lower case: from, to, what to add (modulo 2^32). */")
table("uni_lower_fix", lower_rows or [[0x110000, 0x110000, 0]], 3)
print("/* clang-format on */")
print("new", len(new), len(new_rows), "inert", len(inert), "flips", len(word_flip), len(numeric_flip),
      len(punct_flip), "lower", len(lower_rows), file=sys.stderr)
