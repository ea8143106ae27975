"""Models with an encoder through the Python package: recorded runs of generate(), and a loop over forward()."""
import copy
import pickle
import unittest

import numpy as np
from common import kvik, model_path, read_json
from kvik.generation import log_softmax


def cache_of(spec, config):
    """Makes a cache as a recorded case says."""
    args = {k: cache_of(v, config) if isinstance(v, dict) and "class" in v else v for k, v in spec["args"].items()}
    if spec["class"] == "EncoderDecoderCache":
        return kvik.EncoderDecoderCache(args["self_attention_cache"], args["cross_attention_cache"])
    return getattr(kvik, spec["class"])(**{k: config if v == "model" else v for k, v in args.items()})


def run_cases(test, model, name, folder, index):
    """Runs the recorded generate() calls of a model in a folder of cases; returns their number."""
    run = 0
    for entry in index["cases"]:
        if entry["model"] != name or entry["kind"] != "generate" or entry["meet"] not in ("exact", "tokens"):
            continue
        with test.subTest(entry["id"]):
            case = read_json(folder, entry["id"] + ".json")
            options = dict(case["generate"], decoder_input_ids=case.get("decoder_input_ids"))
            if case["cache"]:
                options["past_key_values"] = cache_of(case["cache"], model.config)
            out = model.generate(np.array(case["input_ids"]), attention_mask=case["attention_mask"], **options)
            test.assertEqual(out.tolist(), case["expect"]["sequences"])
            if case["cache"]:
                test.assertEqual(options["past_key_values"].get_seq_length(), case["expect"]["cache"]["seq_length"])
            run += 1
    return run


