"""Caches that a program writes, where their update() cannot be called: the reference's result, or an error that says what to do.

What Transformers 5.23 makes of the same classes and files is in the comments and tables here.
"""
import unittest
import warnings

import numpy as np
from common import kvik, model

IDS = np.array([[1, 5, 6, 7, 8, 9, 10, 11]])
# Evicting, greedily, without drafts. With prompt lookup Transformers makes 60, 209, 1, 45, 331, ..: it crops rows that are gone.
EVICTED = [60, 209, 1, 45, 297, 234, 130, 331]
FADED = [31, 50, 311, 368, 368, 368, 368, 368]  # Fading, with drafts of every kind and without
DRAFTS = ({"prompt_lookup_num_tokens": 3}, {"assistant_early_exit": 1})


class Counting(kvik.DynamicCache):
    calls = 0

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        self.calls += 1
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


class Turning(kvik.SinkCache):
    update = Counting.update
    calls = 0


class Fading(kvik.DynamicCache):
    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        keys, values = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return (keys, values * 0.5) if layer_idx == 1 else (keys, values)


class Evicting(kvik.DynamicCache):
    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        out = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        layer = self.layers[layer_idx]
        layer.keys, layer.values = layer.keys[:, :, -5:], layer.values[:, :, -5:]
        return out


class Limits(unittest.TestCase):
    def refused(self, says, *calls):
        for call in calls:
            with self.assertRaisesRegex(kvik.UnsupportedError, says):
                call()

    def test_sinks(self):
        m, says = model("llama-gqa-l3"), r"Turning.update\(\) cannot be called: a sink cache .* DynamicCache, as examples/python/evict.py"
        self.refused(says, lambda: m(IDS, past_key_values=Turning(16, 4)),
                     lambda: m.generate(IDS, past_key_values=Turning(16, 4), max_new_tokens=2),
                     lambda: m.generate(IDS, past_key_values=Turning(16, 4), max_new_tokens=2, prompt_lookup_num_tokens=2))

    def test_states_alone(self):
        """Models without attention call no update(), in Transformers as here."""
        for name in ("mamba", "mamba2"):
            m, cache = model(name), Counting()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                out = m.generate(IDS, past_key_values=cache, max_new_tokens=3, do_sample=False)
            self.assertEqual((out.tolist(), cache.calls), (m.generate(IDS, max_new_tokens=3, do_sample=False).tolist(), 0))

    def test_drafts(self):
        m = model("llama-gqa-l3", "float32")
        for more in (*DRAFTS, {"assistant_model": model("llama-mha", "float32")}):
            for kind, want in ((Fading, FADED), (Evicting, EVICTED)):
                with self.assertWarnsRegex(UserWarning, "drafts are not used with .* leave the assistant or prompt_lookup_num_tokens out"):
                    out = m.generate(IDS, past_key_values=kind(), max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0, **more)
                self.assertEqual(out[0, 8:].tolist(), want)


if __name__ == "__main__":
    unittest.main()
