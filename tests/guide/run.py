#!/usr/bin/env python3
"""Runs every snippet of the guide with kvik and compares its tokens with reference runs on the same models.

usage: run.py GUIDE BUILD

GUIDE is the directory of the snippets, BUILD one for the models.  Every call of generate() that a snippet makes is
recorded and run again by Transformers.  Before that, models of Transformers run with kvik's caches.  Prints a line for each snippet, and at the end "guide: N/N ok".
"""
import ast
import contextlib
import faulthandler
import io
import os
import sys
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GUIDE, BUILD = sys.argv[1], os.path.abspath(sys.argv[2])
ONLY = sys.argv[3:]
HUB = os.path.join(BUILD, "hub")
os.environ["HF_HUB_CACHE"] = HUB
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
sys.path[:0] = [os.path.join(ROOT, "python"), HERE]

import torch  # noqa: E402

import checks  # noqa: E402
import elsewhere  # noqa: E402
import models  # noqa: E402
import snippets  # noqa: E402
from kvik.generation import GenerationMixin  # noqa: E402

torch.set_num_threads(1)
CALLS = []
_generate = GenerationMixin.generate


def recorded(self, *args, **kwargs):
    """generate(), with its inputs and its result kept."""
    ids = args[0] if args else kwargs["input_ids"]
    mask = kwargs.get("attention_mask")
    out = _generate(self, *args, **kwargs)
    sequences = out.sequences if hasattr(out, "sequences") else out
    CALLS.append({"folder": self.name_or_path, "ids": ids.tolist(), "mask": None if mask is None else mask.tolist(),
                  "options": {k: v for k, v in kwargs.items() if k not in ("input_ids", "attention_mask")},
                  "out": sequences.tolist()})
    return out


GenerationMixin.generate = recorded


def execute(name, text):
    """Runs a snippet; the value of a bare last expression is kept, as a prompt would show it."""
    tree = ast.parse(text, name)
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("_shown", ast.Store())], tree.body[-1].value), tree.body[-1])
    scope = {"__name__": "snippet"}
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(ast.fix_missing_locations(tree), name, "exec"), scope)
    scope["_printed"] = out.getvalue()
    return scope


def main():
    models.make(os.path.join(ROOT, "tests", "golden"), HUB)
    names = sorted(n for n in os.listdir(GUIDE) if n.endswith(".py") and (not ONLY or any(o in n for o in ONLY)))
    good, models_run = 0, True
    if not ONLY:
        try:
            elsewhere.check(os.path.join(ROOT, "tests", "golden", "models"))
            print("  models of Transformers with kvik's caches: ok", flush=True)
        except Exception:
            models_run = False
            print(f"  models of Transformers with kvik's caches: FAILED\n{traceback.format_exc()}", flush=True)
    for name in names:
        CALLS.clear()
        try:
            scope = execute(name, snippets.read(GUIDE, name))
            checks.check(name, scope, list(CALLS), execute, snippets.read(GUIDE, name))
            good += 1
            print(f"  {name}: ok", flush=True)
        except Exception:
            print(f"  {name}: FAILED\n{traceback.format_exc()}", flush=True)
    print(f"guide: {good}/{len(names)} ok")
    return 0 if good == len(names) and names and models_run else 1


if __name__ == "__main__":
    code = main()
    # A thread that keeps the interpreter from ending is shown with its stack, and is a failure.
    faulthandler.dump_traceback_later(60, exit=True)
    sys.exit(code)
