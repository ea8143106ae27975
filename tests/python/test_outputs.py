"""What generate() returns beside the ids: attentions, hidden states, caches with several beams, states of recurrent layers."""
import copy
import json
import os
import pickle
import subprocess
import tempfile
import unittest

import numpy as np
from common import ROOT, kvik, model, model_path

ASK = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "output_attentions": True,
       "output_hidden_states": True}
IDS = np.array([[1, 5, 6, 7, 8, 9]])


class Outputs(unittest.TestCase):
    """Steps of a generation against one forward() over its text."""

    def same(self, got, want):
        np.testing.assert_allclose(got, want, atol=1e-5)

    def check(self, m, out, prompt, have=0):
        ids = out.sequences
        whole = m(ids[:, :-1], output_attentions=True, output_hidden_states=True)
        self.assertEqual(len(out.attentions), ids.shape[1] - prompt)
        begin = have
        for step, end in enumerate(range(prompt, ids.shape[1])):
            for layer, a in enumerate(out.attentions[step]):
                self.same(a, whole.attentions[layer][:, :, begin:end, :end])
            for layer, h in enumerate(out.hidden_states[step]):
                self.same(h, whole.hidden_states[layer][:, begin:end])
            begin = end

    def test_names(self):
        m = model("llama-gqa-l3", "float32")
        some = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True}
        out = m.generate(IDS, **some)
        self.assertEqual((type(out).__name__, type(out.past_key_values).__name__), ("GenerateDecoderOnlyOutput", "DynamicCache"))
        out = m.generate(IDS, num_beams=2, **some)
        self.assertEqual((type(out).__name__, out.beam_indices.dtype), ("GenerateBeamDecoderOnlyOutput", np.int32))
        cache = m.generate(IDS, cache_implementation="static", **some).past_key_values
        self.assertEqual((type(cache), cache.get_max_cache_shape()), (kvik.StaticCache, 9))
        cache = m.generate(IDS, cache_implementation="quantized", **some).past_key_values
        self.assertIsInstance(cache, kvik.QuantizedCache)
        with self.assertRaisesRegex(kvik.UnsupportedError, "dola_layers"):
            m.generate(IDS, dola_layers="high", **some)
        m.generate(IDS, dola_layers=None, **some)
        config = kvik.GenerationConfig(max_new_tokens=3)
        self.assertEqual((config.top_k, config.watermarking_config, config.max_new_tokens), (None, None, 3))
        with self.assertRaisesRegex(AttributeError, "max_new_tokens"):
            config.max_new_token  # noqa: B018
        self.assertFalse(hasattr(config, "no_timestamps_token_id"))

    def test_names_of_modules(self):
        m = model("llama-gqa-l3", "float32")
        self.assertGreater(m.get_memory_footprint(), m.num_parameters())
        self.assertIs(m.double(), m)
        for name, word in (("buffers", "state_dict"), ("lm_head", "output_hidden_states"), ("save_pretrained", "files"),
                           ("foo", "no attribute 'foo'")):
            with self.assertRaisesRegex(AttributeError, word):
                getattr(m, name)
        for make in (kvik.AutoModelForCausalLM, lambda: kvik.LlamaForCausalLM(m.config)):
            with self.assertRaisesRegex(TypeError, "from_pretrained"):
                make()
        with self.assertRaisesRegex(ValueError, "no encoder"):
            kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("llama-gqa-l3"))
        with self.assertRaisesRegex(ValueError, "float7"):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), dtype="float7")

    def test_configuration(self):
        config = kvik.PretrainedConfig(eos_token_id=3, torch_dtype="float32", bos_token_id=None)
        self.assertEqual([config.get(name, 7) for name in ("pad_token_id", "no_such", "eos_token_id", "dtype", "bos_token_id")],
                         [7, 7, 3, "float32", None])
        self.assertIsNone(config.get("pad_token_id"))

    def test_copies(self):
        m = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), dtype="float32", threads=1)
        m.generation_config.max_new_tokens = 3
        for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
            twin.generation_config.max_new_tokens += 1
            twin.config.pad_token_id = 5
            self.assertEqual((type(twin), twin.dtype, m.generation_config.max_new_tokens, m.config.pad_token_id == 5),
                             (type(m), m.dtype, 3, False))
            np.testing.assert_array_equal(twin.generate(IDS)[:, :-1], m.generate(IDS))
        twin, cache = copy.copy(m), kvik.DynamicCache()
        m(IDS, past_key_values=cache)
        self.assertEqual(type(twin), type(m))
        np.testing.assert_array_equal(twin(IDS[:, :1], past_key_values=copy.deepcopy(cache)).logits,
                                      m(IDS[:, :1], past_key_values=cache).logits)
        whisper = kvik.AutoModelForSpeechSeq2Seq.from_pretrained(os.path.join(ROOT, "tests", "fixtures", "speech", "tiny"))
        self.assertIs(type(pickle.loads(pickle.dumps(whisper))), kvik.WhisperForConditionalGeneration)

    def test_plain(self):
        m = model("llama-gqa-l3", "float32")
        self.check(m, m.generate(IDS, **ASK), 6)
        for name in ("static", "offloaded"):
            self.check(m, m.generate(IDS, cache_implementation=name, **ASK), 6)
        out = m.generate(IDS, seed=3, num_return_sequences=3, **{**ASK, "do_sample": True})
        self.assertEqual(out.attentions[0][0].shape, (3, 6, 6, 6))
        self.check(m, out, 6)
        self.assertNotIn("attentions", m.generate(IDS, max_new_tokens=2, return_dict_in_generate=True))
        self.assertEqual(m.generate(IDS, max_new_tokens=2, output_attentions=True).shape, (1, 8))
        with self.assertRaises(kvik.UnsupportedError):
            m.generate(IDS, num_beams=2, **ASK)

    def test_embeds(self):
        m = model("gemma2", "float32")
        embed = m.get_input_embeddings()
        ids = np.array([[0, 0, 5, 6, 7, 8], [1, 5, 6, 7, 8, 9]])
        mask = np.array([[0, 0, 1, 1, 1, 1], [1] * 6])
        given = {"inputs_embeds": embed(ids), "attention_mask": mask, "max_new_tokens": 6}
        want = m.generate(ids, attention_mask=mask, max_new_tokens=6)
        np.testing.assert_array_equal(m.generate(**given), want[:, 6:])
        np.testing.assert_array_equal(m.generate(ids, **given), want)
        np.testing.assert_array_equal(m(ids, attention_mask=mask).logits,
                                      m(inputs_embeds=embed(ids), attention_mask=mask).logits)
        drawn = {"do_sample": True, "seed": 4, "num_return_sequences": 2, "max_length": 9}
        np.testing.assert_array_equal(m.generate(inputs_embeds=embed(IDS), **drawn), m.generate(IDS, **drawn)[:, 6:])
        for cache in (kvik.DynamicCache(), kvik.StaticCache(m.config, max_cache_len=24)):
            out = m.generate(past_key_values=cache, return_dict_in_generate=True, **given)
            self.assertIs(out.past_key_values, cache)
            np.testing.assert_array_equal(out.sequences, want[:, 6:])
            self.assertEqual(cache.get_seq_length(), 11)
            with self.assertRaisesRegex(kvik.UnsupportedError, "empty cache"):
                m.generate(past_key_values=cache, **given)
            # the ids of the whole text go on; those of the embeddings are not known, so any will do
            more = m.generate(np.concatenate([ids * 0 + 3, out.sequences], 1), past_key_values=cache, max_new_tokens=2,
                              attention_mask=np.concatenate([mask, np.ones((2, 6), int)], 1))
            longer = m.generate(ids, attention_mask=mask, max_new_tokens=8)
            np.testing.assert_array_equal(more[:, 6:], longer[:, 6:])
        self.assertEqual(embed.weight.shape, (embed.num_embeddings, embed.embedding_dim))
        for wrong in ({"num_beams": 2}, {"prompt_lookup_num_tokens": 3}):
            with self.assertRaisesRegex(kvik.UnsupportedError, "embeddings"):
                m.generate(inputs_embeds=embed(IDS), **wrong)
        with self.assertRaisesRegex(kvik.ArgumentError, "expected"):
            m.generate(inputs_embeds=np.zeros((1, 2, 7), np.float32))

    def test_cache(self):
        m = model("llama-gqa-l3", "float32")
        cache = kvik.DynamicCache()
        m(IDS[:, :4], past_key_values=cache)
        out = m.generate(IDS, past_key_values=cache, **ASK)
        self.assertEqual(cache.get_seq_length(), 9)
        self.check(m, out, 6, 4)
        again = m.generate(out.sequences, past_key_values=cache, **ASK)
        self.check(m, again, 10, 9)
        cache.crop(6)
        self.check(m, m.generate(IDS, past_key_values=cache, **ASK), 6, 5)  # the last column is computed again

    def test_mask(self):
        m = model("llama-gqa-l3", "float32")
        ids, mask = np.array([[1, 5, 6, 7], [0, 9, 8, 7]]), np.array([[1, 1, 1, 1], [0, 1, 1, 1]])
        out = m.generate(ids, attention_mask=mask, **ASK)
        alone = m.generate(ids[1:, 1:], **ASK)
        for step in range(4):
            for a, b in zip(out.attentions[step], alone.attentions[step]):
                self.same(a[1, :, -1, 1:], b[0, :, -1])
            for a, b in zip(out.hidden_states[step], alone.hidden_states[step]):
                self.same(a[1, -1], b[0, -1])

    def test_encoder(self):
        m = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1)
        out = m.generate(IDS, **ASK)
        whole = m(IDS, decoder_input_ids=out.sequences[:, :-1], output_attentions=True, output_hidden_states=True)
        for step in range(4):
            for layer in range(len(out.cross_attentions[step])):
                self.same(out.cross_attentions[step][layer], whole.cross_attentions[layer][:, :, step:step + 1])
                self.same(out.decoder_attentions[step][layer], whole.decoder_attentions[layer][:, :, step:step + 1, :step + 1])
            self.same(out.decoder_hidden_states[step][-1], whole.decoder_hidden_states[-1][:, step:step + 1])
        self.same(out.encoder_attentions[1], whole.encoder_attentions[1])
        many = m.generate(np.repeat(IDS, 2, 0), **{**ASK, "do_sample": True, "num_return_sequences": 2})
        self.assertEqual(many.cross_attentions[0][0].shape, (4, 4, 1, 6))

    def test_filled_encoder(self):
        """A cache that holds a text is continued, with and without a crop."""
        m = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1)
        full = m.generate(IDS, max_new_tokens=12, do_sample=False)
        part = m.generate(IDS, max_new_tokens=5, do_sample=False, return_dict_in_generate=True)
        for cut in (None, 3, 0):
            cache = copy.deepcopy(part.past_key_values)
            if cut:
                cache.crop(cut)
            got = m.generate(decoder_input_ids=part.sequences, past_key_values=cache, max_new_tokens=7, do_sample=False)
            self.assertEqual(got.tolist(), full.tolist())
            self.assertEqual((cache.get_seq_length(), cache.cross_attention_cache.get_seq_length()), (12, 6))
        with self.assertRaisesRegex(kvik.ArgumentError, "decoder_input_ids"):
            m.generate(past_key_values=part.past_key_values)
        shown = m.generate(decoder_input_ids=part.sequences, past_key_values=part.past_key_values, **ASK)
        self.assertEqual([s[0].shape[2:] for s in shown.decoder_attentions], [(1, 6), (1, 7), (1, 8), (1, 9)])

    def test_several_beams(self):
        m = model("llama-gqa-l3", "float32")
        options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}
        want = m.generate(IDS, **options)
        for cache in (kvik.DynamicCache(), kvik.StaticCache(m.config, 20), kvik.DynamicCache()):
            if isinstance(cache, kvik.StaticCache):
                m(IDS[:, :4], past_key_values=cache)
            self.assertEqual(m.generate(IDS, past_key_values=cache, **options).tolist(), want.tolist())
            self.assertEqual((cache.max_batch_size, cache.get_seq_length()), (2, 10))
        more = m.generate(want, past_key_values=cache, max_new_tokens=3)
        self.assertEqual(more.tolist(), [m.generate(row[None], max_new_tokens=3)[0].tolist() for row in want])
        with self.assertRaisesRegex(kvik.ArgumentError, "whole text"):
            m.generate(np.repeat(IDS, 2, 0), past_key_values=cache, **options)

    def test_states(self):
        """Each row of a batch has the states that it has alone."""
        for name, shown in (("mamba", "ssm_states"), ("jamba", "ssm_states"), ("mamba2", "ssm_states"), ("qwen3-next", "recurrent_states")):
            with self.subTest(name):
                m = model(name, "float32")
                cache = kvik.MambaCache(m.config)
                self.assertEqual((cache.conv_states, cache.ssm_states), ([], []))
                both = np.concatenate([IDS, IDS[:, ::-1]])
                m(both, past_key_values=cache)
                alone = kvik.MambaCache(m.config)
                m(both[1:], past_key_values=alone)
                layers = 0
                for states in ("conv_states", shown):
                    for a, b in zip(getattr(cache, states), getattr(alone, states)):
                        self.assertEqual(a is None, b is None)
                        if a is not None:
                            np.testing.assert_array_equal(a[1:], b)
                            self.assertGreater(np.abs(a).max(), 0)
                            layers += 1
                self.assertGreater(layers, 3)
                self.assertEqual(cache.conv_states[0].shape[2], 4)
        self.assertEqual(model("llama-gqa-l3", "float32")(IDS).past_key_values.conv_states, [None] * 3)


