#!/bin/sh
# kvik pull, kvik rm and models by name: the tests in tests/hub, against a hub on this machine, which need Python alone; those of
# the package need numpy. The judge needs huggingface_hub, in $KVIK_HUB_PYTHON, build/hub-venv (make test-hub) or the Python that
# is found first.
cd "$(dirname "$0")/../.." || exit 99
rc=0
python3 tests/hub/pull.py || rc=1
numpy=$(scripts/python.sh 2>/dev/null) && { "$numpy" -W ignore tests/hub/package.py || rc=1; }
judge=python3
[ ! -x build/hub-venv/bin/python ] || judge=build/hub-venv/bin/python
"${KVIK_HUB_PYTHON:-$judge}" tests/hub/judge.py || rc=1
exit $rc
