"""Caches of layers that a program has written: Cache(layers=[...]) and Cache(layer_class_to_replicate=...).

The numbers are those of Transformers 5.23 with the same classes on the same files.
"""
import copy
import pickle
import unittest
import warnings

import numpy as np
from common import kvik, model
from kvik.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

IDS, TWO, MASK = np.array([[5, 17, 9, 33, 21, 8]]), np.array([[0, 5, 17], [7, 8, 9]]), np.array([[0, 1, 1], [1, 1, 1]])


class Halving(DynamicLayer):
    """Attention sees half of the values."""

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        return keys, values * 0.5


class Fading(CacheLayerMixin):
    """Written from nothing: every value loses a tenth as it is kept."""

    def update(self, key_states, value_states, *args, **kwargs):
        new = key_states, value_states * np.float32(0.9)
        self.keys, self.values = (np.concatenate([old, rows], 2) for old, rows in zip((self.keys, self.values), new)) \
            if self.is_initialized else new
        self.is_initialized = True
        return self.keys, self.values

    def get_seq_length(self):
        return self.keys.shape[2] if self.is_initialized else 0

    def get_mask_sizes(self, query_length):
        return self.get_seq_length() + query_length, 0

    def get_max_length(self):
        return -1


class Written(unittest.TestCase):
    def setUp(self):
        self.model = model("llama-gqa-l3", "float32")
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def new(self, cache, m=None, ids=IDS, **options):
        out = (m or self.model).generate(ids, past_key_values=cache, do_sample=False, eos_token_id=None, **{"max_new_tokens": 6, **options})
        return out[:, ids.shape[1]:].tolist()

    def test_layers(self):
        for make in (lambda: Cache(layer_class_to_replicate=Halving), lambda: Cache(layers=[Halving() for _ in range(3)])):
            cache = make()
            self.assertEqual(self.new(cache), [[368, 368, 43, 310, 36, 12]])
            self.assertEqual((len(cache), cache.get_seq_length(), type(cache.layers[2]), cache.layers[0].keys.shape, cache.is_sliding, cache.batch_size),
                             (3, 11, Halving, (1, 2, 11, 16), [False] * 3, 1))
            self.assertEqual(self.new(make(), num_beams=3), [[52, 310, 12, 15, 368, 310]])
            self.assertEqual(self.new(make(), ids=TWO, attention_mask=MASK, max_new_tokens=5), [[165, 367, 43, 15, 372], [209, 215, 309, 368, 368]])
        mixed = Cache(layers=[DynamicLayer(), Halving(), DynamicLayer()])
        self.assertEqual(self.new(mixed), [[368, 255, 271, 368, 310, 254]])

    def test_operations(self):
        cache = Cache(layer_class_to_replicate=Halving)
        self.assertFalse(cache.is_initialized)
        self.new(cache)
        fork = copy.deepcopy(cache)
        cache.crop(-3)
        self.assertEqual((cache.get_seq_length(), fork.get_seq_length()), (8, 11))
        for part, want in ((cache, [5.973, -0.052, -1.719]), (fork, [2.184, 0.152, 5.969])):
            np.testing.assert_allclose(self.model(np.array([[7]]), past_key_values=part).logits[0, -1, :3], want, atol=2e-3)
        cache.crop(20)
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(np.array([1]))
        self.assertEqual((cache.get_seq_length(), cache.to_legacy_cache()[1][0].shape), (9, (1, 2, 9, 16)))
        cache.reset()
        self.assertEqual(cache.get_seq_length(), 0)
        with self.assertRaisesRegex(kvik.UnsupportedError, "to_legacy_cache"):
            pickle.dumps(fork)

    def test_from_nothing(self):
        for name, greedy, beams in (("qwen3", [158, 113, 341, 49, 204, 92], [158, 113, 341, 49, 204, 92]),
                                    ("gpt2", [175, 27, 314, 27, 67, 67], [175, 177, 53, 67, 55, 67])):
            m = model(name, "float32")
            self.assertEqual(self.new(Cache(layer_class_to_replicate=Fading), m), [greedy])
            self.assertEqual(self.new(Cache(layer_class_to_replicate=Fading), m, num_beams=2), [beams])
            self.assertIsInstance(kvik.DynamicCache(config=m.config).layers[0], CacheLayerMixin)

    def test_windows(self):
        """Layers of the library's kinds in a cache of the program's: the same tokens as without it, as the text passes the window."""
        m, ids = model("gemma2", "float32"), np.arange(5, 30)[None]
        window = m.config.sliding_window
        cache = Cache(layers=[DynamicSlidingWindowLayer(sliding_window=window) if kind == "sliding_attention" else DynamicLayer()
                              for kind in m.config.layer_types])
        self.assertEqual(self.new(cache, m, ids), self.new(None, m, ids))

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "give either"):
            Cache(layers=[DynamicLayer()], layer_class_to_replicate=DynamicLayer)
        with self.assertRaisesRegex(IndexError, "1 layers, and the model asks for layer 1"):
            self.new(Cache(layers=[DynamicLayer()]))
        cache = kvik.DynamicCache()
        with self.assertRaisesRegex(ValueError, r"Cache\(layers=\[...\]\)"):
            cache.layers = [DynamicLayer()]
        with self.assertRaisesRegex(ValueError, "Cache.layer_class_to_replicate"):
            cache.layer_class_to_replicate = DynamicLayer
        with self.assertRaisesRegex(kvik.UnsupportedError, "DynamicCache.offloading"):
            Cache(layers=[], offloading=True)
        with self.assertRaisesRegex(kvik.UnsupportedError, "no place for the recurrent states .* update.. of a DynamicCache"):
            self.new(Cache(layer_class_to_replicate=Fading), model("jamba"))


if __name__ == "__main__":
    unittest.main()
