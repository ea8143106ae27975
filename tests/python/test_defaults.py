"""Configurations and options that a program makes itself have the values that Transformers 5.23 gives them."""
import os
import pickle
import tempfile
import unittest
import warnings

import numpy as np
from common import kvik, model, model_path
from kvik.generation import GenerationMode


class Configurations(unittest.TestCase):
    def test_defaults(self):
        c = kvik.LlamaConfig()
        self.assertEqual((c.hidden_size, c.num_hidden_layers, c.num_key_value_heads, c.head_dim, c.max_position_embeddings, c.eos_token_id),
                         (4096, 32, 32, 128, 2048, 2))
        self.assertEqual((c._name_or_path, c.return_dict, c.output_attentions), ("", True, False))
        told, common = c.to_dict(), c.to_dict().keys() - c.to_diff_dict().keys()
        self.assertEqual((told["hidden_size"], told["head_dim"], told["model_type"], told["rope_parameters"]["rope_type"]),
                         (4096, 128, "llama", "default"))
        self.assertEqual(common, {"architectures", "chunk_size_feed_forward", "decoder_start_token_id", "dtype", "id2label",
                                  "is_encoder_decoder", "label2id", "output_attentions", "output_hidden_states", "problem_type",
                                  "return_dict"})
        self.assertEqual(c.rope_parameters, {"rope_theta": 10000.0, "rope_type": "default"})
        self.assertIsNone(c._attn_implementation)
        c = kvik.LlamaConfig(num_attention_heads=8, hidden_size=64)
        self.assertEqual((c.num_key_value_heads, c.head_dim), (8, 8))
        self.assertEqual((c.to_diff_dict()["hidden_size"], c.to_diff_dict()["head_dim"]), (64, 8))
        self.assertEqual((kvik.T5Config().is_encoder_decoder, kvik.LlamaConfig().is_encoder_decoder), (True, False))
        self.assertEqual((kvik.MambaConfig(num_hidden_layers=2).layer_types, kvik.JambaConfig(num_hidden_layers=5).layer_types),
                         (["linear_attention"] * 2, ["linear_attention"] * 4 + ["full_attention"]))
        self.assertEqual(kvik.Gemma2Config(num_hidden_layers=3).layer_types, ["sliding_attention", "full_attention", "sliding_attention"])
        self.assertEqual(kvik.Qwen2Config(num_hidden_layers=2).layer_types, ["full_attention"] * 2)
        self.assertEqual((kvik.MistralConfig().sliding_window, kvik.GPT2Config().hidden_size, kvik.T5Config().d_model), (4096, 768, 512))
        with self.assertRaisesRegex(AttributeError, "no 'layer_types'"):
            kvik.LlamaConfig().layer_types  # noqa: B018
        self.assertEqual(pickle.loads(pickle.dumps(c)), c)

    def test_changed_in_place(self):
        """The numbers are those of Transformers 5.23."""
        c = kvik.AutoConfig.from_pretrained(model_path("llama-gqa-l3"))
        c.rope_parameters["rope_theta"] = 500.0
        m = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), config=c, dtype="float32")
        self.assertEqual(m.config.rope_parameters["rope_theta"], 500.0)
        np.testing.assert_allclose(m(np.array([[5, 17, 9, 33, 21, 8]])).logits[0, -1, :5], [-0.707, 5.359, -4.629, 9.356, -1.808], atol=2e-3)
        c = kvik.Gemma2Config(num_hidden_layers=4)
        c.layer_types[0] = "full_attention"
        self.assertEqual(c.layer_types, ["full_attention", "full_attention", "sliding_attention", "full_attention"])
        self.assertEqual(kvik.Gemma2Config.from_dict(c.to_dict()).layer_types, c.layer_types)
        c = kvik.LlamaConfig()
        self.assertEqual(c.rope_parameters["rope_theta"], 10000.0)
        c.rope_theta = 7.0
        self.assertEqual(c.rope_parameters["rope_theta"], 7.0)  # nobody has changed it in place

    def test_of_another_model(self):
        """A configuration without a key has that of its type, and so is not that of the file."""
        with self.assertRaisesRegex(ValueError, "shape"):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), config=kvik.LlamaConfig(num_hidden_layers=1))
        with self.assertRaisesRegex(NotImplementedError, "from_pretrained"):
            kvik.AutoModelForCausalLM.from_config(kvik.LlamaConfig())
        with self.assertRaisesRegex(kvik.UnsupportedError, "hidden_act='gelu' differs"):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("qwen2.gguf"), hidden_act="gelu")

    def test_changed_after_opening(self):
        m = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"))
        m.config.rms_norm_eps = 1.0  # which changes nothing in Transformers either
        m(np.array([[5, 6]]))
        m.config.num_hidden_layers = 1
        for call in (lambda: m(np.array([[5, 6]])), lambda: m.generate(np.array([[5, 6]]), max_new_tokens=1)):
            with self.assertRaisesRegex(ValueError, r"open it again: from_pretrained\(..., num_hidden_layers=1\)"):
                call()

    def test_written(self):
        """config.json has all keys, and says the same of a model as the file that was read."""
        for name in ("llama-gqa-l3", "gemma2", "gpt2", "t5", "jamba", "qwen3-next", "mamba", "gemma3-old", "whisper", "gpt-oss"):
            c = kvik.AutoConfig.from_pretrained(model_path(name))
            with tempfile.TemporaryDirectory() as folder:
                c.save_pretrained(folder)
                self.assertEqual(kvik.AutoConfig.from_pretrained(folder).to_dict(), c.to_dict(), name)

    def test_files(self):
        c = kvik.AutoConfig.from_pretrained(model_path("llama-gqa-l3"))  # a file with rope_scaling, from before rope_parameters
        self.assertEqual((c.rope_parameters["rope_type"], c.rope_parameters["rope_theta"]), ("llama3", c.rope_theta))
        self.assertEqual(c._name_or_path, model_path("llama-gqa-l3"))
        self.assertNotIn("_name_or_path", c.to_dict())
        self.assertEqual(c.attention_bias, False)
        c = kvik.AutoConfig.from_pretrained(model_path("gemma3-old"))
        with self.assertRaisesRegex(AttributeError, "no 'rope_parameters'"):  # two kinds of layers, and numbers for one
            c.rope_parameters  # noqa: B018


