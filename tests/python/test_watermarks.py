"""Watermarks, token healing and early exit: options that the package has beside the library's.  The numbers are those of Transformers 5.16."""
import os
import tempfile
import unittest

import numpy as np
from common import folder_of_tokenizer, kvik, model
from kvik.generation.healing import healed

IDS = np.array([[3, 7, 11, 20, 5, 9, 8]])
SYNTH = {"keys": [654, 400, 836, 123, 340, 443, 597, 160, 57], "ngram_len": 5}
GREEN, SELF = {"bias": 5.0}, {"seeding_scheme": "selfhash", "bias": 5.0, "context_width": 2}


def text(**options):
    return model("llama-gqa-l3", "float32").generate(IDS, max_new_tokens=12, eos_token_id=None, **options)[0, 7:].tolist()


class Watermarks(unittest.TestCase):
    def test_generate(self):
        for config, made in ((GREEN, [150, 376, 367, 43, 368, 66, 310, 374, 347, 3, 3, 3]),
                             (SELF, [270, 193, 29, 193, 285, 332, 285, 255, 316, 381, 81, 81]),
                             (SYNTH, [150, 20, 366, 209, 109, 368, 1, 254, 367, 43, 327, 209])):
            self.assertEqual(text(watermarking_config=config), made)
            kind = kvik.SynthIDTextWatermarkingConfig if config is SYNTH else kvik.WatermarkingConfig
            self.assertEqual(text(watermarking_config=kind(**config)), made)
            self.assertEqual(text(generation_config=kvik.GenerationConfig(watermarking_config=config)), made)
        self.assertEqual(text(watermarking_config=None), text())

    def test_last_of_all(self):
        """The bias comes behind the temperature, and behind what sampling leaves."""
        options = {"do_sample": True, "temperature": 0.5, "top_k": 9, "top_p": 0.95, "output_scores": True, "return_dict_in_generate": True,
                   "max_new_tokens": 1, "seed": 1}
        m = model("llama-gqa-l3", "float32")
        plain = m.generate(IDS, **options).scores[0][0]
        found = m.generate(IDS, watermarking_config={"bias": 3.0}, **options).scores[0][0]
        self.assertEqual(np.isfinite(plain).tolist(), np.isfinite(found).tolist())
        kept = np.isfinite(plain)
        green = np.isin(np.arange(plain.size), kvik.WatermarkLogitsProcessor(plain.size).green(IDS[0]))
        np.testing.assert_allclose(found[kept], plain[kept] + 3 * green[kept], rtol=0, atol=1e-5)

    def test_detector(self):
        m = model("llama-gqa-l3", "float32")
        for config in (GREEN, SELF):
            found = kvik.WatermarkDetector(m.config, "cpu", config)(np.array([[*IDS[0], *text(watermarking_config=config)]]), return_dict=True)
            self.assertTrue(found.prediction[0])
            self.assertAlmostEqual(found.z_score[0], 4.62681396 if config is GREEN else 4.0824829)
            self.assertFalse(kvik.WatermarkDetector(m.config, "cpu", config)(np.array([[*IDS[0], *text()]]))[0])
        with self.assertRaisesRegex(ValueError, "more than 1 tokens"):
            kvik.WatermarkDetector(m.config, "cpu", GREEN)(np.array([[3]]))

    def test_processors(self):
        green = kvik.WatermarkLogitsProcessor(50)
        self.assertEqual(green.green(np.array([10])).tolist(), [45, 33, 16, 4, 11, 2, 26, 37, 17, 38, 43, 5])
        p = kvik.SynthIDTextWatermarkLogitsProcessor(sampling_table_size=2 ** 16, sampling_table_seed=3, context_history_size=4, **SYNTH)
        self.assertEqual(p.compute_g_values(np.arange(7)[None]).tolist(),
                         [[[1, 1, 0, 1, 0, 0, 0, 1, 1], [1, 0, 1, 1, 0, 0, 1, 0, 0], [0, 1, 0, 1, 0, 1, 0, 1, 1]]])
        again = np.array([[1, 2, 3, 4, 5, 1, 2, 3, 4, 6]])
        self.assertEqual(p.compute_context_repetition_mask(again).tolist(), [[True] * 5 + [True]])  # five contexts ago is forgotten
        p.context_history_size = 5
        self.assertEqual(p.compute_context_repetition_mask(again).tolist(), [[True] * 5 + [False]])
        self.assertEqual(p.compute_eos_token_mask(again, 3).tolist(), [[1, 1, 0, 0, 0, 0, 0, 0, 0, 0]])
        scores = np.zeros((1, 20), np.float32)
        self.assertEqual(len({p(IDS[:, :3], scores).tobytes(), p(IDS[:, :3], scores).tobytes()}), 2, "it counts its calls")

    def test_refused(self):
        for config, words in (({"greenlist_ratio": 1.5}, "from 0 to 1"), ({"seeding_scheme": "x"}, "'lefthash' or 'selfhash'"),
                              ({"context_width": 0}, "1 or more"), ({"colour": 1}, "colour"), ("green", "expected a WatermarkingConfig"),
                              ({"ngram_len": 5, "keys": [1], "sampling_table_size": 2 ** 25}, "1 to 2\\*\\*24"), ({"ngram_len": 1, "keys": []}, "a key")):
            with self.assertRaisesRegex(ValueError, words):
                text(watermarking_config=config)
            with self.assertRaisesRegex(ValueError, words):
                kvik.GenerationConfig(watermarking_config=config)

    def test_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            for config in (kvik.WatermarkingConfig(bias=3.0), kvik.SynthIDTextWatermarkingConfig(**SYNTH)):
                kvik.GenerationConfig(watermarking_config=config, max_new_tokens=3).save_pretrained(folder)
                found = kvik.GenerationConfig.from_pretrained(folder)
                self.assertEqual((found.watermarking_config, found.max_new_tokens), (config, 3))


