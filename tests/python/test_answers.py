"""What a program sets that Transformers heeds is heeded here, or an error says what to do."""
import unittest

import numpy as np
from common import kvik, model_path

IDS = np.array([[1, 5, 6, 7, 8, 9]])


def opened(name="llama-gqa-l3", **kwargs):
    """Opens a golden model that a test may change."""
    return kvik.AutoModelForCausalLM.from_pretrained(model_path(name), dtype="float32", threads=1, **kwargs)


class EndTokens(unittest.TestCase):
    """Without an end-of-sequence token a text has the length that was asked for: benchmarks count on it."""

    def test_none(self):
        m = opened()
        free = m.generate(IDS, max_new_tokens=12, do_sample=False, eos_token_id=-1)
        self.assertEqual(free.shape, (1, 18))
        third = int(free[0, 8])
        m.generation_config.eos_token_id = third
        self.assertEqual(m.generate(IDS, max_new_tokens=12, do_sample=False).shape[1], free[0].tolist().index(third, 6) + 1)
        m.generation_config.eos_token_id = None
        for options in ({}, {"num_beams": 2}, {"eos_token_id": None}, {"generation_config": kvik.GenerationConfig(max_new_tokens=12)}):
            with self.subTest(options):
                given = {"max_new_tokens": 12, "do_sample": False, **options}
                self.assertEqual(m.generate(IDS, **given).shape[1], 18)
        np.testing.assert_array_equal(m.generate(IDS, max_new_tokens=12, do_sample=False), free)

    def test_of_the_files(self):
        """gpt-oss ends after a token by its files, and has eight without an end."""
        m = opened("gpt-oss")
        ends = np.atleast_1d(m.generation_config.eos_token_id)
        ids = next(i for i in range(3, 200) if m.generate([[1, i]], max_new_tokens=8, do_sample=False).shape[1] < 10)
        short = m.generate([[1, ids]], max_new_tokens=8, do_sample=False)
        self.assertIn(short[0, -1], ends)
        long = m.generate([[1, ids]], max_new_tokens=8, do_sample=False, eos_token_id=None)
        self.assertEqual(long.shape[1], 10)
        np.testing.assert_array_equal(long[:, :short.shape[1]], short)
        self.assertEqual(kvik.GenerationConfig(eos_token_id=None).to_dict(), {"eos_token_id": None})


class Config(unittest.TestCase):
    """forward() takes from the configuration what its arguments leave open."""

    def test_outputs(self):
        m = opened()
        self.assertIsNone(m(IDS).hidden_states)
        m.config.output_hidden_states = m.config.output_attentions = True
        out = m(IDS)
        self.assertEqual((len(out.hidden_states), len(out.attentions)), (m.config.num_hidden_layers + 1, m.config.num_hidden_layers))
        self.assertIsNone(m(IDS, output_attentions=False).attentions)
        out = m.generate(IDS, max_new_tokens=2, return_dict_in_generate=True)
        self.assertIsNone(out.hidden_states)  # generate() has options of its own for these
        m.config.return_dict = False
        self.assertIsInstance(m(IDS), tuple)
        self.assertIsInstance(m(IDS, return_dict=True), kvik.model.CausalLMOutputWithPast)

    def test_cache(self):
        m = opened()
        m.config.use_cache = False
        self.assertIsNone(m(IDS).past_key_values)
        self.assertEqual(m(IDS, use_cache=True).past_key_values.get_seq_length(), IDS.shape[1])
        for options in ({}, {"use_cache": False}):  # it decides on a new cache, not on one that is given
            cache = kvik.DynamicCache()
            self.assertIs(m(IDS, past_key_values=cache, **options).past_key_values, cache)
            self.assertEqual(cache.get_seq_length(), IDS.shape[1])
        shown = m.generate(IDS, max_new_tokens=3, return_dict_in_generate=True, output_attentions=True)
        self.assertEqual([a[0].shape[-1] for a in shown.attentions], [6, 7, 8])

    def test_encoder(self):
        m = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1)
        m.config.use_cache, m.config.output_hidden_states = False, True
        out = m(input_ids=IDS, decoder_input_ids=[[0, 3]])
        self.assertIsNone(out.past_key_values)
        self.assertEqual(out.decoder_hidden_states[0].shape[:2], (1, 2))


if __name__ == "__main__":
    unittest.main()