class Options(unittest.TestCase):
    def said(self, function):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            function()
        return [str(w.message) for w in found]

    def test_modes(self):
        for mode, options in (("GREEDY_SEARCH", {}), ("SAMPLE", {"do_sample": True}), ("BEAM_SEARCH", {"num_beams": 2}),
                              ("BEAM_SAMPLE", {"num_beams": 2, "do_sample": True}), ("GROUP_BEAM_SEARCH", {"num_beams": 4, "num_beam_groups": 2}),
                              ("CONTRASTIVE_SEARCH", {"top_k": 4, "penalty_alpha": 0.6}), ("ASSISTED_GENERATION", {"prompt_lookup_num_tokens": 3})):
            self.assertEqual(kvik.GenerationConfig(**options).get_generation_mode(), getattr(GenerationMode, mode))
        self.assertEqual(kvik.GenerationConfig().get_generation_mode(assistant_model="any"), "assisted_generation")

    def test_refused(self):
        for options, words in (({"num_return_sequences": 2}, "greedy decoding has one text"), ({"max_new_tokens": 0}, "at least 1"),
                               ({"num_beams": 2, "num_return_sequences": 3}, "more than num_beams"), ({"early_stopping": "soon"}, "or 'never'"),
                               ({"logits_processor": []}, "argument of generate"), ({"assistant_ensemble_weight": 1.0}, "below 1")):
            with self.assertRaisesRegex(ValueError, words):
                kvik.GenerationConfig(**options)
        with self.assertRaisesRegex(ValueError, "cache_implementation='no_such'"):
            kvik.GenerationConfig(cache_implementation="no_such")
        with self.assertRaisesRegex(ValueError, "not a CompileConfig"):
            kvik.GenerationConfig(compile_config=7)
        with self.assertRaisesRegex(TypeError, "no integer"):
            kvik.GenerationConfig(max_new_tokens="5")
        with self.assertRaisesRegex(ValueError, "makes no cache"):
            kvik.GenerationConfig(use_cache=False, cache_implementation="static").validate(strict=True)
        self.assertEqual(kvik.CompileConfig(fullgraph=True).to_dict(), {
            "fullgraph": True, "dynamic": None, "backend": "inductor", "mode": "reduce-overhead", "options": None})
        config = kvik.GenerationConfig(temperature=0.5)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "temperature has no effect"):
                config.save_pretrained(folder)
            self.assertEqual(os.listdir(folder), [])
            kvik.GenerationConfig(do_sample=True, temperature=0.5, compile_config=kvik.CompileConfig(mode="x")).save_pretrained(folder, "g.json")
            self.assertEqual(kvik.GenerationConfig.from_pretrained(folder, "g.json").compile_config["mode"], "x")

    def test_notices(self):
        for call, words in ((lambda: kvik.GenerationConfig(do_sample=False, top_p=0.8), "top_p has no effect"),
                            (lambda: kvik.GenerationConfig(do_sample=False).update(temperature=0.9), "temperature has"),
                            (lambda: kvik.GenerationConfig(return_dict_in_generate=False, output_scores=True), "output_scores shows nothing"),
                            (lambda: model("llama-mha").generate(np.array([[5, 6]]), max_new_tokens=2, output_logits=True), "output_logits shows")):
            self.assertRegex("\n".join(self.said(call)), words)
        for quiet in (lambda: kvik.GenerationConfig(temperature=0.5), lambda: kvik.GenerationConfig(do_sample=True, temperature=0.6).update(
                do_sample=False), lambda: kvik.GenerationConfig(do_sample=False)):
            self.assertEqual(self.said(quiet), [])

    def test_dictionaries(self):
        config = kvik.GenerationConfig(max_new_tokens=3, eos_token_id=None)
        self.assertEqual((config.to_dict(), config.to_diff_dict()), ({"max_new_tokens": 3, "eos_token_id": None}, {"max_new_tokens": 3}))
        self.assertEqual(hash(config), hash(kvik.GenerationConfig(max_new_tokens=3)))
        theirs = kvik.GenerationConfig.from_model_config(kvik.LlamaConfig(eos_token_id=7, num_beams=2, vocab_size=9))
        self.assertEqual((theirs.eos_token_id, theirs.num_beams, hasattr(theirs, "vocab_size")), (7, 2, False))