class Seq2Seq(unittest.TestCase):
    """T5, BART and mBART."""

    @classmethod
    def setUpClass(cls):
        cls.model = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1)

    def test_class(self):
        from kvik.models.t5.modeling_t5 import T5ForConditionalGeneration
        self.assertIsInstance(self.model, T5ForConditionalGeneration)
        for model, name in (("bart", "BartForConditionalGeneration"), ("mbart", "MBartForConditionalGeneration")):
            self.assertIsInstance(kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path(model)), getattr(kvik, name))
        ids = np.array([[5, 6]])
        with self.assertRaisesRegex(TypeError, "positional"):  # the seventh differs between the models of Transformers
            self.model(ids, None, ids, None, None, None, False)

    def test_labels(self):
        source = np.array([[5, 6, 7, 8, 1]])
        out = self.model(input_ids=source, labels=np.array([[3, 4, 1]]))
        self.assertAlmostEqual(float(out.loss), 11.784, places=3)  # of Transformers 5.23
        self.assertEqual((list(out)[0], out.logits.shape[1]), ("loss", 3))
        scores = log_softmax(out.logits[0])
        self.assertAlmostEqual(float(out.loss), -(scores[0, 3] + scores[1, 4] + scores[2, 1]) / 3, places=4)
        short = self.model(input_ids=source, labels=np.array([[3, 4, -100]]))
        self.assertAlmostEqual(float(short.loss), -(scores[0, 3] + scores[1, 4]) / 2, places=4)
        with self.assertRaisesRegex(ValueError, "labels"):
            self.model(input_ids=source, labels=np.array([[3]]), decoder_input_ids=np.array([[0, 3]]))

    def test_golden(self):
        self.assertGreater(run_cases(self, self.model, "t5", "cases", read_json("index.json")), 8)

    def test_bart(self):
        for name, kind in (("bart", "Bart"), ("mbart", "MBart")):
            model = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path(name), dtype="float32", threads=1)
            self.assertIs(type(model), getattr(kvik, kind + "ForConditionalGeneration"))
            self.assertEqual(type(model).__module__, f"kvik.models.{name}.modeling_{name}")
            self.assertGreater(run_cases(self, model, name, "cases-own", read_json("cases-own", "index.json")), 7)

    def test_loop(self):
        case = read_json("cases", "t5.basic.dynamic.json")
        ids, want = np.array(case["input_ids"]), case["expect"]["sequences"]
        step, cache, got = np.array([[want[0][0]]]), kvik.EncoderDecoderCache(kvik.DynamicCache(), kvik.DynamicCache()), []
        for i in range(len(want[0]) - 1):
            out = self.model(input_ids=ids if i == 0 else None, decoder_input_ids=step, past_key_values=cache, use_cache=True)
            step = out.logits[:, -1:].argmax(-1)
            got.append(int(step[0, 0]))
        self.assertEqual(got, want[0][1:])
        self.assertIs(out.past_key_values, cache)
        expect = case["expect"]["cache"]
        for i, layer in enumerate(cache.to_legacy_cache()):
            self.assertEqual([list(a.shape) for a in layer],
                             [expect[p]["layers"][i][k] for p in ("self_attention", "cross_attention") for k in ("keys", "values")])

    def test_result(self):
        case = read_json("cases", "t5.basic.dynamic.json")
        ids, want = np.array(case["input_ids"]), case["expect"]["sequences"]
        out = self.model.generate(ids, max_new_tokens=4, do_sample=False, decoder_input_ids=[want[0][:3]],
                                  cache_implementation="static", cross_cache_implementation="static",
                                  return_dict_in_generate=True)
        self.assertEqual(out.sequences.tolist(), [want[0][:7]])
        self.assertIsInstance(out.past_key_values, kvik.EncoderDecoderCache)
        self.assertEqual(out.past_key_values.cross_attention_cache.get_seq_length(), ids.shape[1])
        with self.assertRaises(kvik.ArgumentError):
            self.model(decoder_input_ids=[[0]])
        again = pickle.loads(pickle.dumps(out.past_key_values))
        self.assertEqual(again.cross_attention_cache.get_seq_length(), ids.shape[1])
        for got, want_ in zip(again.to_legacy_cache() + (again[1],), out.past_key_values.to_legacy_cache() + (out.past_key_values[1],)):
            self.assertEqual(len(got), 4)
            for a, b in zip(got, want_):
                np.testing.assert_array_equal(a, b)
        fork = copy.deepcopy(out.past_key_values)
        np.testing.assert_array_equal(*(self.model(decoder_input_ids=[[1]], past_key_values=c).logits for c in (again, fork)))
        fork = copy.deepcopy(out.past_key_values)
        fork.batch_repeat_interleave(2)
        self.assertEqual(self.model(decoder_input_ids=[[1], [1]], past_key_values=fork).logits.shape[0], 2)
        self.assertEqual(fork.to_legacy_cache()[0][2].shape[0], 2)
        self.assertEqual(out.past_key_values.self_attention_cache.get_seq_length(), 6)
        heard = copy.deepcopy(out.past_key_values.cross_attention_cache)  # alone it is a fork of both
        self.assertIsNot(heard._batch, out.past_key_values.self_attention_cache._batch)
        with self.assertRaisesRegex(kvik.ArgumentError, "another model cannot append"):
            heard.update(*[np.zeros((1, 4, 1, 8), np.float32)] * 2, 0)
        with self.assertRaisesRegex(kvik.ArgumentError, "use pickle"):
            out.past_key_values.save("pair.session")
        again = out.past_key_values
        again.crop(0)  # the rows of the encoder stay
        self.assertEqual((again.get_seq_length(), again.cross_attention_cache.get_seq_length()), (0, ids.shape[1]))
        self.assertEqual(self.model(decoder_input_ids=[want[0][:1]], past_key_values=again).logits[0, -1].argmax(), want[0][1])
        again.reset()
        self.assertEqual((again.cross_attention_cache.get_seq_length(), heard.get_seq_length()), (0, ids.shape[1]))
        with self.assertRaises(kvik.ArgumentError):
            self.model(decoder_input_ids=[[0]], past_key_values=again)
        self.model(input_ids=ids[:, :5], decoder_input_ids=[[0]], past_key_values=again)
        self.assertEqual(again.cross_attention_cache.get_seq_length(), 5)


if __name__ == "__main__":
    unittest.main()
