"""Runs every snippet of docs/GUIDE.md and compares what it prints with the page.

A block ```python or ```sh that is followed by a block ```text must print that text.  The first Python block prepares the others:
each runs in a copy of its names, so a reader needs it and nothing else.  Ids of the hub are served by tiny models of the same
architecture, so their blocks print only what holds for every model.  KVIK_WRITE_GUIDE=1 writes the printed text into the page.
usage: test_guide_page.py [WORD...] - with words, only blocks that have one of them.
"""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGES = ["docs/GUIDE.md", "docs/COMING-FROM.md", "docs/COMPARISON.md"]
CHAT_MODEL = os.environ.get("KVIK_TEST_MODEL", "none")
IDS = {"mistralai/Mistral-7B-v0.1": "mistral", "google/gemma-2-2b": "gemma2", "state-spaces/mamba-130m-hf": "mamba",
       "ai21labs/Jamba-v0.1": "jamba", "meta-llama/Llama-4-Scout-17B-16E": "llama4", "google-t5/t5-small": "t5",
       "openai-community/gpt2": "gpt2", "openai/whisper-tiny": None}  # None: the model of the tests of speech
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


def blocks(text):
    """Returns [(language, code, where the expected text is or None, position)] of a page."""
    found = list(FENCE.finditer(text))
    out = []
    for i, m in enumerate(found):
        if m[1] not in ("python", "sh"):
            continue
        after = found[i + 1] if i + 1 < len(found) else None
        follows = after is not None and after[1] == "text" and not text[m.end():after.start()].strip()
        out.append((m[1], m[2], after.span(2) if follows else None, text.count("\n", 0, m.start()) + 2))
    return out


def serve(folder):
    """Makes a home with the chat model, and a cache of the hub with the tiny models."""
    home, hub = os.path.join(folder, "home"), os.path.join(folder, "hub")
    os.makedirs(os.path.join(home, ".cache", "kvik"))
    os.symlink(CHAT_MODEL, os.path.join(home, ".cache", "kvik", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    jobs = []
    for name, source in IDS.items():
        snapshot = os.path.join(hub, "models--" + name.replace("/", "--"), "snapshots", "0" * 40)
        os.makedirs(snapshot if source else os.path.dirname(snapshot))
        if not source:
            os.symlink(os.path.join(ROOT, "tests", "fixtures", "speech", "tiny"), snapshot)
        else:
            jobs.append(subprocess.Popen([sys.executable, os.path.join(ROOT, "tests", "cli", "tiny.py"),
                                          os.path.join(ROOT, "tests", "golden", "models", source), snapshot]))
        refs = os.path.join(hub, "models--" + name.replace("/", "--"), "refs")
        os.makedirs(refs)
        with open(os.path.join(refs, "main"), "w", encoding="utf-8") as f:
            f.write("0" * 40)
    os.symlink(os.path.join(ROOT, "examples"), os.path.join(folder, "examples"))
    for job in jobs:
        assert job.wait() == 0
    os.environ.update(HOME=home, HF_HUB_CACHE=hub, HF_HUB_OFFLINE="1", PATH=ROOT + os.pathsep + os.environ["PATH"],
                      MODEL=os.path.join(home, ".cache", "kvik", "SmolLM2-135M-Instruct.Q4_1.gguf"), KVIK_HISTORY="")
    os.environ.setdefault("KVIK_THREADS", "1")  # as the unit tests: other tests have the other cores
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME", "KVIK_CACHE_MEMORY"):
        os.environ.pop(name, None)
    os.chdir(folder)


def python(code, scope, where):
    """Runs a block in a copy of the names of the first; returns what it prints, and its names."""
    names = dict(scope)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * (where - 1) + code, "GUIDE.md", "exec"), names)
    return out.getvalue(), names


def shell(code):
    """Runs a block of commands; returns their standard output."""
    done = subprocess.run(["sh", "-e", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr}")
    return done.stdout


def plain(text):
    """Returns text without spaces at the ends of its lines, which no reader sees."""
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def run(page):
    """Runs the blocks of a page; returns the numbers of those that ran and that failed."""
    path = os.path.join(ROOT, page)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    scope, bad, changes, all_blocks = {"__name__": "guide"}, 0, [], blocks(text)
    first = True
    for language, code, expected, line in all_blocks:
        if not first and sys.argv[1:] and not any(word in code for word in sys.argv[1:]):
            continue
        begin = sum(os.times()[:4])
        try:
            if language == "python":
                got, names = python(code, scope, line)
                if first:
                    scope, first = names, False
            else:
                got = shell(code)
            if expected and plain(got) != plain(text[slice(*expected)]):
                changes.append((expected, plain(got) + "\n"))
                if not os.environ.get("KVIK_WRITE_GUIDE"):
                    raise AssertionError(f"it prints:\n{got}\nthe page says:\n{text[slice(*expected)]}")
        except Exception:
            bad += 1
            print(f"{page}:{line}: FAILED\n{traceback.format_exc()}", flush=True)
            if first:
                break  # the other blocks need the first
        else:
            print(f"{page}:{line}: {language}, {sum(os.times()[:4]) - begin:.2f} s of processor time", flush=True)
    if os.environ.get("KVIK_WRITE_GUIDE"):
        for (a, b), got in sorted(changes, reverse=True):
            text = text[:a] + got + text[b:]
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    return len(all_blocks), bad


def main():
    """Runs the pages, in the format of closing lines that run-tests.sh adds up."""
    if not os.path.exists(CHAT_MODEL):
        print("skipped: the model is not here (KVIK_TEST_MODEL)")
        return 77
    sys.path.insert(0, os.environ.get("KVIK_PYTHON") or os.path.join(ROOT, "python"))
    total = bad = 0
    with tempfile.TemporaryDirectory() as folder:
        serve(folder)
        for page in PAGES:
            n, failed = run(page) if os.path.exists(os.path.join(ROOT, page)) else (0, 0)
            total, bad = total + n, bad + failed
        os.chdir(ROOT)
    print(f"[  PASSED  ] {total - bad} test(s).")
    if bad:
        print(f"[  FAILED  ] {bad} test(s), listed above.")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
