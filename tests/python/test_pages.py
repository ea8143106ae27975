"""Runs every block of every page as a reader would who copies it, and compares what it prints with the page.

The reader's home is empty but for the chat model; the working directory is a copy of what a built tree has, outside of this one.  The blocks of a
page run in its order: those of a shell keep variables and directory, as a terminal does, and Python begins with the shell's environment.
A block ```python or ```sh that is followed by a block ```text must print that text.  A block ```c is quoted: the paragraph above names its source.

A block that cannot run here says why in the paragraph above it, in one of the phrases of NEEDS.  EXPECTED has the number of blocks that run and that do
not, so a block that quietly stops being run fails this test.  No block may leave a file in the directory.

KVIK_WRITE_PAGES=1 writes the printed text into the pages.
usage: test_pages.py [PAGE [WORD...]] - one page; with words, the blocks that have one of them, and the first ones.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CHAT_MODEL = os.environ.get("KVIK_TEST_MODEL", "none")
NEEDS = re.compile(r"needs?\s+a\s+(download|build|GPU|microphone)|takes\s+minutes")
# The blocks of a page that run (or are found in the source that they quote), and those that say what they need.
EXPECTED = {
    "CONTRIBUTING.md": (0, 3),
    "README.md": (10, 3),
    "docs/ADDING-A-CODEC.md": (5, 0),
    "docs/ADDING-A-PROCESSOR.md": (1, 0),
    "docs/ADDING-A-TIER.md": (1, 0),
    "docs/ADDING-A-DEVICE.md": (1, 0),
    "docs/COMING-FROM.md": (8, 0),
    "docs/COMPARISON.md": (3, 0),
    "docs/CUDA.md": (0, 2),
    "docs/GUIDE.md": (56, 0),
    "docs/MODELS.md": (0, 1),
    "docs/PERFORMANCE.md": (0, 3),
    "docs/PYTHON.md": (2, 3),
    "docs/SCALING.md": (1, 0),
    "docs/SERVING.md": (4, 0),
    "docs/STRUCTURED.md": (0, 1),
    "include/kvik.h": (1, 0),
    "man/kvik.1": (4, 0),
}
# Words that the blocks of a page print on either output; the page says so in its prose.
SAYS = {"README.md": ["881 prompt tokens reused", "decode 600 tokens", "are shared", "tokens of the prefix", "now on other"]}
TYPED = "/set max_new_tokens 24\nWhat is a fjord?\n/fork other\n/cache\n/quit\n"  # what the reader types into a chat
COPIED = ["README.md", "docs", "examples", "include", "man", "python", "scripts", "tests/cli", "tests/golden/models",
          "tests/fixtures/speech/tiny", "kvik", "libkvik.so", "libkvik.so.0"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


class Block:
    """A block of a page: its language, code, line, the paragraph above, and the place of the text that it must print, or None."""

    def __init__(self, language, code, line, above="", text=None):
        self.language, self.code, self.line, self.above, self.text = language, code, line, above, text


def read(path):
    """Returns the text of a file of the repository."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def pages():
    """Returns the pages that readers have."""
    names = [os.path.join(folder, n) for folder in ("", "docs") for n in sorted(os.listdir(os.path.join(ROOT, folder))) if n.endswith(".md")]
    return names + ["man/kvik.1"] + [os.path.join("include", n) for n in sorted(os.listdir(os.path.join(ROOT, "include")))]


def blocks(page, text):
    """Returns the blocks of a page that a reader copies."""
    def line_of(at):
        return text.count("\n", 0, at) + 1

    if page.startswith("man/"):
        found = re.finditer(r"^\.Dl (kvik .*)\n", text, re.M)
        return [Block("sh", m[1].replace(r"\(dq", '"').replace(r"\-", "-") + "\n", line_of(m.start())) for m in found]
    if page.endswith(".h") and page != "include/kvik.h":
        return []  # what stands there are lines of programs
    if page.endswith(".h"):  # the program in the comment at the top; run() compiles it as the next lines say
        m = re.search(r"(?:^ \*     .*\n)+", text, re.M)
        return [Block("c", re.sub(r"^ \*     ", "", m[0], flags=re.M), line_of(m.start()))]
    found = list(FENCE.finditer(text))
    bare = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    indented = re.search(r"\n\n    \S.*", bare)
    assert not indented, f"{page}: an indented block; give it a fence with sh, python, c or text: {indented[0].strip()}..."
    out = []
    for m, after in zip(found, found[1:] + [None]):
        assert m[1] in ("sh", "python", "c", "text"), f"{page}:{line_of(m.start())}: a block of no known language: ```{m[1]}"
        if m[1] != "text":
            follows = after and after[1] == "text" and not text[m.end():after.start()].strip()
            above = text[:m.start()].rstrip("\n").rsplit("\n\n", 1)[-1]
            out.append(Block(m[1], m[2], line_of(m.start()) + 1, above, after.span(2) if follows else None))
    return out


