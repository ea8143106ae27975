"""Caches that a model has filled: forks, pickles, sessions, crops, rows of a batch, and what a cache shows of its layers."""
import copy
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from cache_parts import config, rows
from common import kvik, model

RNG = np.random.default_rng(7)


class Filled(unittest.TestCase):
    """Caches that a model has filled."""

    def setUp(self):
        self.model = model("llama-mha")
        self.ids = RNG.integers(3, 300, (1, 40))
        self.cache = kvik.DynamicCache()
        self.logits = self.model(self.ids, past_key_values=self.cache).logits
        self.next = self.ids[:, :1]

    def after(self, cache, ids=None):
        return self.model(self.next if ids is None else ids, past_key_values=cache).logits

    def test_fork(self):
        before = self.cache.memory()
        forks = [copy.deepcopy(self.cache) for _ in range(8)]
        usage = self.cache.memory()
        self.assertEqual(usage["live"], before["live"])  # nothing is copied
        want = self.after(copy.deepcopy(self.cache))
        for fork in forks:
            np.testing.assert_array_equal(self.after(fork), want)
            self.assertEqual(fork.get_seq_length(), 41)
        self.assertEqual(self.cache.get_seq_length(), 40)

    def test_pickle(self):
        again = pickle.loads(pickle.dumps(self.cache))
        self.assertEqual(again.get_seq_length(), 40)
        np.testing.assert_array_equal(self.after(again), self.after(self.cache))

    def test_pickle_quantized_padded(self):
        cache = kvik.QuantizedCache("quanto", self.model.config, q_group_size=16, residual_length=8)
        ids = RNG.integers(3, 300, (2, 20))
        mask = np.ones((2, 20), int)
        mask[0, :6] = 0
        self.model(ids, attention_mask=mask, past_key_values=cache)
        again = pickle.loads(pickle.dumps(cache))
        wide = np.concatenate([mask, np.ones((2, 1), int)], 1)
        got = [self.model(ids[:, :1], attention_mask=wide, past_key_values=c).logits for c in (again, cache)]
        np.testing.assert_array_equal(*got)

    def test_pickle_read(self):
        """The rows of a pickled cache are read while a model of the same weights is open, and it goes on as before."""
        again = pickle.loads(pickle.dumps(self.cache))
        self.assertEqual((len(again), len(again.layers)), (len(self.cache), len(self.cache)))
        for got, want in zip(again, self.cache):
            np.testing.assert_array_equal(got[0], want[0])
            np.testing.assert_array_equal(got[1], want[1])
        np.testing.assert_array_equal(again.layers[1].keys, self.cache.layers[1].keys)
        self.assertEqual((again.get_mask_sizes(3), again.get_query_offset()), ((43, 0), 40))
        for change in (lambda: again.crop(3), lambda: again.reorder_cache([0]), lambda: again.batch_repeat_interleave(2),
                       lambda: again.batch_select_indices([0]), lambda: again.update(rows(1), rows(1), 0)):
            with self.assertRaisesRegex(kvik.ArgumentError, "waits for its model"):
                change()
        np.testing.assert_array_equal(self.after(again), self.after(self.cache))
        recurrent = kvik.DynamicCache()
        model("mamba")(self.ids, past_key_values=recurrent)
        again = pickle.loads(pickle.dumps(recurrent))
        np.testing.assert_array_equal(again.ssm_states[0], recurrent.ssm_states[0])

    def test_pickle_reads_alone(self):
        """Reading a pickle leaves the model the stores that it has open, with the settings that it has."""
        made = self.model.generate(self.ids, max_new_tokens=1, return_dict_in_generate=True, threads=1)
        stores, live = list(self.model._handle._idle), made.past_key_values._batch.store
        again = pickle.loads(pickle.dumps(made.past_key_values))
        self.assertEqual((live in stores, again._settings.threads), (True, 1))
        np.testing.assert_array_equal(again[0][0], made.past_key_values[0][0])
        self.assertEqual(self.model._handle._idle, stores)

    def test_pickle_without_torch(self):
        cache = kvik.DynamicCache([(rows(2), rows(2))])
        cache._torch = True  # as of tensors, in a program that has torch
        had = sys.modules.pop("torch", None)
        try:
            again = pickle.loads(pickle.dumps(cache))
            self.assertEqual([type(again[0][0]), type(again.layers[0].keys), type(again.to_legacy_cache()[0][1])], [np.ndarray] * 3)
        finally:
            if had is not None:
                sys.modules["torch"] = had

    def test_pickle_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache.pickle")
            with open(path, "wb") as f:
                pickle.dump(self.cache, f)
            done = subprocess.run([sys.executable, "-c", "import pickle, sys; sys.path[:0] = sys.argv[2:]\n"
                                   "cache = pickle.load(open(sys.argv[1], 'rb'))\nprint(cache.get_seq_length())\ncache.layers[0].keys",
                                   path, *sys.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.stdout, "40\n")
        self.assertIn("ArgumentError: the cache was loaded and waits for its model", done.stderr)

    def test_pickle_standalone(self):
        cache = kvik.DynamicCache()
        part = rows(3)
        cache.update(part, part, 0)
        again = pickle.loads(pickle.dumps(cache))
        np.testing.assert_array_equal(again[0][0], part)

    def test_session(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache.session")
            self.cache.save(path, "a note")
            for given in (None, self.model):
                again = kvik.DynamicCache.load(path, given)
                self.assertEqual(again.get_seq_length(), 40)
                np.testing.assert_array_equal(self.after(again), self.after(copy.deepcopy(self.cache)))
            with self.assertRaises(kvik.KvikError):
                kvik.DynamicCache.load(os.path.join(folder, "cache.session"), model("qwen2"))
            with open(path, "r+b") as f:
                f.truncate(100)
            with self.assertRaises(kvik.KvikError):
                kvik.DynamicCache.load(path)

    def test_legacy(self):
        legacy = self.cache.to_legacy_cache()
        cache = kvik.DynamicCache.from_legacy_cache(legacy)
        np.testing.assert_array_equal(self.after(cache), self.after(copy.deepcopy(self.cache)))
        out = self.model(self.next, past_key_values=legacy)
        self.assertIsInstance(out.past_key_values, tuple)
        self.assertEqual(out.past_key_values[0][0].shape[2], 41)
        with self.assertRaisesRegex(ValueError, "layer 0 .* NoneType"):
            self.model(self.next, past_key_values=(None, None))

    def test_own_model(self):
        """A cache that kvik filled goes on in a model that is written elsewhere, and back."""
        copy_ = copy.deepcopy(self.cache)
        shape = self.cache[0][0].shape
        part = rows(1, 1, shape[1], shape[3])
        keys, _ = copy_.update(part, part, 0)
        np.testing.assert_array_equal(keys[:, :, :40], self.cache[0][0])
        self.assertEqual(copy_.get_seq_length(), 41)
        for i in range(1, len(copy_)):
            copy_.update(part, part, i)
        with self.assertRaisesRegex(kvik.ArgumentError, "the input has 2 rows"):
            self.model(np.repeat(self.next, 2, 0), past_key_values=copy_)
        small = kvik.DynamicCache(cache_memory="1M")  # which the layers of the model share, and no more
        self.model(self.next, past_key_values=small)
        small.update(part, part, 0)
        copy_.crop(40)  # a refused input leaves the rows to change
        np.testing.assert_array_equal(self.after(copy_), self.after(copy.deepcopy(self.cache)))

    def test_windows_of_own_models(self):
        """Rows of a text that windows have passed go on in a model of kvik, and from one, where they were."""
        for name in ("mistral", "gemma2", "llama4"):
            with self.subTest(name):
                run, ids = model(name), RNG.integers(3, 200, (1, 41))
                bound, filled = kvik.DynamicCache(), kvik.DynamicCache(config=run.config)
                for begin in range(0, 39, 3):
                    run(ids[:, begin:begin + 3], past_key_values=bound)
                    for i, (k, v) in enumerate(bound.to_legacy_cache()):
                        filled.update(k[:, :, -3:], v[:, :, -3:], i)
                self.assertEqual(filled.is_sliding, bound.is_sliding)
                want = run(ids[:, 39:], past_key_values=copy.deepcopy(bound)).logits
                for cache in (copy.deepcopy(filled), pickle.loads(pickle.dumps(filled))):
                    np.testing.assert_array_equal(run(ids[:, 39:], past_key_values=cache).logits, want)
                    self.assertEqual(cache.get_seq_length(), 41)
                last = [(k[:, :, -1:], v[:, :, -1:]) for k, v, _ in bound]
                for extra in range(2):
                    for i, (k, v) in enumerate(last):
                        sizes = [c.get_mask_sizes(1, i) for c in (bound, filled)]  # what the next update will return
                        got, expect = (np.array(c.update(k, v, i)) for c in (bound, filled))
                        self.assertEqual((got.shape, *sizes), (expect.shape, *[(got.shape[3], 40 + extra - got.shape[3])] * 2))
                        seen = -8 if name == "llama4" else None  # of its chunk; a model of kvik keeps no others
                        np.testing.assert_array_equal(got[..., seen:, :], expect[..., seen:, :])
                        self.assertEqual(*((c.get_seq_length(i), c.get_query_offset(i), c.get_mask_sizes(2, i)) for c in (bound, filled)))
                    self.assertEqual(bound.is_sliding, filled.is_sliding)
                    bound = pickle.loads(pickle.dumps(bound))

    def test_window_just_full(self):
        """A text that fills a window to its last row is told from the end of a longer one."""
        run, ids = model("mistral"), RNG.integers(3, 200, (1, 12))
        bound, filled = kvik.DynamicCache(), kvik.DynamicCache(config=model("mistral").config)
        run(ids[:, :11], past_key_values=bound)
        for i, (k, v) in enumerate(bound.to_legacy_cache()):
            filled.update(k, v, i)
        want = run(ids[:, 11:], past_key_values=copy.deepcopy(bound)).logits
        for cache in (filled, pickle.loads(pickle.dumps(filled))):
            np.testing.assert_array_equal(run(ids[:, 11:], past_key_values=cache).logits, want)
        with self.assertRaisesRegex(kvik.ArgumentError, "last 11 tokens of its window.*DynamicCache"):
            run(ids[:, 11:], past_key_values=bound.to_legacy_cache())

    def test_kinds(self):
        """Configurations without layer_types mean the windows that Transformers makes of them."""
        def slides(**kwargs):
            return [int(x) for x in kvik.DynamicCache(config=config(num_hidden_layers=6, **kwargs)).is_sliding]
        window = {"sliding_window": 4}
        self.assertEqual(slides(), [0] * 6)
        for kind, want in (("mistral", [1] * 6), ("gemma2", [1, 0] * 3), ("gpt_oss", [1, 0] * 3), ("gemma3_text", [1] * 5 + [0]),
                           ("qwen2", [0] * 6)):
            self.assertEqual(slides(model_type=kind, **window), want)
        self.assertEqual(slides(model_type="gemma3_text", sliding_window_pattern=3, **window), [1, 1, 0] * 2)
        self.assertEqual(slides(model_type="qwen2", use_sliding_window=True, max_window_layers=4, **window), [0] * 4 + [1] * 2)
        self.assertEqual(slides(model_type="qwen3", use_sliding_window=False, max_window_layers=4, **window), [0] * 6)
        self.assertEqual(slides(model_type="llama4_text", attention_chunk_size=8), [1, 1, 1, 0, 1, 1])
        self.assertEqual(slides(model_type="llama4_text", attention_chunk_size=8, no_rope_layers=[0, 1] * 3), [0, 1] * 3)

    def test_layers_of_a_model(self):
        for name, sliding, linear in (("gemma2", [True, False], [False, False]), ("jamba", [False, False], [True, True])):
            cache = model(name)(np.array([[5, 6]])).past_key_values
            self.assertEqual((cache.is_sliding[:2], cache.is_linear[:2]), (sliding, linear))
            self.assertEqual((len(cache.is_dummy), cache.is_croppable), (len(cache), True))

    def test_crop_and_rows(self):
        whole = self.model(np.concatenate([self.ids[:, :30], self.next], 1)).logits[:, -1]
        fork = copy.deepcopy(self.cache)
        fork.crop(30)
        np.testing.assert_array_equal(self.after(fork)[:, -1], whole)
        fork = copy.deepcopy(self.cache)
        fork.crop(-10)
        np.testing.assert_array_equal(self.after(fork)[:, -1], whole)
        fork.batch_repeat_interleave(3)
        self.assertEqual(fork.batch_size, 3)
        fork.reorder_cache([2, 1, 0])
        fork.batch_select_indices([1])
        self.assertEqual(fork.batch_size, 1)
        fork.crop(0)
        self.assertEqual(fork.get_seq_length(), 0)

    def test_rows_of_a_batch(self):
        """The rows of a cache are known while it waits for its model; of an empty one they are -1, as in Transformers."""
        two = self.model(np.repeat(self.next, 2, 0)).past_key_values
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache.session")
            two.save(path)
            for cache in (pickle.loads(pickle.dumps(two)), kvik.DynamicCache.load(path)):
                self.assertEqual((cache.batch_size, cache.max_batch_size), (2, 2))
                self.assertEqual(copy.deepcopy(cache).batch_size, 2)
        part = rows(4, 3)
        filled = kvik.DynamicCache()
        filled.update(part, part, 0)
        for cache in (filled, pickle.loads(pickle.dumps(filled)), kvik.EncoderDecoderCache(filled, kvik.DynamicCache())):
            self.assertEqual((cache.batch_size, cache.max_batch_size), (3, 3))
        filled.reset()
        empty = kvik.DynamicCache()
        for cache in (empty, filled, kvik.EncoderDecoderCache(empty, empty), kvik.StaticCache(self.model.config, 16)):
            self.assertEqual((cache.batch_size, cache.max_batch_size), (-1, -1))
        self.assertEqual(kvik.StaticCache(self.model.config, max_batch_size=4, max_cache_len=16).max_batch_size, 4)

    def test_sync(self):
        ids = self.ids[0].tolist()
        report = self.cache.sync(self.model, ids[:25] + [7, 8, 9])[0]
        self.assertEqual((report["reused"], report["divergence"]), (25, 25))
        self.assertEqual(self.cache.get_seq_length(), 28)

    def test_splice(self):
        keys = {"moved_chunks": 8}
        head, first, second = self.ids[0].tolist()[:5], list(range(40, 90)), list(range(120, 180))
        before = kvik.DynamicCache(cache_config=keys)
        self.model(np.array([[3, 4, *first, *second]]), past_key_values=before)
        cache = kvik.DynamicCache(cache_config=keys)
        report = cache.splice(self.model, [head, second, first], recompute=4, fraction=0.1)
        self.assertEqual(report, {"reused": 0, "moved": 54 + 45, "computed": 5 + 6 + 5, "chunks": 2})
        self.assertEqual(cache.get_seq_length(), 115)
        ids = np.array([[*head, *second, *first, 7]])
        self.assertEqual(self.model.generate(ids, past_key_values=cache, max_new_tokens=3, do_sample=False).shape, (1, 119))
        whole = kvik.DynamicCache(cache_config=keys)
        whole.splice(self.model, [head, second, first], fraction=1.0)
        np.testing.assert_array_equal(self.model(np.array([[7]]), past_key_values=whole).logits[:, -1],
                                      self.model(ids, use_cache=False).logits[:, -1])
        with self.assertRaisesRegex(kvik.UnsupportedError, "moved_chunks"):
            kvik.DynamicCache().splice(self.model, [head])

    def test_forward_arguments(self):
        with self.assertRaisesRegex(kvik.ArgumentError, r"cache_position has 30 entries for 1 token; expected \[40\]"):
            self.model(self.next, past_key_values=self.cache, cache_position=np.arange(30))
        with self.assertRaises(kvik.ArgumentError):
            self.model(self.next, past_key_values=self.cache, cache_position=[39])
        with self.assertRaises(kvik.ArgumentError):
            self.model(np.repeat(self.next, 2, 0), past_key_values=self.cache)
        with self.assertRaises(kvik.ArgumentError):
            model("qwen2")(self.next, past_key_values=self.cache)
        with self.assertRaises(TypeError):
            self.model(self.next, no_such_argument=1)
        with self.assertRaises(TypeError):
            self.model(self.next, past_key_values=object())
        out = self.model(self.next, past_key_values=copy.deepcopy(self.cache), output_attentions=True,
                         output_hidden_states=True, cache_position=[40])
        c = self.model.config
        self.assertEqual(len(out.attentions), c.num_hidden_layers)
        self.assertEqual(out.attentions[0].shape, (1, c.num_attention_heads, 1, 41))
        self.assertEqual(len(out.hidden_states), c.num_hidden_layers + 1)
        np.testing.assert_allclose(out.attentions[0].sum(-1), 1, rtol=1e-5)
        self.assertEqual(self.model(self.ids, logits_to_keep=2).logits.shape[1], 2)
        self.assertIsNone(self.model(self.next, use_cache=False).past_key_values)
        self.assertEqual(len(self.model(self.next, return_dict=False)), 2)
        np.testing.assert_array_equal(self.model(self.ids, use_cache=False).logits, self.logits)

    def test_budget(self):
        ids = RNG.integers(3, 300, (1, 100))
        options = {"max_new_tokens": 60, "cache_memory": "240K", "max_sequences": 1}
        with self.assertRaises(kvik.OutOfMemoryError) as e:
            self.model.generate(ids, **options)
        self.assertIn("cache full", str(e.exception))
        want = self.model.generate(ids, max_new_tokens=60)
        options["cache_memory"] = "1M"
        np.testing.assert_array_equal(self.model.generate(ids, cache_implementation="offloaded", **options), want)


if __name__ == "__main__":
    unittest.main()
