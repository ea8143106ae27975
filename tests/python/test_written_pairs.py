"""Caches that a program writes, with an encoder beside them, and with rotary frequencies that follow the length of a text.

The numbers are those of Transformers 5.23 with the same classes on the same files.
"""
import copy
import unittest
import warnings

import numpy as np
from common import has_torch, kvik, model, model_path
from kvik.cache_utils import DynamicLayer
from test_written import IDS, TWO, Counting, Evicting, Fading, arrays

# {model: {class: [the two texts of TWO, greedily; of three beams]}}
MADE = {
    "t5": {Counting: ([[187, 187, 187, 187, 291, 291, 291, 291, 291], [36, 36, 36, 36, 36, 36, 36, 187, 187]],
                      [[291, 291, 291, 291, 291, 291, 291, 291, 291], [36, 36, 36, 36, 36, 36, 187, 187, 187]]),
           Fading: ([[187, 187, 187, 187, 93, 148, 291, 291, 291], [247, 36, 247, 26, 26, 291, 296, 291, 296]],
                    [[180, 93, 187, 187, 187, 180, 187, 187, 187], [247, 36, 247, 26, 26, 247, 26, 246, 247]]),
           Evicting: ([[187, 187, 187, 187, 291, 291, 291, 291, 291], [36, 36, 36, 36, 36, 36, 36, 36, 36]],
                      [[291, 291, 291, 291, 291, 291, 291, 291, 291], [36, 36, 187, 187, 26, 26, 26, 26, 26]])},
    "bart": {Counting: ([[229, 229, 239, 34, 34, 34, 243, 34, 34], [243, 229, 229, 229, 229, 229, 229, 229, 229]],
                        [[229, 229, 34, 34, 34, 34, 243, 34, 34], [243, 229, 229, 229, 229, 229, 229, 229, 229]]),
             Evicting: ([[229, 229, 239, 34, 34, 34, 34, 34, 34], [243, 229, 229, 229, 229, 229, 229, 229, 229]],
                        [[229, 229, 34, 34, 34, 34, 34, 34, 34], [243, 229, 229, 229, 229, 229, 229, 229, 229]])},
    "mbart": {Fading: ([[187, 187, 187, 187, 174, 174, 174, 174, 174], [174, 174, 174, 174, 174, 174, 174, 174, 174]],
                       [[187, 187, 187, 174, 174, 174, 174, 174, 174], [174, 174, 174, 174, 174, 174, 174, 174, 174]])},
}
# The first logits of the last token of row 0: of [[0, 5, 6], [0, 7, 8]], then of 9, then of 10.
FADED = [[-7.631876, -3.140068, -2.355229, -2.007397], [-6.714829, 1.078088, -1.890890, -3.814881]]
EVICTED = [-2.989133, -2.435474, -0.595229, -3.739980]
# llama-dynamic after IDS with Fading and with Evicting, whose frequencies change behind 32 tokens.
STRETCHED = {Fading: [183, 247, 363, 70, 169, 10, 244, 374, 12, 70, 273, 348, 81, 244, 326, 159, 306, 40, 98, 285, 374, 17, 43, 17, 363],
             Evicting: [183, 247, 169, 359, 169, 169, 85, 363, 85, 196, 40, 155, 17, 17, 17, 17, 17, 363, 359, 183, 169, 169, 169, 169, 44]}


def opened(name):
    return kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path(name), dtype="float32", threads=1)