class Reader:
    """A reader with a terminal and a home of their own, in a copy of the tree."""

    def __init__(self, folder):
        self.folder, self.python, self.printed, self.seconds = folder, None, "", 0
        self.tree, home, programs = (os.path.join(folder, n) for n in ("kvik", "home", "bin"))
        os.makedirs(os.path.join(home, ".cache", "kvik"))
        os.symlink(CHAT_MODEL, os.path.join(home, ".cache", "kvik", "SmolLM2-135M-Instruct.Q4_1.gguf"))
        os.mkdir(programs)
        with open(os.path.join(programs, "python3"), "w", encoding="utf-8") as f:  # a link would lose the packages of a venv
            f.write(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        os.chmod(f.name, 0o755)
        self.state = os.path.join(folder, "state")
        with open(self.state, "w", encoding="utf-8") as f:
            f.write(f"cd {self.tree}\n")
        self.env = {"HOME": home, "PATH": programs + ":/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
                    "KVIK_THREADS": os.environ.get("KVIK_THREADS", "1"),  # as the unit tests: other tests have the other cores
                    **{k: v for k, v in os.environ.items() if k in ("TMPDIR", "CC")}}
        for name in COPIED:
            source, to = os.path.join(ROOT, name), os.path.join(self.tree, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            copy = shutil.copytree if os.path.isdir(source) else shutil.copy2
            copy(source, to)
        os.mkdir(os.path.join(self.tree, "build"))
        # Another test may be writing the declarations of this tree.
        subprocess.check_call([sys.executable, os.path.join(ROOT, "scripts", "make-abi.py"), *(os.path.join(ROOT, n) for n in pages() if n.endswith(".h")),
                               os.path.join(self.tree, "python", "kvik", "_abi.py")])
        self.before = self.files()

    def files(self):
        """Returns the files of the tree with their sizes and times; outputs of a build and of Python do not count."""
        out = {}
        for folder, folders, names in os.walk(self.tree):
            folders[:] = [n for n in folders if n not in ("build", "__pycache__")]
            for n in names + folders:
                s = os.lstat(os.path.join(folder, n))
                out[os.path.relpath(os.path.join(folder, n), self.tree)] = (s.st_size, s.st_mtime_ns) if n in names else ()
        return out

    def shell(self, code):
        """Runs a block in the terminal; returns its standard output."""
        keep = f"\n{{ printf 'cd %q\\n' \"$PWD\"; export -p | grep -v ' OLDPWD\\| PWD'; }} >{self.state}\n"
        done = subprocess.run(["bash", "-c", f". {self.state}\nset -ae\n{code}{keep}"], input=TYPED, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=1200, env=self.env)
        self.printed += done.stdout + done.stderr
        if done.returncode:
            raise AssertionError(f"exit {done.returncode}: {done.stdout}\n{done.stderr}")
        return done.stdout

    def run_python(self, page, block):
        """Runs a block in the Python of the page; returns what it prints."""
        if not self.python:
            program = f". {self.state}\nexec python3 -X faulthandler {os.path.join(HERE, 'reader.py')}"
            self.python = subprocess.Popen(["bash", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env)
        self.python.stdin.write(json.dumps({"code": block.code, "name": page, "line": block.line}) + "\n")
        self.python.stdin.flush()
        answer = self.python.stdout.readline()
        assert answer, f"Python ended with {self.python.wait()}"
        answer = json.loads(answer)
        self.seconds += answer["seconds"]
        assert not answer["error"], answer["error"]
        return answer["out"]

    def compile(self, code):
        """Completes the lines of a program, compiles it with the header and the library, and runs it; returns its standard output."""
        program = os.path.join(self.folder, "program")
        with open(program + ".c", "w", encoding="utf-8") as f:
            f.write('#include <kvik_compat.h>\n#include <kvik_loop.h>\n#include <kvik_speech.h>\n#include <stdio.h>\n#include <stdlib.h>\nstatic void die(const char *why)\n{\n    fputs(why, stderr);\n'
                    "    exit(1);\n}\nint main(void)\n{\n" + code + "    return 0;\n}\n")
        return self.shell(f"cd {self.tree}\n${{CC:-cc}} -o {program} {program}.c -Iinclude -L. -lkvik -Wl,-rpath,$PWD\n"
                          f"cd ~/.cache/kvik\n{program}\n")

    def end_page(self):
        """Ends the Python of a page; returns the files of the tree that its blocks have made or changed."""
        if self.python:
            self.python.stdin.close()
            self.python.wait()
            self.python.stdout.close()
        after = self.files()
        return sorted(n for n in after.keys() | self.before.keys() if after.get(n) != self.before.get(n))


def quoted(block):
    """Raises if a line of a quoted block is not in the file that the paragraph above names; comments do not count."""
    source = re.search(r"from `([^`]*)`", block.above)
    assert source, "the paragraph above names no source: from `FILE`"

    def bare(line):
        return "".join(re.sub(r"/\*.*?\*/", "", line).split())

    lines = {bare(line) for line in read(source[1]).split("\n")}
    for line in block.code.split("\n"):
        assert bare(line) in lines or line.strip() == "...", f"{source[1]} has no line: {line}"


def plain(text):
    """Returns text without spaces at the ends of its lines, which no reader sees."""
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def run_block(reader, page, block):
    """Runs a block; returns what it prints."""
    if block.language == "python":
        return reader.run_python(page, block)
    if block.language == "sh":
        return reader.shell(block.code)
    if page.endswith(".h"):
        return reader.compile(block.code)
    return quoted(block)


def run(page, words, folder):
    """Runs the blocks of a page; returns how many were right and the list of what was wrong."""
    text = read(page)
    all_blocks = blocks(page, text)
    if all(NEEDS.search(b.above) for b in all_blocks) and EXPECTED.get(page, (0, 0)) == (0, len(all_blocks)):
        return 0, []  # nobody copies anything here, so the page needs no tree
    reader, right, ran, wrong, changes = Reader(folder), 0, 0, [], []
    if page.startswith("man/"):  # the models of its examples
        reader.shell("export PATH=$PWD:$PATH; mkdir ~/there; scripts/tiny-models.sh ~/there; cd ~/there; mv mistral model; "
                     "ln -s ~/.cache/kvik/SmolLM2-135M-Instruct.Q4_1.gguf model.gguf")
    prepares = {next((i for i, b in enumerate(all_blocks) if b.language == kind), 0) for kind in ("sh", "python")}
    for i, block in enumerate(all_blocks):
        if NEEDS.search(block.above):
            print(f"{page}:{block.line}: not run, the page says: {NEEDS.search(block.above)[0]}")
            continue
        ran += 1
        if words and i not in prepares and not any(w in block.code for w in words):
            continue
        begin = sum(os.times()[2:4]) + reader.seconds
        try:
            got = run_block(reader, page, block)
            if block.text and plain(got) != plain(text[slice(*block.text)]):
                changes.append((block.text, plain(got) + "\n"))
                if not os.environ.get("KVIK_WRITE_PAGES"):
                    raise AssertionError(f"it prints:\n{got}\nthe page says:\n{text[slice(*block.text)]}")
        except (AssertionError, OSError, subprocess.SubprocessError) as e:
            wrong.append(f"{page}:{block.line}: {e}")
        else:
            right += 1
            print(f"{page}:{block.line}: {block.language}, {sum(os.times()[2:4]) + reader.seconds - begin:.2f} s of processor time", flush=True)
    left = reader.end_page()
    if left:
        wrong.append(f"{page}: its blocks leave or change files of the repository: {', '.join(left[:10])}")
    if not words:
        wrong += [f'{page}: no block prints "{s}"' for s in SAYS.get(page, []) if s not in reader.printed]
        counts = ran, len(all_blocks) - ran
        if counts != EXPECTED.get(page, (0, 0)):
            wrong.append(f"{page}: {counts[0]} blocks run and {counts[1]} do not, expected were {EXPECTED.get(page, (0, 0))}; "
                         "if that is meant, change EXPECTED in this test")
    for (a, b), got in sorted(changes, reverse=True):
        text = text[:a] + got + text[b:]
    if changes and os.environ.get("KVIK_WRITE_PAGES"):
        with open(os.path.join(ROOT, page), "w", encoding="utf-8") as f:
            f.write(text)
    return right, wrong


def closing(passed, wrong):
    """Prints what failed and the closing lines that run-tests.sh adds up. Returns the exit status."""
    for what in wrong:
        print("FAILED " + what)
    print(f"[  PASSED  ] {passed} test(s).")
    if wrong:
        print(f"[  FAILED  ] {len(wrong)} test(s), listed above.")
    return 1 if wrong else 0


def main():
    """Runs the pages, in the format of closing lines that run-tests.sh adds up."""
    if not os.path.exists(CHAT_MODEL):
        print("skipped: the model is not here (KVIK_TEST_MODEL)")
        return 77
    total, wrong = 0, [f"{page}: it is not among the pages" for page in EXPECTED if page not in pages()]
    for page in sys.argv[1:2] or pages():
        with tempfile.TemporaryDirectory() as folder:
            right, failures = run(page, sys.argv[2:], folder)
        total, wrong = total + right, wrong + failures
    return closing(total, wrong)


if __name__ == "__main__":
    sys.exit(main())
