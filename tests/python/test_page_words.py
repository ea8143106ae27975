"""What the pages name is there: pages, pictures, tests, benchmarks, functions, programs; and the options in the guide's last table are accepted.

test_pages.py runs the blocks.
"""
import os
import re
import subprocess
import sys
import tempfile
from xml.dom import minidom

from test_pages import ROOT, closing, pages, read

# The tiny model that accepts a row of the table: some need a window of the model.
WINDOWED = re.compile("sliding_window|hybrid")


def missing():
    """Returns what pages name and the repository has not."""
    wrong = []
    header = "".join(read(f"include/{name}.h") for name in ("kvik", "kvik_compat", "kvik_loop", "kvik_shared", "kvik_speech"))
    for page in pages():
        text = read(page)
        folder = os.path.dirname(page)
        links = [os.path.join(folder, m) for m in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)] if page.endswith(".md") else []
        names = re.findall(r"tests/[a-z]+/[a-z_]+\.[a-z]+", text)
        names += [f"bench/{n}.c" for n in re.findall(r"build/release/bench_([a-z]+)", text)]
        wrong += [f"{page}: {n}" for n in links + names if not os.path.exists(os.path.join(ROOT, n))]
        if page.endswith(".md"):
            anchors = [(os.path.join(folder, m[1]) if m[1] else page, m[2]) for m in re.finditer(r"\]\(([^)#:]*)#([^)]*)\)", text)]
            wrong += [f"{page}: {to}#{anchor}" for to, anchor in anchors if os.path.exists(os.path.join(ROOT, to)) and anchor not in headings(to)]
    for page in ("docs/COMING-FROM.md", "README.md"):
        wrong += [f"{page}: {f}()" for f in set(re.findall(r"\bkvik_[a-z_]*[a-z]\b", read(page))) if f not in header]
    rows = re.findall(r"\| (.*) \|$", read("docs/GUIDE.md"), re.M)
    wrong += [f"docs/GUIDE.md: {n}" for row in rows for n in re.findall(r"`([a-z_]+\.c)`", row)
              if not os.path.exists(os.path.join(ROOT, "examples", "c", n))]
    return wrong


def headings(page):
    """Returns the anchors of a page."""
    found = re.findall(r"^#+ (.*)$", read(page), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in found}


def refused(folder):
    """Runs each command of the guide's last table on a tiny model; returns how many there are, and those that fail."""
    for name in ("llama-mha", "gemma2"):
        subprocess.check_call([sys.executable, os.path.join(ROOT, "tests", "cli", "tiny.py"),
                               os.path.join(ROOT, "tests", "golden", "models", name), os.path.join(folder, name)])
    table = read("docs/GUIDE.md").split("\n## The code of the Transformers guide\n")[1]
    commands = [c for c in re.findall(r"`([^`]*)`", table) if re.match("kvik generate|--", c)]
    wrong = []
    for command in commands:
        model = "gemma2" if WINDOWED.search(command) else "llama-mha"
        line = command if command.startswith("kvik") else f"kvik generate $MODEL TEXT {command}"
        # A tiny model has a short context and short rows.
        line = line.replace('"max_cache_len":1024', '"max_cache_len":64').replace('"q_group_size":64', '"q_group_size":16')
        env = {**os.environ, "PATH": ROOT + os.pathsep + os.environ["PATH"], "MODEL": os.path.join(folder, model), "PREFIX": "once", "A": "a",
               "B": "b", "DIR": os.path.join(folder, "prompts")}
        line = re.sub(r"\bDIR\b", "$DIR", line)
        done = subprocess.run(["sh", "-c", line + " --max-new-tokens 4"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=env)
        if done.returncode:
            wrong.append(f"docs/GUIDE.md: {command}: exit {done.returncode}: {done.stderr}")
    return len(commands), wrong


def reference(folder):
    """Returns the classes and functions that the reference of the Python package lacks."""
    path = os.path.join(folder, "reference.md")
    subprocess.check_call([os.path.join(ROOT, "scripts", "make-python-reference.py"), os.path.join(ROOT, "python", "kvik"), path])
    text = read(path)
    words = ["### DynamicCache(", "### SinkCache(window_length", "### OutOfMemoryError", "### pipeline(", "### PreTrainedModel",
             "**`transcribe(recording", "BartForConditionalGeneration"]
    return [f"the reference of the package has no {w}" for w in words if w not in text]


def main():
    """Prints closing lines that run-tests.sh adds up."""
    with tempfile.TemporaryDirectory() as folder:
        n, wrong = refused(folder)
        wrong += missing() + reference(folder)
    if n < 12:
        wrong.append(f"docs/GUIDE.md: its last table has {n} commands, and at least 12 were expected")
    for picture in ("docs/caches.svg", "docs/growth.svg"):
        minidom.parse(os.path.join(ROOT, picture))
    for marker in ("caches", "/caches"):
        if f"\n<!-- {marker} -->\n" not in read("README.md"):
            wrong.append(f"README.md: no marker {marker}, and make report writes between the two")
    return closing(n, wrong)


if __name__ == "__main__":
    sys.exit(main())
