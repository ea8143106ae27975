"""Builds the wheel: make builds libkvik.so, which travels inside the package, and the command kvik, which is installed as a script.

The package has no compiled modules of its own, so one wheel serves every version of Python on a platform.
"""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

from distutils.command.build_scripts import build_scripts  # that of setuptools, which comes first for this reason

HERE = os.path.dirname(os.path.abspath(__file__))
# Packages of a system have the library and the command beside the Python package, which then is the same on every machine.
SYSTEM = bool(os.environ.get("KVIK_SYSTEM_LIBRARY"))


def version():
    with open(os.path.join(HERE, "include", "kvik.h"), encoding="utf-8") as f:
        return re.search(r'#define KVIK_VERSION "(.*)"', f.read())[1]


def make(name, folder):
    """Builds a file, and copies it without debug symbols into a folder."""
    jobs = str(os.cpu_count() or 1)
    subprocess.check_call([os.environ.get("MAKE", "make"), "--no-print-directory", f"-j{jobs}",
                           *shlex.split(os.environ.get("KVIK_MAKE_ARGS", "")), name], cwd=HERE)
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, name)
    shutil.copy(os.path.join(HERE, name), target)
    subprocess.call([os.environ.get("STRIP", "strip"), "--strip-unneeded", target])


class Build(build_py):
    """Adds the library, and the declarations that are written from the headers."""

    def run(self):
        super().run()
        target = os.path.join(self.build_lib, "kvik")
        subprocess.check_call([sys.executable, os.path.join(HERE, "scripts", "make-abi.py"),
                               *sorted(glob.glob(os.path.join(HERE, "include", "*.h"))),
                               os.path.join(target, "_abi.py")])
        if not SYSTEM:
            make("libkvik.so", target)


class Scripts(build_scripts):
    """The command: a program, which needs no Python to start, where the base class expects the text of a script."""

    def run(self):
        make("kvik", self.build_dir)

    def get_source_files(self):
        return []


class Files(Distribution):
    """With a library in the package, it is installed where those of one architecture are."""

    def has_ext_modules(self):
        return not SYSTEM


class Wheel(bdist_wheel):
    """py3-none-PLATFORM: any Python 3, this machine's architecture."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = SYSTEM

    def get_tag(self):
        return "py3", "none", "any" if SYSTEM else super().get_tag()[2]


setup(version=version(), distclass=Files, scripts=[] if SYSTEM else ["kvik"], data_files=[] if SYSTEM else [("share/man/man1", ["man/kvik.1"])],
      cmdclass={"build_py": Build, "build_scripts": Scripts, "bdist_wheel": Wheel})
