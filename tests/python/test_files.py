"""Files of a model whose name exists but cannot be read are errors that name them: none counts as absent, none blocks.

So are files of JSON that is nested without end.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from common import ROOT, kvik, model_path

from kvik._lib import call  # noqa: E402

SPEECH = os.path.join(ROOT, "tests", "fixtures", "speech", "tiny")
KINDS = {
    "dangling": (lambda path: os.symlink("../blobs/gone", path), "a broken link: its target ../blobs/gone is not there"),
    "loop": (lambda path: os.symlink(os.path.basename(path), path), "symbolic links"),
    "fifo": (os.mkfifo, "not a regular file"),
    "directory": (os.mkdir, "not a regular file"),
}
DEEP = "[" * 100_000 + "]" * 100_000


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.tiny, self.speech = os.path.join(self.folder, "tiny"), os.path.join(self.folder, "speech")
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "cli", "tiny.py"), model_path("llama-mha"), self.tiny], check=True)
        shutil.copytree(SPEECH, self.speech)

    def readers(self):
        """Returns (directory, file, a call that reads it)."""
        open_model = kvik.AutoModelForCausalLM.from_pretrained
        cases = [(self.tiny, "config.json", kvik.AutoConfig.from_pretrained), (self.tiny, "config.json", open_model),
                 (self.tiny, "generation_config.json", kvik.GenerationConfig.from_pretrained),
                 (self.tiny, "generation_config.json", open_model), (self.tiny, "model.safetensors", open_model),
                 (self.speech, "preprocessor_config.json", kvik.AutoFeatureExtractor.from_pretrained),
                 (self.speech, "preprocessor_config.json", kvik.AutoProcessor.from_pretrained),
                 (self.speech, "processor_config.json", kvik.AutoFeatureExtractor.from_pretrained)]
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
            cases.append((self.tiny, name, kvik.AutoTokenizer.from_pretrained))
        return cases

    def test_a_name_that_cannot_be_read_is_an_error(self):
        for folder, name, read in self.readers():
            path = os.path.join(folder, name)
            for kind, (make, said) in KINDS.items():
                with self.subTest(name=name, kind=kind, read=read):
                    kept = path + ".kept"
                    had = os.path.exists(path)
                    if had:
                        os.rename(path, kept)
                    make(path)
                    try:
                        with self.assertRaises(kvik.FileError) as raised:
                            read(folder)
                        self.assertIn(name, str(raised.exception))
                        self.assertIn(said, str(raised.exception))
                    finally:
                        os.rmdir(path) if kind == "directory" else os.unlink(path)
                        if had:
                            os.rename(kept, path)

    def test_json_without_end_is_an_error(self):
        for folder, name, read in self.readers():
            if not name.endswith(".json"):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") if os.path.exists(path) else open(os.devnull, encoding="utf-8") as f:
                old = f.read()
            for text in (DEEP, '{"a":' * 100_000 + "1" + "}" * 100_000):
                with self.subTest(name=name, read=read, text=text[:4]):
                    with open(path, "w", encoding="utf-8") as f:
                        f.write(text)
                    with self.assertRaises(kvik.FormatError) as raised:
                        read(folder)
                    self.assertIn(name, str(raised.exception))
            os.unlink(path)
            if old:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(old)

    def test_a_note_without_end_is_no_note(self):
        model = kvik.AutoModelForCausalLM.from_pretrained(self.tiny)
        cache = kvik.DynamicCache()
        model([[5, 6, 7]], past_key_values=cache)
        path = os.path.join(self.folder, "deep.session")
        for note in (DEEP, '{"rows":' * 100_000):
            with cache._holding() as state:
                batch = state.batch
                call("kvik_cache_save", batch.store.pointer, path.encode(), batch.sequences(), batch.rows, note.encode())
            self.assertEqual(kvik.DynamicCache.load(path, model).get_seq_length(), 3)
            command = os.environ.get("KVIK") or os.path.join(ROOT, "kvik")
            shown = subprocess.run([command, "inspect", path], capture_output=True)
            self.assertEqual(shown.returncode, 0, shown.stderr[:300])
            chat = subprocess.run([command, "chat", self.tiny, "--session", path, "--max-new-tokens", "2"], input=b"a\n", capture_output=True)
            self.assertIn(chat.returncode, (1, 2), chat.stderr[:300])
            self.assertIn(b"deep.session", chat.stderr)

    def test_a_broken_link_in_the_own_cache_is_told(self):
        os.makedirs(os.path.join(self.folder, "kvik"))
        os.symlink("gone", os.path.join(self.folder, "kvik", "small.gguf"))
        with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.folder}):
            for name in ("small", "small.gguf"):
                with self.assertRaises(kvik.FileError) as raised:
                    kvik.AutoModelForCausalLM.from_pretrained(name)
                self.assertIn("small.gguf: a broken link: its target gone is not there", str(raised.exception))

    def test_absent_files_are_no_error(self):
        for name in ("generation_config.json", "special_tokens_map.json", "chat_template.jinja"):
            path = os.path.join(self.tiny, name)
            if os.path.exists(path):
                os.unlink(path)
        kvik.AutoTokenizer.from_pretrained(self.tiny)
        kvik.AutoModelForCausalLM.from_pretrained(self.tiny)
        with self.assertRaises(kvik.MissingError):
            kvik.GenerationConfig.from_pretrained(self.tiny)


if __name__ == "__main__":
    unittest.main()