class Processors(unittest.TestCase):
    def test_without_ids(self):
        scores = np.log(np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], np.float32))
        for make in (lambda: kvik.TemperatureLogitsWarper(0.5), lambda: kvik.TopKLogitsWarper(2), lambda: kvik.TopPLogitsWarper(0.8),
                     lambda: kvik.MinPLogitsWarper(0.3), lambda: kvik.LogitNormalization()):
            np.testing.assert_array_equal(make()(None, scores), make()(np.zeros((2, 1), int), scores))

    def test_attributes(self):
        self.assertEqual(kvik.SequenceBiasLogitsProcessor([[[4, 6], -0.5], [[8], 1.5]]).sequence_bias, {(4, 6): -0.5, (8,): 1.5})
        self.assertTrue(kvik.MinLengthLogitsProcessor(3, 7).eos_token_id == 7)


class Caches(unittest.TestCase):
    def test_early_initialization(self):
        cache = kvik.StaticCache(kvik.LlamaConfig(num_hidden_layers=2), 8)
        self.assertFalse(cache.is_initialized)
        cache.early_initialization(batch_size=1, num_heads=2, head_dim=[4, 6])
        self.assertEqual([(layer.is_initialized, layer.keys.shape) for layer in cache.layers], [(True, (1, 2, 8, 4)), (True, (1, 2, 8, 6))])
        self.assertEqual((cache.is_initialized, cache.get_seq_length()), (True, 0))
        part = np.ones((1, 2, 3, 4), np.float32)
        keys, _ = cache.update(part, part, 0)
        self.assertEqual((keys[0, 0, :, 0].tolist(), cache.get_seq_length()), ([1] * 3 + [0] * 5, 3))
        with self.assertRaisesRegex(ValueError, "2 layers"):
            cache.early_initialization(1, [2], 4)

    def test_static_window(self):
        """A static layer shows its whole window, whose first row no later token sees; a full one is an IndexError."""
        cache = kvik.StaticCache(kvik.MistralConfig(num_hidden_layers=1, sliding_window=4), 16)
        for i in range(6):
            row = np.full((1, 1, 1, 1), i + 1.0, np.float32)
            cache.update(row, row, 0)
        self.assertEqual(cache.layers[0].keys.ravel().tolist(), [3, 4, 5, 6])
        full = kvik.StaticCache(kvik.LlamaConfig(num_hidden_layers=1), 2)
        full.update(np.ones((1, 1, 2, 1), np.float32), np.ones((1, 1, 2, 1), np.float32), 0)
        with self.assertRaises(IndexError):
            full.update(np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32), 0)


