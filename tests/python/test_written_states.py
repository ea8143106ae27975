"""Caches that a program writes, with models whose layers keep recurrent states beside those with attention.

The library keeps the states, update() the rows.  The numbers are those of Transformers 5.23 with the same classes on the same files.
"""
import copy
import io
import pickle
import unittest
import warnings

import numpy as np
from common import has_torch, kvik, model
from test_written import IDS, TWO, Counting, Evicting, arrays

# After IDS, greedily: (calls of update(), tokens of Counting, tokens of Evicting).
MADE = {"jamba": (6, [183, 114, 37, 228, 146, 170], [183, 114, 74, 111, 111, 111]),
        "zamba2": (12, [378, 198, 146, 215, 118, 134], [378, 360, 323, 165, 258, 163]),
        "qwen3-next": (12, [363, 304, 28, 335, 212, 271], [363, 304, 28, 335, 228, 181]),
        "qwen3-5": (6, [268, 284, 112, 226, 299, 84], [268, 284, 112, 226, 299, 84])}
# The first logits of the last token of Evicting after IDS, then 12, then 13.
EVICTED = {"jamba": [2.320988, -3.155355, -0.901740, 2.422012], "qwen3-next": [-1.703767, -0.077609, -0.272990, -1.026461]}
OPTIONS = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


class States(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def test_generate(self):
        for torch in (False, True) if has_torch() else (False,):
            for name, (calls, counted, evicted) in MADE.items():
                m = model(name, "float32")
                for kind, want in ((Counting, counted), (Evicting, evicted)):
                    with self.subTest(name=name, kind=kind.__name__, torch=torch):
                        cache = kind(config=m.config)
                        out = m.generate(arrays(torch)(IDS), past_key_values=cache, **OPTIONS)
                        self.assertEqual(out[0, 8:].tolist(), want)
                        self.assertEqual(cache.get_seq_length(), 5 if kind is Evicting else 13)
                        self.assertEqual(len(getattr(cache, "calls", range(calls))), calls)

    def test_forward(self):
        for name, want in EVICTED.items():
            cache = Evicting()
            for ids in (IDS, [[12]], [[13]]):
                out = model(name, "float32")(ids, past_key_values=cache)
            np.testing.assert_allclose(out.logits[0, -1, :4], want, atol=2e-4)

    def test_same_bits(self):
        """A class that counts has the bits of the plain one: padded, sampled, several texts of a prompt, beams."""
        for name in ("jamba", "zamba2", "qwen3-next"):
            m = model(name)
            for more in ({}, {"do_sample": True, "seed": 3, "num_return_sequences": 2}, {"num_beams": 3}):
                with self.subTest(name=name, more=list(more)):
                    options = {**OPTIONS, "attention_mask": TWO != 0, **more}
                    cache = Counting()
                    out = m.generate(TWO, past_key_values=cache, **options)
                    np.testing.assert_array_equal(out, m.generate(TWO, **options))
                    self.assertTrue(cache.calls)

    def test_operations(self):
        m, said = model("jamba"), []
        for kind in (kvik.DynamicCache, Counting):
            cache = kind()
            logits = [m(TWO[:, 2:], past_key_values=cache).logits]
            fork = copy.deepcopy(cache)
            fork.reorder_cache(np.array([1, 0]))
            logits.append(m([[12], [13]], past_key_values=fork).logits)
            fork.batch_select_indices(np.array([1]))
            fork.batch_repeat_interleave(3)
            logits.append(m([[12], [13], [14]], past_key_values=fork).logits)
            logits.append(m([[12], [13]], past_key_values=cache).logits)
            logits += [state for state in (*cache.conv_states, *cache.ssm_states) if state is not None]
            cache.reset()
            logits.append(m(IDS, past_key_values=cache).logits)
            said.append(logits)
        self.assertEqual(*map(len, said))
        for a, b in zip(*said):
            np.testing.assert_array_equal(a, b)

    def test_limits(self):
        m, cache = model("jamba"), Counting()
        m(IDS, past_key_values=cache)
        with self.assertRaisesRegex(kvik.UnsupportedError, "no tokens that crop.. could take back; fork.. the cache before"):
            cache.crop(-1)
        with self.assertRaisesRegex(kvik.UnsupportedError, "not pickled"):
            pickle.dump(cache, io.BytesIO())
        with self.assertRaisesRegex(ValueError, "the input has 2 rows, the cache has 1"):
            m(TWO, past_key_values=cache)
        with self.assertRaisesRegex(ValueError, "states of another model"):
            model("zamba2")(IDS, past_key_values=cache)
        with self.assertRaisesRegex(ValueError, "no recurrent states of this model"):
            filled = Counting()
            model("llama-gqa-l3")(IDS, past_key_values=filled)
            m([[12]], past_key_values=filled)
        m([[12]], past_key_values=cache)
        self.assertEqual(cache.get_seq_length(), 9)


if __name__ == "__main__":
    unittest.main()
