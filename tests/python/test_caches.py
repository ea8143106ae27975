"""Caches as objects: standalone updates, both forms of arguments, forks, pickles, sessions, and operations on rows.

The scenarios are those of Transformers' own cache tests.
"""
import copy
import pickle
import sys
import threading
import types
import unittest

import numpy as np
from cache_parts import RNG, config, rows
from common import PATIENCE, has_torch, hold, kvik, model


class Standalone(unittest.TestCase):
    """cache.update(), for models that are written elsewhere."""

    def test_dynamic(self):
        cache = kvik.DynamicCache()
        self.assertEqual((cache.get_seq_length(), cache.get_max_cache_shape(), cache.get_max_length()), (0, None, -1))
        parts = [rows(n) for n in (5, 1, 3)]
        for i, part in enumerate(parts):
            for layer in (0, 1):
                keys, values = cache.update(part, part + layer, layer)
            want = np.concatenate(parts[:i + 1], 2)
            np.testing.assert_array_equal(keys, want)
            np.testing.assert_array_equal(values, want + 1)
        self.assertEqual(cache.get_seq_length(), 9)
        self.assertEqual(len(cache), 2)
        np.testing.assert_array_equal(cache[0][0], want)
        np.testing.assert_array_equal(cache.value_cache[1], want + 1)
        self.assertEqual([k.shape for k, _, _ in cache], [(2, 2, 9, 8)] * 2)
        with self.assertRaises(KeyError):
            cache[2]

    def test_many_layers(self):
        cache = kvik.DynamicCache()
        part = rows(2, 1)
        for layer in range(100):
            keys, _ = cache.update(part, part, layer)
        np.testing.assert_array_equal(keys, part)
        self.assertEqual(len(cache), 100)
        np.testing.assert_array_equal(cache[3][0], part)

    def test_crop(self):
        cache = kvik.DynamicCache()
        part = rows(6)
        cache.update(part, part, 0)
        cache.crop(-2)
        self.assertEqual(cache.get_seq_length(), 4)
        cache.crop(10)
        self.assertEqual(cache.get_seq_length(), 4)
        cache.crop(3)
        np.testing.assert_array_equal(cache[0][0], part[:, :, :3])
        cache.crop(0)
        self.assertEqual(cache.get_seq_length(), 0)
        cache.update(part, part, 0)
        cache.crop(-7)  # more than there are: all
        self.assertEqual(cache.get_seq_length(), 0)

    def test_rows(self):
        part = rows(4, 3)
        cache = kvik.DynamicCache()
        cache.update(part, part, 0)
        cache.reorder_cache(np.array([2, 2, 0]))
        np.testing.assert_array_equal(cache[0][0], part[[2, 2, 0]])
        cache.batch_select_indices([0, 2])
        np.testing.assert_array_equal(cache[0][0], part[[2, 0]])
        cache.batch_repeat_interleave(2)
        np.testing.assert_array_equal(cache[0][0], part[[2, 2, 0, 0]])
        for bad in ([0, 1, 2], [0, 1, 2, 9], [0, 1, 2, -1]):
            with self.assertRaises(kvik.ArgumentError):
                cache.reorder_cache(bad)
        cache.reset()
        self.assertEqual(cache.get_seq_length(), 0)

    def test_static(self):
        cache = kvik.StaticCache(config(), max_cache_len=6)
        self.assertEqual((cache.get_max_cache_shape(), cache.get_max_length(), cache.max_cache_len), (6, 6, 6))
        part = rows(4)
        keys, values = cache.update(part, part, 0, {"cache_position": np.arange(4)})
        self.assertEqual(keys.shape, (2, 2, 6, 8))
        np.testing.assert_array_equal(keys[:, :, :4], part)
        self.assertFalse(values[:, :, 4:].any())
        cache.update(part[:, :, :2], part[:, :, :2], 0)
        with self.assertRaises(kvik.LimitError):
            cache.update(part[:, :, :1], part[:, :, :1], 0)
        self.assertEqual(cache.get_seq_length(), 6)

    def test_sliding_sizes(self):
        cache = kvik.DynamicCache(config=config(sliding_window=4, num_hidden_layers=1))
        first = rows(2, 1)
        cache.update(first, first, 0)
        # columns and position of the first, before an update of n rows
        for n, want in ((1, (3, 0)), (1, (4, 0)), (1, (4, 1)), (3, (6, 2)), (6, (9, 5)), (1, (4, 11))):
            self.assertEqual(cache.get_mask_sizes(n, 0), want)
            keys, _ = cache.update(rows(n, 1), rows(n, 1), 0)
            self.assertEqual(keys.shape[2], want[0])
        self.assertEqual(cache.get_seq_length(), 15)

    def test_masks(self):
        """What models of Transformers ask before they build a mask; the values are those of release 5.23."""
        kinds = config(sliding_window=4, layer_types=["sliding_attention", "full_attention"])
        for make, is_sliding, sizes in (
                (lambda: kvik.DynamicCache(), [], [(3, 0), (4, 0), (9, 0)]),
                (lambda: kvik.DynamicCache(config=config()), [False, False], [(3, 0), (4, 0), (9, 0)]),
                (lambda: kvik.DynamicCache(config=kinds), [True, False], [(3, 0), (4, 0), (8, 1)]),
                (lambda: kvik.StaticCache(config=config(), max_cache_len=16), [False, False], [(16, 0)] * 3),
                (lambda: kvik.StaticCache(config=kinds, max_cache_len=16), [True, False], [(4, 0), (4, 0), (8, 1)]),
                (lambda: kvik.SinkCache(4, 1), [], [(3, 0), (4, 0), (8, 1)])):
            cache = make()
            self.assertEqual((cache.is_sliding, len(cache), cache.get_query_offset()), (is_sliding, len(is_sliding), 0))
            self.assertEqual([layer.keys for layer in cache.layers], [None] * len(is_sliding))
            for n, want in zip((3, 1, 5), sizes):
                self.assertEqual(cache.get_mask_sizes(n, 0), want)
                keys, _ = cache.update(rows(n), rows(n), 0)
                self.assertEqual(keys.shape[2], want[0])
                cache.update(rows(n), rows(n), 1)
            self.assertEqual((cache.get_query_offset(), cache.batch_size, len(cache.is_linear), any(cache.is_dummy)), (9, 2, 2, False))
            self.assertEqual(cache.is_croppable, not any(cache.is_sliding))
            self.assertEqual([layer.is_sliding for layer in cache.layers], is_sliding or [type(cache) is kvik.SinkCache] * 2)
            self.assertEqual((cache.layers[1].dtype, cache.layers[1].device), (np.float32, "cpu"))
            cache.reset()
            part = rows(2, 3)
            np.testing.assert_array_equal(cache.update(part, part, 0)[0][:, :, :2], part)  # a larger batch than before
        pair = kvik.EncoderDecoderCache(kvik.DynamicCache(config=kinds), kvik.DynamicCache())
        self.assertEqual((pair.is_sliding, pair.get_mask_sizes(3, 0), pair.layers[0].get_seq_length()), ([True, False], (3, 0), 0))

    def test_is_one_of_transformers(self):
        """Its models take the first layer without a window from instances of its own Cache alone."""
        theirs = types.ModuleType("transformers.cache_utils")
        theirs.Cache = type("Cache", (), {"__len__": None})
        theirs.EncoderDecoderCache = type("EncoderDecoderCache", (theirs.Cache,), {"__len__": None})
        layers, had = sys.modules["kvik.cache_layers"], sys.modules.get(theirs.__name__)
        bases = [(kind, kind.__bases__) for kind in (layers.Layers, kvik.EncoderDecoderCache)]
        sys.modules[theirs.__name__] = theirs
        try:
            cache = kvik.DynamicCache(config=config())
            self.assertIsInstance(cache, theirs.Cache)
            self.assertNotIsInstance(cache, theirs.EncoderDecoderCache)
            pair = kvik.EncoderDecoderCache(cache, kvik.DynamicCache())
            self.assertIsInstance(pair, theirs.EncoderDecoderCache)
            self.assertEqual((len(cache), len(pair)), (2, 2))
        finally:
            for kind, before in bases:
                kind.__bases__ = before
            del sys.modules[theirs.__name__]
            if had is not None:
                sys.modules[theirs.__name__] = had

    def test_adopts_late(self):
        """The program may import the caches of Transformers after it made its own, and in two threads at once."""
        both = threading.Barrier(2)

        class Slow(type):
            """The first two threads that look for the class among the bases meet there."""
            looked = 0

            def __eq__(cls, other):
                Slow.looked += 1
                if Slow.looked <= 2:
                    both.wait(PATIENCE)
                return cls is other

            __hash__ = type.__hash__

        cache, pickled = kvik.DynamicCache(), pickle.dumps(kvik.DynamicCache())
        theirs = types.ModuleType("transformers.cache_utils")
        layers, had = sys.modules["kvik.cache_layers"], sys.modules.get(theirs.__name__)
        before, errors = layers.Layers.__bases__, []

        def length():
            try:
                cache.get_seq_length()
            except Exception as e:
                errors.append(e)

        sys.modules[theirs.__name__] = theirs
        try:
            for use in (cache.get_seq_length, lambda: cache.is_sliding, lambda: cache.get_mask_sizes(1),
                        lambda: pickle.loads(pickled)):
                theirs.Cache = type("Cache", (), {"__len__": None})
                use()
                self.assertIsInstance(cache, theirs.Cache)
                layers.Layers.__bases__ = before
            layers.Layers.__bases__ = before[:1]
            theirs.Cache = Slow("Cache", (), {"__len__": None})
            threads = [threading.Thread(target=length) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((errors, issubclass(kvik.DynamicCache, theirs.Cache)), ([], True))
        finally:
            layers.Layers.__bases__ = before
            del sys.modules[theirs.__name__]
            if had is not None:
                sys.modules[theirs.__name__] = had

    def test_masks_of_held_rows(self):
        """A cache that holds rows, but no update() yet, tells the masks of a model what update() will return."""
        part = rows(7)
        filled = kvik.DynamicCache()
        filled.update(part, part, 0)
        kinds = config(sliding_window=4, layer_types=["sliding_attention", "full_attention"])
        for cache, want in ((kvik.DynamicCache.from_legacy_cache([(part, part)]), (10, 0)),
                            (kvik.DynamicCache([(part, part)]), (10, 0)), (pickle.loads(pickle.dumps(filled)), (10, 0)),
                            (kvik.DynamicCache([(part, part)] * 2, config=kinds), (6, 4))):
            self.assertEqual((cache.get_mask_sizes(3, 0), cache.get_query_offset()), (want, 7))
            self.assertEqual(cache.update(rows(3), rows(3), 0)[0].shape[2], want[0])

    def test_windows_of_copies(self):
        """A fork or a pickle goes on where the cache was, with the tokens that a window has passed, and its sinks."""
        kinds = config(sliding_window=4, layer_types=["sliding_attention", "full_attention"])
        for make in (lambda: kvik.DynamicCache(config=kinds), lambda: kvik.StaticCache(config=kinds, max_cache_len=32),
                     lambda: kvik.SinkCache(6, 2)):
            cache, part, new = make(), rows(11), rows(2)
            for i in (0, 1):
                for k in (part[:, :, :9], part[:, :, 9:]):
                    cache.update(k, k + 1, i)
            copies = [pickle.loads(pickle.dumps(cache)) for _ in range(2)] + [copy.deepcopy(cache)]
            copies[1] = pickle.loads(pickle.dumps(copies[1]))
            ask = [(lambda c, i=i: (c.get_seq_length(i), c.seen_tokens, c.get_query_offset(i), c.get_mask_sizes(2, i))) for i in (0, 1)]
            want = [f(cache) for f in ask]
            self.assertEqual([x[2] for x in want], [11, 11])
            rows_of = [cache.update(new, new + 1, i) for i in (0, 1)]
            for other in copies:
                self.assertEqual([f(other) for f in ask], want)
                for i in (0, 1):
                    np.testing.assert_array_equal(other.update(new, new + 1, i), rows_of[i])
            again = pickle.loads(pickle.dumps(cache))
            with self.assertRaisesRegex(kvik.LostError, "crop to 12 rows"):
                again.crop(12)
            again.update(new, new, 0)
            again.crop(13)
            self.assertEqual((again.get_query_offset(0), again.get_query_offset(1)), (13, 13))
            np.testing.assert_array_equal(again.to_legacy_cache()[0][0], cache.to_legacy_cache()[0][0])

    def test_threads(self):
        """Rows are not read while another thread may move them."""
        cache, done = kvik.DynamicCache(), []
        cache.update(rows(2), rows(2), 0)
        layer = cache.layers[0]

        def read():
            for what in (lambda: layer.keys, lambda: pickle.dumps(cache)):
                try:
                    done.append(what())
                except kvik.BusyError:
                    done.append("busy")

        def other():
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
        hold(cache, other)
        self.assertEqual(done, ["busy", "busy"])

    def test_recording(self):
        """Release 5 of Transformers says how many tokens it takes back, which may be none; it announces that before."""
        part = rows(6).astype(np.float16)
        cache = kvik.DynamicCache()
        cache.update(part, part, 0)
        layer = cache.layers[0]
        self.assertEqual((layer.dtype, layer.get_seq_length()), (np.float16, 6))
        pair = kvik.EncoderDecoderCache(cache, kvik.DynamicCache())
        pair.activate_past_recording()
        for n, want in ((0, 6), (-2, 4), (0, 4)):
            pair.crop(n)
            self.assertEqual(cache.get_seq_length(), want)
        np.testing.assert_array_equal(layer.keys, part[:, :, :4])
        again = pickle.loads(pickle.dumps(cache))
        again.crop(0)
        self.assertEqual(again.get_seq_length(), 4)

    def test_linear(self):
        """Layers with states instead of rows, as Mamba and Jamba of Transformers 5 use them: layer 0 has states, layer 1 rows."""
        kinds = config(layer_types=["linear_attention", "full_attention"])
        for given in (kinds, None):  # without a configuration, what the model does tells
            cache, part, inputs = kvik.DynamicCache(config=given), rows(3), RNG.standard_normal((2, 5, 9)).astype(np.float32)
            self.assertEqual((cache.get_conv_state(0), cache.get_recurrent_state(0), cache.has_previous_state(0)), (None, None, False))
            got = cache.update_conv_state(inputs[..., :3], 0, conv_kernel_size=4)
            np.testing.assert_array_equal(got, np.pad(inputs[..., :3], ((0, 0), (0, 0), (1, 0))))  # zeros stand for what is before
            got = cache.update_conv_state(inputs[..., 3:8], 0, conv_kernel_size=4)
            np.testing.assert_array_equal(got[..., -8:], inputs[..., :8])
            np.testing.assert_array_equal(cache.get_conv_state(0), inputs[..., 4:8])
            state = RNG.standard_normal((2, 5, 6)).astype(np.float32)
            cache.update_recurrent_state(state, 0)
            cache.get_recurrent_state(0)[...] += 1  # a step of a model writes here
            np.testing.assert_array_equal(cache.recurrent_states[0], state + 1)
            kept = cache.get_recurrent_state(0)
            cache.update_recurrent_state(state, 0)
            np.testing.assert_array_equal(kept, state)
            self.assertFalse(np.shares_memory(kept, state))
            cache.update(part, part, 1)
            self.assertEqual((cache.get_seq_length(), cache.get_query_offset(), cache.get_mask_sizes(2), cache.batch_size, len(cache)),
                             (3, 3, (5, 0), 2, 2))
            self.assertEqual((cache.is_linear, cache.is_croppable, cache.has_previous_state(0), cache.has_previous_state(1)),
                             ([True, False], False, True, False))
            self.assertEqual(cache.memory()["states"], kept.nbytes + cache.get_conv_state(0).nbytes)
            copies = copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))
            cache.get_recurrent_state(0)[...] = 0
            for other in copies:
                self.assertEqual((other.get_seq_length(), other.get_mask_sizes(2), other.batch_size), (3, (5, 0), 2))
                np.testing.assert_array_equal(other.get_recurrent_state(0), state)
                other.reorder_cache([1, 0])
                other.batch_repeat_interleave(2)
                other.batch_select_indices([0, 3, 3])
                np.testing.assert_array_equal(other.get_recurrent_state(0), state[[1, 0, 0]])
                np.testing.assert_array_equal(other.get_conv_state(0), inputs[[1, 0, 0], :, 4:8])
                np.testing.assert_array_equal(other.update(part[[0, 0, 0]], part[[0, 0, 0]], 1)[0][:, :, :3], part[[1, 0, 0]])
                for wrong in (lambda: other.update_recurrent_state(state, 0), lambda: other.update_conv_state(inputs, 0),
                              lambda: other.batch_select_indices([3])):
                    with self.assertRaisesRegex(kvik.ArgumentError, "the cache holds 3 rows"):
                        wrong()
            for n in (2, -1):
                with self.assertRaisesRegex(kvik.UnsupportedError, "cannot take tokens back"):
                    cache.crop(n)
            self.assertEqual(cache.get_seq_length(), 3)
            cache.reset()
            self.assertEqual((cache.get_conv_state(0), cache.get_seq_length()), (None, 0))
        only = kvik.DynamicCache(config=config(layer_types=["conv"] * 2))
        only.activate_past_recording()  # of convolutions alone, tokens can be taken back
        only.update_conv_state(inputs[..., :6], 1, conv_kernel_size=4)
        only.crop(-2)
        np.testing.assert_array_equal(only.get_conv_state(1), inputs[..., :4])
        self.assertEqual((only.get_seq_length(), only.batch_size, only.memory()["states"]), (0, 2, only.get_conv_state(1).nbytes))
        with self.assertRaisesRegex(kvik.ArgumentError, "recurrent states of a model"):
            model("llama-mha")([[5]], past_key_values=only)
        with self.assertRaisesRegex(kvik.UnsupportedError, "states of a model of kvik"):
            model("jamba")([[5]]).past_key_values.update_recurrent_state(state, 0)

    def test_linear_refused(self):
        """A refused call changes neither states nor rows, and a look at a cache that has no states makes none."""
        part, inputs = rows(3), RNG.standard_normal((2, 5, 4)).astype(np.float32)
        cache = kvik.DynamicCache()
        cache.update_conv_state(inputs, 0)
        cache.update(part, part, 1)
        for wrong in (lambda: cache.update_conv_state(inputs[:, :3], 0), lambda: cache.update_recurrent_state(inputs, 4096),
                      lambda: cache.update_recurrent_state(inputs, -1), lambda: cache.reorder_cache([1]),
                      lambda: cache.batch_select_indices([]),
                      lambda: cache.batch_repeat_interleave(0), lambda: cache.batch_repeat_interleave(100000)):
            with self.assertRaises(kvik.KvikError):
                wrong()
            np.testing.assert_array_equal(cache.get_conv_state(0), inputs)
        with self.assertRaisesRegex(ValueError, "read-only"):
            cache.conv_states[0][...] = 0  # a copy
        np.testing.assert_array_equal(cache.get_conv_state(0), inputs)
        recorded = kvik.DynamicCache(config=config(layer_types=["conv", "full_attention"]))
        recorded.activate_past_recording()
        recorded.update_conv_state(inputs, 0, conv_kernel_size=2)
        recorded.update(part, part, 1)
        for n in (-4, -5):  # more than there are rows, and inputs
            with self.assertRaisesRegex(kvik.ArgumentError, f"crop by {-n}: layer"):
                recorded.crop(n)
            self.assertEqual((recorded.get_conv_state(0).shape[2], recorded.get_seq_length()), (4, 3))
        recorded.reset()
        self.assertTrue(recorded.is_recording_past(0))
        cache = kvik.DynamicCache()
        self.assertEqual((cache.get_conv_state(0), cache.is_initialized, cache.is_croppable, cache.memory()), (None, False, True, {}))
        self.assertEqual(model("llama-mha")([[5]], past_key_values=cache).past_key_values.get_seq_length(), 1)
        self.assertEqual(cache.get_mask_sizes(2, 99), (2, 0))  # no such layer
        filled = model("jamba")([[5, 6, 7]]).past_key_values
        filled.activate_past_recording()
        filled.crop(-1)
        self.assertEqual((filled.get_seq_length(), filled.is_dummy), (2, [False] * 4))

    def test_layers_without_attention(self):
        """Layers of experts keep nothing, as in Nemotron-H of Transformers; the length is that of the layer with rows."""
        kinds, part = ["moe", "linear_attention", "full_attention", "mlp"], rows(3)
        for given in (config(layer_types=kinds, num_hidden_layers=4), None):
            cache = kvik.DynamicCache(config=given)
            cache.update_recurrent_state(part[:, 0], 1)
            self.assertEqual((cache.has_previous_state(1), cache.has_previous_state(2)), (True, False))
            cache.update(part, part, 2)
            self.assertEqual((cache.get_seq_length(), cache.get_query_offset(), cache.get_mask_sizes(2)), (3, 3, (5, 0)))
            self.assertEqual((cache.is_linear[:3], cache.is_dummy[:3]), ([False, True, False], [True, False, False]))
        cache = kvik.DynamicCache(config=config(layer_types=["full_attention", "linear_attention"]))
        cache.update(part, part, 0)
        self.assertFalse(cache.has_previous_state(1))

    def test_sink(self):
        cache = kvik.SinkCache(window_length=6, num_sink_tokens=2)
        part = rows(10, 1)
        for i in range(10):
            keys, _ = cache.update(part[:, :, i:i + 1], part[:, :, i:i + 1], 0)
        np.testing.assert_array_equal(keys[:, :, :2], part[:, :, :2])
        np.testing.assert_array_equal(keys[:, :, 2:], part[:, :, 6:])
        self.assertEqual((cache.get_seq_length(), cache.seen_tokens, cache.get_max_length()), (6, 10, 6))
        with self.assertRaises(ValueError):
            kvik.SinkCache(4, 4)

    def test_quantized(self):
        for backend, axis in (("quanto", 0), ("hqq", 1)):
            cache = kvik.QuantizedCache(backend, config(), nbits=4, axis_key=axis, axis_value=axis, q_group_size=16,
                                        residual_length=4)
            part = rows(8, 1, 2, 16)
            keys, _ = cache.update(part, part, 0)
            np.testing.assert_array_equal(keys, part)  # the prompt sees itself as given
            new = rows(1, 1, 2, 16)
            keys, _ = cache.update(new, new, 0)
            error = np.abs(keys[:, :, :8] - part).max()
            self.assertTrue(0 < error < 0.5, f"{backend}: {error}")
            np.testing.assert_array_equal(keys[:, :, 8:], new)

    def test_fp8(self):
        cache, part, new = kvik.QuantizedCache("fp8", config()), rows(32, 1, 2, 16), rows(1, 1, 2, 16)
        keys, _ = cache.update(part, part, 0)
        np.testing.assert_array_equal(keys, part)
        keys, _ = cache.update(new, new, 0)
        error = np.abs(keys[:, :, :32] - part)
        self.assertTrue(0 < error.max() <= np.abs(part).max() / 16)
        self.assertEqual(type(cache.layers[0]).__name__, "Fp8QuantizedLayer")

    def test_dtypes(self):
        cache = kvik.DynamicCache()
        part = rows(3).astype(np.float16)
        keys, _ = cache.update(part, part, 0)
        self.assertEqual(keys.dtype, np.float16)
        np.testing.assert_array_equal(keys, part)

    @unittest.skipUnless(has_torch(), "torch is not installed")
    def test_torch(self):
        import torch
        cache = kvik.DynamicCache()
        part = torch.randn(1, 2, 3, 8, dtype=torch.bfloat16)
        keys, values = cache.update(part, part, 0)
        self.assertEqual(keys.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(keys, part) and torch.equal(values, part))
        self.assertTrue(issubclass(kvik.OutOfMemoryError, torch.OutOfMemoryError))

    def test_shapes(self):
        cache = kvik.DynamicCache()
        with self.assertRaises(ValueError):
            cache.update(rows(3)[0], rows(3)[0], 0)
        with self.assertRaises(ValueError):
            cache.update(rows(3), rows(4), 0)
        cache.update(rows(3), rows(3), 0)
        with self.assertRaises(kvik.ArgumentError):
            cache.update(rows(3, 4), rows(3, 4), 0)
        with self.assertRaises(kvik.ArgumentError):
            cache.update(rows(3, 2, 4), rows(3, 2, 4), 0)

    def test_encoder_decoder(self):
        own, cross = kvik.DynamicCache(), kvik.DynamicCache()
        cache = kvik.EncoderDecoderCache(own, cross)
        encoder, part = rows(7), rows(2)
        cache.cross_attention_cache.update(encoder, encoder, 0)
        cache.self_attention_cache.update(part, part, 0)
        self.assertEqual(cache.get_seq_length(), 2)
        legacy = cache.to_legacy_cache()
        self.assertEqual([x.shape[2] for x in legacy[0]], [2, 2, 7, 7])
        again = kvik.EncoderDecoderCache.from_legacy_cache(legacy)
        np.testing.assert_array_equal(again[0][2], encoder)
        self.assertTrue(again.is_updated[0])
        fork = copy.deepcopy(cache)
        fork.crop(1)
        self.assertEqual((cache.get_seq_length(), fork.get_seq_length()), (2, 1))
        cache.reorder_cache([1, 0])
        np.testing.assert_array_equal(cache[0][2], encoder[[1, 0]])
        for bad in ((own,) * 3, ([(1, 2, 3)],)):
            with self.assertRaises(ValueError):
                kvik.EncoderDecoderCache(*bad)
        with self.assertRaises(TypeError):
            kvik.EncoderDecoderCache(own, 3)


