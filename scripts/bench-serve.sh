#!/bin/sh
# bench-serve.sh MODEL - measures kvik serve and llama-server on the same file with as many threads, in turn (make bench-serve).
#
# Prints a table of medians and draws docs/serving.svg; all figures are in build/serving.json.  llama-server is built once from the source
# package of llama-cpp-python, in the user's cache directory; that takes ten minutes of two cores and the network.
#
#   LLAMA_SERVER=FILE   one that is there already
#   ROUNDS=3  THREADS=N  PARTS=streams,again,in_turn,turns,health,agents
set -eu
cd "$(dirname "$0")/.."
model=${1:?usage: bench-serve.sh MODEL}
threads=${THREADS:-$(nproc)}
work=build/peers
say() { printf 'bench-serve: %s\n' "$*" >&2; }
mkdir -p $work
. scripts/llama.inc
server=${LLAMA_SERVER:-}
if [ -z "$server" ]; then
    if llama_build llama-server -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF; then server=$built/bin/llama-server
    else say "llama-server is left out: it could not be fetched or built ($work/pip.log, $work/llama.log)"; fi
fi
# 16 contexts of 5 120 tokens: those of 16 agents with no shared rows.
exec python3 bench/serve.py --rounds "${ROUNDS:-3}" --parts "${PARTS:-streams,again,in_turn,turns,health,agents}" \
    --json build/serving.json --plot docs/serving.svg \
    --server "kvik=env KVIK_THREADS=$threads ./kvik serve $model --port PORT --parallel 16" \
    ${server:+--server "llama-server=$server -m $model --port PORT -t $threads -tb $threads -np 16 -c 81920 --kv-unified --no-webui"}
