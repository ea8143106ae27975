"""Processors, criteria and streamers as Transformers has them: recorded scores, and the options that do the same."""
import asyncio
import copy
import json
import os
import pickle
import threading
import unittest
import warnings

import numpy as np
from common import CHAT_MODEL, PATIENCE, has_torch, kvik, model, read_json, tensors
from kvik.generation import logits_process

IDS = np.array([[1, 5, 6, 7, 5, 6]])


class Vectors(unittest.TestCase):
    """Scores before and after, recorded from Transformers 5 and 4."""

    def check(self, file):
        recorded, data = read_json(file + ".json"), tensors(file + ".safetensors")
        run = set()
        for v in recorded["vectors"]:
            if v["class"] == "HammingDiversityLogitsProcessor":  # generate() with num_beam_groups has it
                continue
            args = {k: np.array(recorded[x]) if isinstance(x, str) else x for k, x in v["args"].items()}
            processor = getattr(kvik, v["class"])(**args)
            ids = np.array(recorded[v["input_ids"]]) if v["input_ids"] in recorded else data[v["input_ids"]]
            for made in (processor, pickle.loads(pickle.dumps(processor))):
                given = data[v["scores"]].copy()
                out, want = made(ids, given), data[v["output"]]
                np.testing.assert_array_equal(given, data[v["scores"]])
                np.testing.assert_array_equal(np.isneginf(out), np.isneginf(want), err_msg=v["name"])
                np.testing.assert_allclose(out[np.isfinite(want)], want[np.isfinite(want)], rtol=1e-6, atol=1e-5, err_msg=v["name"])
            run.add(v["class"])
        return run

    def test_vectors(self):
        self.assertGreaterEqual(len(self.check("processors")), 23)
        self.assertGreaterEqual(len(self.check("processors-v4")), 20)

    def test_torch(self):
        if not has_torch():
            self.skipTest("no torch")
        import torch
        scores = torch.tensor([[0.0, 1.0, 2.0, 3.0]], dtype=torch.bfloat16)
        out = kvik.TopKLogitsWarper(2, filter_value=-9.0)(torch.zeros((1, 1), dtype=torch.int64), scores)
        self.assertEqual((out.dtype, out.tolist()), (torch.bfloat16, [[-9.0, -9.0, 2.0, 3.0]]))
        done = kvik.MaxLengthCriteria(1)(torch.zeros((2, 1), dtype=torch.int64), None)
        self.assertEqual((done.dtype, done.tolist()), (torch.bool, [True, True]))

    def test_wrong_arguments(self):
        for wrong in (lambda: kvik.TemperatureLogitsWarper(0.0), lambda: kvik.TopKLogitsWarper(0), lambda: kvik.TopPLogitsWarper(1.5),
                      lambda: kvik.MinPLogitsWarper(-0.1), lambda: kvik.TypicalLogitsWarper(1.0), lambda: kvik.EtaLogitsWarper(0),
                      lambda: kvik.RepetitionPenaltyLogitsProcessor(-1.0), lambda: kvik.NoBadWordsLogitsProcessor([]),
                      lambda: kvik.MinLengthLogitsProcessor(-1, 2), lambda: kvik.TopPLogitsWarper(0.5, min_tokens_to_keep=0),
                      lambda: kvik.SuppressTokensLogitsProcessor([-1]), lambda: kvik.NoRepeatNGramLogitsProcessor(2.5)):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaisesRegex(ValueError, "expected"):
            kvik.TemperatureLogitsWarper(0.5)(np.zeros((2, 1), int), np.zeros((1, 4), np.float32))
        with self.assertRaisesRegex(ValueError, "outside the vocabulary"):
            kvik.SequenceBiasLogitsProcessor([[[9], 1.0]])(np.zeros((1, 1), int), np.zeros((1, 4), np.float32))


