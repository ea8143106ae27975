"""quality.py MODEL TEXT [--scored N] [--context N] - codec kvik beside Hadamard and q4_0 in one harness: mean KLD from exact rows.

Both have the same exact rows: the first 4 and those of the tile of 128 that is not full.  What is compared is a class of caches that overrides
update(): each full tile is replaced by what a method would read back from its codes, so that errors go into the rows of later layers and
tokens.  Codec kvik runs as itself.  Bits count scales, minima and norms.

  q4_0        groups of 32 values of a row, one float16 scale; the value largest in size is -8 (ggml)
  hadamard    the same behind an orthogonal Hadamard rotation of each head, as llama.cpp and ik_llama.cpp have it
"""
import argparse
import sys

import numpy as np

import kvik
from divergence import divergence, log_softmax
from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache, QuantizedCache

TILE, EXACT, GROUP = 128, 4, 32


def q4_0(x):
    """Rows [..., d] as q4_0 reads them back."""
    g = x.reshape(*x.shape[:-1], -1, GROUP)
    top = np.take_along_axis(g, np.abs(g).argmax(-1)[..., None], -1)
    d = (top / -8).astype(np.float16).astype(np.float32)
    q = np.clip(np.trunc(np.divide(g, d, out=np.zeros_like(g), where=d != 0) + 8.5), 0, 15)
    return ((q - 8) * d).reshape(x.shape)


def hadamard(n):
    """The orthogonal Hadamard matrix of n = 2**k."""
    h = np.ones((1, 1), np.float32)
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h / np.float32(n ** 0.5)


def rotated(x):
    """Rows [..., d] as q4_0 reads them back behind a rotation."""
    h = hadamard(x.shape[-1])
    return q4_0(x @ h) @ h.T


class Replaced(DynamicCache):
    """A cache whose full tiles are what `method` reads back."""

    def __init__(self, method):
        super().__init__()
        self.method, self.tiles = method, {}

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        done = self.tiles.get(layer_idx, 0)
        full = self.get_seq_length(layer_idx) // TILE * TILE
        if full > done:  # the tokens of one call read each other as they are; a tile is replaced for those behind it
            layer, a = self.layers[layer_idx], max(done, EXACT)
            rows = [np.array(x) for x in (layer.keys, layer.values)]
            for x in rows:
                x[:, :, a:full] = self.method(x[:, :, a:full])
            layer.keys, layer.values = rows
            self.tiles[layer_idx] = full
        new = [np.asarray(x).astype(np.float16).astype(np.float32) for x in (key_states, value_states)]
        return super().update(*new, layer_idx, *args, **kwargs)


def logits(model, cache, ids, half):
    """The logits [n, vocab] behind each token of the second half, which is fed in tiles."""
    out = []
    for a in range(0, len(ids), TILE):
        y = np.asarray(model(input_ids=ids[None, a:a + TILE], past_key_values=cache).logits)[0]
        if a >= half:
            out.append(y.astype(np.float64))
    return np.concatenate(out)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model")
    a.add_argument("text")
    a.add_argument("--scored", type=int, default=4096)
    a.add_argument("--context", type=int, default=1024)
    a = a.parse_args()
    model = AutoModelForCausalLM.from_pretrained(a.model)
    with open(a.text, encoding="utf-8") as f:
        ids = np.asarray(AutoTokenizer.from_pretrained(a.model)(f.read())["input_ids"], np.int64)
    half = a.context // 2
    methods = {
        "exact rows through update()": (16, lambda: Replaced(lambda x: x)),
        "q4_0": (4.5, lambda: Replaced(q4_0)),
        "hadamard and q4_0": (4.5, lambda: Replaced(rotated)),
        **{f"kvik, {k} and {v} bits": (0, lambda k=k, v=v: QuantizedCache({"backend": "kvik", "k_bits": k, "v_bits": v}))
           for k, v in ((8, 8), (4, 4), (4, 3), (3, 3))}}
    found = {name: [] for name in methods}
    same = dict.fromkeys(methods, 0)
    windows = min(-(-a.scored // half), (len(ids) - half) // half)
    for w in range(windows):
        window = ids[w * half:w * half + a.context]
        want = log_softmax(logits(model, DynamicCache(), window, half))
        for name, (_, make) in methods.items():
            got = log_softmax(logits(model, make(), window, half))
            kld, alike = divergence(want, got)
            found[name].append(kld)
            same[name] += alike
        print(f"window {w + 1} of {windows}", file=sys.stderr)
    print(f"kvik {kvik.__version__}, {windows * half} tokens scored in windows of {a.context}")
    for name, (bits, _) in methods.items():
        kld = np.concatenate(found[name])
        print(f"{name:30} {bits or '':>5}  mean KLD {kld.mean():.3g} +- {kld.std() / len(kld) ** 0.5:.1g}  99.9 % {np.quantile(kld, 0.999):.3g}"
              f"  same token {100 * same[name] / len(kld):.2f} %")


if __name__ == "__main__":
    main()
