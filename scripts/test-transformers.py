#!/usr/bin/env python3
"""Runs tests of Transformers against this package, and compares what passes with a committed list.

usage: test-transformers.py TESTS [WORD...] - TESTS is the folder `tests` of a checkout of huggingface/transformers (5.x);
words choose the tests whose names have one.
  --write   writes the list anew; reasons of tests that still fail are kept
  --theirs  runs them with the installed transformers, and prints what passes, with no list

The files are read where they are, and nothing of them is kept.  `import transformers` in them is this package: a name that it
does not have becomes a stand-in that raises where it is used, so one missing name fails the tests that need it and no others.
Needs torch, pytest and parameterized.  Nothing is fetched: a test that needs a model of the hub fails here as it does there.
"""
import contextlib
import importlib
import importlib.abc
import importlib.util
import io
import logging
import os
import random
import sys
import types
import unittest
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "tests", "python", "recorded", "transformers.txt")
FILES = ("utils/test_cache_utils", "utils/test_chat_template_utils", "generation/test_logits_process", "generation/test_stopping_criteria",
         "generation/test_streamers", "generation/test_configuration_utils")
THEIRS = "transformers"


class Missing(type):
    """What stands for a class that the package does not have."""

    def __call__(cls, *args, **kwargs):
        raise NotImplementedError(f"kvik has no {cls.__name__}")

    def __iter__(cls):
        return iter(())

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"kvik has no {cls.__name__}")


class Stand(types.ModuleType):
    """A module of Transformers: that of kvik, with stand-ins for what it lacks."""

    def __init__(self, name, own):
        super().__init__(name)
        self.__dict__.update(_own=own, __path__=[], __file__=getattr(own, "__file__", None))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._own, name, None) if self._own is not None else None
        return found if found is not None else Missing(name, (), {})


def passes(thing):
    """A decorator that changes nothing."""
    return thing


def skips(*_, **__):
    """A decorator that skips: what it stands for needs hardware, packages or the network."""
    return unittest.skip("needs what is not here")


class Caught:
    """Collects what a logger gets: CaptureLogger.  Notices of kvik are warnings of Python, and count as well."""

    def __init__(self, logger=None):
        self.logger, self.out = logger, ""
        self.warned = warnings.catch_warnings(record=True)
        self.io = io.StringIO()
        self.handler = logging.StreamHandler(self.io)

    def __enter__(self):
        self.logger.addHandler(self.handler)
        self.said = self.warned.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *_):
        self.logger.removeHandler(self.handler)
        self.out = self.io.getvalue() + "".join(f"{w.message}\n" for w in self.said)
        self.warned.__exit__(*_)


class CaughtOut(Caught):
    stream = "stdout"

    def __init__(self, *_, **__):
        super().__init__()
        self.redirect = getattr(contextlib, f"redirect_{self.stream}")(self.io)

    def __enter__(self):
        self.redirect.__enter__()
        return self

    def __exit__(self, *_):
        self.redirect.__exit__(*_)
        self.out = self.out_raw = self.io.getvalue()


class CaughtErr(CaughtOut):
    stream = "stderr"


@contextlib.contextmanager
def verbosity(level):
    """LoggingLevel."""
    module = sys.modules["transformers.utils.logging"]
    before = module.get_verbosity()
    module.set_verbosity(level)
    try:
        yield
    finally:
        module.set_verbosity(before)


def testing(module):
    """Fills transformers.testing_utils."""
    module.__dict__.update(
        torch_device="cpu", TOKEN=None, CaptureLogger=Caught, CaptureStdout=CaughtOut, CaptureStderr=CaughtErr, LoggingLevel=verbosity,
        is_torch_available=lambda: True, require_torch=passes, slow=skips(), is_staging_test=skips(), get_gpu_count=lambda: 0,
        backend_device_count=lambda *_: 0, cleanup=lambda *_, **__: None,
        **{f"require_{name}": skips() for name in ("torch_accelerator", "torch_gpu", "torch_multi_gpu", "torch_multi_accelerator",
                                                    "read_token", "flash_attn")})
    return module