class Pairs(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def test_generate(self):
        for torch in (False, True) if has_torch() else (False,):
            array = arrays(torch)
            for name, kinds in MADE.items():
                m = opened(name)
                for kind, made in kinds.items():
                    for beams, want in zip((1, 3), made):
                        with self.subTest(name=name, kind=kind.__name__, beams=beams, torch=torch):
                            cache = kvik.EncoderDecoderCache(kind(), kvik.DynamicCache())
                            out = m.generate(input_ids=array(TWO), attention_mask=array((TWO != 0).astype(np.int64)), past_key_values=cache,
                                             max_new_tokens=9, num_beams=beams, do_sample=False, eos_token_id=None, pad_token_id=0,
                                             forced_eos_token_id=None)
                            self.assertEqual(out[:, 1:].tolist(), want)
                            self.assertEqual(cache.get_seq_length(), 5 if kind is Evicting else 9)

    def test_same_results(self):
        """A class that counts gives what the plain one gives, with all that generate() returns."""
        m, source = opened("bart"), {"input_ids": TWO, "attention_mask": TWO != 0}
        for more in ({}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "seed": 3, "num_return_sequences": 2},
                     {"decoder_input_ids": [[2, 7, 9], [2, 8, 10]], "repetition_penalty": 1.3},
                     {"encoder_outputs": m.get_encoder()(TWO, attention_mask=TWO != 0), "input_ids": None, "attention_mask": None}):
            with self.subTest(more=list(more)):
                options = {**source, "max_new_tokens": 7, "return_dict_in_generate": True, "output_scores": True, **more}
                one, other = (m.generate(past_key_values=kvik.EncoderDecoderCache(kind(), kvik.DynamicCache()), **options)
                              for kind in (kvik.DynamicCache, Counting)) if "num_return_sequences" not in more else \
                    (m.generate(**options), m.generate(past_key_values=kvik.EncoderDecoderCache(Counting(), kvik.DynamicCache()), **options))
                np.testing.assert_array_equal(one.sequences, other.sequences)
                self.assertEqual((type(one), one.finish_reasons), (type(other), other.finish_reasons))
                self.assertTrue(other.past_key_values.self_attention_cache.calls)

    def test_forward(self):
        m = opened("t5")
        cache = kvik.EncoderDecoderCache(Fading(), kvik.DynamicCache())
        first = m(TWO, attention_mask=TWO != 0, decoder_input_ids=[[0, 5, 6], [0, 7, 8]], past_key_values=cache, output_hidden_states=True)
        second = m(decoder_input_ids=[[9], [9]], past_key_values=cache)
        for out, want in zip((first, second), FADED):
            np.testing.assert_allclose(out.logits[0, -1, :4], want, atol=2e-4)
        self.assertEqual((first.encoder_last_hidden_state.shape[:2], len(first.decoder_hidden_states)), ((2, 8), 3))
        self.assertEqual((cache.get_seq_length(), cache.cross_attention_cache.get_seq_length()), (4, 8))
        cache = kvik.EncoderDecoderCache(Evicting(), kvik.DynamicCache())
        for part in ([[0, 5, 6], [0, 7, 8]], [[9], [9]], [[10], [12]]):
            out = m(TWO, attention_mask=TWO != 0, decoder_input_ids=part, past_key_values=cache)
        np.testing.assert_allclose(out.logits[0, -1, :4], EVICTED, atol=2e-4)

    def test_operations(self):
        """Rows of both caches go together: a fork, a reorder, a crop, another input after reset()."""
        m = opened("t5")
        plain, own = kvik.EncoderDecoderCache(kvik.DynamicCache(), kvik.DynamicCache()), kvik.EncoderDecoderCache(Counting(), kvik.DynamicCache())
        said = []
        for cache in (plain, own):
            logits = [m(TWO, attention_mask=TWO != 0, decoder_input_ids=[[0, 5, 6], [0, 7, 8]], past_key_values=cache).logits]
            fork = copy.deepcopy(cache)
            fork.reorder_cache(np.array([1, 0]))
            logits.append(m(decoder_input_ids=[[9], [11]], past_key_values=fork).logits)
            fork.crop(2)
            fork.batch_repeat_interleave(2)
            logits.append(m(decoder_input_ids=[[9], [11], [12], [13]], past_key_values=fork).logits)
            fork.batch_select_indices(np.array([3]))
            logits.append(m(decoder_input_ids=[[9]], past_key_values=fork).logits)
            logits.append(m(decoder_input_ids=[[9], [11]], past_key_values=cache).logits)
            cache.reset()
            logits.append(m(TWO[1:], decoder_input_ids=[[0]], past_key_values=cache).logits)
            said.append(logits)
        for a, b in zip(*said):
            np.testing.assert_array_equal(a, b)

    def test_errors(self):
        m = opened("t5")
        for cache, says in ((Counting(), r"it is one cache, .* Give EncoderDecoderCache\(Counting\(\), DynamicCache\(\)\)"),
                            (kvik.EncoderDecoderCache(kvik.DynamicCache(), Counting()), "Override update.. of the decoder's cache")):
            for call in (lambda cache=cache: m(TWO, decoder_input_ids=[[0], [0]], past_key_values=cache),
                         lambda cache=cache: m.generate(TWO, past_key_values=cache, max_new_tokens=2)):
                with self.assertRaisesRegex(kvik.UnsupportedError, says):
                    call()
        for more in ({"encoder_repetition_penalty": 1.2}, {"encoder_no_repeat_ngram_size": 2}, {"guidance_scale": 2.0}):
            with self.assertRaisesRegex(kvik.UnsupportedError, next(iter(more))):
                m.generate(TWO, past_key_values=kvik.EncoderDecoderCache(Counting(), kvik.DynamicCache()), max_new_tokens=2, **more)
        cache = kvik.EncoderDecoderCache(Counting(), kvik.DynamicCache())
        with self.assertRaisesRegex(ValueError, "no rows of the encoder yet"):
            m(decoder_input_ids=[[0], [0]], past_key_values=cache)
        m(TWO, decoder_input_ids=[[0], [0]], past_key_values=cache)
        with self.assertRaisesRegex(ValueError, "rows of another model"):
            opened("bart")(decoder_input_ids=[[5], [5]], past_key_values=cache)
        with self.assertRaisesRegex(ValueError, "the input has 1 rows, the cache has 2"):
            m(decoder_input_ids=[[0]], past_key_values=cache)


    def test_set_rows_of_the_encoder(self):
        m = opened("t5")
        for kind in (kvik.DynamicCache, Counting):
            cache = kvik.EncoderDecoderCache(kind(), kvik.DynamicCache())
            m(TWO, decoder_input_ids=[[0], [0]], past_key_values=cache)
            for call in (lambda cache=cache: m(decoder_input_ids=[[5], [5]], past_key_values=cache),
                         lambda cache=cache: m.generate(decoder_input_ids=[[0, 5], [0, 5]], past_key_values=cache, max_new_tokens=2)):
                cache.cross_attention_cache.layers[0].keys = np.zeros((2, 4, 8, 12), np.float32)
                with self.assertRaisesRegex(ValueError, "rows of an encoder cannot be set"):
                    call()