class Models(unittest.TestCase):
    """What programs ask of any model."""

    def test_weights(self):
        m = model("llama-gqa-l3")
        self.assertEqual((str(next(m.parameters()).device), str(next(m.parameters()).dtype).split(".")[-1]), ("cpu", "float32"))
        self.assertEqual(sum(p.numel() for p in m.parameters()), m.num_parameters())
        values = m.state_dict()
        self.assertEqual({name: tuple(p.shape) for name, p in m.named_parameters()}, {name: tuple(v.shape) for name, v in values.items()})
        np.testing.assert_array_equal(np.asarray(values["model.embed_tokens.weight"]), m.get_input_embeddings().weight)
        with self.assertRaises(ValueError):
            dict(m.named_parameters())["model.embed_tokens.weight"].numpy()[0] = 0
        wide = next(model("llama-bf16").parameters())
        self.assertEqual((wide.kind, wide.numpy().dtype, wide.numpy().shape), ("bf16", np.float32, wide.shape))
        with self.assertRaisesRegex(kvik.UnsupportedError, "not in a safetensors file"):
            model("gemma2.gguf").state_dict()
        self.assertEqual(m.config.num_labels, 2)

    def test_masks(self):
        """The numbers are those of Transformers 5.23."""
        m, ids, mask = model("llama-gqa-l3", "float32"), np.array([[1, 5, 6, 7]]), np.tril(np.ones((1, 1, 4, 4), bool))
        mask[..., 0] = False
        places = np.arange(4)[None]
        for given in (mask, np.where(mask, 0, np.finfo(np.float32).min).astype(np.float32), np.array([[0, 1, 1, 1]])):
            np.testing.assert_allclose(m(ids, attention_mask=given, position_ids=places).logits[0, -1, :4], [0.3567, -2.5197, -5.0870, 4.6095],
                                       atol=2e-4)
        with self.assertRaisesRegex(kvik.UnsupportedError, "four dimensions"):
            m(ids, attention_mask=np.ones((1, 1, 4, 4)))

    def test_loop(self):
        m, cache, ids = model("llama-gqa-l3"), kvik.DynamicCache(), np.array([[1, 5, 6, 7]])
        self.assertEqual(set(m.prepare_inputs_for_generation(ids, attention_mask=ids > 0)), {"input_ids", "attention_mask"})
        for _ in range(3):
            step = m.prepare_inputs_for_generation(ids, next_sequence_length=ids.shape[1] - cache.get_seq_length(), past_key_values=cache)
            ids = np.concatenate([ids, m(**step).logits[:, -1].argmax(-1)[:, None]], 1)
        np.testing.assert_array_equal(ids, m.generate(ids[:, :4], max_new_tokens=3, do_sample=False, eos_token_id=None))

    def test_caches_without_windows(self):
        m, ids = model("llama-gqa-l3"), np.array([[1, 5, 6, 7]])
        want = m.generate(ids, max_new_tokens=3)
        for name in ("hybrid", "sliding_window", "hybrid_chunked"):
            with self.assertWarnsRegex(UserWarning, "no layer of the model has a window"):
                out = m.generate(ids, max_new_tokens=3, cache_implementation=name, return_dict_in_generate=True)
            np.testing.assert_array_equal(out.sequences, want)
            self.assertIs(type(out.past_key_values), kvik.StaticCache)
            past = model("gemma2").generate(ids, max_new_tokens=3, cache_implementation=name, return_dict_in_generate=True).past_key_values
            self.assertIs(type(past), kvik.StaticCache)
        with self.assertWarnsRegex(UserWarning, "as 'static' does"):
            np.testing.assert_array_equal(m.generate(ids, max_new_tokens=3, past_key_values=kvik.HybridCache(m.config, 16)), want)


class Utils(unittest.TestCase):
    def test_names(self):
        u = kvik.utils
        self.assertEqual((u.TensorType("np"), u.PaddingStrategy("longest").value, u.CONFIG_NAME), (u.TensorType.NUMPY, "longest", "config.json"))
        with self.assertRaisesRegex(ValueError, r"please select one of \['pt', 'np'\]"):
            u.TensorType("jax")
        self.assertEqual(u.to_py_obj({"a": [np.int64(3), np.arange(2)], "b": "x"}), {"a": [3, [0, 1]], "b": "x"})
        self.assertEqual((u.is_tensor(np.zeros(1)), u.is_tensor([0]), u.strtobool("Yes"), u.strtobool("off")), (True, False, 1, 0))
        with self.assertRaisesRegex(ImportError, "Thing requires the package no_such_thing"):
            u.requires_backends(type("Thing", (), {}), "no_such_thing")
        u.requires_backends(self, ["json"])
        with u.ContextManagers([self.subTest(), self.assertRaises(KeyError)]):
            raise KeyError
        for name in u.__all__:
            self.assertTrue(hasattr(u, name), name)
            if name.startswith("is_") and name.endswith("_available"):
                self.assertIn(getattr(u, name)(), (True, False))
        self.assertIs(u.chat_template_utils.get_json_schema, u.get_json_schema)
        self.assertEqual(kvik.QuantoConfig(weights="int8").weights, "int8")


class Tools(unittest.TestCase):
    def test_exceptions(self):
        def bare(x):
            return x

        def odd(x: object):
            """Does.

            Args:
                x: it
            """
        with self.assertRaises(kvik.utils.DocstringParsingException):
            kvik.utils.get_json_schema(bare)
        with self.assertRaises(kvik.utils.TypeHintParsingException):
            kvik.utils.get_json_schema(odd)
        self.assertTrue(kvik.is_torch_available() in (True, False) and kvik.utils.is_hqq_available())


if __name__ == "__main__":
    unittest.main()
