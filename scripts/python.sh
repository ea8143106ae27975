#!/bin/sh
# python.sh - prints a Python that has numpy: the caller's, Debian's, or one in build/venv that this script makes.
# Exit 1, with a reason, if there is none.
set -u
cd "$(dirname "$0")/.." || exit 1
for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 build/venv/bin/python; do
    if "$python" -c 'import numpy' >/dev/null 2>&1; then
        echo "$python"
        exit 0
    fi
done
if python3 -m venv build/venv >/dev/null 2>&1 &&
    build/venv/bin/python -m pip install -q --disable-pip-version-check --retries 2 numpy >/dev/null 2>&1; then
    echo build/venv/bin/python
    exit 0
fi
echo "python: no numpy for python3 (apt-get install python3-numpy), and none could be installed in build/venv" >&2
exit 1
