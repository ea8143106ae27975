"""The wheel has the command kvik as a program, beside the package: installed elsewhere, both run without the source tree.

The wheel is built without network, with the setuptools and wheel that this Python has.
"""
import filecmp
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENV = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MODE")}


def out(*command, **options):
    """Runs a command; returns its standard output, or its whole output in an exception."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    """Prints closing lines that run-tests.sh adds up."""
    missing = [n for n in ("setuptools", "wheel", "pip") if not importlib.util.find_spec(n)]
    if missing:
        print(f"skipped: this Python has no {', '.join(missing)}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        there = os.path.join(folder, "there")
        out(sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder, "build", "--build-base", os.path.join(folder, "build"),
            "bdist_wheel", "--dist-dir", folder, "--bdist-dir", os.path.join(folder, "dist"), cwd=ROOT)
        wheel, = glob.glob(os.path.join(folder, "kvik-*.whl"))
        out(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--ignore-installed", "--root-user-action=ignore",
            "--prefix", there, wheel, cwd=folder)
        command, = glob.glob(os.path.join(there, "**", "bin", "kvik"), recursive=True)
        package, = glob.glob(os.path.join(there, "**", "kvik", "libkvik.so"), recursive=True)
        page = os.path.join(os.path.dirname(os.path.dirname(command)), "share", "man", "man1", "kvik.1")
        assert filecmp.cmp(page, os.path.join(ROOT, "man", "kvik.1"), shallow=False), "the manual page is beside the command"
        shutil.rmtree(os.path.join(folder, "build"))
        with open(command, "rb") as f:
            assert f.read(4) == b"\x7fELF", "the command is the program, not a script around it"
        assert b"debug_info" not in subprocess.check_output(["objdump", "-h", command]), "without debug symbols"
        assert out(command, "--version", cwd=folder) == out(os.path.join(ROOT, "kvik"), "--version")
        assert "complete -F _kvik kvik" in out(command, "completion", "bash", cwd=folder)
        tiny = os.path.join(folder, "tiny")
        out(sys.executable, os.path.join(HERE, "..", "cli", "tiny.py"), os.path.join(ROOT, "tests", "golden", "models", "llama-mha"), tiny)
        text = out(command, "generate", tiny, "abc", "--max-new-tokens", "8", cwd=folder)
        ENV["PYTHONPATH"] = os.path.dirname(os.path.dirname(package))
        program = ("import sys, kvik; m = kvik.AutoModelForCausalLM.from_pretrained(sys.argv[1]); t = kvik.AutoTokenizer.from_pretrained(sys.argv[1]); "
                   "print(kvik.__file__); print(m.generate(**t('abc', return_tensors='np'), max_new_tokens=8, return_dict_in_generate=True).texts[0])")
        where, theirs = out(sys.executable, "-c", program, tiny, cwd=folder).split("\n", 1)
        assert where.startswith(there), where
        assert theirs.rstrip("\n") == text.rstrip("\n"), (theirs, text)
    print("[  PASSED  ] 1 test(s).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
