"""What a program sets that Transformers heeds is heeded here, or an error says what to do."""
import json
import os
import pickle
import unittest
import warnings

import numpy as np
from common import folder_of_tokenizer, kvik, model_path

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


class Padding(unittest.TestCase):
    """Ids that are padded with the pad token need no mask, unless it is an end token.  The tokens are those of Transformers 5.23."""

    def test_mask_of_the_pad_token(self):
        m, other = opened(), [43, 10, 209, 263]
        for ids, new, at_end in (([0, 0, 5, 6], [94, 368, 94, 368], [70] * 4), ([5, 0, 6, 9], [184, 184, 184, 355], [368, 368, 368, 165])):
            for eos, wanted in ((2, new), (None, new), (0, at_end)):
                with self.subTest(ids=ids, eos=eos):
                    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": eos}
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        out = m.generate(np.array([ids, [5, 6, 7, 8]]), **options)
                        alone = m.generate(np.array([ids]), **options)
                    self.assertEqual((out[0, 4:].tolist(), out[1, 4:].tolist()), (wanted, other))
                    self.assertEqual(alone[0, 4:].tolist(), wanted)


class Names(unittest.TestCase):
    """What changes nothing here is said, or is an error where it means nothing there."""

    def test_attention(self):
        with self.assertRaisesRegex(ValueError, "attn_implementation='nonsense' is no implementation"):
            opened(attn_implementation="nonsense")
        m = opened(attn_implementation="eager")
        self.assertEqual(m.config._attn_implementation, "eager")
        with self.assertRaisesRegex(ValueError, "nonsense"):
            m.set_attn_implementation("nonsense")
        m.set_attn_implementation("sdpa")
        self.assertEqual((m.config._attn_implementation, opened().config._attn_implementation), ("sdpa", "sdpa"))
        self.assertNotIn("_attn_implementation", m.config.to_dict())

    def test_dtypes(self):
        m = opened()
        for call in (m.half, m.bfloat16, m.double, lambda: m.to(np.float16), lambda: m.to(dtype=np.float64)):
            with self.assertWarnsRegex(UserWarning, "stays as it was opened, with dtype float32"):
                self.assertIs(call(), m)
        with self.assertWarnsRegex(UserWarning, "dtype bfloat16: weights are used as the files have them .float32."):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), dtype="bfloat16", threads=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name, dtype in (("llama-bf16", "bfloat16"), ("llama-bf16", "float32"), ("llama-gqa-l3", "auto"), ("llama-gqa-l3", None)):
                kvik.AutoModelForCausalLM.from_pretrained(model_path(name), dtype=dtype, threads=1).to("cpu")
            self.assertIs(m.float(), m)


class Streams(unittest.TestCase):
    """A streamer cuts a text where Transformers 5.23 does, and is called as often: recorded/streams.json."""

    def test_pieces(self):
        class Kept(kvik.TextStreamer):
            def on_finalized_text(self, text, stream_end=False):
                self.pieces.append((text, stream_end))

        class Other:
            """A tokenizer that is written elsewhere."""

            def decode(self, ids, **options):
                return tokenizer.decode(ids, **options)

        with open(os.path.join(os.path.dirname(__file__), "recorded", "streams.json"), encoding="utf-8") as f:
            cases = json.load(f)
        tokenizer = kvik.AutoTokenizer.from_pretrained(folder_of_tokenizer(self, "qwen3"))
        for case in cases:
            for reader in (tokenizer, Other()):
                with self.subTest(text=case["text"], reader=type(reader).__name__):
                    streamer = Kept(reader, skip_special_tokens=case["skip_special_tokens"])
                    streamer.pieces = []
                    for token in tokenizer(case["text"]).input_ids:
                        streamer.put(np.array([token]))
                    streamer.end()
                    self.assertEqual(streamer.pieces, [(piece, False) for piece in case["pieces"]] + [(case["end"], True)])


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


