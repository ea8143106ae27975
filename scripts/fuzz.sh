#!/bin/sh
# fuzz.sh SECONDS - runs each libFuzzer target on its corpus for SECONDS. New inputs stay in build/fuzz/corpus.
# Copy a crashing input to the repository's corpus by hand, with its fix.
set -u
cd "$(dirname "$0")/.."
seconds=${1:-60}
failed=
for f in tests/fuzz/fuzz_*.c; do
    name=$(basename "$f" .c)
    name=${name#fuzz_}
    seeds=tests/fuzz/corpus/$name
    grown=build/fuzz/corpus/$name
    mkdir -p "$grown" build/fuzz/crashes
    log=build/fuzz/$name.log
    if build/fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/crashes/"$name"- "$grown" $([ ! -d "$seeds" ] || echo "$seeds") >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "fuzz $name: ${seconds}s, ${runs:-0} inputs, no crash"
    else
        echo "fuzz $name: FAILED; input in build/fuzz/crashes, last lines of $log:"
        tail -n 30 "$log" | sed 's/^/    /'
        failed="$failed $name"
    fi
done
[ -z "$failed" ] || { echo "fuzz: crashes in:$failed"; exit 1; }