class Failures(unittest.TestCase):
    """A forward that update() ends leaves in every layer the rows that it had."""

    setUp = Pairs.setUp

    def test_taken_back(self):
        class Failing(kvik.DynamicCache):
            left = -1

            def update(self, key_states, value_states, layer_idx, *args, **kwargs):
                self.left -= 1
                if not self.left:
                    raise KeyboardInterrupt
                return super().update(key_states, value_states, layer_idx, *args, **kwargs)

        for name in ("llama-gqa-l3", "qwen3-next"):
            m = model(name)
            cache, plain = Failing(), kvik.DynamicCache()
            for ids in (IDS, [[12]], [[13, 14]]):
                cache.left = 2
                with self.assertRaises(KeyboardInterrupt):
                    m(ids, past_key_values=cache)
                np.testing.assert_array_equal(m(ids, past_key_values=cache).logits, m(ids, past_key_values=plain).logits)
        layers = kvik.Cache(layer_class_to_replicate=DynamicLayer)
        m = model("llama-gqa-l3")
        m(IDS, past_key_values=layers)
        layers.layers[1].update = None
        with self.assertRaises(TypeError):
            m([[12]], past_key_values=layers)
        self.assertEqual([layer.get_seq_length() for layer in layers.layers], [8] * len(layers))

    def test_no_columns(self):
        class Empty(kvik.DynamicCache):
            def update(self, key_states, value_states, layer_idx, *args, **kwargs):
                return key_states[:, :, :0], value_states[:, :, :0]

        with self.assertRaisesRegex(ValueError, "returned no columns for layer 0"):
            model("llama-gqa-l3")(IDS, past_key_values=Empty())


class Lengths(unittest.TestCase):
    setUp = Pairs.setUp

    def test_dynamic(self):
        m = model("llama-dynamic", "float32")
        for kind, want in STRETCHED.items():
            out = m.generate(IDS, past_key_values=kind(), max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0)
            self.assertEqual(out[0, 8:].tolist(), want)

    def test_longrope(self):
        """phi3 has other frequencies behind 32 tokens: generate() gives all rows to update() again there, and the tokens are those of the plain class."""
        m = model("phi3", "float32")
        for ids, more in ((IDS, {}), (TWO, {"attention_mask": TWO != 0, "pad_token_id": 0}), (IDS, {"num_beams": 2})):
            options = {"max_new_tokens": 40, "eos_token_id": None, **more}
            cache = Counting()
            out = m.generate(ids, past_key_values=cache, **options)
            np.testing.assert_array_equal(out, m.generate(ids, past_key_values=kvik.DynamicCache(), **options))
            self.assertIn(33, {shape[2] for _, shape in cache.calls})


if __name__ == "__main__":
    unittest.main()
