"""Notices where Transformers warns, none where nothing is wrong, and sentences for arguments that numpy would refuse with its own."""
import os
import unittest
import warnings

import numpy as np
from common import folder_of_tokenizer, kvik, model

IDS = np.array([[5, 6, 7, 8, 9]])
TWO = np.array([[5, 6, 7, 8], [9, 10, 11, 12]])


class Notices(unittest.TestCase):
    def setUp(self):
        self.model = model("llama-mha")

    def said(self, function):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            function()
        return [str(w.message) for w in found]

    def said_of(self, ids=IDS, **options):
        return self.said(lambda: self.model.generate(ids, **{"max_new_tokens": 2, **options}))

    def test_options(self):
        embeds = self.model.get_input_embeddings()(IDS)
        for options, wanted in (
                ({"temperature": 0.5}, "temperature has no effect"), ({"top_p": 0.5, "top_k": 3}, "top_k, top_p has no effect"),
                ({"min_p": 0.1}, "min_p has"), ({"typical_p": 0.5}, "typical_p has"), ({"eta_cutoff": 0.1}, "eta_cutoff has"),
                ({"generation_config": kvik.GenerationConfig(epsilon_cutoff=0.1)}, "epsilon_cutoff has"),
                ({"early_stopping": True}, "early_stopping is for beams"), ({"length_penalty": 2.0}, "length_penalty is for beams"),
                ({"max_length": 9}, "max_new_tokens=2 and max_length=9"), ({"min_length": 6, "min_new_tokens": 1}, "min_new_tokens=1 and"),
                ({"min_new_tokens": 3}, "least number of new tokens is 3"), ({"min_length": 9}, "least number of new tokens is 4"),
                ({"ids": None, "inputs_embeds": embeds, "repetition_penalty": 1.2}, "repetition_penalty counts new tokens"),
                ({"ids": None, "inputs_embeds": embeds, "encoder_repetition_penalty": 1.2}, "encoder_repetition_penalty has no effect")):
            with self.subTest(options=list(options)):
                said = self.said_of(**options)
                self.assertEqual(len(said), 1, said)
                self.assertIn(wanted, said[0])

    def test_options_in_their_place(self):
        for options in ({}, {"do_sample": True, "temperature": 0.5, "top_k": 5}, {"temperature": 1.0, "top_k": 50, "top_p": 1.0},
                        {"temperature": 0}, {"num_beams": 2, "early_stopping": True, "length_penalty": 2.0}, {"min_new_tokens": 2},
                        {"min_length": 7}, {"max_new_tokens": None, "max_length": 9}, {"penalty_alpha": 0.5, "top_k": 3}):
            with self.subTest(options=options):
                self.assertEqual(self.said_of(**options), [])

    def test_batches(self):
        left, right = np.array([[0, 0, 5, 6], [5, 6, 7, 8]]), np.array([[5, 6, 0, 0], [5, 6, 7, 8]])
        for ids, mask, eos, wanted in ((right, right != 0, 2, "padded on the right"), (right, None, 2, "padded on the right"),
                                       (right[:1], None, 2, "padded on the right"), (left, None, 0, "no attention_mask"),
                                       (right, None, 0, "no attention_mask")):
            with self.subTest(wanted=wanted):
                said = self.said_of(ids, attention_mask=mask, pad_token_id=0, eos_token_id=eos)
                self.assertRegex("\n".join(said), "^[^\n]*" + wanted + "[^\n]*$")
        for ids, mask in ((left, left != 0), (left, None), (TWO, None), (TWO, np.ones((2, 4))), (np.insert(TWO, 0, 0, 1), None),
                          (left[:1], None)):
            with self.subTest(ids=ids.tolist()):
                self.assertEqual(self.said_of(ids, attention_mask=mask, pad_token_id=0, eos_token_id=2), [])

    def test_verbosity(self):
        before = kvik.utils.logging.get_verbosity()
        self.addCleanup(kvik.utils.logging.set_verbosity, before)
        kvik.utils.logging.set_verbosity_error()
        self.assertEqual(self.said_of(temperature=0.5), [])

    def folder(self):
        """Returns a directory with a golden tokenizer."""
        return folder_of_tokenizer(self, "qwen3")

    def test_tokenizer(self):
        tokenizer = kvik.AutoTokenizer.from_pretrained(self.folder(), model_max_length=3)
        text = "one two three four five six"
        self.assertRegex(self.said(lambda: tokenizer(text))[0], "a text has [0-9]+ tokens, the model's texts at most 3")
        self.assertRegex(self.said(lambda: tokenizer([text], padding=True, max_length=100))[0], "max_length=100 has no effect")
        for options in ({"truncation": True}, {"max_length": 100}, {"padding": "max_length", "max_length": 100}):
            with self.subTest(options=options):
                self.assertEqual(self.said(lambda: tokenizer(text, **options)), [])


class Sentences(unittest.TestCase):
    def test_rows_of_different_lengths(self):
        for call in (lambda: model("llama-mha").generate([[1, 2], [3]]), lambda: model("llama-mha")([[1, 2], [3]])):
            with self.assertRaisesRegex(ValueError, "input_ids has rows of 1 to 2 entries; pad them"):
                call()
        with self.assertRaisesRegex(ValueError, "attention_mask has rows of 1 to 2 entries"):
            model("llama-mha").generate(IDS[:, :2], attention_mask=[[1, 1], [1]])

    def test_layers(self):
        rows = np.zeros((1, 2, 3, 4), np.float32)
        for layer in (1.5, "a", None, [0]):
            with self.subTest(layer=layer), self.assertRaisesRegex(kvik.ArgumentError, "layer_idx is .*; expected the whole number"):
                kvik.DynamicCache().update(rows, rows, layer)

    def test_negative_prompts(self):
        def use(value):
            return model("llama-mha").generate(IDS, negative_prompt_ids=value, guidance_scale=1.5, max_new_tokens=3).tolist()
        for bad, wanted in (({3}, "of type set"), ({"input_ids": [3]}, "give its input_ids"), ("3", "of type str"), (1.5, "of type float"),
                            ([[1], [2, 3]], "2 rows that differ")):
            with self.subTest(bad=bad), self.assertRaisesRegex(kvik.ArgumentError, "negative_prompt_ids .*" + wanted):
                use(bad)
        for same in ([[3, 4]], np.array([3, 4]), np.array([[3, 4]]), (3, 4), [[3, 4], [3, 4]]):
            with self.subTest(same=same):
                self.assertEqual(use(same), use([3, 4]))

    def test_fewer_ids_than_cached(self):
        cache = kvik.DynamicCache()
        model("llama-mha")(np.arange(5, 29)[None], past_key_values=cache)
        with self.assertRaisesRegex(kvik.ArgumentError, "give all 29 ids, .* or the new ids with an attention mask of 29 columns; .*reset"):
            model("llama-mha").generate(IDS, past_key_values=cache)


if __name__ == "__main__":
    unittest.main()
