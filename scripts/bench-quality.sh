#!/bin/sh
# bench-quality.sh MODEL - what the cache types of kvik and llama.cpp lose, on the same text and the same tokens (make bench-quality).
#
# The prompt is the first 2 048 tokens of a text.  Each of the next tokens is a step of its own, and its logits are compared with those
# of the same program with rows in f16, so that only the rows differ.  The table also has the bytes of a token and the speed of the steps.
# llama.cpp is built as for bench-peers.sh; if it cannot be, the table is without it.
#
#   SCORED=1024          tokens that are scored
#   TEXT=FILE            the text (examples/text/nowhere.txt)
#   KVIK_CACHES="..."    caches of bench_rates
#   LLAMA_CACHES="..."   types of llama.cpp; both without f16
#   IK_LLAMA=FOLDER      also ik_llama.cpp, whose sources are there, with the types IK_CACHES="..."
set -eu
cd "$(dirname "$0")/.."
model=${1:?usage: bench-quality.sh MODEL}
threads=${THREADS:-$(nproc)}
work=build/peers
say() { printf 'bench-quality: %s\n' "$*" >&2; }
. scripts/llama.inc
mkdir -p $work
python=$(scripts/python.sh)
set -- "kvik=build/release/bench_rates=${KVIK_CACHES:-kvik8 kvik4 kvik3 kvik2 hqq8 hqq4 quanto4 fp8}"
if llama_peer; then
    set -- "$@" "llama.cpp=$peer=${LLAMA_CACHES-q8_0 q5_1 q5_0 q4_1 q4_0}"
else
    say "llama.cpp is left out: it could not be fetched or built ($work/pip.log, $work/llama.log)"
fi
./kvik tokenize "$model" <"${TEXT:-examples/text/nowhere.txt}" >$work/text-ids
if [ -z "${IK_LLAMA-}" ]; then :
elif ik_peer "$IK_LLAMA"; then set -- "$@" "ik_llama.cpp=$ik_peer=${IK_CACHES-q8_0 rotated-q8_0 q6_0 rotated-q6_0 q4_0 rotated-q4_0}"
else say "ik_llama.cpp is left out: it could not be built ($work/ik.log)"; fi
"$python" bench/cache_quality.py "$model" "$threads" $work/text-ids "${SCORED:-1024}" $work "$@"
