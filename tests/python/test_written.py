"""Caches that a program writes, and rows that it sets: attention reads what they say, as in Transformers.

The numbers are those of Transformers 5.23 with the same classes on the same files: recorded/written_caches.json.
"""
import copy
import io
import json
import os
import pickle
import unittest
import warnings
from contextlib import redirect_stdout

import numpy as np
from common import has_torch, kvik, model

IDS, TWO = np.array([[1, 5, 6, 7, 8, 9, 10, 11]]), np.array([[0, 0, 5, 6, 7, 8, 9, 10], [1, 5, 6, 7, 8, 9, 10, 11]])
with open(os.path.join(os.path.dirname(__file__), "recorded", "written_caches.json"), encoding="utf-8") as file:
    RECORDED = json.load(file)


# What Transformers 5.16 makes of IDS and of TWO, padded, with these classes: {beams: ...}.
FADED = {1: [[209, 209, 137, 365, 372, 255], [31, 50, 311, 368, 368, 368]], 3: [[206, 209, 209, 209, 209, 209], [31, 50, 311, 368, 368, 368]]}
EVICTED = {1: [[206, 248, 209, 209, 238, 40], [60, 209, 1, 45, 297, 234]], 3: [[206, 209, 209, 209, 209, 40], [60, 209, 209, 209, 209, 366]]}