class InGenerate(unittest.TestCase):
    """generate() with an object gives what the option gives."""

    def same(self, processor, **option):
        m = model("llama-gqa-l3", "float32")
        plain = m.generate(IDS, max_new_tokens=10, do_sample=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = m.generate(IDS, max_new_tokens=10, do_sample=False, logits_processor=kvik.LogitsProcessorList([processor]))
        np.testing.assert_array_equal(got, m.generate(IDS, max_new_tokens=10, do_sample=False, **option))
        return plain.tolist() != got.tolist()

    def test_options(self):
        self.assertTrue(self.same(kvik.RepetitionPenaltyLogitsProcessor(1.8), repetition_penalty=1.8))
        self.same(kvik.NoRepeatNGramLogitsProcessor(2), no_repeat_ngram_size=2)
        m = model("llama-gqa-l3", "float32")
        first = int(m.generate(IDS, max_new_tokens=1, do_sample=False)[0, -1])
        self.assertTrue(self.same(kvik.SuppressTokensLogitsProcessor([first]), suppress_tokens=[first]))
        self.assertTrue(self.same(kvik.NoBadWordsLogitsProcessor([[first]]), bad_words_ids=[[first]]))
        self.assertTrue(self.same(kvik.ForcedEOSTokenLogitsProcessor(16, 9), forced_eos_token_id=9))

    def test_every_processor(self):
        """Each processor of the library gives the bits of its option; none is missing here."""
        m, ids = model("llama-mha"), np.array([[5, 6, 7, 8, 9, 5, 6]])
        plain = {"max_new_tokens": 8, "do_sample": True, "top_k": 0, "seed": 3, "return_dict_in_generate": True,
                 "output_scores": True, "eos_token_id": 2}
        table = [
            (kvik.TemperatureLogitsWarper(0.7), {"temperature": 0.7}), (kvik.TopKLogitsWarper(5), {"top_k": 5}),
            (kvik.TopPLogitsWarper(0.8), {"top_p": 0.8}), (kvik.TopHLogitsWarper(0.5), {"top_h": 0.5}),
            (kvik.MinPLogitsWarper(0.2), {"min_p": 0.2}), (kvik.TypicalLogitsWarper(0.6), {"typical_p": 0.6}),
            (kvik.EpsilonLogitsWarper(0.01), {"epsilon_cutoff": 0.01}), (kvik.EtaLogitsWarper(0.01), {"eta_cutoff": 0.01}),
            (kvik.RepetitionPenaltyLogitsProcessor(1.5), {"repetition_penalty": 1.5}),
            (kvik.EncoderRepetitionPenaltyLogitsProcessor(1.5, ids), {"encoder_repetition_penalty": 1.5}),
            (kvik.NoRepeatNGramLogitsProcessor(2), {"no_repeat_ngram_size": 2}),
            (kvik.EncoderNoRepeatNGramLogitsProcessor(2, ids), {"encoder_no_repeat_ngram_size": 2}),
            (kvik.SequenceBiasLogitsProcessor({(5,): 3.0, (6, 7): 2.0}), {"sequence_bias": {(5,): 3.0, (6, 7): 2.0}}),
            (kvik.NoBadWordsLogitsProcessor([[5], [6, 7]], 2), {"bad_words_ids": [[5], [6, 7]]}),
            (kvik.SuppressTokensLogitsProcessor([5, 6]), {"suppress_tokens": [5, 6]}),
            (kvik.SuppressTokensAtBeginLogitsProcessor([5, 6], 7), {"begin_suppress_tokens": [5, 6]}),
            (kvik.MinLengthLogitsProcessor(12, 2), {"min_length": 12}),
            (kvik.MinNewTokensLengthLogitsProcessor(7, 4, 2), {"min_new_tokens": 4}),
            (kvik.ForcedBOSTokenLogitsProcessor(9), {"forced_bos_token_id": 9}),
            (kvik.ForcedEOSTokenLogitsProcessor(15, 2), {"forced_eos_token_id": 2}),
            (kvik.ExponentialDecayLengthPenalty((2, 1.5), 2, 7), {"exponential_decay_length_penalty": (2, 1.5)}),
            (kvik.InfNanRemoveLogitsProcessor(), {"remove_invalid_values": True}),
            (kvik.LogitNormalization(), {"renormalize_logits": True})]
        for processor, option in table:
            text = ids[:, :1] if "forced_bos_token_id" in option else ids
            with self.subTest(type(processor).__name__):
                want, got = m.generate(text, **{**plain, **option}), m.generate(text, logits_processor=[processor], **plain)
                np.testing.assert_array_equal(got.sequences, want.sequences)
                np.testing.assert_array_equal(np.stack(got.scores), np.stack(want.scores))
                if "remove_invalid_values" not in option:
                    before = m.generate(text, **plain)
                    self.assertFalse(np.array_equal(np.stack(before.scores)[:len(got.scores)], np.stack(got.scores)[:len(before.scores)]))
        ours = {n for n in logits_process.__all__ if n.endswith(("Warper", "Processor", "Penalty", "Normalization"))}
        self.assertEqual({type(p).__name__ for p, _ in table},
                         ours - {"LogitsProcessor", "LogitsWarper", "PrefixConstrainedLogitsProcessor"})

    def test_time(self):
        """max_time=0 ends after a token, as in Transformers."""
        m = model("llama-mha")
        self.assertEqual(m.generate(IDS, max_new_tokens=9, min_new_tokens=9, max_time=0.0).shape[1], IDS.shape[1] + 1)
        self.assertEqual(m.generate(IDS, max_new_tokens=9, min_new_tokens=9, max_time=None).shape[1], IDS.shape[1] + 9)

    def test_object_and_option(self):
        m = model("llama-gqa-l3", "float32")
        want = m.generate(IDS, max_new_tokens=8, do_sample=False, repetition_penalty=1.8)
        with self.assertWarnsRegex(UserWarning, "repetition_penalty has no effect"):
            got = m.generate(IDS, max_new_tokens=8, do_sample=False, repetition_penalty=3.0,
                             logits_processor=[kvik.RepetitionPenaltyLogitsProcessor(1.8)])
        np.testing.assert_array_equal(got, want)

    def test_list(self):
        both = kvik.LogitsProcessorList([kvik.TemperatureLogitsWarper(0.5), lambda ids, scores, shift=0: scores + shift])
        scores = np.array([[1.0, 2.0]], np.float32)
        self.assertEqual(both(IDS, scores).tolist(), [[2.0, 4.0]])
        self.assertEqual(both(IDS, scores, shift=1).tolist(), [[3.0, 5.0]])
        both.append(lambda ids, scores, needed: scores)
        with self.assertRaisesRegex(ValueError, "needed"):
            both(IDS, scores)

    def test_allowed(self):
        allow = kvik.PrefixConstrainedLogitsProcessor(lambda text, ids: [text, 3], 2)
        out = allow(np.zeros((4, 1), int), np.ones((4, 4), np.float32))
        self.assertEqual(np.isfinite(out).tolist(), [[True, False, False, True]] * 2 + [[False, True, False, True]] * 2)
        banned = np.full((4, 4), -np.inf, np.float32)
        self.assertEqual(allow(np.zeros((4, 1), int), banned)[0].tolist(), [0, -np.inf, -np.inf, 0])


class Schemas(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(CHAT_MODEL), "the model is not here (KVIK_TEST_MODEL)")
    def test_answers(self):
        model, tokenizer = kvik.AutoModelForCausalLM.from_pretrained(CHAT_MODEL), kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        ids = tokenizer("A person as JSON:", return_tensors="np")
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 99}},
                  "required": ["name", "age"], "additionalProperties": False}
        n = ids["input_ids"].shape[1]
        for given in (schema, json.dumps(schema)):
            out = model.generate(**ids, max_new_tokens=80, json_schema=given)
            self.assertEqual(set(json.loads(tokenizer.decode(out[0, n:], skip_special_tokens=True))), {"name", "age"})
        with self.assertRaisesRegex(kvik.UnsupportedError, "uniqueItems"):
            model.generate(**ids, json_schema={"uniqueItems": True})


