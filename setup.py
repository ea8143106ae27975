"""Builds the wheel: make builds libkvik.so, which travels inside the package.

The package has no compiled modules of its own, so one wheel serves every version of Python on a platform.
"""
import os
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))


def version():
    with open(os.path.join(HERE, "include", "kvik.h"), encoding="utf-8") as f:
        return re.search(r'#define KVIK_VERSION "(.*)"', f.read())[1]


class Build(build_py):
    """Adds the library, without debug symbols, and the declarations that are written from the header."""

    def run(self):
        super().run()
        jobs = str(os.cpu_count() or 1)
        subprocess.check_call([os.environ.get("MAKE", "make"), "--no-print-directory", f"-j{jobs}", "libkvik.so"], cwd=HERE)
        target = os.path.join(self.build_lib, "kvik")
        subprocess.check_call([sys.executable, os.path.join(HERE, "scripts", "make-abi.py"),
                               os.path.join(HERE, "include", "kvik.h"), os.path.join(target, "_abi.py")])
        library = os.path.join(target, "libkvik.so")
        shutil.copyfile(os.path.join(HERE, "libkvik.so"), library)
        subprocess.call([os.environ.get("STRIP", "strip"), "--strip-unneeded", library])


class Wheel(bdist_wheel):
    """py3-none-PLATFORM: any Python 3, this machine's architecture."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(version=version(), cmdclass={"build_py": Build, "bdist_wheel": Wheel})
