"""A plugin of pytest for llama-server's own tests, which run against kvik serve: `pytest -p llama_plugin` in their directory.

Nothing is downloaded: a model that stands in for those of the tests is written (stand_in.py).  No assertion is touched.  tests.txt names the tests that cannot
pass, with a reason.  One that fails and is not named there is a failure; so is one that is named there as failing and passes.

Some of the tests look at the clock ("after 0.1 s all slots are busy"), so a busy machine fails them: one that fails is run again, at most twice, and the end
says so.  A server may take KVIK_TEST_PATIENCE seconds to start, and the same to end.
"""
import os
import subprocess
import sys

import pytest
from _pytest.runner import runtestprotocol

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.getcwd())
import stand_in  # noqa: E402
import utils  # noqa: E402  (of the tests)


def no_download(*_):
    raise RuntimeError("llama_plugin: nothing is downloaded")


utils.ServerPreset.load_all = staticmethod(lambda: None)
utils.download_file = no_download
PATIENCE = int(os.environ.get("KVIK_TEST_PATIENCE") or 300)
utils.ServerProcess.start.__defaults__ = (PATIENCE,)
TRIES = 3


class Patient(subprocess.Popen):
    """A server that has as long to end as to start."""

    def wait(self, timeout=None):
        return super().wait(timeout and max(timeout, PATIENCE))


utils.subprocess.Popen = Patient


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
passed, again = [], []


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


def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(TRIES)):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        # What is named as failing has failed, or has passed, whatever the clock says.
        if not left or item.get_closest_marker("xfail") or not any(r.failed for r in reports):
            break
        again.append(item.nodeid)
        item._initrequest()
    for r in reports:
        item.ihook.pytest_runtest_logreport(report=r)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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
    for name in again:
        t.line(f"failed once, and was run again: {name}")
    t.line(f"llama-server's tests: {len(passed)} passed, at least {LEAST} must")
