#!/bin/sh
# test-serve.sh - kvik serve against the packages that people use, and under llama-server's own tests (make test-serve). Packages are installed in
# build/serve-venv once; one that cannot be had is skipped by its test.
#
# No check depends on how fast the machine is: what waits, waits for KVIK_TEST_PATIENCE seconds (600), and then the test fails.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build/serve-venv red=
export KVIK_TEST_PATIENCE="${KVIK_TEST_PATIENCE:-600}"
[ -x $venv/bin/pip ] || python3 -m venv $venv || exit 1
# install [OPTION] PACKAGE...: each by itself, unless it is there.
install() {
    option=
    case $1 in --*) option=$1; shift ;; esac
    for package; do
        $venv/bin/pip show -q "$package" 2>/dev/null || $venv/bin/pip install -q --disable-pip-version-check $option "$package" ||
            echo "test-serve: $package cannot be installed" >&2
    done
}
install openai anthropic langchain-openai litellm ollama schemathesis prometheus-client pyzmq msgspec smg
install hypothesis-jsonschema jsonschema llguidance tokenizers xgrammar
# Claude Code, Codex and Dynamo's indexer are programs; what their packages need is for programs that drive them.
install --no-deps claude-agent-sdk openai-codex-cli-bin ai-dynamo-runtime
# test NAME ARGUMENT: runs tests/serve/NAME.py, which prints what it counts.
test() {
    echo "== $1"
    $venv/bin/python "tests/serve/$1.py" "$2" || red="$red $1"
}
test clients all
test agents all
test events all
test contract schemathesis
test exposition all
test proxy all
test store long
test fleet all
# schema NAME: runs tests/schema/NAME.py over the tokenizer of Qwen3.
schema() {
    echo "== structured output: $1"
    $venv/bin/python "tests/schema/$1.py" build/release/bench_schema build/qwen3 || red="$red $1"
}
mkdir -p build/qwen3
xz -dc tests/golden/tokenizers/qwen3/tokenizer.json.xz >build/qwen3/tokenizer.json
cp tests/golden/tokenizers/qwen3/tokenizer_config.json build/qwen3/
schema judge
schema random_instances
schema compare_masks
echo "== llama-server's own tests"
scripts/test-llama-server.sh || red="$red llama-server"
[ -z "$red" ] || { echo "test-serve: failed:$red" >&2; exit 1; }
echo "test-serve: all passed"
