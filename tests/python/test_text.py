"""Tokenizers, chats, streamers, callbacks and the pipeline, on a small chat model (KVIK_TEST_MODEL)."""
import io
import json
import os
import pathlib
import pickle
import random
import sys
import tempfile
import threading
import unittest
import warnings
from contextlib import redirect_stdout
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import numpy as np
from common import CHAT_MODEL, PATIENCE, kvik
from kvik.tool_schema import tool_json

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@unittest.skipUnless(os.path.exists(CHAT_MODEL), "no chat model")
class Text(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        cls.model = kvik.AutoModelForCausalLM.from_pretrained(CHAT_MODEL, max_sequences=8)

    def test_encoding(self):
        t = self.tokenizer
        one = t("The sea is")
        self.assertEqual(one.input_ids, one["input_ids"])
        self.assertEqual(one.attention_mask, [1, 1, 1])
        self.assertEqual(t.decode(one.input_ids), "The sea is")
        t.padding_side = "left"
        two = t(["The sea is", "A"], padding=True, return_tensors="np")
        self.assertEqual(two["attention_mask"].tolist(), [[1, 1, 1], [0, 0, 1]])
        self.assertEqual(t(["The sea is", "A"], padding=True, return_tensors="np", padding_side="right")
                         .attention_mask.tolist(), [[1, 1, 1], [1, 0, 0]])
        self.assertEqual(t("The sea is", truncation=True, max_length=2).input_ids, one.input_ids[:2])
        self.assertEqual(t(["A", "B"], padding="max_length", max_length=4, return_tensors="np").input_ids.shape, (2, 4))
        with self.assertRaisesRegex(ValueError, "padding=True"):
            t(["The sea is", "A"], return_tensors="np")
        with self.assertRaises(AttributeError):
            one.no_such_field  # noqa: B018
        self.assertEqual(set(dict(**one)), {"input_ids", "attention_mask"})
        self.assertIs(one.to("cpu"), one)
        ids = np.array(one.input_ids)
        self.assertEqual(t.batch_decode(np.stack([ids, ids])[:, -2:]), [" sea is"] * 2)
        again = pickle.loads(pickle.dumps(t))
        self.assertEqual(again("The sea is").input_ids, one.input_ids)
        self.assertEqual((again.padding_side, again.eos_token_id), ("left", t.eos_token_id))

    def test_lengths(self):
        t = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        ids = t("The sea is wide").input_ids
        self.assertEqual(t("The sea is wide", padding="max_length").input_ids, ids)  # no length is known
        self.assertEqual(t("The sea is wide", max_length=3).input_ids, ids[:3])
        self.assertEqual(t("The sea is wide", truncation=True, max_length=0).input_ids, [])
        for wrong, word in (({"truncation": "foo"}, "truncation='foo'"), ({"padding": "foo"}, "padding='foo'"),
                            ({"truncation": True, "max_length": -1}, "max_length is -1"),
                            ({"padding": True, "padding_side": "middle"}, "padding_side='middle'"),
                            ({"truncation": True, "max_length": 3, "padding": True, "pad_to_multiple_of": 4}, "multiple of 4")):
            with self.assertRaisesRegex(ValueError, word):
                t("The sea is wide", **wrong)
        with self.assertRaisesRegex(ValueError, "truncation_side='up'"):
            kvik.AutoTokenizer.from_pretrained(CHAT_MODEL, truncation_side="up")
        for wrong in (None, 5, b"abc"):
            with self.assertRaisesRegex(ValueError, "a str or a list"):
                t(wrong)
        for wrong in ("The sea", ["The sea"]):
            with self.assertRaisesRegex(TypeError, "is text; a tokenizer"):
                self.model.generate(wrong)
        with self.assertRaisesRegex(TypeError, "two stars"):
            self.model(t("The sea", return_tensors="np"))
        with self.assertRaisesRegex(TypeError, "text"):
            t.decode("abc")
        short = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL, model_max_length=2)
        self.assertEqual(short("The sea is wide", truncation=True).input_ids, ids[:2])
        self.assertEqual(len(short("A", padding="max_length").input_ids), 2)

    def test_sides_and_templates(self):
        with tempfile.TemporaryDirectory() as folder:
            kvik.GenerationConfig(do_sample=True, top_k=3).save_pretrained(folder)
            self.assertEqual(kvik.GenerationConfig.from_pretrained(folder).top_k, 3)
            os.unlink(os.path.join(folder, "generation_config.json"))
            with self.assertRaises(FileNotFoundError):
                kvik.GenerationConfig.from_pretrained(folder)
        t = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        t.chat_template = None
        with self.assertRaisesRegex(ValueError, "chat_template="):
            t.apply_chat_template(MESSAGES)

    def test_roles(self):
        t = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        self.assertEqual(t.add_special_tokens({"pad_token": "<|endoftext|>"}), 0)
        self.assertEqual((t.pad_token, t.pad_token_id), ("<|endoftext|>", t.convert_tokens_to_ids("<|endoftext|>")))
        for wrong in (lambda: t.add_special_tokens({"pad_token": "[PAD]"}), lambda: t.add_tokens(["[PAD]"]), lambda: t.add_tokens("[PAD]")):
            with self.assertRaisesRegex(kvik.UnsupportedError, "tokenizer.pad_token ="):
                wrong()
        self.assertEqual((t.pad_token, t.add_tokens("<|im_end|>")), ("<|endoftext|>", 0))
        with self.assertRaisesRegex(ValueError, "not a role"):
            t.add_special_tokens({"foo": "<|im_end|>"})
        self.assertEqual((t.additional_special_tokens, t.model_input_names), ([], ["input_ids", "attention_mask"]))
        self.assertEqual(t.get_chat_template(), t.chat_template)

    def test_tools(self):
        def look(city: Optional[str], days: Union[int, List[int]], kind: Literal["a", 1], unit: str = "C", more: Any = None) -> List[str]:
            """Looks.

            Args:
                city: The city.
                days: Which days.
                kind: Of two
                    kinds.
                unit: The unit. (choices: ["C", "F"])
                more: More.

            Returns:
                Words.
            """
        # what Transformers 5.23 makes of it
        self.assertEqual(json.dumps(tool_json(look)), '{"type": "function", "function": {"name": "look", "description": "Looks.", '
                         '"parameters": {"type": "object", "properties": {"city": {"type": "string", "nullable": true, "description": '
                         '"The city."}, "days": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}], '
                         '"description": "Which days."}, "kind": {"type": ["string", "integer"], "enum": ["a", 1], "description": '
                         '"Of two kinds."}, "unit": {"type": "string", "enum": ["C", "F"], "description": "The unit."}, "more": '
                         '{"description": "More."}}, "required": ["city", "days", "kind"]}, "return": {"type": "array", "items": '
                         '{"type": "string"}, "description": "Words."}}}')
        if sys.version_info >= (3, 10):
            look.__annotations__["city"] = eval("str | None")
            self.assertIn('"city": {"type": "string", "nullable": true', json.dumps(tool_json(look)))
        look.__annotations__["city"] = Text
        with self.assertRaisesRegex(TypeError, "no JSON schema"):
            tool_json(look)

    def test_tool_lines(self):
        def look(names: List, table: Dict, pair: Tuple) -> str:
            """Looks.

            Args:
                names: One of
                    first: the first,  or
                    second: another.
                table: A table.

                pair: Two.

            Returns:
                Words,
                line by line.
            """
        # what Transformers 5.23 makes of it
        self.assertEqual(json.dumps(kvik.utils.get_json_schema(look)), '{"type": "function", "function": {"name": "look", "description": '
                         '"Looks.", "parameters": {"type": "object", "properties": {"names": {"type": "array", "description": "One of '
                         'first: the first,  or second: another."}, "table": {"type": "object", "description": "A table."}, "pair": '
                         '{"type": "array", "description": "Two."}}, "required": ["names", "table", "pair"]}, "return": {"type": '
                         '"string", "description": "Words,\\n    line by line."}}}')

    def test_pad(self):
        t = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL)
        pad = t.pad_token_id
        out = t.pad([{"input_ids": [4, 5], "attention_mask": [0, 1]}, {"input_ids": [6], "attention_mask": [1]}])
        self.assertEqual((out.input_ids, out.attention_mask), ([[4, 5], [6, pad]], [[0, 1], [1, 0]]))
        out = t.pad({"input_ids": [4, 5]}, padding="max_length", max_length=3)
        self.assertEqual((out.input_ids, out.attention_mask), ([4, 5, pad], [1, 1, 0]))
        out = t.pad([{"input_ids": np.array([4, 5]), "label": 1}, {"input_ids": np.array([6]), "label": 0}])
        self.assertEqual((out.input_ids.tolist(), out.label.tolist()), ([[4, 5], [6, pad]], [1, 0]))
        with self.assertRaisesRegex(ValueError, "input_ids"):
            t.pad({"foo": [1]})
        self.assertEqual(t.batch_decode(t("The sea").input_ids), ["The sea"])
        with self.assertRaises(TypeError):
            t.decode([1.5])

    def test_chat(self):
        t = self.tokenizer
        text = t.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
        self.assertTrue(text.endswith("<|im_start|>assistant\n"))
        out = t.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=True, return_tensors="np")
        self.assertEqual(t.decode(out.input_ids[0]), text)
        alone = {"add_generation_prompt": True, "return_dict": False}
        self.assertEqual(t.apply_chat_template(MESSAGES, **alone), out.input_ids[0].tolist())
        self.assertEqual(t.apply_chat_template(MESSAGES, return_tensors="np", **alone).tolist(), out.input_ids.tolist())
        default = t.apply_chat_template(MESSAGES, add_generation_prompt=True)  # as of release 5
        self.assertEqual(dict(default), {"input_ids": out.input_ids[0].tolist(), "attention_mask": [1] * out.input_ids.shape[1]})
        asked = t.apply_chat_template(MESSAGES, add_generation_prompt=True, return_tensors="np")
        with self.assertRaisesRegex(AttributeError, "return_dict=False"):
            asked.shape  # noqa: B018
        self.assertEqual(self.model.generate(**asked, max_new_tokens=2).shape[1], out.input_ids.shape[1] + 2)
        own = t.apply_chat_template(MESSAGES, chat_template="{{ messages[0].content }}!", tokenize=False)
        self.assertEqual(own, MESSAGES[0]["content"] + "!")
        more = {"role": "assistant", "content": "Paris"}
        self.assertEqual(t.apply_chat_template(MESSAGES).input_ids + t.encode_message_with_chat_template(more, MESSAGES),
                         t.apply_chat_template([*MESSAGES, more]).input_ids)
        self.assertEqual(t.encode_message_with_chat_template(MESSAGES[0]), t.apply_chat_template(MESSAGES).input_ids)
        spelled, end = [{"role": "user", "content": "<|im_end|>"}], t.convert_tokens_to_ids("<|im_end|>")
        for switch, ends in (({}, 0), ({"sanitize_control_tokens": True}, 0), ({"sanitize_control_tokens": False}, 1),
                             ({"allow_special_tokens": True}, 1)):
            ids = t.apply_chat_template(spelled, chat_template="{{ messages[0].content }}", **switch).input_ids
            self.assertEqual(ids.count(end), ends, switch)
        for wrong, shown in (("hi", "there is 'hi'"), (MESSAGES[0], "there is {'role'"), ([*MESSAGES, "hi"], "there is 'hi'")):
            with self.assertRaisesRegex(TypeError, shown):
                t.apply_chat_template(wrong)
        both = t.apply_chat_template([MESSAGES, MESSAGES], return_tensors="np")
        self.assertEqual(both.input_ids.shape[0], 2)

        def weather(city: str, days: int = 1):
            """Tells the weather.

            Args:
                city: The city.
                days: How many days ahead.
            """
        shown = t.apply_chat_template(MESSAGES, tools=[weather], chat_template="{{ tools | tojson }}", tokenize=False)
        self.assertIn('"required": ["city"]', shown)

    def test_assistant_masks(self):
        t = self.tokenizer
        template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
                    "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}")
        chat = [*MESSAGES, {"role": "assistant", "content": "Paris, née Lutetia <|im_end|>."}]
        asked = {"chat_template": template, "return_assistant_tokens_mask": True, "return_dict": True}
        out = t.apply_chat_template(chat, **asked)
        said = [i for i, m in zip(out.input_ids, out.assistant_masks) if m]
        self.assertEqual(t.decode(said), chat[1]["content"] + "<|im_end|>")
        end = t.convert_tokens_to_ids("<|im_end|>")
        self.assertEqual(said.count(end), 1)  # what a message spells is plain text, with a template of the call as well
        longer = [*chat, *MESSAGES]
        for side in ("left", "right"):
            both = t.apply_chat_template([chat, longer], padding=True, return_tensors="np",
                                         tokenizer_kwargs={"padding_side": side}, **asked)
            self.assertEqual(both.assistant_masks.shape, both.input_ids.shape)
            for row, mask in zip(both.input_ids, both.assistant_masks):
                self.assertEqual(row[mask == 1].tolist(), said)
        with self.assertRaisesRegex(ValueError, "return_dict"):
            t.apply_chat_template(chat, return_assistant_tokens_mask=True, return_dict=False)
        with self.assertWarnsRegex(UserWarning, "generation"):
            out = t.apply_chat_template(chat, return_assistant_tokens_mask=True, return_dict=True)
        self.assertEqual(set(out.assistant_masks), {0})

    def test_stream(self):
        inputs = self.tokenizer("The sea is", return_tensors="np")
        want = self.tokenizer.decode(self.model.generate(**inputs, max_new_tokens=12)[0])
        printed = io.StringIO()
        with redirect_stdout(printed):
            self.model.generate(**inputs, max_new_tokens=12, streamer=kvik.TextStreamer(self.tokenizer))
        self.assertEqual(printed.getvalue(), want + "\n")
        streamer = kvik.TextIteratorStreamer(self.tokenizer, skip_prompt=True, timeout=PATIENCE)
        thread = threading.Thread(target=self.model.generate, kwargs=dict(inputs, max_new_tokens=12, streamer=streamer))
        thread.start()
        self.assertEqual("The sea is" + "".join(streamer), want)
        thread.join()

    def test_stream_that_fails(self):
        streamer = kvik.TextIteratorStreamer(self.tokenizer, timeout=PATIENCE)

        def run():
            with self.assertRaises(kvik.ArgumentError):
                self.model.generate(np.array([[1]]), max_new_tokens=5, temperature=-1, streamer=streamer)
        thread = threading.Thread(target=run)
        thread.start()
        with self.assertRaises(kvik.ArgumentError):
            list(streamer)
        thread.join()

    def test_callbacks(self):
        inputs = self.tokenizer("The sea is", return_tensors="np")
        comma = self.tokenizer(",").input_ids[0]

        def only(ids, scores):
            out = np.full_like(scores, -np.inf)
            out[:, comma] = 0
            return out
        out = self.model.generate(**inputs, max_new_tokens=3, logits_processor=[only])
        self.assertEqual(out[0, 3:].tolist(), [comma] * 3)
        out = self.model.generate(**inputs, max_new_tokens=3, prefix_allowed_tokens_fn=lambda row, ids: [comma])
        self.assertEqual(out[0, 3:].tolist(), [comma] * 3)
        out = self.model.generate(**inputs, max_new_tokens=9, return_dict_in_generate=True,
                                  stopping_criteria=kvik.StoppingCriteriaList([lambda ids, _: ids.shape[1] >= 5]))
        self.assertEqual((out.sequences.shape[1], out.finish_reasons), (5, ["criteria"]))
        out = self.model.generate(**inputs, max_new_tokens=20, stop_strings=["wonder"], return_dict_in_generate=True)
        self.assertEqual(out.finish_reasons, ["stop"])
        self.assertIn("wonder", out.texts[0])

    def test_names_of_transformers(self):
        t, m = self.tokenizer, self.model
        inputs = t("The sea is", return_tensors="np")
        self.assertEqual(t.batch_encode_plus(["a", "b c"]).input_ids, t(["a", "b c"]).input_ids)
        self.assertEqual(t.convert_tokens_to_string(t.tokenize("Hello world")), "Hello world")
        self.assertEqual(dict(t.apply_chat_template([{**MESSAGES[0], "name": None}])), dict(t.apply_chat_template(MESSAGES)))
        self.assertIn(t.eos_token_id, np.atleast_1d(m.generation_config.eos_token_id))
        out = m.generate(**inputs, max_new_tokens=4, do_sample=False, return_dict_in_generate=True, output_scores=True)
        scores = m.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
        whole = m(out.sequences, labels=np.where(np.arange(out.sequences.shape[1]) < 3, -100, out.sequences))
        self.assertEqual(list(whole)[0], "loss")
        self.assertAlmostEqual(float(whole.loss), -float(scores.mean()), places=4)
        beams = m.generate(**inputs, max_new_tokens=4, num_beams=3, num_return_sequences=2, length_penalty=0.0,
                           return_dict_in_generate=True, output_scores=True)
        self.assertEqual(list(beams)[:5], ["sequences", "sequences_scores", "scores", "beam_indices", "past_key_values"])
        alone = m.generate(max_new_tokens=2, do_sample=False)  # no input says whether the program uses torch
        self.assertEqual((type(alone).__module__.split(".")[0], alone.shape), ("torch" if "torch" in sys.modules else "numpy", (1, 3)))
        sums = m.compute_transition_scores(beams.sequences, beams.scores, beams.beam_indices).sum(1)
        np.testing.assert_allclose(sums, beams.sequences_scores, atol=1e-4)
        layers = out.past_key_values.layers
        self.assertEqual((len(layers), layers[0].get_seq_length()), (m.config.num_hidden_layers, 6))
        np.testing.assert_array_equal(layers[1].keys, out.past_key_values[1][0])
        want = m.generate(**inputs, max_new_tokens=8, do_sample=False)
        np.testing.assert_array_equal(m.generate(**inputs, max_new_tokens=8, do_sample=False, assistant_model=m), want)

    def test_set_seed(self):
        inputs = self.tokenizer("The sea is", return_tensors="np")
        asked = {**inputs, "max_new_tokens": 6, "do_sample": True}
        try:
            drawn = []
            for _ in range(2):
                kvik.set_seed(11)
                drawn.append([self.model.generate(**asked).tolist() for _ in range(2)])
            self.assertEqual(drawn[0], drawn[1])
            self.assertNotEqual(drawn[0][0], drawn[0][1])
            self.assertEqual(self.model.generate(**asked, seed=11).tolist(), drawn[0][0])
        finally:
            kvik.generation.seeds._next = None

    def test_random_seeds(self):
        asked = {**self.tokenizer("The sea is", return_tensors="np"), "max_new_tokens": 6, "do_sample": True}
        drawn = []
        for _ in range(2):
            random.seed(5)
            if "torch" in sys.modules:
                sys.modules["torch"].manual_seed(5)
            drawn.append([self.model.generate(**asked).tolist() for _ in range(2)])
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0][0], drawn[0][1])

    def test_sampling(self):
        inputs = self.tokenizer("The sea is", return_tensors="np")
        options = {"do_sample": True, "temperature": 0.9, "top_k": 40, "max_new_tokens": 8, "num_return_sequences": 3}
        first = self.model.generate(**inputs, seed=3, **options)
        np.testing.assert_array_equal(first, self.model.generate(**inputs, seed=3, **options))
        self.assertEqual(first.shape[0], 3)
        config = kvik.GenerationConfig(seed=3, **options)
        np.testing.assert_array_equal(first, self.model.generate(inputs.input_ids, config))

    def test_pipeline(self):
        pipe = kvik.pipeline("text-generation", model=self.model, tokenizer=self.tokenizer, do_sample=False)
        out = pipe("The sea is", max_new_tokens=5)
        self.assertTrue(out[0]["generated_text"].startswith("The sea is a"))
        new = pipe("The sea is", max_new_tokens=5, return_full_text=False)[0]["generated_text"]
        self.assertEqual("The sea is" + new, out[0]["generated_text"])
        chat = pipe(MESSAGES, max_new_tokens=12)[0]["generated_text"]
        self.assertEqual(chat[0], MESSAGES[0])
        self.assertIn("Paris", chat[1]["content"])
        self.assertEqual(len(pipe(["The", "A"], max_new_tokens=2, batch_size=2)), 2)
        stopped = pipe("The sea is", max_new_tokens=20, stop_sequence=".", return_full_text=False)[0]["generated_text"]
        self.assertEqual(stopped.count("."), 1)
        two = pipe("The sea is", max_new_tokens=20, stop_sequence=["place", "."], return_full_text=False)[0]["generated_text"]
        self.assertTrue(two.endswith("place"))

    def test_pipeline_arguments(self):
        t = self.tokenizer
        pipe = kvik.pipeline("text-generation", model=self.model, tokenizer=t)
        some = {"max_new_tokens": 2, "do_sample": False}
        texts = ["The sea is", MESSAGES, "A", "Once upon a time there was", MESSAGES + [{"role": "assistant", "content": "It"}]]
        longer = {**some, "max_new_tokens": 6, "stop_strings": ["."]}
        alone = [pipe(text, **longer) for text in texts]
        self.assertEqual(pipe(texts, batch_size=3, **longer), alone)
        self.assertEqual(list(pipe(iter(texts), batch_size=2, **longer)), alone)
        self.assertEqual(pipe([*texts[:2], ""], batch_size=3, **longer), [*alone[:2], pipe("", **longer)])
        beams = {**some, "num_beams": 2, "num_return_sequences": 2}
        self.assertEqual(pipe(texts[:3], batch_size=3, **beams), [pipe(text, **beams) for text in texts[:3]])
        ids = pipe("The sea is", return_tensors=True, **some)[0]["generated_token_ids"]
        self.assertEqual((type(ids), ids[:3]), (list, t("The sea is").input_ids))
        self.assertEqual(list(pipe((x for x in ("The", "A")), **some)), pipe(["The", "A"], **some))
        whole = pipe("The sea is", return_dict_in_generate=True, output_scores=True, **some)
        self.assertEqual(whole[0]["generated_text"], t.decode(ids))
        cut = pipe("The sea is a place", truncation=True, tokenizer_encode_kwargs={"max_length": 3}, return_tensors=True, **some)
        self.assertEqual(cut[0]["generated_token_ids"], ids)
        self.assertEqual(pipe(" is", prefix="The sea", **some)[0]["generated_text"], t.decode(ids)[len("The sea"):])
        tool = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}
        t.chat_template, own = "{{ tools[0].function.name }} {{ messages[0].content }}", t.chat_template
        try:
            seen = []
            pipe([{"role": "user", "content": "hi"}], tools=[tool], logits_processor=[lambda i, s: (seen.append(i), s)[1]], **some)
            self.assertEqual(t.decode(seen[0][0]), "look hi")
        finally:
            t.chat_template = own
        closed = pipe(MESSAGES, max_new_tokens=12, do_sample=False, skip_special_tokens=False, return_full_text=False)
        self.assertTrue(closed[0]["generated_text"].endswith("<|im_end|>"))
        self.assertTrue(pipe("", **some)[0]["generated_text"])
        for wrong in (None, 5, {"role": "user", "content": "hi"}):
            with self.assertRaisesRegex(ValueError, "a text, a chat or a list"):
                pipe(wrong, **some)
        with self.assertRaisesRegex(ValueError, "excludes"):
            pipe("a", return_full_text=True, return_tensors=True)

    def test_long_texts(self):
        """handle_long_generation="hole" cuts the beginning of a text, so that it and the new tokens fit the model."""
        t = kvik.AutoTokenizer.from_pretrained(CHAT_MODEL, model_max_length=20)
        pipe = kvik.pipeline("text-generation", self.model, tokenizer=t, do_sample=False, return_full_text=False)
        text, hole = "The sea is wide and deep. " * 6, {"handle_long_generation": "hole"}
        ids = t(text).input_ids
        want = t.decode(self.model.generate([ids[-15:]], max_new_tokens=5, do_sample=False)[0, 15:])
        for options in ({"max_new_tokens": 5}, {"max_length": len(ids) + 5}):
            self.assertEqual(pipe(text, **hole, **options)[0]["generated_text"], want)
        self.assertEqual(pipe(text, max_new_tokens=5, return_full_text=True, **hole)[0]["generated_text"], text + want)
        self.assertEqual(pipe([text, "A"], max_new_tokens=5, batch_size=2, **hole), [pipe(text, max_new_tokens=5, **hole),
                                                                                     pipe("A", max_new_tokens=5)])
        for options, sentence in (({"max_new_tokens": 20}, "20 new tokens"), ({"max_length": 10}, "max_length=10"),
                                  ({}, "256 new tokens"), ({"handle_long_generation": "cut"}, "'cut'")):
            with self.assertRaisesRegex(ValueError, sentence):
                pipe(text, **{**hole, **options})
        t.model_max_length = 10**30  # not known: the model's own context counts
        with self.assertRaisesRegex(ValueError, "holds 8192 tokens"):
            pipe(text, max_new_tokens=8192, **hole)
        self.assertEqual(len(pipe(" is", prefix="The sea", max_length=6, min_length=6, return_tensors=True,
                                  return_full_text=None)[0]["generated_token_ids"]), 8)  # a length does not count the prefix

    def test_pipeline_is_made_with(self):
        some = {"max_new_tokens": 2, "do_sample": False}
        whole = kvik.pipeline("text-generation", self.model, tokenizer=self.tokenizer)("The sea is", **some)[0]["generated_text"]
        made = kvik.pipeline("text-generation", self.model, None, self.tokenizer, return_full_text=False, dtype=None, token=None,
                             assistant_model=CHAT_MODEL, **some)
        self.assertEqual("The sea is" + made("The sea is")[0]["generated_text"], whole)
        self.assertEqual(made("The sea is", return_full_text=True)[0]["generated_text"], whole)
        self.assertEqual(self.tokenizer.decode(made("The sea is", return_tensors=True)[0]["generated_token_ids"]), whole)
        by_path = kvik.pipeline(model=pathlib.Path(CHAT_MODEL), **some)
        self.assertEqual(by_path("The sea is")[0]["generated_text"], whole)
        with self.assertWarnsRegex(UserWarning, "ignores config"):
            kvik.pipeline("text-generation", self.model, self.model.config, self.tokenizer)
        with self.assertRaisesRegex(TypeError, "not int"):
            kvik.pipeline("text-generation", 5)

    def test_other_tokenizer(self):
        class Other:
            """A tokenizer of another library: it has the names of Transformers, and nothing of kvik."""

            def __init__(self, own):
                self.own, self.pad_token_id = own, own.pad_token_id

            def __call__(self, text, **kwargs):
                return self.own(text, **kwargs)

            def pad(self, rows, **kwargs):
                return self.own.pad(rows, **kwargs)

            def decode(self, token_ids, skip_special_tokens=False, **kwargs):
                return self.own.decode(token_ids, skip_special_tokens)
        some = {"max_new_tokens": 2, "do_sample": False, "batch_size": 2}
        other = Other(self.tokenizer)
        texts = ["The sea is", "A"]
        self.assertEqual(kvik.pipeline("text-generation", self.model, tokenizer=other)(texts, **some),
                         kvik.pipeline("text-generation", self.model, tokenizer=self.tokenizer)(texts, **some))
        streamer = kvik.TextIteratorStreamer(other)
        ids = self.model.generate([[5]], max_new_tokens=2, streamer=streamer)
        self.assertEqual("".join(streamer), self.tokenizer.decode(ids[0]))
        with self.assertRaisesRegex(TypeError, "not int"):
            self.model.generate([[5]], max_new_tokens=2, streamer=kvik.TextStreamer(7))

    def test_pipeline_device(self):
        warned, kvik.devices._warned = kvik.devices._warned, False
        try:
            with self.assertWarnsRegex(UserWarning, "computes on the CPU"):
                kvik.pipeline("text-generation", model=self.model, tokenizer=self.tokenizer, device=0)
            kvik.devices._warned = False
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                kvik.pipeline("text-generation", model=self.model, tokenizer=self.tokenizer, device=-1)
        finally:
            kvik.devices._warned = warned

    def test_pipeline_defaults(self):
        class Recorder:
            config, name_or_path = self.model.config, ""
            generation_config = kvik.GenerationConfig()

            def generate(self, ids, **options):
                self.options = options
                return ids
        pipe = kvik.pipeline("text-generation", model=Recorder(), tokenizer=self.tokenizer)

        def options(**given):
            pipe("a", **given)
            return {k: v for k, v in pipe.model.options.items() if k != "attention_mask"}
        self.assertEqual(options(), {"max_new_tokens": 256, "do_sample": True, "temperature": 0.7})
        self.assertEqual(options(do_sample=False, max_length=9), {"do_sample": False, "max_length": 9})
        self.assertEqual(options(temperature=0.2)["temperature"], 0.2)
        Recorder.generation_config = kvik.GenerationConfig(do_sample=False, max_length=64)
        self.assertEqual(options(), {})


if __name__ == "__main__":
    unittest.main()
