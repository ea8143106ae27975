"""Pickles that are damaged: loading and using them is an error or works, and never a crash, a hang or memory without end.

A pickle can run any code, so nobody loads one that a stranger made.  What is damaged here are the states that kvik's classes
are given, and the bytes of pickles, read by an unpickler that knows the names of the undamaged pickle alone.
"""
import collections
import copy
import faulthandler
import io
import lzma
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np
from common import GOLDEN, kvik, model, model_path

IDS = np.array([[5, 6, 7, 8, 9]])
TRIES = 3000 if os.environ.get("KVIK_TEST_LONG") else 40
LONG = TRIES > 1000
NAMES = ("dynamic", "static", "quantized", "updated", "legacy", "empty", "pair", "options", "config", "output", "memory", "encoding",
         "processor", "model", "tokenizer")
WRONG = (None, True, -1, 0, 2**70, 1.5, float("nan"), "", "x", b"", b"\0\xff", [], (), {}, [None], [[1]], {"a": 1}, object,
         np.zeros((0, 0), np.float32), np.zeros((2, 1, 2**8, 3)), np.array(["a"]), np.float32(3))


def objects(folder):
    """Returns the objects to pickle by name, each with what a program then does with it."""
    llama, rows = model("llama-mha"), np.ones((1, 4, 3, 16), np.float32)

    def filled(cache):
        llama(IDS, past_key_values=cache)
        return cache

    def updated(cache):
        for layer in range(3):
            cache.update(rows, rows, layer)
        return cache

    def read(cache):
        said = repr(cache), cache.get_seq_length(), cache.memory(), copy.deepcopy(cache).get_seq_length()
        llama.generate(IDS, past_key_values=cache, max_new_tokens=3)
        cache.crop(2)
        return said, pickle.dumps(cache)

    def append(cache):
        said = repr(cache), cache.get_seq_length(), [layer.keys for layer in cache.layers]
        return said, cache.update(rows, rows, 0), pickle.dumps(cache)

    def generate(config):
        return repr(config), llama.generate(IDS, generation_config=config, max_new_tokens=2)

    t5 = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1, max_sequences=8)
    pair = t5.generate(IDS, max_new_tokens=2, return_dict_in_generate=True).past_key_values
    source = os.path.join(GOLDEN, "tokenizers", "qwen3")
    shutil.copy(os.path.join(source, "tokenizer_config.json"), folder)
    with lzma.open(os.path.join(source, "tokenizer.json.xz")) as packed, open(os.path.join(folder, "tokenizer.json"), "wb") as f:
        shutil.copyfileobj(packed, f)
    tokenizer = kvik.AutoTokenizer.from_pretrained(folder)
    scores = np.zeros((1, 384), np.float32)
    return {
        "dynamic": (filled(kvik.DynamicCache()), read), "static": (filled(kvik.StaticCache(llama.config, max_cache_len=32)), read),
        "quantized": (filled(kvik.QuantizedCache("quanto", nbits=4)), read), "updated": (updated(kvik.DynamicCache()), append),
        "legacy": (kvik.DynamicCache.from_legacy_cache(filled(kvik.DynamicCache()).to_legacy_cache()), read),
        "empty": (kvik.DynamicCache(cache_memory="1M"), read),
        "pair": (pair, lambda c: (repr(c), c.get_seq_length(), t5(decoder_input_ids=[[3]], past_key_values=c), pickle.dumps(c))),
        "options": (kvik.GenerationConfig(max_new_tokens=3, no_repeat_ngram_size=3, bad_words_ids=[[3]]), generate),
        "config": (llama.config, lambda c: (repr(c), c.to_dict(), kvik.StaticCache(c, max_cache_len=32))),
        "output": (llama.generate(IDS, max_new_tokens=2, return_dict_in_generate=True, output_scores=True),
                   lambda o: (repr(o), o.to_tuple(), pickle.dumps(o))),
        "memory": (filled(kvik.DynamicCache()).memory(), lambda m: (repr(m), m._repr_html_())),
        "encoding": (tokenizer(["a word", "two"], padding=True, return_offsets_mapping=True),
                     lambda e: (repr(e), e["input_ids"], e.word_ids(0), e.char_to_token(0, 1))),
        "processor": (kvik.TopPLogitsWarper(0.9), lambda p: p(IDS, scores)),
        "model": (llama, lambda m: m.generate(IDS, max_new_tokens=2)),
        "tokenizer": (tokenizer, lambda t: t("a word")["input_ids"]),
    }