class Arguments(unittest.TestCase):
    """Arguments of both versions, by name and by position."""

    def test_static(self):
        c = config(sliding_window=8)
        for cache in (kvik.StaticCache(c, 24), kvik.StaticCache(c, 2, 24), kvik.StaticCache(c, 2, 24, "cpu", "float16"),
                      kvik.StaticCache(config=c, max_batch_size=2, max_cache_len=24, device="cpu", dtype="bfloat16"),
                      kvik.StaticCache(config=c, batch_size=2, max_cache_len=24), kvik.StaticCache(c, 24, True),
                      kvik.OffloadedStaticCache(c, 2, 24, "cpu", offload_device="cpu"), kvik.HybridCache(c, 2, 24)):
            self.assertEqual(cache.max_cache_len, 24)
        self.assertEqual(kvik.SlidingWindowCache(c, 2, 24).get_max_cache_shape(), 8)
        self.assertEqual(kvik.StaticCache(c).max_cache_len, 64)
        with self.assertRaises(ValueError):
            kvik.SlidingWindowCache(config())
        with self.assertRaises(TypeError):
            kvik.DynamicCache(no_such_argument=1)

    def test_quantized(self):
        given = kvik.QuantizedCacheConfig(nbits=2, compute_dtype="float16", device="cpu", q_group_size=16)
        for cache in (kvik.QuantoQuantizedCache(given), kvik.QuantizedCache(given),
                      kvik.QuantoQuantizedCache(config(), 2, q_group_size=16), kvik.QuantizedCache("quanto", config(), 2)):
            self.assertEqual((cache.cache_config["backend"], cache.cache_config["nbits"]), ("quanto", 2))
        self.assertEqual(kvik.HQQQuantizedCache(config()).cache_config["backend"], "hqq")
        ends = {0: {"nbits": 8}, -1: {"k_bits": 8}}
        with self.assertRaisesRegex(ValueError, "auto.*a model that kvik runs"):
            kvik.QuantizedCache("kvik", config(), nbits="auto").update(rows(2), rows(2), 0)
        for cache in (kvik.QuantizedCache(kvik.QuantizedCacheConfig("kvik", axis_key=None, axis_value=None, q_group_size=None, layers=ends)),
                      kvik.QuantizedCache(cache_config={"backend": "kvik", "layers": ends})):
            cache.update(rows(2), rows(2), 0)
        with self.assertRaisesRegex(ValueError, 'layers "0": k_bits 5'):
            kvik.QuantizedCache(cache_config={"backend": "kvik", "layers": {"0": {"nbits": 5}}}).update(rows(2), rows(2), 0)
        for cache in (kvik.QuantizedCache("fp8", config()), kvik.QuantizedCache(kvik.QuantizedCacheConfig(backend="fp8"))):
            cache.update(rows(2), rows(2), 0)
            self.assertEqual({k: v for k, v in cache.cache_config.items() if v is not None}, {"backend": "fp8"})
        with self.assertRaises(ValueError):
            kvik.QuantizedCacheConfig(nbits=5)
        with self.assertRaisesRegex(ValueError, "nbits.*fp8"):
            kvik.QuantizedCache("fp8", config(), nbits=8).update(rows(2), rows(2), 0)

    def test_others(self):
        kvik.MambaCache(config(), 1, "float16", "cpu")
        kvik.HybridMambaAttentionDynamicCache(config(), 1, dtype="float16", device=None)
        kvik.OffloadedCache()
        kvik.DynamicCache(None, config(), True, True)
        kvik.DynamicCache(num_hidden_layers=2)
        self.assertEqual(len(kvik.DynamicCache([(rows(2), rows(2))] * 3)), 3)


