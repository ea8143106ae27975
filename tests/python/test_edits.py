"""Rows of a cache that a program sets, more than once, in windows and behind a pickle: what Transformers 5.23 makes of them.

The expected values come from caches whose rows were set once, right behind the forward, which test_written.py compares with recorded
ones; a random comparison with Transformers in one process found what is here.
"""
import copy
import pickle
import unittest

import numpy as np
from common import has_torch, kvik, model

IDS, TWO = np.arange(5, 17)[None], np.array([[0, 0, 5, 6, 7, 8, 9, 10], [1, 5, 6, 7, 8, 9, 10, 11]])


def filled(name="gemma2", kind="dynamic", n=12, array=np.array):
    """Returns a model, and its cache of n tokens."""
    m = model(name, "float32")
    cache = kvik.StaticCache(m.config, 40) if kind == "static" else kvik.DynamicCache(config=m.config)
    m(array(IDS[:, :n]), past_key_values=cache)
    return m, cache


def halve(cache, layer, times=1):
    """Halves the values of a layer."""
    rows = cache.layers[layer]
    rows.values = rows.values * 0.5 ** times


class Edits(unittest.TestCase):
    def next(self, m, cache, array=np.array):
        return np.asarray(m(array([[9]]), past_key_values=cache).logits[0, -1])

    def test_full_window(self):
        """A full window of a static cache shows a row of zeros first; what is set behind it are the rows."""
        for n in (4, 9, 10, 12):
            got = {}
            for kind in ("dynamic", "static"):
                m, cache = filled(kind=kind, n=n)
                plain = self.next(m, copy.deepcopy(cache))
                halve(cache, 0)
                got[kind] = self.next(m, cache)
                self.assertGreater(np.abs(plain - got[kind]).max(), 1e-3)
            np.testing.assert_allclose(got["static"], got["dynamic"], atol=1e-4)

    def test_twice(self):
        """What was set is what is read, also after the cache has taken it."""
        import_torch = has_torch()
        for torch in (False, True) if import_torch else (False,):
            array = np.array
            if torch:
                import torch as module
                array = module.tensor
            m, cache = filled(n=4, array=array)
            once = copy.deepcopy(cache)
            halve(once, 0, 2)
            for _ in range(2):
                halve(cache, 0)
                self.assertEqual(cache.get_seq_length(), 4)  # the cache has taken the rows
            np.testing.assert_array_equal(np.asarray(cache.layers[0].values), np.asarray(once.layers[0].values))
            np.testing.assert_array_equal(self.next(m, cache, array), self.next(m, once, array))

    def test_pickle_with_windows(self):
        """A pickle that waits for its model counts the tokens that its windows have passed, and keeps the mask."""
        for name in ("mistral", "gemma2"):
            m, cache = filled(name)
            waiting = pickle.loads(pickle.dumps(cache))
            for one in (cache, waiting):
                halve(one, 1)
                self.assertEqual(one.get_seq_length(), 12)
            np.testing.assert_array_equal(self.next(m, waiting), self.next(m, cache))
        m, cache, mask = model("llama-gqa-l3", "float32"), kvik.DynamicCache(), TWO != 0
        m(TWO, attention_mask=mask, past_key_values=cache)
        waiting, more = pickle.loads(pickle.dumps(cache)), {"attention_mask": np.insert(mask, 8, True, 1)}
        for one in (cache, waiting):
            halve(one, 1)
        np.testing.assert_array_equal(*(m([[12], [12]], past_key_values=one, **more).logits for one in (cache, waiting)))

    def test_reset_of_a_static_cache(self):
        """The columns stay reserved, as zeros; what is set there is overwritten by the next tokens."""
        for name in ("llama-gqa-l3", "gemma2"):
            m, cache = filled(name, "static", 4)
            shapes, want = [layer.keys.shape for layer in cache.layers], m(IDS, past_key_values=kvik.StaticCache(m.config, 40)).logits
            halve(cache, 0)
            self.assertEqual(cache.get_seq_length(), 4)
            cache.reset()
            for layer, shape in zip(cache.layers, shapes):
                self.assertEqual((layer.keys.shape, float(np.abs(layer.values).sum())), (shape, 0))
                layer.values = np.ones(layer.values.shape, np.float32)
            self.assertEqual(cache.get_seq_length(), 0)
            np.testing.assert_array_equal(m(IDS, past_key_values=cache).logits, want)
        again = pickle.loads(pickle.dumps(cache))
        again.reset()
        np.testing.assert_array_equal(m(IDS, past_key_values=again).logits, want)


if __name__ == "__main__":
    unittest.main()