def mutated(value, rng):
    """Returns a value of which one part is another: a bit of bytes, an entry of a container or an attribute, or all of it."""
    if rng.random() < 0.15:
        return rng.choice(WRONG)
    if isinstance(value, bytes) and value:
        data = bytearray(value)
        if rng.random() < 0.3:
            return bytes(data[:rng.randrange(len(data))])
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if isinstance(value, np.ndarray) and value.size:
        return rng.choice([value[..., :-1], value[None], value * np.inf, value.astype(np.int8), value.astype(str), value.ravel()])
    if isinstance(value, dict) and value:
        key, out = rng.choice(list(value)), dict(value)
        if rng.random() < 0.2:
            del out[key]
        elif rng.random() < 0.2:
            out[rng.choice(["x", 3, None])] = out.pop(key)
        else:
            out[key] = mutated(out[key], rng)
        return out
    if isinstance(value, (list, tuple)) and value:
        out, at = list(value), rng.randrange(len(value))
        if rng.random() < 0.2:
            del out[at]
        else:
            out[at] = mutated(out[at], rng)
        return type(value)(out)
    if hasattr(value, "__dict__") and not callable(value) and type(value).__module__.startswith("kvik") and value.__dict__:
        twin = copy.copy(value) if hasattr(value, "__dataclass_fields__") else type(value).__new__(type(value))
        twin.__dict__.update(mutated(dict(value.__dict__), rng))
        return twin
    return rng.choice(WRONG)


class Known(pickle.Unpickler):
    """An unpickler for the names of another pickle alone."""

    def __init__(self, data, names):
        super().__init__(io.BytesIO(data))
        self.names = names

    def find_class(self, module, name):
        if self.names is not None and (module, name) not in self.names:
            raise pickle.UnpicklingError(f"{module}.{name} is not in the pickle")
        return super().find_class(module, name)


def names_of(data):
    """Returns the names that a pickle reads."""
    found = set()

    class Noting(Known):
        def find_class(self, module, name):
            found.add((module, name))
            return super().find_class(module, name)
    Noting(data, None).load()
    return found


def from_state(value, rng):
    """Makes an object again of its state, of which a part is another."""
    made = value.__reduce_ex__(4)
    function, arguments, state = made[0], made[1], made[2] if len(made) > 2 else None
    if state is None:
        arguments = (arguments[0], *mutated(tuple(arguments[1:]), rng)) if len(arguments) > 1 else mutated(arguments, rng)
        return function(*arguments)
    twin = function(*arguments)
    state = mutated(state, rng)
    if hasattr(twin, "__setstate__"):
        twin.__setstate__(state)
    else:
        twin.__dict__.update(state)
    return twin


def from_bytes(value, rng):
    """Makes an object of its pickle, whose bytes are changed, removed or doubled."""
    whole = pickle.dumps(value, 4)
    data, names = bytearray(whole), names_of(whole)
    for _ in range(rng.choice([1, 1, 1, 4])):
        at, kind = rng.randrange(len(data)), rng.random()
        if kind < 0.6:
            data[at] = rng.randrange(256)
        elif kind < 0.8:
            del data[at:at + rng.choice([1, 2, 8, len(data)])]
        else:
            data[at:at] = data[at:at + rng.choice([1, 4, 16])]
        if not data:
            break
    return Known(bytes(data), names).load()


