#!/bin/sh
# test-guide.sh GUIDE - runs every snippet of Hugging Face's guide with kvik, and compares its tokens with Transformers on the
# same models (make test-guide).
#
# GUIDE is a directory with the snippets; they are other people's, so they are not in this repository.  Torch and
# Transformers come from $PYTHON, or are installed in build/venv, once: 1 GB, or 6 GB where download.pytorch.org cannot be
# reached, because the package index has only the torch with CUDA.
set -eu
cd "$(dirname "$0")/.."
guide=${1:?usage: test-guide.sh GUIDE}
if [ ! -d "$guide" ]; then
    echo "test-guide: no directory $guide; name the one with the snippets: make test-guide GUIDE=DIR" >&2
    exit 1
fi
has() { "$1" -c 'import numpy, tokenizers, torch, transformers' >/dev/null 2>&1; }
python=${PYTHON:-build/venv/bin/python}
if ! has "$python"; then
    echo "test-guide: installing torch and transformers in build/venv" >&2
    [ -x build/venv/bin/python ] || python3 -m venv build/venv
    python=build/venv/bin/python
    "$python" -m pip install -q --disable-pip-version-check --retries 1 --index-url https://download.pytorch.org/whl/cpu torch ||
        "$python" -m pip install -q --disable-pip-version-check torch
    "$python" -m pip install -q --disable-pip-version-check numpy tokenizers 'transformers>=5'
    has "$python" || { echo "test-guide: torch and transformers cannot be imported" >&2; exit 1; }
fi
exec "$python" -X faulthandler tests/guide/run.py "$guide" build/guide