class Sentences(unittest.TestCase):
    """Errors that a newcomer met say what was wrong."""

    def test_save(self):
        m = model("llama-gqa-l3", "float32")
        filled = m(IDS).past_key_values
        updated = kvik.DynamicCache()
        updated.update(np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 3, 4), np.float32), 0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            with self.assertRaisesRegex(kvik.ArgumentError, "is empty"):
                kvik.DynamicCache().save(path)
            with self.assertRaisesRegex(kvik.ArgumentError, "update"):
                updated.save(path)
            filled.save(path)
            with self.assertRaisesRegex(kvik.ArgumentError, "waits for its model"):
                kvik.DynamicCache.load(path).save(os.path.join(folder, "t"))
            for cache in (filled, kvik.DynamicCache()):
                with self.assertRaisesRegex(FileNotFoundError, "no directory .*missing"):
                    cache.save(os.path.join(folder, "missing", "s"))

    def test_static(self):
        m = model("llama-gqa-l3", "float32")
        cache = kvik.StaticCache(m.config, 8)
        with self.assertRaisesRegex(kvik.OutOfMemoryError, "max_cache_len is 8"):
            m.generate(IDS, max_new_tokens=10, past_key_values=cache)
        self.assertEqual(m(np.ones((1, 8), np.int64), past_key_values=cache).logits.shape[1], 8)
        with self.assertRaisesRegex(kvik.LimitError, "max_cache_len 8"):
            m(IDS[:, :1], past_key_values=cache)
        self.assertEqual(cache.get_seq_length(), 8)

    def test_budget(self):
        m = model("llama-gqa-l3", "float32")
        for memory in (1, 20000, 58000):  # too small to open a cache, and too small for the text
            with self.assertRaisesRegex(kvik.OutOfMemoryError, "raise cache_memory"):
                m.generate(IDS, max_new_tokens=40, cache_memory=memory)
            with self.assertRaisesRegex(kvik.OutOfMemoryError, "raise cache_memory"):
                m.generate(IDS, max_new_tokens=40, past_key_values=kvik.DynamicCache(cache_memory=memory))
        rows = np.zeros((1, 2, 3, 4), np.float32)
        with self.assertRaisesRegex(kvik.OutOfMemoryError, "raise cache_memory"):
            kvik.DynamicCache(cache_memory=1).update(rows, rows, 0)
        with self.assertRaises(kvik.OutOfMemoryError):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), cache_memory=1)(IDS)
        tokens = m.generate(IDS, max_new_tokens=40, cache_memory="1M")
        np.testing.assert_array_equal(tokens, m.generate(IDS, max_new_tokens=40))

    def test_text(self):
        tokenizer = kvik.PreTrainedTokenizer(os.path.join(ROOT, "tests", "fixtures", "speech", "tiny"))
        self.assertEqual(tokenizer.decode([10**7]), "")
        self.assertEqual(tokenizer.decode([75, 10**7]), tokenizer.decode([75]))
        with self.assertRaises(kvik.ArgumentError):
            tokenizer.decode([-1])
        tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
        self.assertEqual(tokenizer.apply_chat_template([{"content": "hi"}], tokenize=False), ": hi")
        for chat in ([], [[]]):
            with self.assertRaisesRegex(ValueError, "at least one message"):
                tokenizer.apply_chat_template(chat, tokenize=False)