class Counting(kvik.DynamicCache):
    """Counts."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = []

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        self.calls.append([layer_idx, list(key_states.shape)])
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


class Fading(kvik.DynamicCache):
    """Attention of layer 1 sees half of what is kept."""

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        keys, values = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return (keys, values * 0.5) if layer_idx == 1 else (keys, values)


class Zeroing(kvik.DynamicCache):
    """Changes what update() returned: it stays changed."""

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        keys, values = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        values[:, :, :2] = 0
        return keys, values


class Evicting(kvik.DynamicCache):
    """Keeps the last five rows of each layer."""

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        out = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        layer = self.layers[layer_idx]
        layer.keys, layer.values = layer.keys[:, :, -5:], layer.values[:, :, -5:]
        return out


def arrays(torch):
    """Returns what makes arrays of a program: numpy's, or torch's."""
    if not torch:
        return np.array
    import torch as module
    return lambda values: module.tensor(np.asarray(values))


class Written(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def near(self, logits, wanted):
        np.testing.assert_allclose(np.asarray(logits[0, -1, :6]), wanted, atol=2e-4)

    def check(self, name, kind, array):
        m, want = model(name, "float32"), RECORDED[f"{name} {kind.__name__}"]
        more = [[13]] if kind is Evicting else [[13, 14]]

        def made():
            return kind() if name == "llama-gqa-l3" else kind(config=m.config)
        cache = made()
        for ids, part in ((IDS, "prompt"), ([[12]], "next"), (more, "more")):
            self.near(m(array(ids), past_key_values=cache).logits, want[part])
        self.assertEqual(cache.get_seq_length(), want["length"])
        if "tokens" in want:
            cache = made()
            options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            out = m.generate(array(IDS), past_key_values=cache, **options)
            self.assertEqual(out[0, 8:].tolist(), want["tokens"])
            self.assertEqual(getattr(cache, "calls", []), want.get("calls", []))

    def test_classes(self):
        for torch in (False, True) if has_torch() else (False,):
            for name in ("llama-gqa-l3", "mistral", "gpt-oss"):
                for kind in (Counting, Fading, Zeroing, Evicting):
                    if (kind is Evicting and name != "llama-gqa-l3") or (kind is Zeroing and not torch):
                        continue
                    with self.subTest(name=name, kind=kind.__name__, torch=torch):
                        self.check(name, kind, arrays(torch))

    def test_same_bits(self):
        """A class that counts has the bits of the plain one, padded, sampled, with penalties and several texts of a prompt."""
        m, mask = model("llama-gqa-l3"), TWO != 0
        for more in ({}, {"do_sample": True, "seed": 3, "top_k": 20, "temperature": 0.8}, {"repetition_penalty": 1.3},
                     {"num_return_sequences": 2, "do_sample": True, "seed": 4}, {"eos_token_id": 368},
                     {"logits_processor": [lambda ids, scores: -scores]}, {"stopping_criteria": [lambda ids, _: ids[:, -1] > 200]}):
            with self.subTest(more=list(more)):
                options = {"max_new_tokens": 8, "attention_mask": mask, "pad_token_id": 0, "return_dict_in_generate": True,
                           "output_scores": True, "output_logits": True, **more}
                one, other = (m.generate(TWO, past_key_values=kind(), **options) for kind in (kvik.DynamicCache, Counting))
                np.testing.assert_array_equal(one.sequences, other.sequences)
                self.assertEqual(one.finish_reasons, other.finish_reasons)
                for a, b in zip((*one.scores, *one.logits), (*other.scores, *other.logits)):
                    np.testing.assert_array_equal(a, b)
                self.assertEqual(one.past_key_values.get_seq_length(), other.past_key_values.get_seq_length())
                self.assertTrue(other.past_key_values.calls)
        hidden = [m(IDS, past_key_values=kind(), output_hidden_states=True).hidden_states for kind in (kvik.DynamicCache, Counting)]
        for a, b in zip(*hidden):
            np.testing.assert_array_equal(a, b)

    def test_beams(self):
        """Beams over a class that counts are those of the library; with one that changes what attention sees those of Transformers 5.16."""
        m = model("llama-gqa-l3", "float32")
        ends = [3, 20, 100, 201, 150, 66, 376]
        for more in ({}, {"num_beams": 4, "num_return_sequences": 3}, {"early_stopping": True, "eos_token_id": ends},
                     {"early_stopping": "never", "eos_token_id": ends, "length_penalty": 2.0}, {"length_penalty": -1.0, "eos_token_id": ends},
                     {"repetition_penalty": 1.3, "eos_token_id": ends}, {"stopping_criteria": [lambda ids, _: ids[:, -1] > 300]}):
            with self.subTest(more=list(more)):
                options = {"num_beams": 2, "max_new_tokens": 8, "attention_mask": TWO != 0, "pad_token_id": 0, "eos_token_id": None,
                           "return_dict_in_generate": True, "output_scores": True, **more}
                one, other = (m.generate(TWO, past_key_values=cache, **options) for cache in (None, Counting()))
                for name in ("sequences", "beam_indices"):
                    np.testing.assert_array_equal(one[name], other[name])
                np.testing.assert_allclose(other.sequences_scores, one.sequences_scores, atol=1e-4)
                self.assertEqual((one.finish_reasons, len(one.scores)), (other.finish_reasons, len(other.scores)))
                self.assertEqual(other.past_key_values.batch_size, 2 * options["num_beams"])
        for kind, made in ((Fading, FADED), (Evicting, EVICTED)):
            for beams in (1, 3):
                options = {"num_beams": beams, "max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0}
                out = m.generate(TWO, attention_mask=TWO != 0, past_key_values=kind(), **options)
                self.assertEqual(out[:, 8:].tolist(), made[beams])
                self.assertEqual(m.generate(IDS, past_key_values=kind(), **options)[0, 8:].tolist(), made[beams][1])
        cache = Counting()
        m.generate(IDS, past_key_values=cache, max_new_tokens=3, eos_token_id=None)
        longer = np.concatenate([m.generate(IDS, max_new_tokens=3, eos_token_id=None), [[5, 6]]], 1)
        self.assertEqual(m.generate(longer, past_key_values=cache, num_beams=2, max_new_tokens=6, eos_token_id=None).tolist(),
                         m.generate(longer, num_beams=2, max_new_tokens=6, eos_token_id=None).tolist())
        drawn = [m.generate(IDS, past_key_values=Counting(), num_beams=3, do_sample=True, seed=n, max_new_tokens=8).tolist() for n in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])

    def test_drafts(self):
        """Drafts do not change what is chosen, so they are left out with a notice."""
        m = model("llama-gqa-l3", "float32")
        plain = m.generate(IDS, max_new_tokens=8, eos_token_id=None).tolist()
        for more in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": model("llama-mha", "float32")}, {"assistant_early_exit": 1}):
            with self.assertWarnsRegex(UserWarning, "drafts are not used with a cache whose"):
                self.assertEqual(m.generate(IDS, past_key_values=Counting(), max_new_tokens=8, eos_token_id=None, **more).tolist(), plain)

    @unittest.skipUnless(os.path.isfile(os.environ.get("KVIK_TEST_MODEL", "")), "needs a model with a tokenizer")
    def test_stop_strings(self):
        path = os.environ["KVIK_TEST_MODEL"]
        m, ids = kvik.AutoModelForCausalLM.from_pretrained(path), kvik.AutoTokenizer.from_pretrained(path)("The sea is", return_tensors="np").input_ids
        one, other = (m.generate(ids, past_key_values=cache, max_new_tokens=20, stop_strings=["."]).tolist() for cache in (None, Counting()))
        self.assertEqual(one, other)
        self.assertLess(len(one[0]), ids.shape[1] + 20)
        out = m.generate(ids, past_key_values=Counting(), max_new_tokens=20, max_time=1e-9)
        self.assertEqual(out.shape[1], ids.shape[1] + 1)

    def test_notice_and_errors(self):
        m = model("llama-gqa-l3")
        with self.assertWarnsRegex(UserWarning, r"Counting.update\(\) is called for every layer, which is slower"):
            m(IDS, past_key_values=Counting())

        class Failing(kvik.DynamicCache):
            def update(self, *args, **kwargs):
                raise ZeroDivisionError("no room")

        class Short(kvik.DynamicCache):
            def update(self, key_states, value_states, layer_idx, *args, **kwargs):
                return key_states, value_states[:, :1]
        for call in (lambda cache: m(IDS, past_key_values=cache), lambda cache: m.generate(IDS, past_key_values=cache, max_new_tokens=2)):
            with self.assertRaisesRegex(ZeroDivisionError, "no room"):
                call(Failing())
            with self.assertRaisesRegex(ValueError, r"Short.update\(\) returned keys \[1, 2, 8, 16\] and values \[1, 1, 8, 16\] for layer 0"):
                call(Short())
        with self.assertRaisesRegex(kvik.UnsupportedError, "guidance_scale: with a cache whose"):
            m.generate(IDS, past_key_values=Counting(), guidance_scale=2.0)
        with self.assertRaisesRegex(kvik.ArgumentError, "output_attentions"):
            m(IDS, past_key_values=Counting(), output_attentions=True)
        cache = Counting()
        cache.update = lambda *args, **kwargs: Counting.update(cache, *args, **kwargs)  # one object is changed
        m(IDS, past_key_values=cache)
        self.assertEqual(len(cache.calls), m.config.num_hidden_layers)

    def test_read_only(self):
        """What numpy cannot tell is refused: a change of an array that update() returned."""
        with self.assertRaisesRegex(ValueError, "read-only"):
            model("llama-gqa-l3")(IDS, past_key_values=Zeroing())

    def test_streams(self):
        m = model("llama-gqa-l3")

        class Tokens:
            def __init__(self):
                self.got = []

            def put(self, value):
                self.got.extend(np.ravel(value).tolist())

            def end(self):
                self.got.append("end")
        streamer = Tokens()
        with redirect_stdout(io.StringIO()):
            out = m.generate(IDS, past_key_values=Counting(), max_new_tokens=3, streamer=streamer)
        self.assertEqual(streamer.got, [*out[0].tolist(), "end"])

    def test_rows_are_set(self):
        for torch in (False, True) if has_torch() else (False,):
            array = arrays(torch)
            for name in ("llama-gqa-l3", "mistral", "gpt-oss"):
                m = model(name, "float32")
                with self.subTest(name=name, torch=torch):
                    cache = kvik.DynamicCache(config=m.config)
                    m(array(IDS), past_key_values=cache)
                    before = copy.deepcopy(cache)
                    layer = cache.layers[1]
                    layer.values = layer.values * 0.25
                    np.testing.assert_array_equal(np.asarray(cache.layers[1].values), np.asarray(before.layers[1].values) * 0.25)
                    self.near(m(array([[12]]), past_key_values=copy.deepcopy(cache)).logits, RECORDED[name + " set"]["next"])
                    self.near(m(array([[12]]), past_key_values=pickle.loads(pickle.dumps(cache))).logits, RECORDED[name + " set"]["next"])
                    other = copy.deepcopy(before)
                    other.value_cache[1] = other.value_cache[1] * 0.25
                    self.near(m(array([[12]]), past_key_values=other).logits, RECORDED[name + " set"]["next"])
                    zeroed = copy.deepcopy(before)
                    if torch:
                        zeroed.layers[0].keys.zero_()
                        self.assertFalse(zeroed.layers[0].keys.any())
                    else:
                        zeroed.layers[0].keys = zeroed.layers[0].keys * 0
                    self.near(m(array([[12]]), past_key_values=zeroed).logits, RECORDED[name + " zero"]["next"])
                    plain = m(array([[12]]), past_key_values=before).logits  # the fork is as it was
                    self.assertGreater(np.abs(np.asarray(plain[0, -1, :6]) - RECORDED[name + " set"]["next"]).max(), 1e-3)

    def test_rows_are_cut(self):
        m = model("llama-gqa-l3", "float32")
        cache = kvik.DynamicCache()
        m(IDS, past_key_values=cache)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, 2:], layer.values[:, :, 2:]
        self.assertEqual(cache.get_seq_length(), RECORDED["llama-gqa-l3 cut"]["length"])
        self.near(m([[12]], past_key_values=cache).logits, RECORDED["llama-gqa-l3 cut"]["next"])

    def test_padded(self):
        m, want = model("llama-gqa-l3", "float32"), RECORDED["llama-gqa-l3 padded"]
        cache, mask = kvik.DynamicCache(), TWO != 0
        m(TWO, attention_mask=mask, past_key_values=cache)
        cache.layers[1].values = cache.layers[1].values * 0.25
        cache = pickle.loads(pickle.dumps(cache))
        logits = m([[12], [12]], attention_mask=np.insert(mask, 8, True, 1), past_key_values=cache).logits
        self.near(logits, want["next"])
        self.near(logits[1:], want["other"])
        cache.layers[0].keys = cache.layers[0].keys[:, :, 1:]
        cache.layers[0].values = cache.layers[0].values[:, :, 1:]
        with self.assertRaisesRegex(kvik.ArgumentError, "batch with padding"):
            m([[12], [12]], past_key_values=cache)

    def test_static(self):
        for name in ("llama-gqa-l3", "mistral"):
            m, want = model(name, "float32"), RECORDED[name + " static"]
            cache = kvik.StaticCache(m.config, 16)
            m(IDS, past_key_values=cache)
            self.assertEqual(list(cache.layers[0].keys.shape), want["shape"])
            self.assertFalse(cache.layers[0].keys[:, :, 8:].any())
            if "next" in want:
                cache.layers[1].values = cache.layers[1].values * 0.25
                self.near(m([[12]], past_key_values=cache).logits, want["next"])

    def test_set_wrongly(self):
        m = model("llama-gqa-l3")

        def filled():
            cache = kvik.DynamicCache()
            m(IDS, past_key_values=cache)
            return cache
        cache = filled()
        with self.assertRaisesRegex(ValueError, "the rows of a layer are"):
            cache.layers[0].keys = None
        cache.layers[0].keys = cache.layers[0].keys[:, :, 1:]
        with self.assertRaisesRegex(kvik.ArgumentError, "set both before the cache is used"):
            m([[12]], past_key_values=cache)
        cache = filled()
        cache.key_cache[0] = np.zeros((1, 3, 8, 8))
        with self.assertRaisesRegex(kvik.ArgumentError, r"the keys of layer 0 were set to \[1, 3, 8, 8\]"):
            cache.crop(-1)

    def test_kinds_of_layers(self):
        from kvik.cache_utils import (DynamicLayer, DynamicSlidingWindowLayer, HQQQuantizedLayer, QuantizedLayer, StaticLayer,
                                      StaticSlidingWindowLayer)
        config = model("mistral").config
        for cache, kinds in ((kvik.DynamicCache(config=config), {DynamicSlidingWindowLayer}),
                             (kvik.StaticCache(config, 16), {StaticSlidingWindowLayer}),
                             (kvik.StaticCache(model("llama-gqa-l3").config, 16), {StaticLayer}),
                             (kvik.DynamicCache(config=model("llama-gqa-l3").config), {DynamicLayer}),
                             (kvik.QuantizedCache("hqq", model("llama-gqa-l3").config), {HQQQuantizedLayer})):
            self.assertEqual({type(layer) for layer in cache.layers}, kinds)
        self.assertTrue(issubclass(HQQQuantizedLayer, QuantizedLayer))
        cache = kvik.DynamicCache(config=config)
        model("mistral")(IDS, past_key_values=cache)
        self.assertEqual([len(layer) for layer in cache], RECORDED["mistral iter"]["n"])
        self.assertEqual([int(window) for _, _, window in cache], RECORDED["mistral iter"]["w"])
        again = kvik.DynamicCache(cache)
        self.assertEqual((again.is_sliding, len(again)), (cache.is_sliding, len(cache)))

    def test_layers_alone(self):
        from kvik.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticLayer
        part = np.arange(2 * 6 * 4, dtype=np.float32).reshape(1, 2, 6, 4)
        for layer, seen, kept, longest in ((DynamicLayer(), 7, 7, -1), (DynamicSlidingWindowLayer(4), 4, 3, 4), (StaticLayer(9), 9, 9, 9)):
            self.assertEqual((layer.keys, layer.is_initialized, layer.get_seq_length(), layer.get_max_length()), (None, False, 0, longest))
            layer.update(part, part)
            keys, _ = layer.update(part[:, :, :1], part[:, :, :1])
            self.assertEqual((keys.shape[2], layer.keys.shape[2], layer.get_seq_length()), (seen, kept, 7))
        layer = DynamicLayer()
        layer.update(part, part)
        layer.crop(-2)
        np.testing.assert_array_equal(layer.keys, part[:, :, :4])
        layer.crop(-9)
        self.assertEqual(layer.get_seq_length(), 0)
        with self.assertRaisesRegex(ValueError, "expected 0, or below 0"):
            layer.crop(1)


if __name__ == "__main__":
    unittest.main()
