"""Recorded runs of Transformers, through the Python package: generate() with its options, and scripts of cache operations."""
import copy
import io
import logging
import os
import pickle
import tempfile
import unittest
import warnings

import numpy as np
from common import cache_of, kvik, model, model_path, read_json, tensors

SKIP_MODELS = ("t5", "whisper")
# make test runs every fourth case of generate(), because test_golden runs all of them.
STEP = 1 if os.environ.get("KVIK_TEST_LONG") else 4
LIMIT = 1e-4


def close(test, got, want, what):
    """f32 logits: 1e-4 relative to the largest."""
    scale = max(np.abs(want).max(), 1.0)
    test.assertLess(np.abs(got - want).max() / scale, LIMIT, what)


def dtype_of(case):
    return "float32" if case["dtype"] == "f32" else None


class Generate(unittest.TestCase):
    """generate() against the recorded sequences."""

    def run_case(self, entry):
        case = read_json("cases", entry["id"] + ".json")
        m = model(case["model"], dtype_of(case))
        options = dict(case["generate"])
        if case["cache"]:
            args = dict(case["cache"]["args"])
            options["past_key_values"] = cache_of(case["cache"]["class"], args, m.config)
        out = m.generate(np.array(case["input_ids"]), attention_mask=case["attention_mask"], **options)
        want = case["expect"]["sequences"]
        prompt = len(case["input_ids"][0])
        eos = options.get("eos_token_id", 2)
        eos = eos if isinstance(eos, list) else [eos]
        if case["cache"] and case["cache"]["class"] == "Sink":  # not recorded with generate(): nothing ended the text
            want = [row[:len(got)] for row, got in zip(want, out.tolist())]
        for got, row in zip(out.tolist(), want):
            if case["generate"].get("num_beams", 1) > 1:  # 5.x fills ended beams with eos where pad is 0
                cut = next((i for i, t in enumerate(row) if i >= prompt and t in eos), len(row) - 1) + 1
                got, row = got[:cut], row[:cut]
            self.assertEqual(got, row, entry["id"])
        self.assertEqual(len(out), len(want), entry["id"])
        if case["cache"] and case["expect"].get("cache", {}).get("seq_length") is not None and "Sink" not in case["cache"]["class"]:
            if case["generate"].get("num_beams", 1) == 1:
                self.assertEqual(options["past_key_values"].get_seq_length(), case["expect"]["cache"]["seq_length"])

    def test_cases(self):
        run = 0
        cases = [e for e in read_json("index.json")["cases"] if e["kind"] == "generate" and e["meet"] in ("exact", "tokens")
                 and e["model"] not in SKIP_MODELS]
        for entry in cases[::STEP]:
            with self.subTest(entry["id"]):
                self.run_case(entry)
                run += 1
        self.assertGreater(run, 200 // STEP)


class Scripts(unittest.TestCase):
    """Sequences of operations on caches: forwards, loops, turns, crops, copies, reorders, legacy tuples."""

    def run_script(self, entry):
        case = read_json("cases-script", entry["id"] + ".json")
        data = tensors("cases-script", case["tensors"]) if case.get("tensors") else {}
        m = model(case["model"], dtype_of(case))
        caches = {}
        for i, op in enumerate(case["ops"]):
            expect = op.get("expect") or {}
            if expect.get("raises"):
                return  # what the reference refuses, kvik may do
            if op["op"] == "crop" and op["n"] == 0:
                return  # keeps nothing here and in 4.x, everything in 5.x
            getattr(self, "op_" + op["op"])(m, caches, op, expect, data, f"{entry['id']} op {i}")
            name = op.get("cache") or op.get("name")
            length = expect.get("cache", {}).get("seq_length")
            cache = caches.get(name)
            if length is not None and cache is not None and not isinstance(cache, kvik.SinkCache):
                self.assertEqual(cache.get_seq_length(), length, f"{entry['id']} op {i}")

    def op_cache(self, m, caches, op, expect, data, what):
        caches[op["name"]] = cache_of(op["class"], op["args"], m.config)

    def op_forward(self, m, caches, op, expect, data, what):
        out = m(np.array(op["input_ids"]), attention_mask=op["attention_mask"], position_ids=op["position_ids"],
                cache_position=op["cache_position"], past_key_values=caches[op["cache"]])
        self.assertEqual(out.logits[:, -1].argmax(-1).tolist(), expect["argmax"], what)
        if expect.get("logits"):
            got = out.logits[:, -1:] if expect["logits_of"] == "last" else out.logits
            mask = op["attention_mask"]
            want = data[expect["logits"]]
            if mask is not None:  # masked columns hold nothing
                seen = np.array(mask)[:, -got.shape[1]:].astype(bool)
                got, want = got[seen], want[seen]
            close(self, got, want.reshape(got.shape), what)

    def op_greedy_loop(self, m, caches, op, expect, data, what):
        ids = np.array(op["input_ids"])
        mask = None if op["attention_mask"] is None else np.array(op["attention_mask"])
        positions = None if op["position_ids"] is None else np.array(op["position_ids"])
        cache_position = None if op["cache_position"] is None else np.array(op["cache_position"])
        tokens, logits = [], []
        for _ in range(op["steps"]):
            out = m(ids, attention_mask=mask, position_ids=positions, cache_position=cache_position,
                    past_key_values=caches[op["cache"]])
            logits.append(out.logits[:, -1])
            ids = out.logits[:, -1:].argmax(-1)
            tokens.append(ids)
            mask = None if mask is None else np.concatenate([mask, np.ones((len(mask), 1), int)], 1)
            positions = None if positions is None else positions[:, -1:] + 1
            cache_position = None if cache_position is None else cache_position[-1:] + 1
        self.assertEqual(np.concatenate(tokens, 1).tolist(), expect["tokens"], what)
        if expect.get("logits"):
            close(self, np.stack(logits), data[expect["logits"]], what)

    def op_generate(self, m, caches, op, expect, data, what):
        options = {k: v for k, v in op["generate"].items() if v is not None}
        out = m.generate(np.array(op["input_ids"]), attention_mask=op["attention_mask"],
                         past_key_values=caches.get(op.get("cache")), **options)
        self.assertEqual(out.tolist(), expect["sequences"], what)

    def op_copy(self, m, caches, op, expect, data, what):
        caches[op["to"]] = copy.deepcopy(caches[op["cache"]])

    def op_crop(self, m, caches, op, expect, data, what):
        caches[op["cache"]].crop(op["n"])

    def op_reset(self, m, caches, op, expect, data, what):
        caches[op["cache"]].reset()

    def op_reorder_cache(self, m, caches, op, expect, data, what):
        caches[op["cache"]].reorder_cache(np.array(op["beam_idx"]))

    def op_batch_repeat_interleave(self, m, caches, op, expect, data, what):
        caches[op["cache"]].batch_repeat_interleave(op["repeats"])

    def op_batch_select_indices(self, m, caches, op, expect, data, what):
        caches[op["cache"]].batch_select_indices(np.array(op["indices"]))

    def op_activate_past_recording(self, m, caches, op, expect, data, what):
        pass  # rows are always recomputed where a crop needs them

    def op_to_legacy(self, m, caches, op, expect, data, what):
        legacy = caches[op["cache"]].to_legacy_cache()
        self.assertEqual(len(legacy), expect["layers"], what)
        for i, layer in enumerate(legacy):
            for part, got in zip(("keys", "values"), layer):
                close(self, got, data[f"{expect['tensors']}.{i}.{part}"], f"{what} layer {i} {part}")

    def op_from_legacy(self, m, caches, op, expect, data, what):
        n = 1 + max(int(k.split(".")[-2]) for k in data if k.startswith(op["tensors"] + "."))
        layers = tuple(tuple(data[f"{op['tensors']}.{i}.{p}"] for p in ("keys", "values")) for i in range(n))
        caches[op["name"]] = getattr(kvik, op["class"]).from_legacy_cache(layers)

    def test_scripts(self):
        run = 0
        for entry in read_json("cases-script", "index.json")["cases"]:
            if entry["meet"] not in ("exact", "tokens") or entry["model"] in SKIP_MODELS:
                continue
            with self.subTest(entry["id"]):
                self.run_script(entry)
                run += 1
        self.assertGreater(run, 20)


class Classes(unittest.TestCase):
    """The classes by architecture."""

    def test_auto(self):
        from kvik.models.jamba.modeling_jamba import HybridMambaAttentionDynamicCache, JambaForCausalLM
        m = model("jamba")
        self.assertIsInstance(m, JambaForCausalLM)
        self.assertIsInstance(model("mamba"), kvik.MambaForCausalLM)
        base = kvik.JambaModel.from_pretrained(model_path("jamba"))
        ids = np.array([[5, 6, 7]])
        cache = HybridMambaAttentionDynamicCache(base.config, batch_size=1, dtype=base.dtype, device=base.device)
        out = base(ids, past_key_values=cache)
        self.assertEqual(out.last_hidden_state.shape, (1, 3, base.config.hidden_size))
        self.assertEqual(cache.get_seq_length(), 3)
        with self.assertRaises(AttributeError):
            out.no_such_field  # noqa: B018

    def test_configurations(self):
        from kvik.models.gemma2.configuration_gemma2 import Gemma2Config
        for made in (kvik.AutoConfig.from_pretrained(model_path("gemma2")), model("gemma2").config,
                     pickle.loads(pickle.dumps(model("gemma2").config)), kvik.AutoConfig.for_model("gemma2")):
            self.assertIs(type(made), Gemma2Config)
        self.assertIs(kvik.Gemma2Config, Gemma2Config)
        with tempfile.TemporaryDirectory() as folder:
            kvik.LlamaConfig(num_hidden_layers=3).save_pretrained(folder)
            again = kvik.AutoConfig.from_pretrained(folder)
        self.assertEqual((type(again), again.num_hidden_layers), (kvik.LlamaConfig, 3))
        self.assertIs(type(kvik.AutoConfig.for_model("other")), kvik.PretrainedConfig)
        for name in ("gemma2", "mamba"):  # of a .gguf file that no model has open
            path = model_path(name + ".gguf")
            config, opened = kvik.AutoConfig.from_pretrained(path), kvik.AutoModelForCausalLM.from_pretrained(path).config
            self.assertEqual((config.num_hidden_layers, config.to_dict()), (len(opened.layer_types), opened.to_dict()))
        told = ("rope_parameters", "rms_norm_eps", "layer_norm_epsilon", "hidden_size", "num_hidden_layers", "num_attention_heads", "n_embd", "n_head",
                "n_layer", "n_positions", "d_model", "d_kv", "d_ff", "num_heads", "num_layers", "intermediate_size", "head_dim", "vocab_size")
        for name in ("gemma2", "gemma3", "gpt2", "granite", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "t5"):
            with self.subTest(name):  # a .gguf file says what config.json said; what neither says is that of the type of models
                there, here = (kvik.AutoConfig.from_pretrained(model_path(name + end)) for end in ("", ".gguf"))
                both = [k for k in told if hasattr(there, k) and (k in there.own_values() or k in ("rope_parameters", "hidden_size"))]
                self.assertGreater(len(both), 5)
                self.assertEqual({k: getattr(here, k) for k in both if k != "rope_parameters"},
                                 {k: getattr(there, k) for k in both if k != "rope_parameters"})
                if "rope_parameters" in both:  # but for the factors of longrope, which are tensors there
                    want = {k: v for k, v in there.rope_parameters.items() if not k.endswith("_factor") or k == "partial_rotary_factor"}
                    self.assertEqual({k: v for k, v in here.rope_parameters.items() if name != "phi3" or k in want}, want)
        gpt2 = model("gpt2").config
        self.assertEqual((gpt2.hidden_size, gpt2.num_hidden_layers), (gpt2.n_embd, gpt2.n_layer))
        self.assertEqual((gpt2.is_encoder_decoder, gpt2.decoder_start_token_id, kvik.AutoConfig.from_pretrained(model_path("t5")).hidden_size),
                         (False, None, kvik.AutoConfig.from_pretrained(model_path("t5")).d_model))
        again = pickle.loads(pickle.dumps(gpt2))
        again.n_layer, again.decoder_start_token_id = 3, 7
        self.assertEqual((again.num_hidden_layers, again.decoder_start_token_id, gpt2.decoder_start_token_id), (3, 7, None))
        again.num_hidden_layers = 5
        self.assertEqual((again.n_layer, "num_hidden_layers" in again.to_dict()), (5, False))
        self.assertEqual(again.dtype, again.torch_dtype)
        with self.assertRaisesRegex(AttributeError, "no 'hiden_size'"):
            gpt2.hiden_size  # noqa: B018
        with self.assertWarnsRegex(UserWarning, "ignores quantization_config"):
            kvik.AutoModelForCausalLM.from_pretrained(
                model_path("gemma2"), quantization_config=kvik.BitsAndBytesConfig(load_in_4bit=True))

    def test_names(self):
        from kvik.generation.logits_process import TopPLogitsWarper
        from kvik.modeling_outputs import CausalLMOutputWithPast
        from kvik.tokenization_utils_base import BatchEncoding
        self.assertIs(TopPLogitsWarper, kvik.TopPLogitsWarper)
        self.assertIs(BatchEncoding, kvik.BatchEncoding)
        self.assertIsInstance(model("gemma2")(np.array([[5]])), CausalLMOutputWithPast)
        for name in kvik.__all__:
            self.assertIsNotNone(getattr(kvik, name), name)
        before = kvik.logging.get_verbosity()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                kvik.logging.set_verbosity_error()
                kvik.LlamaForCausalLM.from_pretrained(model_path("gemma2"))
                kvik.logging.set_verbosity(before)
                with self.assertRaises(UserWarning):
                    kvik.LlamaForCausalLM.from_pretrained(model_path("gemma2"))
        finally:
            kvik.logging.set_verbosity(before)

    def test_logger(self):
        logger = kvik.logging.get_logger()
        self.assertIs(logger, logging.getLogger("kvik"))
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        before = logger.level
        kvik.logging.disable_default_handler()
        kvik.logging.add_handler(handler)
        try:
            for _ in range(2):
                kvik.logging.get_logger().warning_once("once")
            logger.setLevel(logging.ERROR)
            logger.warning_advice("never")
            self.assertEqual(kvik.logging.get_verbosity(), logging.ERROR)
            kvik.logging.enable_explicit_format()
            logger.error("wrong")
            kvik.logging.reset_format()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                kvik.LlamaForCausalLM.from_pretrained(model_path("gemma2"))
        finally:
            logger.setLevel(before)
            kvik.logging.remove_handler(handler)
            kvik.logging.enable_default_handler()
        self.assertRegex(said.getvalue(), r"\Aonce\n\[ERROR\|test_golden.py:\d+\] .* >> wrong\n\Z")
        self.assertFalse(kvik.utils.is_flash_attn_2_available())


if __name__ == "__main__":
    unittest.main()