class Full(unittest.TestCase):
    def test_static(self):
        """A static cache that is exactly full can be read, and takes no more."""
        for n in (4, 16, 32):
            cache = kvik.StaticCache(kvik.PretrainedConfig(num_hidden_layers=2), n)
            rows = np.arange(2 * n * 8, dtype=np.float32).reshape(1, 2, n, 8)
            cache.update(rows, rows + 1, 0)
            for _ in range(2):
                np.testing.assert_array_equal(cache[0][0], rows)
                np.testing.assert_array_equal(cache[0][1], rows + 1)
            with self.assertRaises(kvik.LimitError):
                cache.update(rows[:, :, :1], rows[:, :, :1], 0)
            self.assertEqual(cache.get_seq_length(), n)

    def test_encode(self):
        """A cache without room quantizes its rows, and says how many and what to expect."""
        cache = kvik.DynamicCache(cache_memory="400K", on_full="encode", max_sequences=1)
        with self.assertWarnsRegex(UserWarning, "124 rows are encoded with 8 bits"):
            model("llama-mha").generate(np.array([range(5, 156)]), max_new_tokens=80, min_new_tokens=80, past_key_values=cache)
        held = cache.memory()
        self.assertEqual((held["encoded8"], held["encoded4"], held["tier_written"]), (124, 0, 0))
        self.assertTrue(0 < held["expected_kld"] < 0.001)
        self.assertIn("124 rows encoded with 8 bits", str(held))