def common(module):
    """Fills tests.test_modeling_common, which other tests take helpers from."""
    import torch
    numbers = random.Random()

    def ids_tensor(shape, vocab_size, rng=None, name=None):
        chosen = rng or numbers
        return torch.tensor([chosen.randint(0, vocab_size - 1) for _ in range(int(torch.tensor(shape).prod()))]).view(*shape)
    module.ids_tensor = ids_tensor
    return module


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of Transformers in kvik, and those of the tests in their folder."""

    def __init__(self, tests, theirs):
        self.tests, self.theirs = tests, theirs

    def find_spec(self, name, path=None, target=None):
        own = name.split(".")[0] == THEIRS and not self.theirs
        if own or name in ("tests", "tests.utils", "tests.generation", "tests.test_modeling_common"):
            return importlib.util.spec_from_loader(name, self, is_package=True)
        if name.startswith("tests."):
            return importlib.util.spec_from_file_location(name, os.path.join(self.tests, *name.split(".")[1:]) + ".py")
        return None

    def create_module(self, spec):
        if spec.name.startswith("tests"):
            module = types.ModuleType(spec.name)
            return common(module) if spec.name.endswith("common") else module
        own = "kvik" + spec.name[len(THEIRS):]
        try:
            module = Stand(spec.name, importlib.import_module(own))
        except ImportError:
            module = Stand(spec.name, None)
        return testing(module) if spec.name.endswith("testing_utils") else module

    def exec_module(self, module):
        """The modules are complete."""


class Result(unittest.TestResult):
    """Which tests passed, and why the others did not."""

    def __init__(self):
        super().__init__()
        self.said = {}

    @staticmethod
    def name(test):
        """Returns FILE::CLASS::TEST."""
        parts = test.id().split(".")
        return "::".join((parts[2], *parts[3:])) if parts[0] == "tests" else str(test)

    def addSuccess(self, test):
        self.said.setdefault(self.name(test), "pass")

    def addSkip(self, test, reason):
        self.said[self.name(test)] = "skip"

    def _wrong(self, test, error):
        text = " ".join(str(error[1]).split())[:300]
        self.said[self.name(test)] = f"{error[0].__name__}: {text}"

    def addFailure(self, test, err):
        self._wrong(test, err)

    def addError(self, test, err):
        self._wrong(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._wrong(test, err)


def run(tests, words, theirs):
    """Runs the tests; returns {name: "pass", "skip" or what is wrong}."""
    sys.meta_path.insert(0, Finder(tests, theirs))
    result = Result()
    for file in FILES:
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("tests." + file.replace("/", ".")))
        stack = [suite]
        while stack:
            item = stack.pop()
            if isinstance(item, unittest.TestSuite):
                stack.extend(item)
        if words:
            suite = unittest.TestSuite(t for t in flat(suite) if any(w in Result.name(t) for w in words))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            suite.run(result)
    return result.said


def flat(suite):
    """Yields the tests of a suite."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def read_list():
    """Returns the list: {name: "pass" or a reason}, and the lines before it."""
    known, head = {}, []
    if os.path.exists(LIST):
        with open(LIST, encoding="utf-8") as f:
            for line in f:
                if line.startswith("#"):
                    head.append(line)
                elif line.strip():
                    name, _, what = line.rstrip("\n").partition("  ")
                    known[name] = what
    return known, head


def main():
    options = [a for a in sys.argv[1:] if a.startswith("--")]
    places = [a for a in sys.argv[1:] if not a.startswith("--")]
    if not places or not os.path.isfile(os.path.join(places[0], FILES[0] + ".py")):
        sys.exit("test-transformers: give the folder `tests` of a checkout of huggingface/transformers: make test-transformers TESTS=DIR")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if "--theirs" not in options:
        sys.path.insert(0, os.path.join(ROOT, "python"))
    said = run(places[0], places[1:], "--theirs" in options)
    known, head = read_list()
    for name, what in sorted(said.items()):
        if "--theirs" in options or places[1:]:
            print(f"{name}  {what}")
    passed = sum(what == "pass" for what in said.values())
    print(f"{passed} pass, {sum(what == 'skip' for what in said.values())} need what is not here, "
          f"{sum(what not in ('pass', 'skip') for what in said.values())} fail")
    for file in FILES:
        mine = [what for name, what in said.items() if name.startswith(file.split("/")[1] + "::")]
        print(f"  {file}: {mine.count('pass')} of {len(mine) - mine.count('skip')}")
    if "--theirs" in options or places[1:]:
        return 0
    if "--write" in options:
        with open(LIST, "w", encoding="utf-8") as f:
            f.writelines(head)
            for name, what in sorted(said.items()):
                if what != "skip":
                    old = known.get(name, "")
                    f.write(f"{name}  {'pass' if what == 'pass' else old if old not in ('', 'pass') else what}\n")
        return 0
    worse = [f"{name}: {said.get(name, 'was not found')}" for name, what in known.items() if what == "pass" and said.get(name) != "pass"]
    better = [name for name, what in said.items() if what == "pass" and known.get(name, "pass") != "pass"]
    for line in worse:
        print("worse: " + line)
    for name in better:
        print(f"better: {name}; write it into {os.path.relpath(LIST, ROOT)} (--write)")
    return 1 if worse or better else 0


if __name__ == "__main__":
    sys.exit(main())
