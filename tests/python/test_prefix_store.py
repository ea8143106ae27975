"""Rows of prompts that processes share through a store: here a directory, and a Redis that is not there."""
import copy
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from common import ROOT, kvik, model_path

NAME, N = "llama-gqa-l3", 300
IDS = (np.arange(N) * 7919 % 61 + 4)[None]
WHOLE = 256  # tokens of whole values

# Another process: it reads, generates and writes.
PROGRAM = """
import sys
import numpy as np
import kvik
path, address = sys.argv[1:]
model = kvik.AutoModelForCausalLM.from_pretrained(path, threads=1)
ids, cache = (np.arange(300) * 7919 % 61 + 4)[None], kvik.DynamicCache()
with kvik.PrefixStore(address) as store:
    print(store.read(cache, model, ids, wait=60))
    print(model.generate(ids, past_key_values=cache, max_new_tokens=6, do_sample=False)[0, 300:].tolist())
    print(store.write(cache, wait=60))
"""


def opened():
    """Returns a model whose caches share nothing with those of another."""
    return kvik.AutoModelForCausalLM.from_pretrained(model_path(NAME), threads=1)


def filled(m, **settings):
    """Returns a cache that has computed the prompt, and its next tokens."""
    cache = kvik.DynamicCache(**settings)
    return cache, m.generate(IDS, past_key_values=cache, max_new_tokens=6, do_sample=False)[0, N:].tolist()


class Directory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.store = kvik.PrefixStore(f"file://{self.folder}/rows")
        self.addCleanup(self.store.close)

    def test_another_process(self):
        """What this process has computed, another reads, with the tokens of computing; and the other way around."""
        m = opened()
        cache, want = filled(m)
        self.assertTrue(self.store.write(cache, wait=60))
        self.assertEqual(self.store.state()["writes"], 2)
        said = subprocess.run([sys.executable, "-c", PROGRAM, model_path(NAME), self.store.address], check=True, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.environ.get("KVIK_PYTHON") or os.path.join(ROOT, "python")}).stdout.split("\n")
        self.assertEqual(said[:3], [str(WHOLE), str(want), "True"])

    def test_rows(self):
        """The rows that were read have the bits of computing, also where all of the prompt was read, and in a static and a quantized cache."""
        m = opened()
        for n in (N, WHOLE):
            for settings in ({}, {"cache_implementation": "static", "max_cache_len": 400},
                             {"cache_implementation": "quantized", "cache_config": {"backend": "kvik", "nbits": 4}}):
                with self.subTest(n=n, **settings):
                    computed = kvik.Cache(**settings)
                    want = m(IDS[:, :n], past_key_values=computed).logits[0, -1]
                    self.assertTrue(self.store.write(computed, wait=60))
                    other, cache = opened(), kvik.Cache(**settings)
                    with kvik.PrefixStore(self.store.address) as store:
                        self.assertEqual(store.read(cache, other, IDS[:, :n], wait=60), WHOLE)
                        self.assertEqual(cache.get_seq_length(), WHOLE)
                        if n > WHOLE:
                            np.testing.assert_array_equal(other(IDS[:, WHOLE:n], past_key_values=cache).logits[0, -1], want)
                        ids = other.generate(IDS[:, :n], past_key_values=cache, max_new_tokens=1, do_sample=False) if n == WHOLE else None
                        self.assertTrue(ids is None or ids[0, -1] == want.argmax())

    def test_nothing(self):
        """Short prompts, other prompts and an empty store give nothing, and the cache then computes."""
        m = opened()
        cache, want = filled(m)
        empty = kvik.DynamicCache()
        self.assertEqual(self.store.read(empty, m, IDS, wait=60), 0)
        self.assertEqual(m.generate(IDS, past_key_values=empty, max_new_tokens=6, do_sample=False)[0, N:].tolist(), want)
        self.store.write(cache, wait=60)
        other = opened()
        for ids in (IDS[:, :255], IDS + 1, IDS[0, ::-1]):
            self.assertEqual(self.store.read(kvik.DynamicCache(), other, ids, wait=60), 0)
        self.store.close()  # and it goes on after that
        self.assertEqual(self.store.read(kvik.DynamicCache(), other, IDS[0].tolist(), wait=60), WHOLE)

    def test_salts(self):
        """Rows of one cache_salt are found by caches of that salt alone, in the store and in the process, and their tokens are the same."""
        m = opened()
        _, want = filled(m)
        for salt in ("", "one", "two"):
            cache = kvik.DynamicCache()
            self.assertEqual(self.store.read(cache, m, IDS, wait=60, cache_salt=salt), 0)
            self.assertEqual(m.generate(IDS, past_key_values=cache, max_new_tokens=6, do_sample=False)[0, N:].tolist(), want)
            if salt != "two":
                self.assertTrue(self.store.write(cache, wait=60))
        self.assertEqual(self.store.state()["writes"], 4)
        other = opened()
        for salt, n in (("one", WHOLE), ("two", 0), ("", WHOLE), ("One", 0)):
            with self.subTest(salt), kvik.PrefixStore(self.store.address) as store:
                cache = kvik.DynamicCache()
                self.assertEqual(store.read(cache, other, IDS, wait=60, cache_salt=salt), n)
                self.assertEqual(other.generate(IDS, past_key_values=cache, max_new_tokens=6, do_sample=False)[0, N:].tolist(), want)

    def test_salt_stays(self):
        """A cache keeps its salt where nothing was read, after a crop and a reset, and in a fork."""
        m, cache = opened(), kvik.DynamicCache()
        self.store.read(cache, m, IDS, cache_salt="one")
        for change in (lambda: None, lambda: cache.crop(0), cache.reset):
            change()
            m(IDS + 1, past_key_values=copy.deepcopy(cache))
            m(IDS, past_key_values=cache)
            self.store.write(cache, wait=60)
        for salt, n in (("one", WHOLE), ("", 0)):
            with kvik.PrefixStore(self.store.address) as store:
                self.assertEqual(store.read(kvik.DynamicCache(), opened(), IDS, wait=60, cache_salt=salt), n)

    def test_wrong(self):
        m = opened()
        cache, _ = filled(m)
        with self.assertRaisesRegex(kvik.ArgumentError, "holds 305 tokens"):
            self.store.read(cache, m, IDS)
        with self.assertRaisesRegex(kvik.ArgumentError, "2 rows"):
            self.store.read(kvik.DynamicCache(), m, np.repeat(IDS, 2, 0))
        with self.assertRaisesRegex(kvik.ArgumentError, "the cache is empty"):
            self.store.write(kvik.DynamicCache())
        with self.assertRaisesRegex(kvik.UnsupportedError, "turns"):
            self.store.read(kvik.QuantizedCache({"backend": "quanto"}), m, IDS)
        with self.assertRaisesRegex(kvik.ArgumentError, "begins with redis://"):
            kvik.PrefixStore("nowhere").read(kvik.DynamicCache(), m, IDS)
        self.assertNotIn("secret", repr(kvik.PrefixStore("redis://:secret@host")))

    def test_gone(self):
        """A Redis that cannot be reached costs nothing but the reuse."""
        m = opened()
        cache, _ = filled(m)
        with kvik.PrefixStore("unix:///nowhere/redis.sock") as store:
            self.assertEqual(store.read(kvik.DynamicCache(), m, IDS), 0)
            store.write(cache, wait=0.5)
            state = store.state()
        self.assertGreater(state["failures"], 0)
        self.assertIn("nowhere", state["error"])


if __name__ == "__main__":
    unittest.main()