class Recording(unittest.TestCase):
    def test_layers(self):
        """A layer that belongs to no cache shows all rows while it records, and what its window keeps after crop()."""
        from kvik.cache_utils import DynamicIndexedLayer, DynamicSlidingWindowLayer
        rows = np.random.default_rng(1).standard_normal((2, 3, 9, 4)).astype(np.float32)
        layer = DynamicSlidingWindowLayer(sliding_window=4)
        layer.update(rows[:, :, :5], rows[:, :, :5])
        layer.activate_past_recording()
        for i in range(5, 9):
            seen, _ = layer.update(rows[:, :, i:i + 1], rows[:, :, i:i + 1])
        np.testing.assert_array_equal(seen, rows[:, :, 2:])
        self.assertEqual((layer.keys.shape[2], layer.cumulative_length), (7, 9))
        layer.crop(-2)
        np.testing.assert_array_equal(layer.keys, rows[:, :, 4:7])
        self.assertEqual(layer.cumulative_length, 7)
        layer.crop(-8)
        self.assertEqual((layer.keys.size, layer.values.size), (0, 0))
        layer = DynamicIndexedLayer()
        layer.update(rows, rows)
        self.assertEqual(layer.update_indexer(rows[:, 0, :5]).shape, (2, 5, 4))
        np.testing.assert_array_equal(layer.update_indexer(rows[:, 0, 5:]), rows[:, 0])
        layer.crop(-3)
        layer.batch_repeat_interleave(2)
        np.testing.assert_array_equal(layer.indexer_keys, rows[:, 0, :6][[0, 0, 1, 1]])
        layer.reorder_cache(np.array([3, 2, 1, 0]))
        layer.batch_select_indices(np.array([0]))
        np.testing.assert_array_equal((layer.indexer_keys, layer.keys[:, 0]), (rows[1:, 0, :6], rows[1:, 0, :6]))
        layer.reset()
        self.assertFalse(layer.is_indexer_initialized)


if __name__ == "__main__":
    unittest.main()