class Opened(unittest.TestCase):
    """from_pretrained() with a configuration, or keys of it, opens that model.  The numbers are those of Transformers 5.23."""

    def same(self, m, layers, logits, best):
        out = m(IDS).logits[0, -1]
        self.assertEqual((m.config.num_hidden_layers, m.describe()["layers"][layers - 1]["kind"] is not None, int(out.argmax())),
                         (layers, True, best))
        np.testing.assert_allclose(out[:4], logits, atol=2e-4)

    def test_layers(self):
        self.same(opened(num_hidden_layers=1), 1, [3.06445, -3.88331, 0.48626, -1.81489], 29)
        self.same(opened("gemma2", num_hidden_layers=1), 1, [5.31838, -2.23743, -1.23192, 5.09892], 334)
        again = pickle.loads(pickle.dumps(opened("llama-v5fmt", num_hidden_layers=1)))
        self.same(again, 1, [-1.47721, -1.40503, -3.73183, 1.07664], 110)
        with self.assertRaisesRegex(kvik.KvikError, "llama-gqa-l3.*layers.3") as raised:
            opened(num_hidden_layers=5)
        self.assertNotIn("kvik-", str(raised.exception))

    def test_config(self):
        for name, logits, best in (("llama-gqa-l3", [4.75505, -0.28979, -0.03804, 2.91972], 334),
                                   ("llama-v5fmt", [-1.63627, -2.24706, -2.06986, -0.0234], 110),
                                   ("gemma2", [6.25023, -2.75474, -3.73049, -0.39494], 249)):
            with self.subTest(name):
                config = kvik.AutoConfig.from_pretrained(model_path(name))
                rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {"rope_type": "default"}
                config.rope_parameters = {**rope, "rope_theta": 500.0}
                m = opened(name, config=config)
                self.same(m, config.num_hidden_layers, logits, best)
                self.assertEqual(type(m.config), type(config))
        plain = kvik.AutoConfig.from_pretrained(model_path("llama-gqa-l3"))
        plain.use_cache = False
        m = opened(config=plain)  # nothing that is computed differs
        self.same(m, 3, [2.44515, -2.89104, -2.04373, 3.59965], 111)
        self.assertIsNone(m(IDS).past_key_values)
        self.assertEqual(m._handle.changes.folder, m.name_or_path)

    def test_refused(self):
        with self.assertRaisesRegex(kvik.UnsupportedError, "num_hidden_layers=1 differs.*gguf"):
            opened("gemma2.gguf", num_hidden_layers=1)
        with self.assertRaisesRegex(kvik.ArgumentError, "type 'llama', and config is of type 'qwen2'"):
            opened(config=kvik.AutoConfig.for_model("qwen2"))
        with self.assertRaisesRegex(kvik.ArgumentError, "no_such=7"):
            opened(config={"no_such": 7})
        with self.assertWarnsRegex(UserWarning, "ignores num_hiden_layers"):
            opened(num_hiden_layers=1)


class Rows(unittest.TestCase):
    """Changes of a cache's rows that would be lost are impossible."""

    def test_read_only(self):
        made, own = opened()(IDS).past_key_values, kvik.DynamicCache()
        own.update(np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 3, 4), np.float32), 0)
        given = np.ones((1, 2, 3, 4), np.float32)
        held = kvik.DynamicCache.from_legacy_cache(((given, given),))
        for cache in (made, own, held):
            for array in (cache.layers[0].keys, cache.layers[0].values, cache[0][0], cache[0][1], cache.key_cache[0], cache.value_cache[0]):
                with self.assertRaisesRegex(ValueError, "read-only"):
                    array[...] = 0
            cache.to_legacy_cache()[0][0][...] = 0  # an array to work with
        given[...] = 1  # the caller's stays as it was
        states = opened("mamba")(IDS).cache_params
        with self.assertRaisesRegex(ValueError, "read-only"):
            states.ssm_states[0][...] = 0


