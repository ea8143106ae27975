#!/bin/sh
# test-llama-server.sh [PYTEST-ARGUMENT...] - llama-server's own tests against kvik serve (make test-serve). They lie in the source package of
# llama-cpp-python, which is fetched into build once. tests/serve/llama/tests.txt names those that cannot pass, and why.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
package=llama_cpp_python-0.3.36
venv=$root/build/serve-venv
suite=$root/build/$package/vendor/llama.cpp/tools/server/tests
[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check pytest requests openai filelock wget numpy scikit-build-core
if [ ! -d "$suite" ]; then
    "$venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: -d build llama-cpp-python==0.3.36
    tar -xzf "build/$package.tar.gz" -C build "$package/vendor/llama.cpp/tools/server/tests" "$package/vendor/llama.cpp/models/templates"
fi
cd "$suite"
[ $# -gt 0 ] || set -- unit
PYTHONPATH="$root/tests/serve/llama" LLAMA_SERVER_BIN_PATH="$root/tests/serve/llama/shim.py" PORT="${PORT:-$(free_port)}" \
    exec "$venv/bin/python" -m pytest -p llama_plugin -q --tb=short "$@"