class Bytes(unittest.TestCase):
    """The library tells Python what it tells the command."""

    def command(self, *args):
        out = subprocess.run([os.path.join(ROOT, "kvik"), *args], stdout=subprocess.PIPE, check=True)
        return json.loads(out.stdout)

    def test_inspect(self):
        for name in ("llama-gqa-l3", "gemma2", "jamba", "t5"):
            with self.subTest(name):
                kind = kvik.AutoModelForSeq2SeqLM if name == "t5" else kvik.AutoModelForCausalLM
                m = kind.from_pretrained(model_path(name), dtype="float32", threads=1)
                told = self.command("inspect", model_path(name), "--json")
                self.assertEqual(told, m.describe())
                self.assertGreater(told["bytes"], 0)
                self.assertEqual(self.command("inspect", model_path(name), "--caches", "--json"), m.describe_caches())

    def test_generate(self):
        shown = ("bytes", "peak_bytes", "live", "shared", "staging", "states", "reserved", "spilled", "tokens", "rows_copied")
        for name in ("llama-gqa-l3", "gemma2", "jamba"):
            for strategy in ("dynamic", "static", "quantized", "offloaded"):
                if (name, strategy) == ("jamba", "quantized"):  # heads of 10 values need a group size of their own
                    continue
                with self.subTest(f"{name} {strategy}"):
                    options = ["--max-new-tokens", "20", "--do-sample", "false", "--cache-implementation", strategy]
                    told = self.command("generate", model_path(name), "--input-ids", "1,5,6,7,8,9", "--json", *options)
                    m = kvik.AutoModelForCausalLM.from_pretrained(model_path(name), max_sequences=1)
                    out = m.generate(IDS, max_new_tokens=20, do_sample=False, cache_implementation=strategy,
                                     return_dict_in_generate=True)
                    self.assertEqual(out.sequences.tolist(), told["sequences"])
                    memory = out.past_key_values.memory()
                    self.assertEqual({k: memory[k] for k in shown}, {k: told["cache"][k] for k in shown})
                    self.assertGreater(memory["bytes"], 0)


if __name__ == "__main__":
    unittest.main()
