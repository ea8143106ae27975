"""What notebooks show: HTML that is whole and escapes texts, memory() as a report, bars of long prompts and recordings."""
import contextlib
import io
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
import unittest
import warnings
from html.parser import HTMLParser
from importlib.util import find_spec

import numpy as np

from common import CHAT_MODEL, ROOT, hold, kvik, model, model_path
from sound import sound

from kvik._lib import text_of  # isort: skip

TINY = os.path.join(ROOT, "tests", "fixtures", "speech", "tiny")
NOTEBOOK = os.path.join(ROOT, "examples", "python", "notebook.ipynb")
IDS = np.arange(5, 75)[None]


class Page(HTMLParser):
    """Reads HTML: `tags` in their order, `text`, and the text in each <pre>.  Raises for a tag that is not closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open, self.pre = [], "", [], []
        self.feed(html)
        self.close()
        if self.open:
            raise AssertionError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "pre":
            self.pre.append("")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text += data
        if "pre" in self.open:
            self.pre[-1] += data


def page(thing):
    """Returns what a notebook shows of an object."""
    return Page(thing._repr_html_())


def letters(pre):
    """Returns the letters of a map without the numbers in front of its lines."""
    return "".join(line.split()[1] for line in pre.splitlines() if not line.lstrip().startswith("("))


def library_map(cache):
    """Returns the maps of the first row as the library gives them."""
    batch = cache._batch
    return [g["map"] for g in json.loads(text_of("kvik_cache_map", batch.store.pointer, batch.sequences()[0]))["groups"] if g["map"]]


class Caches(unittest.TestCase):
    def test_maps(self):
        for name, kind in (("llama-mha", "DynamicCache"), ("llama-mha", "QuantizedCache"), ("gemma2", "DynamicCache"),
                           ("mamba", "DynamicCache"), ("jamba", "DynamicCache")):
            with self.subTest(model=name, cache=kind):
                cache = kvik.QuantizedCache("quanto", nbits=4, q_group_size=8, residual_length=16) if kind == "QuantizedCache" else kvik.DynamicCache()
                model(name)(IDS, past_key_values=cache)
                fork = cache.fork()
                shown = page(cache)
                self.assertEqual([letters(p) for p in shown.pre], library_map(cache))
                self.assertIn(f"{kind} (", shown.text)
                self.assertIn(": 70 tokens in ", shown.text)
                self.assertIn("of it shared", shown.text)
                del fork
                self.assertNotIn("of it shared", page(cache).text)

    def test_disk(self):
        cache = kvik.OffloadedCache(cache_memory="460K", max_sequences=2)
        model("llama-mha").generate(np.arange(5, 205)[None], past_key_values=cache, max_new_tokens=4)
        shown = page(cache)
        self.assertIn("d", letters(shown.pre[0]))
        self.assertIn(" KiB on disk", shown.text)
        self.assertRegex(str(cache.memory()), r"on disk +[0-9.]+ KiB")

    def test_long_map(self):
        """A letter stands for several blocks, and the title of a piece names its tokens."""
        text = "e" * 900 + "d" * 97 + "ro"
        shown = Page(html := kvik.display._map({"map": text, "block_rows": 16}))
        self.assertEqual(letters(shown.pre[0]), text[::3])
        self.assertIn("(the first of every 3 blocks)", shown.text)
        self.assertEqual([line.split()[0] for line in shown.pre[0].splitlines()[:-1]], [str(i * 64 * 3 * 16) for i in range(6)])
        self.assertIn('title="tokens 14400 to 15359: on disk"', html)

    def test_states(self):
        """Caches that have no map: empty, filled by update(), of tuples, of a session; and the pair of a model with an encoder."""
        self.assertIn("DynamicCache: 0 tokens; nothing is cached", page(kvik.DynamicCache()).text)
        own = kvik.DynamicCache()
        own.update(np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 3, 4), np.float32), 0)
        self.assertIn("3 tokens", page(own).text)
        filled = kvik.DynamicCache()
        model("llama-mha")(IDS, past_key_values=filled)
        self.assertIn("70 tokens", page(kvik.DynamicCache.from_legacy_cache(filled.to_legacy_cache())).text)
        self.assertIn("70 tokens", page(pickle.loads(pickle.dumps(filled))).text)
        t5 = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), threads=1)
        pair = t5(input_ids=IDS[:, :6], decoder_input_ids=[[0, 1]]).past_key_values
        self.assertIn("6 rows of the encoder", page(pair).text)
        self.assertIn("2 tokens", page(pair).text)
        self.assertEqual(len(page(pair).pre), 2)
        shown = page(pair.cross_attention_cache)
        self.assertIn("rows of the encoder, 1 block of 16 rows", shown.text)
        self.assertEqual(len(shown.pre), 1)

    def test_batch(self):
        cache = kvik.DynamicCache()
        model("llama-mha")(np.repeat(IDS, 6, 0), past_key_values=cache)
        shown = page(cache)
        self.assertIn("6 rows of 70 tokens", shown.text)
        self.assertEqual(len(shown.pre), 4)
        self.assertIn("(2 more rows)", shown.text)

    def test_busy(self):
        cache = kvik.DynamicCache()
        model("llama-mha")(IDS, past_key_values=cache)
        held, done = threading.Event(), threading.Event()

        def use():
            held.set()
            done.wait()
        thread = threading.Thread(target=hold, args=(cache, use))
        thread.start()
        held.wait()
        try:
            self.assertIn("the cache is in use by a call", page(cache).text)
        finally:
            done.set()
            thread.join()


class Memory(unittest.TestCase):
    def test_report(self):
        cache = kvik.DynamicCache()
        self.assertEqual((repr(cache.memory()), dict(cache.memory())), ("nothing is cached", {}))
        model("llama-mha")(IDS, past_key_values=cache)
        fork = cache.fork()
        used = cache.memory()
        self.assertIsInstance(used, dict)
        lines = dict(line.rsplit("  ", 1) for line in str(used).splitlines()[:-1])
        lines = {key.strip(): value.strip() for key, value in lines.items()}
        self.assertEqual(lines["rows"], kvik.memory.bytes_text(used["live"]))
        self.assertEqual(lines["this cache"], kvik.memory.bytes_text(used["own_bytes"]))
        self.assertNotIn("on disk", lines)
        self.assertRegex(str(used).splitlines()[-1], r"[0-9]+ tokens, [0-9]+ fork")
        self.assertEqual(dict(pickle.loads(pickle.dumps(used))), dict(used))
        self.assertEqual(json.loads(json.dumps(used)), dict(used))
        for value in lines.values():
            self.assertIn(value, page(used).text)
        del fork

    def test_bytes(self):
        for n, text in ((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (737280, "720.0 KiB"), (5 << 20, "5.0 MiB"),
                        (3 << 39, "1.5 TiB"), (3 << 50, "3072.0 TiB")):
            self.assertEqual(kvik.memory.bytes_text(n), text)


class Models(unittest.TestCase):
    def test_kinds(self):
        for name, kind in (("llama-mha", kvik.AutoModelForCausalLM), ("mamba", kvik.AutoModelForCausalLM), ("jamba", kvik.AutoModel),
                           ("t5", kvik.AutoModelForSeq2SeqLM), ("whisper", kvik.AutoModelForSpeechSeq2Seq)):
            with self.subTest(model=name):
                shown = page(kind.from_pretrained(model_path(name), threads=1))
                self.assertIn("parameters", shown.text)
                self.assertIn("caches of this model", shown.text)

    def test_path(self):
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "<script>alert(1)<b>&amp;\"'")
            shutil.copytree(model_path("llama-mha"), place)
            shown = page(kvik.AutoModelForCausalLM.from_pretrained(place, threads=1))
        self.assertIn("<script>alert(1)<b>&amp;\"'", shown.text)
        self.assertNotIn("script", shown.tags)
        self.assertEqual(shown.tags.count("b"), 1)


class Results(unittest.TestCase):
    def test_generate(self):
        out = model("llama-mha").generate(IDS, max_new_tokens=4, return_dict_in_generate=True, output_scores=True, num_beams=2,
                                          num_return_sequences=2)
        shown = page(out)
        for text in ("GenerateBeamDecoderOnlyOutput", "length, score ", "decode ", "scores", "[2, 74] int64"):
            self.assertIn(text, shown.text)

    def test_forward(self):
        shown = page(model("llama-mha")(IDS, output_hidden_states=True))
        self.assertIn("CausalLMOutputWithPast", shown.text)
        self.assertIn("of [1, 70, ", shown.text)

    def test_escapes(self):
        """A text of a model can spell any tag."""
        text = "<script>alert('x')</script></div></table>&lt;"
        out = kvik.outputs.GenerateOutput(sequences=np.zeros((1, 2), np.int64), texts=[text], finish_reasons=["<i>"], odd="</td>")
        heard = kvik.speech.SpeechOutput(sequences=np.zeros((1, 2), np.int64), segments=[[{"start": 0.0, "end": 1.5, "text": text}]])
        for one in (page(out), page(heard)):
            self.assertIn(text, one.text)
            self.assertFalse({"script", "i"} & set(one.tags))
        self.assertIn("0.00-1.50 s", page(heard).text)

    def test_parts(self):
        """Results that a program has put together."""
        self.assertIn("a", page(kvik.outputs.GenerateOutput(texts=["a"])).text)
        self.assertIn("7 8", page(kvik.outputs.GenerateOutput(texts=[""], sequences=np.array([[7, 8]]))).text)
        page(kvik.outputs.ModelOutput())

    def test_long(self):
        out = kvik.outputs.GenerateOutput(sequences=np.zeros((40, 2), np.int64), texts=["x" * 5000] * 40, finish_reasons=["length"] * 40)
        self.assertIn("(1000 more characters)", page(out).text)
        self.assertIn("(24 more rows)", page(out).text)


class Bars(unittest.TestCase):
    def tearDown(self):
        kvik.logging.disable_progress_bar()

    def shown(self, call):
        """Returns what a call writes to stderr."""
        out = io.StringIO()
        with contextlib.redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm's, of a notebook without widgets
            call()
        return out.getvalue()

    def generate(self, first, **kwargs):
        return model("llama-mha").generate(first + IDS, max_new_tokens=2, prefill_chunk_size=16, **kwargs)

    def test_off(self):
        self.assertFalse(kvik.logging.is_progress_bar_enabled())
        self.assertEqual(self.shown(lambda: self.generate(100)), "")

    @unittest.skipUnless(find_spec("tqdm"), "tqdm is not installed")
    def test_prompt(self):
        kvik.logging.enable_progress_bar()
        self.assertTrue(kvik.logging.is_progress_bar_enabled())
        text = self.shown(lambda: self.generate(1))
        self.assertIn("prompt: 100%", text)
        self.assertIn("70/70 tokens", text)
        self.assertEqual(self.shown(lambda: model("llama-mha").generate(IDS[:, :3], max_new_tokens=2)), "")  # one step: no bar

    @unittest.skipUnless(find_spec("tqdm"), "tqdm is not installed")
    def test_streamer(self):
        """A bar ends its line before a streamer writes the first token."""
        kvik.logging.enable_progress_bar()
        seen = []

        class Streamer(kvik.BaseStreamer):
            def put(self, value):
                seen.append(sys.stderr.getvalue())

            def end(self):
                pass
        self.shown(lambda: self.generate(4, streamer=Streamer()))
        self.assertEqual(seen[0], "")  # the prompt
        self.assertIn("prompt: 100%", seen[1])
        self.assertTrue(seen[1].endswith("\n"), seen[1])

    @unittest.skipUnless(find_spec("tqdm"), "tqdm is not installed")
    def test_error(self):
        """An exception of a callback ends the call and the bar."""
        kvik.logging.enable_progress_bar()

        def fails(ids, scores):
            raise ZeroDivisionError("of the callback")
        text = self.shown(lambda: self.assertRaises(ZeroDivisionError, self.generate, 2, logits_processor=[fails]))
        self.assertIn("prompt:", text)
        self.assertIn("prompt: 100%", self.shown(lambda: self.generate(3)))

    @unittest.skipUnless(find_spec("tqdm"), "tqdm is not installed")
    def test_recording(self):
        kvik.logging.enable_progress_bar()
        whisper = kvik.AutoModelForSpeechSeq2Seq.from_pretrained(TINY, threads=1)
        told = []
        text = self.shown(lambda: whisper.transcribe(sound(48000), progress=lambda s, total: told.append((s, total)),
                                                     max_new_tokens=4, return_timestamps=True))
        self.assertIn("recording:", text)
        self.assertEqual(told[-1], (3.0, 3.0))

    @unittest.skipIf(find_spec("tqdm"), "tqdm is installed")
    def test_missing(self):
        with self.assertWarnsRegex(UserWarning, "pip install tqdm"):
            kvik.logging.enable_progress_bar()
        self.assertFalse(kvik.logging.is_progress_bar_enabled())


class Notebook(unittest.TestCase):
    @unittest.skipUnless(find_spec("nbclient") and find_spec("ipykernel"), "nbclient and ipykernel are not installed")
    @unittest.skipUnless(os.path.isfile(CHAT_MODEL), "no model")
    def test_example(self):
        import nbformat
        from nbclient import NotebookClient
        book = nbformat.read(NOTEBOOK, 4)
        nbformat.validate(book)
        for cell in book.cells:
            self.assertFalse(cell.get("outputs"), "the notebook is kept without outputs")
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(kvik.__file__))
        try:
            NotebookClient(book, kernel_name="python3").execute()
        finally:
            os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
        shown = [Page(o.data["text/html"]) for cell in book.cells for o in cell.get("outputs", ())
                 if o.output_type == "execute_result"]
        self.assertEqual([p.text.split()[0] for p in shown], ["LlamaForCausalLM", "GenerateDecoderOnlyOutput0", "DynamicCache",
                                                              "DynamicCache", "QuantizedCache", "this"])
        self.assertIn("R", letters(shown[3].pre[0]))
        self.assertIn("e", letters(shown[4].pre[0]))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # the report of all tests names what is skipped
