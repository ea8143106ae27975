#!/bin/sh
# test-hub.sh - the hub's cache as kvik writes it, judged by the hub's own library (make test-hub), which is installed in
# build/hub-venv once. The server is one on this machine (tests/hub/server.py).
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build/hub-venv
[ -x $venv/bin/pip ] || python3 -m venv $venv || exit 1
$venv/bin/pip install -q --disable-pip-version-check huggingface_hub || echo "test-hub: huggingface_hub cannot be installed" >&2
exec $venv/bin/python tests/hub/judge.py
