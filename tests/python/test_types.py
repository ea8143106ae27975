"""Type checkers: the package passes mypy --strict, mypy and pyright find every mistake of types/wrong.py and none elsewhere, and
what the package says of options and classes is what the tables of the library say."""
import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec

import numpy as np

from common import ROOT, kvik

PACKAGE = os.path.join(ROOT, "python")
TYPES = os.path.join(ROOT, "tests", "python", "types")
EXAMPLES = os.path.join(ROOT, "examples", "python")
# Before 2.2, np.ndarray without its two parameters is no complete type.
STRICT = ["--strict"] if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 2) else ["--strict", "--allow-any-generics"]
MYPY = [sys.executable, "-m", "mypy"] if find_spec("mypy") else [shutil.which("mypy")]
PYRIGHT = shutil.which("basedpyright") or shutil.which("pyright")


def run(command, **kwargs):
    """Runs a program; returns what it prints and its exit status."""
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **kwargs)
    return out.stdout, out.returncode


def mypy(*arguments):
    """Runs mypy with numpy of this Python."""
    return run([*MYPY, "--cache-dir", os.path.join(ROOT, "build", "mypy"), "--python-executable", sys.executable,
                "--no-error-summary", *arguments], cwd=PACKAGE)


def pyright(*paths):
    """Runs pyright over copies of programs, as one of a reader who has the package; returns {file: lines with an error}."""
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            shutil.copy(path, folder)
        with open(os.path.join(folder, "pyrightconfig.json"), "w", encoding="utf-8") as f:
            json.dump({"extraPaths": [PACKAGE], "typeCheckingMode": "standard", "pythonVersion": "3.9",
                       "reportPossiblyUnboundVariable": False}, f)
        out, _ = run([PYRIGHT, "--outputjson", "--pythonpath", sys.executable], cwd=folder)
    found = {os.path.basename(path): set() for path in paths}
    for entry in json.loads(out[out.index("{"):])["generalDiagnostics"]:
        if entry["severity"] == "error":
            found[os.path.basename(entry["file"])].add((entry["range"]["start"]["line"] + 1, entry["message"].split("\n")[0]))
    return found


def pyright_of_package():
    """Runs pyright over the package itself; returns what it calls errors."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(PACKAGE, "kvik"), os.path.join(folder, "kvik"), ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        with open(os.path.join(folder, "pyrightconfig.json"), "w", encoding="utf-8") as f:
            json.dump({"include": ["kvik"], "typeCheckingMode": "standard", "pythonVersion": "3.9"}, f)
        out, _ = run([PYRIGHT, "--outputjson", "--pythonpath", sys.executable], cwd=folder)
    return [(os.path.relpath(e["file"], folder), e["range"]["start"]["line"] + 1, e["message"])
            for e in json.loads(out[out.index("{"):])["generalDiagnostics"] if e["severity"] == "error"]


def marked(path):
    """Returns the numbers of the lines that say that they have a mistake."""
    with open(path, encoding="utf-8") as f:
        return {i for i, line in enumerate(f, 1) if "# mistake:" in line}


def keys(name):
    """Returns the keys of a typed dictionary of the package's stubs, with those of its bases."""
    known = {}
    for file in ("_options.pyi", "_typing.pyi"):
        with open(os.path.join(PACKAGE, "kvik", file), encoding="utf-8") as f:
            known.update({n.name: n for n in ast.parse(f.read()).body if isinstance(n, ast.ClassDef)})
    bases = [b.id for b in known[name].bases if b.id in known]
    return {n.target.id for n in known[name].body if isinstance(n, ast.AnnAssign)}.union(*map(keys, bases))


def parameters(function):
    """Returns the names of a method's parameters, without self and the rest."""
    found = inspect.signature(function).parameters.values()
    return {p.name for p in found if p.name != "self" and p.kind is not p.VAR_KEYWORD}


def programs(folder):
    """Returns the programs of a folder."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".py")]


class Types(unittest.TestCase):
    maxDiff = None

    def test_tables(self):
        out, code = run([sys.executable, os.path.join(ROOT, "scripts", "make-python-types.py"), "--check"])
        self.assertEqual((out, code), ("", 0))

    def test_arguments(self):
        """What calls take besides options is declared as the functions have it."""
        model, speech = kvik.model, kvik.speech
        text = kvik.PreTrainedModel
        told = keys("ForwardArguments") | {"input_ids", "attention_mask", "past_key_values", "return_dict"}
        self.assertEqual(told, parameters(text.forward) | {*model._FORWARD_IGNORED, "num_logits_to_keep"})
        from_hub = set(kvik.download.ARGUMENTS) - {"resume_download", "code_revision"}  # accepted without effect
        self.assertEqual(keys("OpenArguments"), model._OPEN_TAKES | from_hub)
        told = keys("Seq2SeqArguments") | {"input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask",
                                           "encoder_outputs", "past_key_values", "return_dict"}
        self.assertEqual(told, parameters(kvik.seq2seq.Seq2SeqModel.forward))
        self.assertEqual(keys("EncodeArguments"), {*kvik.tokenization._TAKES})
        named = {"inputs", "generation_config", "logits_processor", "stopping_criteria", "return_dict_in_generate"}
        self.assertLessEqual(parameters(text.generate), keys("GenerateArguments") | named)
        own = parameters(speech.SpeechSeq2SeqModel.generate)
        self.assertLessEqual(own, keys("SpeechArguments") | named | {"input_features", "return_segments", "return_token_timestamps"})
        self.assertLessEqual({*speech._OF_SPEECH, *speech._BEAMS} - {"is_multilingual"}, keys("TranscribeArguments"))

    @unittest.skipUnless(MYPY[0], "mypy is not installed")
    def test_mypy(self):
        self.assertEqual(mypy(*STRICT, "-p", "kvik"), ("", 0))
        self.assertEqual(mypy(*STRICT, os.path.join(TYPES, "right.py")), ("", 0))
        self.assertEqual(mypy(*programs(EXAMPLES)), ("", 0))
        out, code = mypy(*STRICT, os.path.join(TYPES, "wrong.py"))
        self.assertEqual(code, 1, out)
        lines = {int(line.split(":")[1]) for line in out.splitlines() if ": error:" in line}
        self.assertEqual(lines, marked(os.path.join(TYPES, "wrong.py")), out)

    @unittest.skipUnless(PYRIGHT and os.environ.get("KVIK_TEST_LONG"), "needs pyright and KVIK_TEST_LONG=1")
    def test_package(self):
        """Half a minute: the package has no error.  Where a class narrows what it inherits, the line says which rule it breaks."""
        self.assertEqual(pyright_of_package(), [])

    @unittest.skipUnless(PYRIGHT, "pyright is not installed")
    def test_pyright(self):
        found = pyright(os.path.join(TYPES, "right.py"), os.path.join(TYPES, "wrong.py"), *programs(EXAMPLES))
        wrong = found.pop("wrong.py")
        self.assertEqual({line for line, _ in wrong}, marked(os.path.join(TYPES, "wrong.py")), wrong)
        self.assertEqual({name: errors for name, errors in found.items() if errors}, {})

    def test_mistakes(self):
        self.assertGreaterEqual(len(marked(os.path.join(TYPES, "wrong.py"))), 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # the report of all tests names what is skipped
