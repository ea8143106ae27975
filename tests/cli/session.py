"""session.py FILE: an independent reader of saved sessions, from docs/SESSION-FORMAT.md alone and with nothing but the
standard library. Checks everything the document promises and prints the ids of the first sequence, separated by commas."""
import hashlib
import json
import re
import struct
import sys

data = open(sys.argv[1], "rb").read()


def sha(b):
    return hashlib.sha256(b).digest()


assert data[:8] == b"KVIKSESS" and struct.unpack_from("<I", data, 8)[0] == 2
assert not any(data[12:64]) and not any(data[192:576]) and not any(data[704:1024])
slots = []
for at in 64, 576:
    slot = data[at:at + 128]
    assert sha(slot[:96]) == slot[96:] and not any(slot[64:96])
    slots.append((*struct.unpack_from("<QQQQ", slot), slot[32:64]))
assert slots[0] == slots[1]
saves, at, n, end, digest = slots[0]
assert saves >= 1 and at >= 1024 and at + n == end == len(data)
manifest = data[at:end]
assert sha(manifest) == digest

pos = 0


def take(fmt):
    global pos
    v = struct.unpack_from("<" + fmt, manifest, pos)
    pos += struct.calcsize("<" + fmt)
    return v


def text():
    global pos
    (size,) = take("I")
    pos += size
    assert pos <= len(manifest)
    return manifest[pos - size:pos].decode()


meta, note = json.loads(text()), text()
for key in "kvik model architecture fingerprint weights compute isa rows cache_implementation groups".split():
    assert key in meta, key
groups, sequences = take("II")
assert groups == len(meta["groups"])
# "2 layers of rows; k 4x16 f32; v 4x16 f32 by rows"
size = {"f32": 4, "f16": 2, "bf16": 2}
row_bytes = []
for line in meta["groups"]:
    planes = re.findall(r"; \S+ (\d+)x(\d+) (f32|f16|bf16)", line)
    assert planes
    row_bytes.append(int(line.split()[0]) * sum(int(h) * int(d) * size[t] for h, d, t in planes))
first, places = None, {}
for _ in range(sequences):
    length, cross, n_turns, flags, salt = take("IIIIQ")
    assert flags in (0, 1, 2, 3, 8, 9, 10, 11) and salt == 0 and cross == 0
    unseen = take("%dI" % (2 * groups))
    assert max(unseen) <= length
    ids = take("%di" % length)
    first = first or ids
    turns = take("%dI" % (2 * n_turns))
    assert all(p + k <= length for p, k in zip(turns[::2], turns[1::2]))
    snapshots = []
    if flags & 8:
        for count in take("%dI" % groups):
            assert count <= 40
            snapshots.append(count)
        snapshots = [take("%dI" % count) for count in snapshots]
    for lengths in snapshots:
        assert list(lengths) == sorted(set(lengths)) and all(0 < k <= length for k in lengths)
    states = [set() for _ in range(groups)]
    before = ()
    raw = [set() for _ in range(groups)]
    for _ in range(take("I")[0]):
        group, form, row, n_rows, where, n_bytes = take("IIIIQQ")
        assert before < (group, form, row)
        before = (group, form, row)
        (want,) = take("32s")
        assert 1024 <= where and where + n_bytes <= at
        assert sha(data[where:where + n_bytes]) == want
        assert places.setdefault(where, (n_bytes, want)) == (n_bytes, want)
        if form == 0 and " state" in meta["groups"][group]:
            assert n_rows == 1
            states[group].add(row)
        elif form == 0:
            assert row % 16 == 0 and n_rows <= 16 and (n_rows == 16 or row + n_rows == length)
            assert n_bytes == n_rows * row_bytes[group]
            raw[group] |= set(range(row, row + n_rows))
    for g, line in enumerate(meta["groups"]):
        if " state" in line:
            assert states[g] == {length, *(snapshots[g] if snapshots else ())}
        if "rows" in line and "window" not in line and "tiles" not in line:
            assert raw[g] == set(range(length))
assert pos == len(manifest)
spans = sorted((w, b) for w, (b, _) in places.items())
assert all(a + b <= c for (a, b), (c, _) in zip(spans, spans[1:]))
print(",".join(map(str, first)))
