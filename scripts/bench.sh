#!/bin/sh
# bench.sh MODEL - measures the whole model (make bench): speed against the bandwidth of memory, prefill and decoding at depth, steps of
# several tokens, strategies, speculation, offloading, the start, all strategies in a table and a page of HTML, and the package.
#
# Takes ten minutes or so.  What steps and offloading cost is appended to CSV files in bench/results, with the date and the processor.
#   THREADS=N   threads (all)      NAMES="steps offload"   only these
set -eu
cd "$(dirname "$0")/.."
model=${1:?usage: bench.sh MODEL}
threads=${THREADS:-$(nproc)}
bin=build/release
date=$(date +%F)
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr , ' ')
cpu="${cpu:-unknown} $(nproc) CPUs"
version=$(./kvik --version | tr , ' ' | head -n 1)
log=build/bench.log
wants() { case " ${NAMES:-generate rates steps strategies speculate offload start caches package} " in *" $1 "*) ;; *) return 1 ;; esac; }
title() { printf '\n== %s\n' "$1"; }

# Runs a command and leaves its output in $log as well.
logged() {
    "$@" >$log || { cat $log; exit 1; }
    cat $log
}

# Appends the lines KIND,... of the log to a CSV file, which begins with a line of titles if it is new.
record() { # KIND FILE TITLES
    file=bench/results/$2
    [ -f "$file" ] || echo "date,cpu,version,isa,$3" >"$file"
    sed -n "s/^$1,//p" $log | while IFS= read -r line; do
        printf '%s,%s,%s,%s,%s\n' "$date" "$cpu" "$version" "${KVIK_ISA:-best}" "$line"
    done >>"$file"
}

if wants generate; then
    title "the whole model"
    $bin/bench_generate "$model" "$threads"
fi
if wants rates; then
    title "prefill and decoding at depth, tokens a second"
    ./kvik tokenize "$model" <docs/CACHE.md >build/bench.ids
    $bin/bench_rates "$model" "$threads" f16 build/bench.ids
fi
if wants steps; then
    title "steps of several tokens: kind, tokens, milliseconds, in steps of one token, tokens a second"
    logged $bin/bench_steps "$model" "$threads"
    record steps steps.csv "kind,tokens,milliseconds of a step,in steps of one token,tokens a second"
fi
if wants strategies; then
    title "strategies, step by step in turn"
    $bin/bench_strategies "$model" "$threads"
fi
if wants speculate; then
    title "prompt lookup"
    $bin/bench_speculate "$model" "$threads"
fi
if wants offload; then
    title "offload: depth, tokens a second in memory, offloaded, ratio, MiB read a token; cold: depth, tokens a second, MB/s, MB/s of the storage, ratio"
    logged $bin/bench_offload "$model" "$threads" cold
    record offload offload.csv "depth,tokens a second in memory,offloaded,ratio,MiB read a token"
    record cold offload-cold.csv "depth,tokens a second,MB/s read,MB/s of the storage,ratio"
fi
if wants start; then
    title "the start, milliseconds"
    $bin/bench_start "$model"
fi
if wants caches; then
    title "all strategies; build/caches.html shows them"
    ./kvik bench "$model" --caches --depths 0,512,2048 --threads "$threads" --report build/caches.html
fi
if wants package; then
    title "the Python package next to the command, tokens a second"
    if make -s python && python=$(scripts/python.sh); then "$python" bench/package.py "$model" "$threads"; fi
fi