def attack(name, seed, tries):
    """Loads and uses damaged pickles of an object, and prints counts of what happened.  Ends the process where one takes 120 s."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        value, use = objects(folder)[name]
        use(pickle.loads(pickle.dumps(value)))
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        os.chdir(folder)
        for i in range(tries):
            rng = random.Random(seed * 10**6 + i)
            faulthandler.dump_traceback_later(120, exit=True)
            try:
                again = (from_state, from_bytes)[i % 2](value, rng)
            except Exception:
                counts["refused"] += 1
                continue
            try:
                if type(again) is type(value):
                    use(again)
                counts["used"] += 1
            except Exception:
                counts["refused in use"] += 1
        faulthandler.cancel_dump_traceback_later()
        use(pickle.loads(pickle.dumps(value)))  # the undamaged one still works beside them
    print("done", dict(counts), flush=True)


class Pickles(unittest.TestCase):
    def test_damage(self):
        for name in NAMES:
            with self.subTest(name):
                run = subprocess.run([sys.executable, __file__, "attack", name, "1", str(TRIES)], capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stderr[-3000:])
                self.assertIn("done", run.stdout)
                if LONG:
                    print(name, run.stdout.strip())

    def test_state_of_a_cache(self):
        """Each entry of a state that lacks, or is of a wrong type, is an error where the pickle is read."""
        cache = kvik.DynamicCache()
        model("llama-mha")(IDS, past_key_values=cache)
        state = cache.__getstate__()
        rows = [(np.zeros((1, 2, 3, 4), np.float32),) * 2]
        bad = [("state", None), ("state", []), *((key, "gone") for key in ("_settings", "_held", "_session", "config", "_torch"))]
        bad += [(key, value) for key in ("_settings", "_held", "_session", "_passed", "_linear") for value in (3, "x", b"", [3], {"a": 1})]
        bad += [("_session", {**state["_session"], "bytes": 3}), ("_session", {**state["_session"], "rows": -1}),
                ("_session", {**state["_session"], "length": 2**40}), ("_held", [rows[0][:1]]), ("_held", [(rows[0][0], rows[0][0][:, :1])]),
                ("_held", [(rows[0][0][0],) * 2]), ("_torch", 1), ("_removes", "x"), ("config", 3)]
        for key, value in bad:
            changed = value if key == "state" else {**state, key: value}
            if value == "gone":
                del changed[key]
            twin = kvik.DynamicCache.__new__(kvik.DynamicCache)
            with self.subTest(key=key, value=str(value)[:60]), self.assertRaisesRegex(kvik.ArgumentError, "the pickle of this DynamicCache is "
                                                                                      "damaged: .*" + key.strip("_")):
                twin.__setstate__(changed)
        twin = kvik.DynamicCache.__new__(kvik.DynamicCache)
        twin.__setstate__({k: v for k, v in state.items() if k not in ("_passed", "_linear", "_removes")})  # of an older version
        self.assertEqual(twin.get_seq_length(), 5)

    def test_other_states(self):
        warper, encoding = kvik.TopPLogitsWarper(0.9), kvik.BatchEncoding({"input_ids": [1]})
        for value, state in ((warper, {}), (warper, 3), (warper, {"_values": 3}), (encoding, {}), (encoding, {"data": 3})):
            with self.subTest(value=type(value), state=state), self.assertRaisesRegex(kvik.ArgumentError, "is damaged"):
                type(value).__new__(type(value)).__setstate__(state)

    def test_numbers_for_texts(self):
        """A number where the library takes a text is an error; ctypes would take it for an address."""
        for name in ("cache_implementation", "compute", "isa", "spill_dir", "on_full"):
            with self.subTest(name), self.assertRaisesRegex(kvik.ArgumentError, name + " is 5; expected a text"):
                model("llama-mha")(IDS, past_key_values=kvik.DynamicCache(**{name: 5}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["attack"]:
        attack(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        unittest.main()