class Seen:
    """A processor or criterion that keeps what it sees; `answer` makes the answer of a criterion."""

    def __init__(self, answer=None):
        self.calls, self.answer = [], answer

    def __call__(self, ids, scores):
        told = None if scores is None else [list(s.shape) for s in scores] if isinstance(scores, tuple) else list(scores.shape)
        self.calls.append((list(ids.shape), ids[:, -1].tolist(), told))
        return scores if self.answer is None else self.answer(ids, len(self.calls))


def ends_first(ids, calls):
    """Ends the first row after its second new token."""
    return np.array([calls >= 2] + [False] * (len(ids) - 1))


class Together(unittest.TestCase):
    """Processors and criteria are called once in a step with all rows.  What they see is what Transformers 5.23 shows them."""

    ids = np.array([[1, 5, 6, 7], [1, 9, 8, 7]])

    def run_with(self, **options):
        """Generates four tokens; returns the ids, and what a processor and a criterion have seen."""
        criterion, processor = Seen(ends_first), Seen()
        ids = options.pop("ids", self.ids)
        out = opened().generate(ids, max_new_tokens=4, eos_token_id=2, pad_token_id=0, stopping_criteria=[criterion],
                                logits_processor=[processor], **{"do_sample": False, **options})
        return out, criterion.calls, processor.calls

    def test_rows(self):
        want = [[1, 5, 6, 7, 49, 165, 0, 0], [1, 9, 8, 7, 36, 36, 36, 36]]
        lasts = [[7, 7], [49, 36], [165, 36], [0, 36], [0, 36]]
        out, criteria, processed = self.run_with()
        self.assertEqual(out.tolist(), want)
        self.assertEqual(processed, [([2, 4 + i], lasts[i], [2, 384]) for i in range(4)])
        self.assertEqual(criteria, [([2, 5 + i], lasts[i + 1], None) for i in range(4)])
        out, criteria, _ = self.run_with(return_dict_in_generate=True)
        self.assertEqual([c[2] for c in criteria], [None] * 4)
        self.assertEqual(out.finish_reasons, ["criteria", "length"])
        out, criteria, _ = self.run_with(return_dict_in_generate=True, output_scores=True)
        self.assertEqual([c[2] for c in criteria], [[[2, 384]] * i for i in (1, 2, 3, 4)])

    def test_beams(self):
        out, criteria, processed = self.run_with(num_beams=2)
        self.assertEqual(out[1].tolist(), [1, 9, 8, 7, 36, 36, 36, 36])
        self.assertEqual(out[0, :6].tolist(), [1, 5, 6, 7, 49, 165])
        self.assertEqual(processed, [([4, 4], [7] * 4, [4, 384]), ([4, 5], [49, 28, 36, 86], [4, 384]),
                                     ([4, 6], [316, 368, 36, 256], [4, 384]), ([4, 7], [27, 76, 36, 337], [4, 384])])
        self.assertEqual([c[0] for c in criteria], [[8, 5], [8, 6], [8, 7], [4, 8]])  # the first prompt is done
        _, criteria, _ = self.run_with(num_beams=2, return_dict_in_generate=True, output_scores=True)
        self.assertEqual([c[2] for c in criteria], [[[4, 384]] * i for i in (1, 2, 3, 4)])
        _, criteria, processed = self.run_with(num_beams=4, num_beam_groups=2, diversity_penalty=0.5)
        self.assertLessEqual({(2, 4), (2, 5), (2, 6)}, {tuple(p[0]) for p in processed})  # a group of a prompt each

    def test_several(self):
        _, criteria, processed = self.run_with(ids=self.ids[:1], do_sample=True, seed=3, num_return_sequences=3)
        self.assertEqual([p[0] for p in processed], [[3, 4], [3, 5], [3, 6], [3, 7]])
        self.assertEqual([c[0] for c in criteria], [[3, 5], [3, 6], [3, 7], [3, 8]])

    def test_padding(self):
        """Padding is shown, as it is given, also where a cache is continued."""
        ids, mask = np.array([[0, 0, 1, 5], [1, 9, 8, 7]]), np.array([[0, 0, 1, 1], [1, 1, 1, 1]])
        for more in ({}, {"past_key_values": kvik.DynamicCache()}):
            seen = []
            opened().generate(ids, attention_mask=mask, max_new_tokens=2, pad_token_id=0, logits_processor=[
                lambda i, s: (seen.append(i.copy()), s)[1]], **more)
            np.testing.assert_array_equal(seen[0], ids)
            np.testing.assert_array_equal(seen[1][:, :4], ids)

    def test_changes(self):
        """A processor that looks at all rows decides for each; options that sample come after it."""
        def apart(ids, scores):  # the rows may not choose the same token
            scores = scores.copy()
            first = scores[0].argmax()
            scores[1:, first] = -np.inf
            return scores
        m, ids = opened(), self.ids[[0, 0]]
        out = m.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=-1, logits_processor=[apart])
        self.assertTrue((out[0, 4:] != out[1, 4:]).all())
        plain = m.generate(ids[:1], max_new_tokens=3, do_sample=False, eos_token_id=-1)
        np.testing.assert_array_equal(out[:1], plain)
        drawn = [m.generate(self.ids, max_new_tokens=4, do_sample=True, seed=5, top_k=7, repetition_penalty=1.3, output_scores=True,
                            return_dict_in_generate=True, **more) for more in ({}, {"logits_processor": [lambda i, s: s]})]
        np.testing.assert_array_equal(*(d.sequences for d in drawn))
        for a, b in zip(*(d.scores for d in drawn)):
            np.testing.assert_array_equal(a, b)
        beams = [m.generate(self.ids, max_new_tokens=6, num_beams=3, repetition_penalty=1.3, **more)
                 for more in ({}, {"logits_processor": [lambda i, s: s], "stopping_criteria": [lambda i, s: False]})]
        np.testing.assert_array_equal(*beams)

    def test_errors(self):
        m = opened()
        with self.assertRaisesRegex(ValueError, "3 answers for 2 rows"):
            m.generate(self.ids, max_new_tokens=3, stopping_criteria=[lambda i, s: np.zeros(3, bool)])
        with self.assertRaisesRegex(ValueError, r"\[2, 5\]; expected \[2, 384\]"):
            m.generate(self.ids, max_new_tokens=3, logits_processor=[lambda i, s: s[:, :5]])
        for beams in (1, 2):
            with self.assertRaisesRegex(ZeroDivisionError, "zero"):
                m.generate(self.ids, max_new_tokens=3, num_beams=beams, stopping_criteria=[lambda i, s: 1 / 0])
            with self.assertRaisesRegex(ZeroDivisionError, "zero"):
                m.generate(self.ids, max_new_tokens=3, num_beams=beams, logits_processor=[lambda i, s: 1 / 0])

    def test_drafts(self):
        """Drafts are checked row by row, with the same texts."""
        m, seen = opened(), Seen()
        ids = np.array([[1, 5, 6, 5, 6, 5, 6]])
        out = m.generate(ids, max_new_tokens=8, prompt_lookup_num_tokens=3, logits_processor=[seen])
        np.testing.assert_array_equal(out, m.generate(ids, max_new_tokens=8))
        self.assertEqual([c[0][0] for c in seen.calls], [1] * len(seen.calls))

    def test_encoder(self):
        m = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1)
        seen = Seen()
        m.generate(np.array([[5, 6, 7, 1], [8, 9, 10, 1]]), max_new_tokens=3, num_beams=2, logits_processor=[seen])
        self.assertEqual(seen.calls[0][:2], ([4, 1], [0] * 4))


if __name__ == "__main__":
    unittest.main()
