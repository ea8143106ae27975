#!/bin/sh
# test-serve.sh - kvik serve against the packages that people use, and under llama-server's own tests (make test-serve). Packages are installed in
# build/serve-venv once; one that cannot be had is skipped by its test.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build/serve-venv rc=0
[ -x $venv/bin/pip ] || python3 -m venv $venv || exit 1
for package in openai anthropic langchain-openai litellm ollama schemathesis prometheus-client pyzmq msgspec smg; do
    $venv/bin/pip install -q --disable-pip-version-check "$package" || echo "test-serve: $package cannot be installed" >&2
done
# Claude Code and Codex themselves; what their packages need is for programs that drive them.
$venv/bin/pip install -q --disable-pip-version-check --no-deps claude-agent-sdk openai-codex-cli-bin || echo "test-serve: Claude Code or Codex cannot be installed" >&2
# Dynamo's indexer of prefixes needs nothing of what its package asks for.
$venv/bin/pip install -q --disable-pip-version-check --no-deps ai-dynamo-runtime || echo "test-serve: Dynamo's indexer cannot be installed" >&2
# test NAME [ARGUMENT...]: runs tests/serve/NAME.py, which prints what it counts.
test() {
    echo "== $1"
    $venv/bin/python "tests/serve/$1.py" "$2" || rc=1
}
test clients all
test agents all
test events all
test contract schemathesis
test exposition all
test proxy all
test store long
test fleet all
echo "== llama-server's own tests"
scripts/test-llama-server.sh || rc=1
exit $rc
