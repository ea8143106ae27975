"""Speech models through the Python package, against what Transformers recorded (tests/fixtures/speech/generate.json)."""
import copy
import io
import json
import os
import pickle
import re
import tempfile
import threading
import unittest
import warnings

import numpy as np
from common import GOLDEN, ROOT, kvik, model_path, read_json, tensors
from sound import sound

SPEECH = os.path.join(ROOT, "tests", "fixtures", "speech")
TINY = os.path.join(SPEECH, "tiny")
TONE = os.path.join(ROOT, "tests", "fixtures", "audio", "tone.flac")
SOUND = sound(48077)


def recorded():
    with open(os.path.join(SPEECH, "generate.json"), encoding="utf-8") as f:
        return json.load(f)


def slices(rows):
    """The parts of the recording that a case hears, each cut out of a recording as long as the longest."""
    whole = sound(max(end for _, end in rows))
    return [whole[begin:end] for begin, end in rows]


class Speech(unittest.TestCase):
    """The tiny model."""

    @classmethod
    def setUpClass(cls):
        cls.model = kvik.AutoModelForSpeechSeq2Seq.from_pretrained(TINY, dtype="float32", threads=1)
        cls.processor = kvik.AutoProcessor.from_pretrained(TINY)
        cls.want = recorded()

    def features(self, n=12000, **kwargs):
        return self.processor(sound(n), sampling_rate=16000, return_tensors="np", **kwargs).input_features

    def test_classes(self):
        from kvik.models.whisper.modeling_whisper import WhisperForConditionalGeneration
        from kvik.models.whisper import WhisperProcessor
        self.assertIsInstance(self.model, WhisperForConditionalGeneration)
        self.assertIs(kvik.WhisperForConditionalGeneration, WhisperForConditionalGeneration)
        self.assertIs(type(self.processor), WhisperProcessor)
        self.assertIsInstance(kvik.AutoTokenizer.from_pretrained(TINY), kvik.WhisperTokenizer)
        told = {"language": "german", "task": "translate", "predict_timestamps": True}
        t = kvik.WhisperTokenizer.from_pretrained(TINY, model_input_names=["input_ids"], **told)
        for twin in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
            self.assertIsInstance(twin, kvik.WhisperTokenizer)
            self.assertEqual({name: getattr(twin, name) for name in told}, told)
            self.assertEqual(dict(twin("The bell")), dict(t("The bell")))
            self.assertEqual(list(twin("The bell")), ["input_ids"])
        plain = kvik.WhisperTokenizer.from_pretrained(TINY, add_bos_token=False)
        self.assertEqual(pickle.loads(pickle.dumps(plain))("The bell").input_ids, self.processor.tokenizer("The bell").input_ids)

    def test_features(self):
        got = self.features()
        self.assertEqual((got.shape, got.dtype), ((1, 8, 100), np.float32))
        self.assertLess(np.abs(got[0][:, ::5] - np.array(self.want["features"])).max(), 1e-4)
        saved = tensors(os.path.relpath(os.path.join(ROOT, "tests", "fixtures", "audio", "features.safetensors"), GOLDEN))
        for bins, name, part in ((80, "padded80", np.s_[:, :330]), (128, "padded128", np.s_[:, :330:5])):
            got = kvik.WhisperFeatureExtractor(feature_size=bins)(SOUND, sampling_rate=16000).input_features
            self.assertEqual(got.shape, (1, bins, 3000))
            self.assertLess(np.abs(got[0][part] - saved[name]).max(), 1e-4)
        with self.assertWarnsRegex(UserWarning, "16 000") as warned:
            self.processor(SOUND)
        self.assertEqual(os.path.basename(warned.filename), "test_speech.py")  # the line that can be changed
        both = self.processor.feature_extractor([SOUND, SOUND[:20000]], sampling_rate=16000, truncation=False, padding="longest",
                                                return_attention_mask=True)
        self.assertEqual(both["input_features"].shape, (2, 8, 300))
        self.assertEqual(both.attention_mask.sum(-1).tolist(), [300, 125])

    def test_silence(self):
        """An offset, dither and faint noise are silence, quiet sound is none."""
        options = {"return_timestamps": True, "temperature": 0.0, "language": "en"}
        rng = np.random.default_rng(1)
        n = 32000
        for samples, silent, low, high in (
                (np.zeros(n), True, -np.inf, -np.inf), (np.full(9600, 0.25), True, -np.inf, -np.inf),
                (np.rint(rng.uniform(-1, 1, n)) / 32768, True, -97, -92), (rng.normal(0, 10**-3.5, n), True, -72, -68),
                (rng.normal(0.5, 10**-3.5, n), True, -72, -68), (rng.normal(0, 10**-2.25, n), False, -47, -43),
                (sound(n)[:n // 2 - 4000], False, -30, 0)):
            heard = self.model.transcribe(samples.astype(np.float32), **options)
            self.assertTrue(heard["segments"])
            self.assertEqual(heard["text"], "".join(s["text"] for s in heard["segments"]))
            for s in heard["segments"]:
                self.assertIs(s["no_speech"], silent, s["level"])
                self.assertTrue(low <= s["level"] <= high, s["level"])
        both = np.concatenate([sound(48000), np.zeros(20 * 16000, np.float32)])
        segments = self.model.transcribe(both, **options)["segments"]
        self.assertEqual({s["no_speech"] for s in segments if s["end"] <= 3}, {False})
        self.assertEqual({s["no_speech"] for s in segments if s["start"] >= 4.1}, {True})

    def test_save(self):
        """save_pretrained() of a processor and of its parts writes what Transformers writes; both are opened again."""
        features = {"chunk_length": 1, "dither": 0.0, "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 8,
                    "hop_length": 160, "n_fft": 400, "n_samples": 16000, "nb_max_frames": 100, "padding_side": "right",
                    "padding_value": 0.0, "return_attention_mask": False, "sampling_rate": 16000}
        told = {"language": "german", "task": "translate", "predict_timestamps": True}
        marks = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
        with tempfile.TemporaryDirectory() as folder:
            one = os.path.join(folder, "new", "one")
            made = kvik.AutoProcessor.from_pretrained(TINY, **told)
            for _ in range(2):  # over itself as well
                self.assertEqual(made.save_pretrained(one), [os.path.join(one, "processor_config.json")])
                made = kvik.AutoProcessor.from_pretrained(one)
            self.assertEqual(sorted(os.listdir(one)), ["processor_config.json", "tokenizer.json", "tokenizer_config.json"])
            want = {"feature_extractor": features, "processor_class": "WhisperProcessor"}
            with open(os.path.join(one, "processor_config.json"), encoding="utf-8") as f:
                self.assertEqual(f.read(), json.dumps(want, indent=2) + "\n")
            with open(os.path.join(one, "tokenizer_config.json"), encoding="utf-8") as f:
                wrote = json.load(f)
            for name, value in {**told, **marks, "tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor"}.items():
                self.assertEqual(wrote[name], value)
            self.assertIs(type(made), kvik.WhisperProcessor)
            self.assertEqual({name: getattr(made.tokenizer, name) for name in (*told, *marks)}, {**told, **marks})
            self.assertEqual(made.tokenizer("The bell").input_ids[:3], [331, 333, 335])
            np.testing.assert_array_equal(made(sound(12000), sampling_rate=16000).input_features, self.features())
            self.assertEqual(kvik.AutoTokenizer.from_pretrained(one, language="en").language, "en")
            two = os.path.join(folder, "two")
            self.assertEqual(made.feature_extractor.save_pretrained(two), [os.path.join(two, "preprocessor_config.json")])
            with open(os.path.join(two, "preprocessor_config.json"), encoding="utf-8") as f:
                self.assertEqual(f.read(), json.dumps(features, indent=2) + "\n")
            self.assertEqual(kvik.AutoFeatureExtractor.from_pretrained(two).to_dict(), features)
            for text, error in (("{", kvik.FormatError), ('{"feature_size": 0}', kvik.ArgumentError), ('{"chunk_length": "x"}', kvik.ArgumentError),
                                ('{"padding_side": "left"}', kvik.UnsupportedError), ('{"feature_size": true}', kvik.ArgumentError),
                                ("[" * 100000, kvik.FormatError)):
                with open(os.path.join(two, "preprocessor_config.json"), "w", encoding="utf-8") as f:
                    f.write(text)
                with self.assertRaises(error):
                    kvik.AutoFeatureExtractor.from_pretrained(two)
            with self.assertRaisesRegex(kvik.UnsupportedError, "push_to_hub"):
                made.save_pretrained(one, push_to_hub=True)

    def test_generate(self):
        for case in self.want["runs"]:
            with self.subTest(case["options"]):
                inputs = self.processor(slices(case["rows"]), sampling_rate=16000, return_tensors="np", return_attention_mask=True,
                                        **case["extractor"])
                got = self.model.generate(**inputs, **case["options"])
                expect = case["expect"]
                if isinstance(expect, list):
                    self.assertEqual(got.tolist(), expect)
                    continue
                self.assertEqual(got["sequences"].tolist(), expect["sequences"])
                for mine, theirs in zip(got.get("segments", []), expect.get("segments", [])):
                    self.assertEqual(len(mine), len(theirs))
                    for a, b in zip(mine, theirs):
                        self.assertEqual(a["tokens"].tolist(), b["tokens"])
                        self.assertAlmostEqual(a["start"], b["start"], 5)
                        self.assertAlmostEqual(a["end"], b["end"], 5)
                        if "token_timestamps" in b:
                            np.testing.assert_allclose(a["token_timestamps"], b["token_timestamps"], atol=1e-5)

    def test_golden(self):
        """A model without marks, with every kind of cache: what test_golden.py does for text."""
        model = kvik.WhisperForConditionalGeneration.from_pretrained(model_path("whisper"), dtype="float32", threads=1)
        from test_seq2seq import cache_of
        run = 0
        for entry in read_json("index.json")["cases"]:
            if entry["model"] != "whisper" or entry["kind"] != "generate" or entry["meet"] not in ("exact", "tokens"):
                continue
            with self.subTest(entry["id"]):
                case = read_json("cases", entry["id"] + ".json")
                options = dict(case["generate"])
                if case["cache"]:
                    options["past_key_values"] = cache_of(case["cache"], model.config)
                heard = tensors("cases", case["tensors"])[case["input_features"]]
                if case.get("decoder_input_ids"):
                    options["decoder_input_ids"] = case["decoder_input_ids"]
                want = case["expect"]["sequences"]
                self.assertEqual(model.generate(heard, **{**options, "return_dict_in_generate": True}).sequences.tolist(), want)
                if not case["cache"] and not case.get("decoder_input_ids"):  # what generate() has put in front is left out
                    options["return_dict_in_generate"] = False
                    self.assertEqual(model.generate(heard, **options).tolist(), [row[1:] for row in want])
                run += 1
        self.assertGreater(run, 15)
        for option in ({"num_beams": 2}, {}):
            with self.assertRaisesRegex(kvik.UnsupportedError, "one by one"):
                model.generate(np.concatenate([heard, heard], 2), **option)

    def test_forward(self):
        heard = self.features()
        out = self.model(heard, decoder_input_ids=[[331, 332, 336]], output_attentions=True, output_hidden_states=True)
        self.assertEqual(out.logits.shape, (1, 3, 392))
        self.assertEqual([a.shape for a in out.cross_attentions], [(1, 2, 3, 50)] * 2)
        self.assertEqual([a.shape for a in out.decoder_attentions], [(1, 2, 3, 3)] * 2)
        self.assertEqual([a.shape for a in out.decoder_hidden_states], [(1, 3, 16)] * 3)
        np.testing.assert_allclose(out.cross_attentions[0].sum(-1), 1, atol=1e-5)
        encoded = self.model.get_encoder()(heard)
        again = self.model(encoder_outputs=encoded, decoder_input_ids=[[331, 332]])
        np.testing.assert_array_equal(again.logits, out.logits[:, :2])
        more = self.model(decoder_input_ids=[[336]], past_key_values=copy.deepcopy(again.past_key_values))
        np.testing.assert_array_equal(more.logits[:, 0], out.logits[:, 2])
        np.testing.assert_array_equal(encoded.last_hidden_state, out.encoder_last_hidden_state)
        self.assertEqual(self.model.detect_language(heard).shape, (1,))
        self.assertEqual(self.model.generate(language="en", num_beams=3, max_new_tokens=2, encoder_outputs=encoded).tolist(),
                         self.model.generate(heard, language="en", num_beams=3, max_new_tokens=2).tolist())

    def test_tokenizer(self):
        tokenizer = self.processor.tokenizer
        self.assertEqual(self.processor.get_prompt_ids("lighthouse bell ").tolist(), self.want["prompt"])
        self.assertEqual(self.processor.get_decoder_prompt_ids("translate", "german"), [(1, 333), (2, 335), (3, 340)])
        with self.assertRaises(kvik.ArgumentError):
            self.processor.get_prompt_ids("a <|endoftext|>")
        with self.assertRaises(kvik.ArgumentError):
            self.processor.get_decoder_prompt_ids("translate", "klingon")
        for case in self.want["encoded"]:
            tokenizer = kvik.WhisperTokenizer.from_pretrained(TINY)
            tokenizer.set_prefix_tokens(**case["prefix"])
            self.assertEqual(tokenizer("The bell")["input_ids"], case["ids"])
        for case in self.want["decoded"]:
            self.assertEqual(tokenizer.decode(case["ids"], **case["options"]), case["text"])
        first = tokenizer.timestamp_begin
        ids = [first + 5, 288, 261, first + 30, first + 30, 309, first + 44, first + 2, 288, first + 10]
        self.assertEqual(tokenizer.decode(ids, decode_with_timestamps=True).count("<|"), 6)
        told = tokenizer.decode(ids, output_offsets=True)
        self.assertEqual([o["timestamp"] for o in told["offsets"]], [(0.1, 0.6), (0.6, 0.88), (30.04, 30.2)])
        self.assertEqual("".join(o["text"] for o in told["offsets"]), told["text"])
        self.assertEqual(self.processor(text="The bell")["input_ids"], self.processor.tokenizer("The bell")["input_ids"])

    def test_pipeline(self):
        asr = kvik.pipeline("automatic-speech-recognition", TINY)
        for case in self.want["pipes"]:  # without num_beams, 5
            with self.subTest(case["options"], own=case["own"], given=case["given"]):
                one = kvik.pipeline("automatic-speech-recognition", copy.deepcopy(self.model))
                one.model.generation_config.update(**case["own"])
                options = dict(case["options"])
                if case["given"]:
                    options["generation_config"] = kvik.GenerationConfig(**{**one.model.generation_config.to_dict(), **case["given"]})
                timed = {"return_timestamps": options.pop("return_timestamps")} if "return_timestamps" in options else {}
                got = one(sound(case["samples"]), generate_kwargs={"language": "en", **options}, **timed)
                # Transformers shows marks of languages inside a text, and cuts characters there; so printable ASCII is compared.
                self.assertEqual(*(re.sub(r"<\|\w+\|>|[^!-~]", "", x["text"]) for x in (got, case["expect"])))
                self.assertEqual("chunks" in got, "chunks" in case["expect"])
        timed = asr(SOUND, return_timestamps=True, language="en")
        words = asr(SOUND, return_timestamps="word", generate_kwargs={"language": "en"}, return_language=True)
        self.assertEqual("".join(c["text"] for c in timed["chunks"]), timed["text"])
        self.assertEqual({c["language"] for c in words["chunks"]}, {"english"})
        segments = self.model.generate(self.processor(SOUND, sampling_rate=16000, truncation=False, padding="longest").input_features,
                                       language="en", return_timestamps=True, return_segments=True, num_beams=5).segments[0]
        self.assertEqual([c["timestamp"] for c in timed["chunks"]], [(round(s["start"], 2), round(s["end"], 2)) for s in segments])
        self.assertTrue(all(np.isnan(s["level"]) and not s["no_speech"] for s in segments))
        silent = self.model.transcribe(np.full(48000, 0.2, np.float32), return_timestamps=True)["segments"]
        self.assertTrue(silent and all(s["no_speech"] and s["level"] == -np.inf for s in silent))
        self.assertFalse(any(s["no_speech"] for s in self.model.transcribe(SOUND, return_timestamps=True)["segments"]))
        with open(TONE, "rb") as f:
            data = f.read()
        self.assertEqual(asr(TONE, return_timestamps=True), asr(data, return_timestamps=True))
        self.assertEqual(asr({"array": SOUND[:16000], "sampling_rate": 16000}), asr(SOUND[:16000]))
        self.assertTrue(asr({"raw": SOUND[:8000], "sampling_rate": 8000})["text"])
        self.assertEqual(asr([SOUND[:9000], SOUND[:16000]]), [asr(SOUND[:9000]), asr(SOUND[:16000])])
        self.assertEqual(kvik.pipeline(model=self.model)(SOUND[:9000]), asr(SOUND[:9000]))
        self.assertTrue(asr(SOUND[:9000], num_beams=2, max_new_tokens=4)["text"])
        short = kvik.pipeline("automatic-speech-recognition", self.model, generate_kwargs={"max_new_tokens": 2, "language": "en"})
        want = asr(SOUND[:9000], max_new_tokens=8, language="en")
        self.assertNotEqual(short(SOUND[:9000]), want)
        for call in ({"max_new_tokens": 8}, {"generate_kwargs": {"max_new_tokens": 8}}):  # what the call says counts
            self.assertEqual(short(SOUND[:9000], **call), want)
        self.assertEqual(asr(SOUND[:9000], max_length=8, language="en"), want)
        beams = [asr(TONE, return_timestamps=True, num_beams=n, max_new_tokens=9)["text"] for n in (1, 4)]
        self.assertNotEqual(*beams)
        self.assertEqual(self.model.transcribe(TONE, return_timestamps=True, num_beams=4, max_new_tokens=9)["text"], beams[1])

    def test_forced(self):
        """forced_decoder_ids, as older programs say a language and a task, wherever Transformers reads them."""
        features, asr = self.features(), kvik.pipeline(model=self.model)
        forced = self.processor.get_decoder_prompt_ids(language="german", task="translate")
        want = self.model.generate(features, language="german", task="translate").tolist()
        self.assertNotEqual(self.model.generate(features).tolist(), want)
        self.assertEqual(self.model.generate(features, forced_decoder_ids=forced).tolist(), want)
        self.assertEqual(self.model.generate(features, generation_config=kvik.GenerationConfig(
            **{**self.model.generation_config.to_dict(), "forced_decoder_ids": forced})).tolist(), want)
        self.assertEqual(self.model.generate(features, forced_decoder_ids=forced, language="en").tolist(),
                         self.model.generate(features, language="en").tolist())
        text = asr(SOUND[:12000], language="german", task="translate")
        self.assertEqual(asr(SOUND[:12000], generate_kwargs={"forced_decoder_ids": forced}), text)
        for where in ("config", "generation_config"):
            other = copy.deepcopy(self.model)
            setattr(getattr(other, where), "forced_decoder_ids", [[1, 333], [2, 335]])
            self.assertEqual(other.generate(features).tolist(), want)
            self.assertEqual(kvik.pipeline(model=other)(SOUND[:12000]), text)
            setattr(getattr(other, where), "forced_decoder_ids", [[1, None], [2, 336]])  # of the first files of Whisper
            self.assertEqual(other.generate(features).tolist(), self.model.generate(features, task="transcribe").tolist())
        with self.assertRaisesRegex(kvik.ArgumentError, r"forced_decoder_ids has \(1, 7\)"):
            self.model.generate(features, forced_decoder_ids=[(1, 7)])
        for wrong in (7, [[1, [2]]]):
            with self.assertRaisesRegex(kvik.ArgumentError, "forced_decoder_ids"):
                self.model.generate(features, forced_decoder_ids=wrong)
        with self.assertRaisesRegex(TypeError, "generation_config is a GenerationConfig or a dictionary, not int"):
            asr(SOUND[:12000], generation_config=3)

    def test_data_sets(self):
        class Data:
            def __getitem__(self, i):
                return {"array": SOUND[:9000 + i], "sampling_rate": 16000}

            def __len__(self):
                return 2
        asr = kvik.pipeline(model=self.model)
        want = [asr(SOUND[:9000]), asr(SOUND[:9001])]
        self.assertEqual(list(asr(SOUND[:9000 + i] for i in range(2))), want)
        self.assertEqual(list(asr(Data())), want)
        heard = self.processor(SOUND[:9000], sampling_rate=16000)
        self.assertIs(heard.to("cpu", dtype=np.dtype(np.float16)), heard)

    def test_samples(self):
        """Integers are scaled and channels are told from samples; nothing is heard as something else."""
        asr = kvik.pipeline("automatic-speech-recognition", self.model)
        heard = SOUND[:9000]
        for kind in (np.int16, np.int32):
            whole = np.round(heard.astype(np.float64) * np.iinfo(kind).max).astype(kind)
            want = asr(whole.astype(np.float32) / np.float32(np.iinfo(kind).max + 1))
            self.assertEqual(asr(whole), want)
            self.assertEqual(asr({"raw": whole, "sampling_rate": 16000}), want)
            self.assertEqual(asr(whole, num_beams=2, max_new_tokens=4),
                             asr(whole.astype(np.float32) / np.float32(np.iinfo(kind).max + 1), num_beams=2, max_new_tokens=4))
        self.assertEqual(asr(np.stack([heard, heard])), asr(heard))
        both = np.stack([heard, heard], 1)
        small = np.zeros(9000, np.uint8)
        for call, sentence in (
                (lambda: asr(both), r"\[9000, 2\]; expected \[channels, samples\]"),
                (lambda: asr((both * 32767).astype(np.int16)), r"\[9000, 2\]; expected \[channels, samples\]"),
                (lambda: asr({"array": both, "sampling_rate": 44100}), r"\[9000, 2\]"),
                (lambda: asr(both, num_beams=2), r"\[9000, 2\]"),
                (lambda: asr(np.zeros((2, 3, 4), np.float32)), r"\[2, 3, 4\]"),
                (lambda: asr(small), "type uint8"),
                (lambda: asr({"raw": small, "sampling_rate": 8000}), "type uint8"),
                (lambda: asr(small.astype(np.int64)), "type int64"),
                (lambda: self.model.transcribe(small), "type uint8"),
                (lambda: self.processor(small.astype(np.int16), sampling_rate=16000), "type int16"),
                (lambda: self.processor([small], sampling_rate=16000), "type uint8"),
                (lambda: self.processor(both, sampling_rate=16000), r"\[9000, 2\]")):
            with self.assertRaisesRegex(ValueError, sentence):
                call()

    def test_max_length(self):
        """max_length counts new tokens, as in Transformers, in each way to search and in each window."""
        one = self.features()
        whole = self.processor(SOUND, sampling_rate=16000, truncation=False, padding="longest").input_features
        got = self.model.generate(one, language="en", max_length=12)
        self.assertEqual(got.tolist(), [[59, 277, 86, 281, 364, 364, 98, 364, 145, 241, 92, 350]])  # Transformers 5.23
        got = self.model.generate(whole, language="en", max_length=6, return_timestamps=True)
        self.assertEqual(got.tolist(), [[349, 241, 371, 380, 228, 387, 356, 241, 92, 359, 349, 60, 391, 391]])
        config = kvik.GenerationConfig(max_length=6)
        self.assertEqual(self.model.generate(whole, config, language="en", return_timestamps=True).tolist(), got.tolist())
        for options in ({"num_beams": 2}, {"repetition_penalty": 1.1}):
            want = self.model.generate(one, language="en", max_new_tokens=12, **options).tolist()
            self.assertEqual(self.model.generate(one, language="en", max_length=12, **options).tolist(), want)
            self.assertEqual(self.model.generate(one, kvik.GenerationConfig(max_length=12), language="en", **options).tolist(), want)
            # With beams the text has time marks, so the window is heard again from the last of them.
            self.assertEqual(len(want[0]), 22 if "num_beams" in options else 12)
        for options in ({"num_beams": 2}, {"top_k": 2}):
            self.assertEqual(self.model.generate(one, language="en", max_length=400, **options).tolist(),
                             self.model.generate(one, language="en", **options).tolist())

    def test_cache(self):
        """Strategies and budgets work for transcripts as for text."""
        want = self.model.transcribe(SOUND, return_timestamps=True, language="en")["text"]
        for options in ({"cache_implementation": "static"}, {"cache_implementation": "dynamic", "max_sequences": 4}):
            self.assertEqual(self.model.transcribe(SOUND, return_timestamps=True, language="en", **options)["text"], want)
        with self.assertRaises(kvik.OutOfMemoryError):
            self.model.transcribe(SOUND, return_timestamps=True, cache_memory=4096)
        want = self.model.transcribe(SOUND, return_timestamps=True, num_beams=10, max_new_tokens=9)["text"]
        for options in ({"cache_implementation": "static"}, {"cache_implementation": "offloaded"}, {"threads": 2}):
            got = self.model.transcribe(SOUND, return_timestamps=True, num_beams=10, max_new_tokens=9, **options)["text"]
            self.assertEqual(got, want)

    def test_errors(self):
        heard = self.features()
        bad = self.processor(SOUND, sampling_rate=16000, truncation=False, padding="longest").input_features
        for call, sentence in (
                (lambda: self.model.generate(heard, language="fr"), "does not know it"),
                (lambda: self.model.generate(heard, language="fr", num_beams=2), "does not know it"),
                (lambda: self.model.generate(heard, language="fr", top_k=2), "knows no language"),
                (lambda: self.model.generate(heard, num_beams=2, early_stopping="soon"), "early_stopping='soon'"),
                (lambda: self.model.generate(heard, num_beams=2, length_penalty=1e9), "-1000 to 1000"),
                (lambda: self.model.generate(heard, num_beams=-1), "num_beams"),
                (lambda: self.model.generate(heard, language=["en", "de"]), "one name for each row"),
                (lambda: self.model.generate(heard[:, :, :50]), "a window of the model has 100"),
                (lambda: self.model.generate(heard[:, :4]), "expected \\[batch, 8, frames\\]"),
                (lambda: self.model.generate(bad), "needs return_timestamps"),
                (lambda: self.model.generate(np.concatenate([bad, bad]), return_timestamps=True), "attention_mask"),
                (lambda: self.model.generate(heard, task="sing"), "'transcribe' and 'translate'"),
                (lambda: self.model.generate(heard, num_beams=2, repetition_penalty=1.1, return_timestamps=True),
                 "timestamps and repetition_penalty do not go together"),
                (lambda: self.model.generate(), "input_features"),
                (lambda: self.model.generate(heard, max_new_token=3), "max_new_tokens"),
                (lambda: self.processor(SOUND, sampling_rate=8000), "sampling rate of 8000"),
                (lambda: self.processor(np.zeros((2, 3, 4)), sampling_rate=16000), "one channel"),
                (lambda: kvik.WhisperFeatureExtractor(hop_length=80), "hop_length=80"),
                (lambda: kvik.pipeline("automatic-speech-recognition", TINY)(SOUND), "return_timestamps"),
                (lambda: kvik.pipeline("automatic-speech-recognition", model_path("t5")), "no speech model"),
                (lambda: kvik.pipeline("text-generation", TINY), "is a speech model"),
                (lambda: kvik.AutoModelForSpeechSeq2Seq.from_pretrained(model_path("llama-mha")), "'llama', and no speech model"),
                (lambda: kvik.pipeline(model=self.model)(b""), "no bytes"),
                (lambda: kvik.pipeline(model=self.model)(b"no sound"), "^the recording's bytes"),
                (lambda: kvik.pipeline(model=self.model)("https://example.org/a.flac"), "downloads nothing"),
                (lambda: self.model.transcribe("/nowhere.wav"), "nowhere.wav")):
            with self.assertRaisesRegex((kvik.KvikError, ValueError), sentence):
                call()

    def test_any_length(self):
        """transcribe() takes a recording of several windows without options; without times it can be one window long."""
        long = sound(5 * 16000)
        self.assertFalse(self.model.generation_config.return_timestamps)
        self.assertEqual(self.model.transcribe(long)["text"], self.model.transcribe(long, return_timestamps=True)["text"])
        self.assertEqual(self.model.transcribe(long, return_timestamps=None)["segments"][-1]["end"] > 4, True)
        with self.assertRaisesRegex(kvik.ArgumentError, "longer recordings need return_timestamps"):
            self.model.transcribe(long, return_timestamps=False)

    def test_hooks(self):
        """Progress, its exceptions, streaming from two threads, and a call from another thread."""
        told = []
        heard = self.processor(SOUND, sampling_rate=16000, truncation=False, padding="longest").input_features
        self.model.generate(heard, return_timestamps=True, monitor_progress=lambda state: told.append(state.tolist()))
        self.assertEqual(told[-1], [[300, 300]])
        self.assertEqual(told, sorted(told))

        def stop(state):
            raise KeyError("enough")
        with self.assertRaises(KeyError):
            self.model.generate(heard, return_timestamps=True, monitor_progress=stop)
        one = self.features()
        want = self.processor.tokenizer.decode(self.model.generate(one, language="en", num_beams=1, do_sample=False,
                                                                   decoder_input_ids=[[331, 332, 336, 340]])[0, 4:])
        texts = []

        def stream():
            streamer = kvik.TextIteratorStreamer(self.processor.tokenizer, skip_prompt=True)
            thread = threading.Thread(target=self.model.generate, args=(one,), kwargs={
                "decoder_input_ids": [[331, 332, 336, 340]], "streamer": streamer})
            thread.start()
            texts.append("".join(streamer))
            thread.join()
        threads = [threading.Thread(target=stream) for _ in range(2)] + [
            threading.Thread(target=lambda: texts.append(self.model.transcribe(SOUND, return_timestamps=True)["text"]))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(texts), 3)
        self.assertEqual(sorted(texts, key=texts.count)[-1], want)

    def test_streamers_hear_of_it(self):
        """Who reads a streamer in another thread is told, once, when generate() refuses its arguments at the beginning or later."""
        class Reader(kvik.BaseStreamer):
            def __init__(self):
                self.told = []

            def put(self, value):
                pass

            def end(self):
                pass

            def fail(self, error):
                self.told.append(error)
        one = self.features()
        for features, options in ((one, {"task": "sing"}), (one, {"return_timestamps": True}), (one, {"num_segment_frames": 7}),
                                  (np.concatenate([one] * 2, 2), {}), (one, {"language": "klingon"}), (one, {"max_new_tokns": 3}),
                                  (one, {"decoder_input_ids": [[1], [2]]}), (None, {})):
            with self.subTest(options):
                reader = Reader()
                with self.assertRaises((kvik.KvikError, ValueError)) as raised:
                    self.model.generate(features, streamer=reader, **options)
                self.assertEqual(reader.told, [raised.exception])
        asr, reader = kvik.pipeline(model=self.model), Reader()
        with self.assertRaises(kvik.UnsupportedError) as raised:
            asr(TONE, streamer=reader)
        self.assertEqual(reader.told, [raised.exception])

    def test_wav(self):
        """A recording of another rate, in a file and as samples, is the same."""
        from kvik.pipelines import _wav
        asr = kvik.pipeline("automatic-speech-recognition", self.model)
        with tempfile.NamedTemporaryFile(suffix=".wav") as f:
            f.write(_wav(SOUND[:11025], 11025))
            f.flush()
            self.assertEqual(asr(f.name), asr({"raw": SOUND[:11025], "sampling_rate": 11025}))

    def test_stream(self):
        """A recording that is read as it comes: each segment is there before the next window is read."""
        from kvik.pipelines import _wav
        loud_first = np.concatenate([SOUND[:4000], SOUND / 16])
        data = _wav(loud_first, 16000)
        with tempfile.NamedTemporaryFile(suffix=".wav") as f:
            f.write(data)
            f.flush()
            want = self.model.transcribe(f.name, return_timestamps=True, word_timestamps=True)
        told = []

        class Recorder:
            at = 0

            def read(self, n):
                if self.at > len(data) // 2:
                    assert told, "no segment of the first windows"
                part = data[self.at:self.at + min(n, 700)]
                self.at += len(part)
                return part

        got = self.model.transcribe(Recorder(), return_timestamps=True, word_timestamps=True, on_segment=told.append)
        self.assertEqual(str(got), str(want))
        self.assertEqual(str(told), str(want["segments"]))
        self.assertEqual(self.model.transcribe(io.BytesIO(data), return_timestamps=True)["text"], want["text"])
        self.model.transcribe(loud_first, return_timestamps=True, on_segment=told.append)
        self.assertEqual(len(told), 2 * len(want["segments"]))
        for read, error in ((lambda n: bytes(n + 1), kvik.ArgumentError), (lambda n: 1 / 0, ZeroDivisionError),
                            (lambda n: "text", TypeError), (lambda n: None, TypeError), (lambda n: b"", kvik.FormatError),
                            (lambda n: b"fLaC", kvik.UnsupportedError)):
            recorder = Recorder()
            recorder.read = read
            with self.assertRaises(error):
                self.model.transcribe(recorder)
        with self.assertRaises(ZeroDivisionError):
            self.model.transcribe(io.BytesIO(data), return_timestamps=True, on_segment=lambda s: 1 / 0)

    def test_wav_cut(self):
        """Of a WAV file without its end what is there is transcribed, with a warning."""
        from kvik.pipelines import _wav
        with tempfile.NamedTemporaryFile(suffix=".wav") as f:
            f.write(_wav(SOUND[:16000], 16000)[:44 + 4 * 8000])
            f.flush()
            with self.assertWarnsRegex(UserWarning, "the end of the file is missing"):
                cut = self.model.transcribe(f.name, return_timestamps=True)
            self.assertEqual(cut["seconds"], (os.path.getsize(f.name) - 44) / len(_wav(SOUND[:16000], 16000)[44:]))
            with warnings.catch_warnings(), self.assertRaisesRegex(UserWarning, "is missing"):
                warnings.simplefilter("error")
                self.model.transcribe(f.name, return_timestamps=True)


if __name__ == "__main__":
    unittest.main()
