"""Pairs of texts, words, and texts that are cut, recorded from Transformers (tests/fixtures/tokenizer-pairs.json.xz); copies of tokenizers."""
import json
import lzma
import os
import pickle
import shutil
import tempfile
import unittest

import numpy as np
from common import CHAT_MODEL, GOLDEN, ROOT, kvik

ALL = {"return_token_type_ids": True, "return_special_tokens_mask": True, "return_offsets_mapping": True, "return_length": True}


def plain(value):
    """Returns nested lists for tuples."""
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


class Pairs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with lzma.open(os.path.join(ROOT, "tests", "fixtures", "tokenizer-pairs.json.xz")) as f:
            recorded = json.load(f)
        cls.recorded, cls.folder = recorded["tokenizers"], tempfile.mkdtemp()
        cls.open = {}
        for name, row in cls.recorded.items():
            source, folder = os.path.join(GOLDEN, "tokenizers", name), os.path.join(cls.folder, name)
            os.mkdir(folder)
            path = os.path.join(folder, "tokenizer.json")
            if "post" in row:
                with open(path, "w", encoding="utf-8") as f:
                    json.dump({**recorded["small"], "post_processor": row["post"]}, f)
            else:
                shutil.copy(os.path.join(source, "tokenizer_config.json"), folder)
                with lzma.open(os.path.join(source, "tokenizer.json.xz")) as packed, open(path, "wb") as f:
                    shutil.copyfileobj(packed, f)
            cls.open[name] = kvik.AutoTokenizer.from_pretrained(folder, pad_token=row["pad"])

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def made(self, t, case):
        """Returns what a call makes, as the fixture has it."""
        given = dict(case)
        t.truncation_side, t.padding_side = given.pop("side", "right"), "right"
        if isinstance(given["text"], list) and not given.get("is_split_into_words"):
            given["text"] = [tuple(x) if isinstance(x, list) else x for x in given["text"]]
        try:
            e = t(**{**ALL, **given})
        except ValueError:
            return "error"
        rows = range(len(e.encodings))
        return plain({**e, "tokens": [e.tokens(i) for i in rows], "words": [e.word_ids(i) for i in rows],
                      "sequences": [e.sequence_ids(i) for i in rows]})

    def test_rows(self):
        for name, t in self.open.items():
            for row in self.recorded[name]["rows"]:
                with self.subTest(name, **row["case"]):
                    got, want = self.made(t, row["case"]), row["made"]
                    if want == "error":
                        self.assertEqual(got, want)
                        continue
                    for key in {*got, *want}:
                        self.assertEqual(plain(got[key]), want[key], key)

    def test_counts_and_tokens(self):
        for name, t in self.open.items():
            row = self.recorded[name]
            with self.subTest(name):
                self.assertEqual([t.num_special_tokens_to_add(pair) for pair in (False, True)], row["added"])
                self.assertEqual([t("One").input_ids, t("two", add_special_tokens=False).input_ids], row["plain"])
                self.assertEqual(t.tokenize("The sea is wide and blue", "Who knows how wide?", True), row["tokens"])
                self.assertEqual(t.max_len_single_sentence - t.max_len_sentences_pair, row["added"][1] - row["added"][0])
                found = {str(i): [x.content, x.single_word, x.lstrip, x.rstrip, x.normalized, x.special]
                         for i, x in t.added_tokens_decoder.items()}
                self.assertEqual(found, row["decoder"])
                self.assertEqual({i: x.content for i, x in t.added_tokens_decoder.items()},
                                 {i: text for text, i in t.added_tokens_encoder.items()})

    def test_ids_of_pairs(self):
        t = self.open["template"]
        a, b = (t(x, add_special_tokens=False).input_ids for x in ("The sea", "wide"))
        want = t("The sea", "wide", **ALL)
        self.assertEqual(t.build_inputs_with_special_tokens(a, b), want.input_ids)
        self.assertEqual(t.create_token_type_ids_from_sequences(a, b), want.token_type_ids)
        self.assertEqual(t.get_special_tokens_mask(a, b), want.special_tokens_mask)
        self.assertEqual(t.get_special_tokens_mask(want.input_ids, already_has_special_tokens=True), [0] * len(want.input_ids))  # without roles
        self.assertEqual(t.build_inputs_with_special_tokens(np.array(a)), t("The sea").input_ids)
        self.assertEqual((want.n_sequences, t("x").n_sequences), (2, 1))
        first = want.char_to_token(0, sequence_index=1)
        self.assertEqual((want.sequence_ids()[first], want.token_to_sequence(first)), (1, 1))
        self.assertEqual(want.word_to_chars(0, sequence_index=1), (0, 4))
        self.assertEqual(want[0].type_ids, want.token_type_ids)

    def test_special_tokens_stay(self):
        t = self.open["bert"]
        ids = t("The sea is wide", add_special_tokens=False).input_ids
        for side, kept in (("right", ids[:2]), ("left", ids[-2:])):
            t.truncation_side = side
            self.assertEqual(t("The sea is wide", truncation=True, max_length=4).input_ids, [0, *kept, 1])
        self.assertEqual(t("The sea is wide", truncation=True, max_length=2, add_special_tokens=False).input_ids, ids[-2:])
        t.truncation_side = "right"
        with self.assertRaisesRegex(ValueError, "2 special tokens"):
            t("The sea is wide", truncation=True, max_length=1)

    def test_frames(self):
        t = kvik.AutoTokenizer.from_pretrained(self.open["llama2"].name_or_path, add_eos_token=True)
        a, b = (t(x, add_special_tokens=False).input_ids for x in ("The sea", "is"))
        self.assertEqual((t.add_bos_token, t.add_eos_token, self.open["llama2"].add_eos_token), (True, True, False))
        self.assertEqual(t("The sea").input_ids, [1, *a, 2])
        t.add_bos_token = False
        with tempfile.TemporaryDirectory() as folder:
            t.save_pretrained(folder)
            for other in (t, pickle.loads(pickle.dumps(t)), kvik.AutoTokenizer.from_pretrained(folder)):
                e = other("The sea", "is", return_token_type_ids=True)
                self.assertEqual((e.input_ids, e.token_type_ids), ([*a, 2, *b, 2], [0] * len(a) + [0] + [1] * len(b) + [1]))
                self.assertEqual(other.num_special_tokens_to_add(), 1)
        with self.assertRaisesRegex(ValueError, "has no bos_token"):
            self.open["none"].add_bos_token = True

    def test_tensors(self):
        t = self.open["both"]
        e = t(["The sea", "x"], ["is", "wide open"], padding=True, return_tensors="np", **ALL)
        self.assertEqual({v.shape for k, v in e.items() if k not in ("offset_mapping", "length")}, {e.input_ids.shape})
        self.assertEqual((e.offset_mapping.shape[2], e.length.tolist()), (2, [e.input_ids.shape[1]] * 2))
        again = t.pad([{k: t(*x, return_token_type_ids=True)[k] for k in ("input_ids", "token_type_ids")}
                       for x in (("The sea", "is"), ("x", "wide open"))], return_tensors="np")
        for key in ("input_ids", "token_type_ids", "attention_mask"):
            np.testing.assert_array_equal(again[key], e[key])
        cut = t("The sea is wide", truncation=True, max_length=6, return_overflowing_tokens=True, padding=True, return_tensors="np")
        self.assertEqual(cut.overflow_to_sample_mapping.tolist(), [0] * len(cut.input_ids))
        self.assertEqual(len(cut.encodings), len(cut.input_ids))

    def test_wrong(self):
        t = self.open["bert"]
        for wrong, word in (({"text": ["a", "b"], "text_pair": "c"}, "text_pair is a list"),
                            ({"text": ["a", "b"], "text_pair": ["c"]}, "and 1 were given"),
                            ({"text": "a", "is_split_into_words": True}, "a list of words"),
                            ({"text": "a", "stride": -1}, "stride is -1"), ({}, "a str or a list"),
                            ({"text": "abc", "truncation": "only_second", "max_length": 4}, "needs two texts"),
                            ({"text": "abcd", "text_pair": "e", "truncation": "only_second", "max_length": 5}, "cannot cut 3"),
                            ({"text": "abcd", "truncation": True, "max_length": 4, "stride": 2,
                              "return_overflowing_tokens": True}, "stride is 2; expected fewer than the 2")):
            with self.subTest(**wrong), self.assertRaisesRegex(ValueError, word):
                t(**wrong)
        for wrong in ([["a", 1]], [("a", "b", "c")], ["a", None]):
            with self.assertRaisesRegex(TypeError, "text input must be"):
                t(wrong)

    def test_unknown(self):
        """An argument that a tokenizer does not have is named, and nothing else happens."""
        t = self.open["llama2"]
        with self.assertWarnsRegex(UserWarning, "ignores max_lenght") as warned:
            self.assertEqual(t("The sea", max_lenght=3).input_ids, t("The sea", verbose=False).input_ids)
        self.assertEqual(os.path.basename(warned.filename), "test_pairs.py")

    def test_save(self):
        t = self.open["llama2"]
        with tempfile.TemporaryDirectory() as folder:
            other = kvik.AutoTokenizer.from_pretrained(t.name_or_path)
            other.pad_token, other.padding_side, other.model_max_length = "<unk>", "left", 77
            other.chat_template = "{{ messages[0].content }}!"
            made = other.save_pretrained(os.path.join(folder, "new", "copy"))
            self.assertEqual({os.path.basename(p) for p in made}, {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
            again = kvik.AutoTokenizer.from_pretrained(os.path.dirname(made[0]))
            self.assertEqual((again.pad_token, again.padding_side, again.model_max_length), ("<unk>", "left", 77))
            self.assertEqual(again.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False), "hi!")
            self.assertEqual((again("The sea", "is").input_ids, again.special_tokens_map),
                             (t("The sea", "is").input_ids, other.special_tokens_map))
            self.assertEqual(again.save_pretrained(os.path.dirname(made[0])), made)  # over itself
            self.assertEqual(kvik.AutoTokenizer.from_pretrained(os.path.dirname(made[0])).pad_token, "<unk>")
            with self.assertRaises(FileExistsError):
                other.save_pretrained(made[0])
            with self.assertRaisesRegex(kvik.UnsupportedError, "push_to_hub"):
                other.save_pretrained(folder, push_to_hub=True)

    @unittest.skipUnless(os.path.exists(CHAT_MODEL), "no chat model")
    def test_gguf(self):
        t = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        self.assertEqual(t("The sea", " is").input_ids, t("The sea is").input_ids)  # it adds nothing
        self.assertEqual(t("The sea", " is", return_token_type_ids=True).token_type_ids, [0, 0, 1])
        self.assertIsInstance(t.added_tokens_decoder[t.eos_token_id], kvik.AddedToken)
        with self.assertRaisesRegex(kvik.UnsupportedError, "copy that file"):
            t.save_pretrained("/tmp")


if __name__ == "__main__":
    unittest.main()
