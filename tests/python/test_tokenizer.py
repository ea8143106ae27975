"""Tokens, offsets and words of two real tokenizers, recorded from Transformers (tests/fixtures/tokenizer-places.json)."""
import copy
import json
import lzma
import os
import pickle
import shutil
import tempfile
import unittest
from importlib.util import find_spec

import numpy as np
from common import GOLDEN, ROOT, folder_of_tokenizer, kvik


class Places(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(ROOT, "tests", "fixtures", "tokenizer-places.json"), encoding="utf-8") as f:
            cls.recorded = json.load(f)["tokenizers"]
        cls.folder = tempfile.mkdtemp()
        for name in cls.recorded:
            source, folder = os.path.join(GOLDEN, "tokenizers", name), os.path.join(cls.folder, name)
            os.mkdir(folder)
            shutil.copy(os.path.join(source, "tokenizer_config.json"), folder)
            with lzma.open(os.path.join(source, "tokenizer.json.xz")) as packed, open(os.path.join(folder, "tokenizer.json"), "wb") as f:
                shutil.copyfileobj(packed, f)
        cls.open = {n: kvik.AutoTokenizer.from_pretrained(os.path.join(cls.folder, n)) for n in cls.recorded}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_rows(self):
        for name, t in self.open.items():
            for row in self.recorded[name]["rows"]:
                with self.subTest(name, text=row["text"]):
                    e = t(row["text"], return_offsets_mapping=True, return_special_tokens_mask=True)
                    self.assertEqual(e.input_ids, row["ids"])
                    self.assertEqual(e.tokens(), row["tokens"])
                    self.assertEqual([list(o) for o in e.offset_mapping], row["offsets"])
                    self.assertEqual(e.word_ids(), row["words"])
                    self.assertEqual(e.sequence_ids(), row["sequences"])
                    self.assertEqual(e.special_tokens_mask, row["special"])
                    self.assertEqual([e.char_to_token(i) for i in range(len(row["text"]))], row["chars"])
                    self.assertEqual(t.tokenize(row["text"]), row["plain"])
                    self.assertEqual(t.convert_tokens_to_ids(t.convert_ids_to_tokens(row["ids"])), row["ids"])
                    self.assertEqual(t.convert_tokens_to_string(row["plain"]), t.decode(t.convert_tokens_to_ids(row["plain"])))

    def test_copies(self):
        """A copy of what a tokenizer returned knows where its tokens come from, as one from a worker process does."""
        t = next(iter(self.open.values()))
        for out in (t("The old lighthouse"), t(["The old", "lighthouse keeper"])):
            for twin in (pickle.loads(pickle.dumps(out)), copy.deepcopy(out)):
                self.assertEqual((twin.word_ids(), twin.is_fast, twin.n_sequences), (out.word_ids(), True, 1))
                self.assertEqual([e.entries() for e in twin.encodings], [e.entries() for e in out.encodings])
                self.assertEqual(dict(twin), dict(out))
        with self.assertRaisesRegex(ValueError, "where tokens come from"):
            pickle.loads(pickle.dumps(kvik.BatchEncoding({"input_ids": [1]}))).word_ids()

    def test_vocabulary(self):
        for name, t in self.open.items():
            with self.subTest(name):
                self.assertEqual((t.vocab_size, len(t)), (self.recorded[name]["vocab_size"], self.recorded[name]["len"]))
                self.assertEqual(t.get_added_vocab(), self.recorded[name]["added"])
                vocab = t.get_vocab()
                self.assertEqual(len(vocab), len(t))
                self.assertTrue(all(t.convert_ids_to_tokens(i) == text for text, i in list(vocab.items())[::501]))
                self.assertIsNone(t.convert_ids_to_tokens(10**6))

    def test_truncation(self):
        for name, t in self.open.items():
            for cut in self.recorded[name]["cut"]:
                with self.subTest(name, **cut):
                    t.truncation_side = cut["side"]
                    e = t("One two three four five", truncation=True, max_length=cut["max_length"], return_offsets_mapping=True)
                    self.assertEqual((e.input_ids, [list(o) for o in e.offset_mapping]), (cut["ids"], cut["offsets"]))
            t.truncation_side = "right"

    def test_batches(self):
        t = self.open["llama2"]
        t.pad_token = "</s>"
        e = t(["a long text", "short"], padding=True, padding_side="left", return_tensors="np", return_offsets_mapping=True,
              return_special_tokens_mask=True)
        self.assertEqual(e.offset_mapping.shape, (*e.input_ids.shape, 2))
        self.assertEqual(e.special_tokens_mask[1].tolist(), [1] * (e.input_ids.shape[1] - 1) + [0])
        for i, row in enumerate(e.input_ids):
            self.assertEqual(e[i].ids, row.tolist())
            self.assertEqual(e[i].attention_mask, e.attention_mask[i].tolist())
            self.assertEqual(e.tokens(i), t.convert_ids_to_tokens(row))
        self.assertEqual(e.word_to_chars(1, 0), (0, 5))
        self.assertEqual(e.token_to_chars(1, -1), (0, 5))
        self.assertEqual(e.token_to_word(1, -1), 0)
        self.assertIsNone(e.token_to_chars(1, 0))
        self.assertEqual(e[:1]["input_ids"].shape[0], 1)
        with self.assertRaises(IndexError):
            e[2]
        with self.assertRaisesRegex(ValueError, "what the tokenizer returns"):
            kvik.BatchEncoding({"input_ids": [1]}).tokens()
        np.testing.assert_array_equal(t.get_special_tokens_mask([1, 5, 2], already_has_special_tokens=True), [1, 0, 1])

    def test_clean_up(self):
        """Spaces before punctuation go on request from Unigram tokens alone, as in Transformers."""
        for t in self.open.values():  # BPE
            with self.assertWarnsRegex(UserWarning, "has no effect"):
                self.assertEqual(t.decode(t("a . b").input_ids, clean_up_tokenization_spaces=True), t.decode(t("a . b").input_ids))
        blank = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        words = [["<unk>", 0.0], ["\u2581a", -1.0], ["\u2581.", -2.0], ["\u2581", -3.0]]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
                json.dump({"model": {"type": "Unigram", "unk_id": 0, "vocab": words}, "pre_tokenizer": blank, "decoder": blank,
                           "added_tokens": []}, f)
            t = kvik.AutoTokenizer.from_pretrained(folder)
            self.assertEqual(t.decode([1, 2]), "a .")
            self.assertEqual(t.decode([1, 2], clean_up_tokenization_spaces=True), "a.")

    def test_nul(self):
        t = self.open["qwen3"]
        self.assertEqual(t.decode(t("a\0b").input_ids), "a\0b")


class Backend(unittest.TestCase):
    def test_backend(self):
        t = kvik.AutoTokenizer.from_pretrained(folder_of_tokenizer(self, "llama2"))
        if find_spec("tokenizers") is None:
            with self.assertRaisesRegex(AttributeError, "not installed"):
                t.backend_tokenizer  # noqa: B018
        else:
            self.assertEqual(t.backend_tokenizer.encode("The sea is").ids, t("The sea is").input_ids)
            self.assertIs(t.backend_tokenizer, t._tokenizer)

    @unittest.skipUnless(os.path.isfile(os.environ.get("KVIK_TEST_MODEL", "")), "needs a .gguf file with a tokenizer")
    def test_gguf(self):
        with self.assertRaisesRegex(AttributeError, "has no tokenizer.json"):
            kvik.AutoTokenizer.from_pretrained(os.environ["KVIK_TEST_MODEL"]).backend_tokenizer  # noqa: B018


if __name__ == "__main__":
    unittest.main()