class Healing(unittest.TestCase):
    def test_healed(self):
        """With a model that says what it was asked: "http:" may become "http://", and a token that nothing begins with stays."""
        asked = []

        class Model:
            name_or_path = folder_of_tokenizer(self, "llama2")

            def generate(self, ids, generation_config):
                asked.append((ids.tolist(), generation_config.sequence_bias))
                return np.concatenate([ids, [[5]]], 1)
        tokenizer = kvik.AutoTokenizer.from_pretrained(Model.name_or_path)
        tokenizer.pad_token = tokenizer.eos_token
        ids = tokenizer("The link is <a href=\"http:", return_tensors="np").input_ids
        self.assertEqual(healed(Model(), ids, tokenizer).tolist(), [[2, 415, 3062, 349, 523, 28708, 5501, 735, 2872, 5]])
        (before, bias), = asked
        self.assertEqual((before, len(bias), bias[(int(ids[0, -1]),)], sorted(set(bias.values()))),
                         ([[2, 415, 3062, 349, 523, 28708, 5501, 735, 2872]], 24, 11.0, [10.0, 11.0]))
        with self.assertRaisesRegex(ValueError, "no text"):
            healed(Model(), np.array([[tokenizer.bos_token_id]]), tokenizer)

    @unittest.skipUnless(os.path.isfile(os.environ.get("KVIK_TEST_MODEL", "")), "needs a model with a tokenizer")
    def test_generate(self):
        path = os.environ["KVIK_TEST_MODEL"]
        m, t = kvik.AutoModelForCausalLM.from_pretrained(path), kvik.AutoTokenizer.from_pretrained(path)
        ids = t("The capital city of Germany is Ber", return_tensors="np").input_ids
        out = m.generate(ids, token_healing=True, max_new_tokens=4)
        self.assertTrue(t.decode(out[0]).startswith("The capital city of Germany is Berlin"), t.decode(out[0]))
        self.assertEqual(m.generate(ids, token_healing=False, max_new_tokens=4).tolist(), m.generate(ids, max_new_tokens=4).tolist())


class EarlyExit(unittest.TestCase):
    def test_same_text(self):
        m = model("llama-gqa-l3", "float32")
        out = m.generate(IDS, max_new_tokens=12, eos_token_id=None, assistant_early_exit=2, return_dict_in_generate=True)
        self.assertEqual(out.sequences[0, 7:].tolist(), text())
        self.assertGreater(out.stats["drafted"], 0)
        for wrong in (0, 99, "2"):
            with self.assertRaisesRegex(ValueError, "the layers that write drafts"):
                m.generate(IDS, assistant_early_exit=wrong)


if __name__ == "__main__":
    unittest.main()