class Criteria(unittest.TestCase):
    def test_each(self):
        ids = np.array([[1, 2, 3], [1, 2, 9]])
        self.assertEqual(kvik.EosTokenCriteria([9, 8])(ids, None).tolist(), [False, True])
        self.assertEqual(kvik.MaxLengthCriteria(4)(ids, None).tolist(), [False, False])
        self.assertEqual(kvik.MaxTimeCriteria(0.0, initial_timestamp=0)(ids, None).tolist(), [True, True])
        self.assertTrue(kvik.ConfidenceCriteria(0.5)(ids[:1], (np.zeros((1, 12)),)))
        criteria = kvik.StoppingCriteriaList([kvik.EosTokenCriteria(9), kvik.MaxLengthCriteria(9)])
        self.assertEqual(criteria(ids, None).tolist(), [False, True])
        self.assertEqual(criteria.max_length, 9)
        self.assertEqual(kvik.validate_stopping_criteria(kvik.StoppingCriteriaList(), 5).max_length, 5)
        m = model("llama-gqa-l3", "float32")
        out = m.generate(IDS, max_new_tokens=10, eos_token_id=-1, stopping_criteria=[kvik.MaxLengthCriteria(9)])
        self.assertEqual(out.shape[1], 9)


@unittest.skipUnless(os.path.exists(CHAT_MODEL), "no chat model")
class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        cls.model = kvik.AutoModelForCausalLM.from_pretrained(CHAT_MODEL, max_sequences=4)
        cls.inputs = cls.tokenizer("The sea is", return_tensors="np")

    def test_stop_strings(self):
        stop = kvik.StopStringCriteria(self.tokenizer, ["sea", "é"])
        ids = [self.tokenizer(t).input_ids for t in ("The sea", "The sea is", "The season", "née is", "ne", "")]
        self.assertEqual([bool(stop(np.array([i or [1]]), None)[0]) for i in ids], [True, False, True, False, False, False])
        self.assertTrue(stop(np.array([self.tokenizer("né").input_ids]), None)[0])
        want = self.model.generate(**self.inputs, max_new_tokens=12, stop_strings=["endless"])
        got = self.model.generate(**self.inputs, max_new_tokens=12, stopping_criteria=[kvik.StopStringCriteria(self.tokenizer, "endless")])
        np.testing.assert_array_equal(got, want)

    def test_rows(self):
        """A streamer of the program gets the tokens of all rows in each step; rows that have ended are padded."""
        class Rows(kvik.BaseStreamer):
            def __init__(self):
                self.got = []

            def put(self, value):
                self.got.append(value.tolist())

            def end(self):
                self.got.append("end")
        m, ids, mask = model("llama-gqa-l3"), np.array([[0, 5, 17], [7, 8, 9]]), np.array([[0, 1, 1], [1, 1, 1]])
        for options in ({"eos_token_id": None}, {"eos_token_id": [209], "pad_token_id": 3}):
            for cache in (None, type("Own", (kvik.DynamicCache,), {"update": kvik.DynamicCache.update})()):
                rows = Rows()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    out = m.generate(ids, attention_mask=mask, max_new_tokens=5, streamer=rows, past_key_values=cache, **options)
                self.assertEqual(rows.got, [ids.tolist(), *out.T[3:].tolist(), "end"])
        self.assertIn(3, out[1, 3:].tolist())
        rows = Rows()
        out = m.generate(ids[1:], max_new_tokens=2, do_sample=True, num_return_sequences=2, eos_token_id=None, streamer=rows)
        self.assertEqual(rows.got, [[[7, 8, 9]] * 2, *out.T[3:].tolist(), "end"])
        with self.assertRaisesRegex(ValueError, "batch size 1"):
            m.generate(ids, attention_mask=mask, max_new_tokens=2, streamer=kvik.TextStreamer(self.tokenizer))

    def test_async(self):
        async def run():
            streamer = kvik.AsyncTextIteratorStreamer(self.tokenizer, skip_prompt=True, timeout=PATIENCE)
            thread = threading.Thread(target=self.model.generate, kwargs=dict(self.inputs, max_new_tokens=8, streamer=streamer))
            thread.start()
            text = "".join([piece async for piece in streamer])
            thread.join()
            broken = kvik.AsyncTextIteratorStreamer(self.tokenizer, timeout=0.01)
            with self.assertRaises(TimeoutError):
                await broken.__anext__()
            broken.fail(kvik.ArgumentError("no"))
            with self.assertRaises(kvik.ArgumentError):
                await broken.__anext__()
            return text
        want = self.tokenizer.decode(self.model.generate(**self.inputs, max_new_tokens=8)[0, 3:])
        self.assertEqual(asyncio.run(run()), want)

    def test_copies(self):
        a = kvik.TopPLogitsWarper(0.9)
        out = self.model.generate(**self.inputs, max_new_tokens=4, do_sample=True, seed=5, logits_processor=[a])
        again = self.model.generate(**self.inputs, max_new_tokens=4, do_sample=True, seed=5, logits_processor=[copy.deepcopy(a)])
        np.testing.assert_array_equal(out, again)


if __name__ == "__main__":
    unittest.main()
