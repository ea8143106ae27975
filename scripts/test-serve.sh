#!/bin/sh
# test-serve.sh - kvik serve against the packages that people use (make test-serve). They are installed in build/serve-venv
# once; one that cannot be had is skipped by the test.
set -eu
cd "$(dirname "$0")/.."
venv=build/serve-venv
[ -x $venv/bin/pip ] || python3 -m venv $venv
for package in openai anthropic langchain-openai litellm; do
    $venv/bin/pip install -q --disable-pip-version-check "$package" || echo "test-serve: $package cannot be installed" >&2
done
exec $venv/bin/python tests/serve/clients.py
