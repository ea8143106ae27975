#!/bin/bash
# fuzz.sh [SECONDS] - runs each libFuzzer target on its corpus for SECONDS (60). JOBS=N runs N targets at once (1);
# TARGETS="gguf session" runs only these. New inputs stay in build/fuzz/corpus.
#
# An input that takes 10 s or 512 MB counts as a crash. Copy a crashing input to the repository's corpus by hand, with its
# fix. make fuzz builds the targets first: make fuzz FUZZ_SECONDS=1800 JOBS=2 is the long run.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-60}
jobs=${JOBS:-1}
targets=${TARGETS:-$(for f in tests/fuzz/fuzz_*.c; do f=${f##*/fuzz_}; echo "${f%.c}"; done)}
# Freed blocks that ASan holds back count as memory of the input.
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=64}
mkdir -p build/fuzz/crashes

fuzz_one() { # NAME: leaves its verdict in build/fuzz/NAME.verdict
    local name=$1 seeds=tests/fuzz/corpus/$1 dict=tests/fuzz/dict/$1.dict log=build/fuzz/$1.log
    local grown=build/fuzz/corpus/$name args=()
    mkdir -p "$grown"
    [ ! -f "$dict" ] || args+=(-dict="$dict")
    args+=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=512 -print_final_stats=1)
    args+=(-artifact_prefix=build/fuzz/crashes/"$name"- "$grown")
    [ ! -d "$seeds" ] || args+=("$seeds")
    if build/fuzz/fuzz_"$name" "${args[@]}" >"$log" 2>&1; then
        local runs cov peak
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
        cov=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 edges, \2 features/p' "$log" | tail -n 1)
        echo "fuzz $name: ${seconds} s, ${runs:-0} inputs, ${cov:-no coverage}, ${peak:-?} MB, no crash"
    else
        echo "fuzz $name: FAILED; input in build/fuzz/crashes, last lines of $log:"
        tail -n 30 "$log" | sed 's/^/    /'
    fi >build/fuzz/"$name".verdict
    cat build/fuzz/"$name".verdict
}

for name in $targets; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    rm -f build/fuzz/"$name".verdict
    fuzz_one "$name" &
done
wait
failed=
for name in $targets; do
    grep -qs 'no crash$' build/fuzz/"$name".verdict || failed="$failed $name"
done
[ -z "$failed" ] || { echo "fuzz: crashes in:$failed"; exit 1; }
