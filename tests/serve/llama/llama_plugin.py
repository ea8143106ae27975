"""A plugin of pytest for llama-server's own tests, which run against kvik serve: `pytest -p llama_plugin` in their directory.

Nothing is downloaded: a model that stands in for those of the tests is written (stand_in.py).  No assertion is touched.  tests.txt names the tests that cannot
pass, with a reason.  One that fails and is not named there is a failure; so is one that is named there as failing and passes.
"""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.getcwd())
import stand_in  # noqa: E402
import utils  # noqa: E402  (of the tests)


def no_download(*_):
    raise RuntimeError("llama_plugin: nothing is downloaded")


utils.ServerPreset.load_all = staticmethod(lambda: None)
utils.download_file = no_download


def read_list(path):
    """Returns how many tests must pass, and [(pattern, "skip" or "fail", reason)]."""
    least, kind, reason, found = 0, "", "", []
    with open(path) as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith("passed "):
                least = int(line.split()[1])
            elif line.startswith("["):
                kind, reason = line.strip("[]").split(": ", 1)
            elif line and not line.startswith("#"):
                found.append((line, kind, reason))
    return least, found


LEAST, LISTED = read_list(os.path.join(HERE, "tests.txt"))
passed = []


def mark_of(name):
    for pattern, kind, reason in LISTED:
        # Names have brackets, which mean nothing here; a star at the end does.
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return pytest.mark.skip(reason=reason) if kind == "skip" else pytest.mark.xfail(reason=reason, strict=True)
    return None


def pytest_configure(config):
    work = config.cache.mkdir("kvik")
    for name, special in ((utils.ServerPreset.tinyllama2(), ()), (utils.ServerPreset.tinyllama_infill(), ("<PRE>", "<SUF>", "<MID>"))):
        stand_in.main(str(work / (name.model_alias + ".gguf")), *special)
    os.environ["KVIK_STAND_INS"] = str(work)


def pytest_collection_modifyitems(items):
    for item in items:
        mark = mark_of(item.nodeid)
        if mark:
            item.add_marker(mark)


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        passed.append(report.nodeid)


def pytest_sessionfinish(session, exitstatus):
    whole = session.config.args == ["unit"] and not session.config.option.keyword
    if whole and len(passed) < LEAST and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter, config):
    t = terminalreporter
    good = [r for r in t.stats.get("failed", []) if "XPASS(strict)" in str(r.longrepr)]
    if good:
        t.section("these pass now: take them off tests/serve/llama/tests.txt")
        for r in good:
            t.line(r.nodeid)
    t.line(f"llama-server's tests: {len(passed)} passed, at least {LEAST} must")
