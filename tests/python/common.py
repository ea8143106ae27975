"""What the tests of the Python package share: the package of the source tree, the golden models and their cases."""
import json
import lzma
import os
import shutil
import struct
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.environ.get("KVIK_PYTHON") or os.path.join(ROOT, "python"))
GOLDEN = os.path.join(ROOT, "tests", "golden")
CHAT_MODEL = os.environ.get("KVIK_TEST_MODEL", "none")
PATIENCE = int(os.environ.get("KVIK_TEST_PATIENCE") or 300)  # seconds that only a test that hangs takes

import numpy as np  # noqa: E402

import kvik  # noqa: E402

_models = {}


def model_path(name):
    """Returns the directory of a golden model."""
    return os.path.join(GOLDEN, "models", name)


def model(name, dtype=None):
    """Opens a golden model, once."""
    key = name, dtype
    if key not in _models:
        _models[key] = kvik.AutoModelForCausalLM.from_pretrained(model_path(name), dtype=dtype, threads=1, max_sequences=16)
    return _models[key]


def hold(cache, call):
    """Calls `call` while this thread uses a cache: it does so while it runs a function of the package."""
    inside = {"__name__": "kvik.inside"}
    exec("def hold(cache, call):\n    with cache._use():\n        call()", inside)
    inside["hold"](cache, call)


def read_json(*path):
    """Reads a file of the golden set."""
    with open(os.path.join(GOLDEN, *path), encoding="utf-8") as f:
        return json.load(f)


def folder_of_tokenizer(test, name):
    """Returns a directory with a golden tokenizer, which a test has until its end."""
    folder, source = tempfile.mkdtemp(), os.path.join(GOLDEN, "tokenizers", name)
    test.addCleanup(shutil.rmtree, folder)
    shutil.copy(os.path.join(source, "tokenizer_config.json"), folder)
    with lzma.open(os.path.join(source, "tokenizer.json.xz")) as packed, open(os.path.join(folder, "tokenizer.json"), "wb") as f:
        shutil.copyfileobj(packed, f)
    return folder


def tensors(*path):
    """Reads a safetensors file with f32 and integer tensors."""
    with open(os.path.join(GOLDEN, *path), "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = np.frombuffer(data[8 + size + begin:8 + size + end], kinds[t["dtype"]]).reshape(t["shape"])
    return out


def cache_of(class_name, args, config):
    """Makes a cache as a recorded case says; "config": "model" means the model's."""
    given = {k: config if v == "model" else v for k, v in args.items()}
    class_name = {"Sink": "SinkCache", None: "DynamicCache"}.get(class_name, class_name)
    return getattr(kvik, class_name)(**given)


def up_to_eos(row, eos):
    """Cuts a row after its first end-of-sequence token."""
    row = list(row)
    for i, token in enumerate(row):
        if token in eos:
            return row[:i + 1]
    return row


def has_torch():
    """True if torch is installed; tests without it use numpy."""
    from importlib.util import find_spec
    return find_spec("torch") is not None
