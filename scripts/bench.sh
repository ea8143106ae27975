#!/bin/sh
# bench.sh MODEL - measures the whole model (make bench): speed against the bandwidth of memory, prefill and decoding at depth, with
# AVX2 as well, products by type of the weights, steps of several tokens, strategies, speculation, prompts that arrive, offloading, texts that come again, the start,
# quantizing, all strategies in a table and a page of HTML, and the package.
#
# Takes a quarter of an hour or so.  Figures are appended to CSV files in bench/results, with the date and the processor.
#   THREADS=N      threads (all)      NAMES="steps offload"   only these
#   FLOAT_MODEL=DIR   a directory with f32, f16 or bf16 weights, whose quantizing is measured (else it is not)
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
kept=build/bench-cache # of the runs that measure the start
wants() { case " ${NAMES:-generate rates products steps strategies speculate arrivals offload reuse start quantize caches package} " in *" $1 "*) ;; *) return 1 ;; esac; }
title() { printf '\n== %s\n' "$1"; }

# Runs a command and leaves its output in $log as well.
logged() {
    "$@" >$log || { cat $log; exit 1; }
    cat $log
}

# Runs a command with a cache directory of its own, and prints the milliseconds that it took.
milliseconds() {
    begun=$(date +%s%N)
    XDG_CACHE_HOME=$PWD/$kept "$@" >/dev/null 2>&1 || { echo "bench: failed: $*" >&2; exit 1; }
    echo $((($(date +%s%N) - begun) / 1000000))
}

# Prints the share of the processors, in percent, that programs took in the last second; 0 where /proc/stat counts nothing.
busy() {
    { grep '^cpu ' /proc/stat; sleep 1; grep '^cpu ' /proc/stat; } 2>/dev/null |
        awk '{ idle = $5 + $6; all = 0; for (i = 2; i <= 9; i++) all += $i
               if (NR == 2 && all > before) share = 100 - 100 * (idle - idled) / (all - before); before = all; idled = idle }
             END { printf "%d\n", share }'
}

# Appends the lines KIND,... of the log to a CSV file, which begins with a line of titles if it is new.  Lines scatters,KIND,... are
# shown and not recorded (bench/steady.h).
record() { # KIND FILE TITLES
    [ "$others" -le 10 ] || return 0
    file=bench/results/$2
    [ -f "$file" ] || echo "date,cpu,version,isa,$3" >"$file"
    sed -n "s/^$1,//p" $log | while IFS= read -r line; do
        printf '%s,%s,%s,%s,%s\n' "$date" "$cpu" "$version" "${KVIK_ISA:-best}" "$line"
    done >>"$file"
}

others=$(busy)
[ "$others" -le 10 ] || echo "bench: the machine is busy: other programs take $others % of the processors. No figure is recorded." >&2
if wants generate; then
    title "the whole model"
    $bin/bench_generate "$model" "$threads"
fi
if wants rates; then
    title "prefill and decoding at depth, tokens a second"
    ./kvik tokenize "$model" <docs/CACHE.md >build/bench.ids
    for isa in ${KVIK_ISA:-best avx2}; do
        [ $isa = best ] || grep -q " $isa " /proc/cpuinfo || continue
        echo "$isa:"
        (unset KVIK_ISA; [ $isa = best ] || export KVIK_ISA=$isa; exec $bin/bench_rates "$model" "$threads" f16 build/bench.ids)
    done
fi
if wants products; then
    title "products of a prompt by type of the weights, in turn"
    if python=$(scripts/python.sh); then "$python" bench/products.py "$threads"; fi
fi
if wants steps; then
    title "steps of several tokens: kind, tokens, milliseconds, in steps of one token, tokens a second"
    logged $bin/bench_steps "$model" "$threads"
    record steps steps.csv "kind,tokens,milliseconds of a step,in steps of one token,tokens a second"
fi
if wants strategies; then
    title "strategies, in turn"
    $bin/bench_strategies "$model" "$threads"
fi
if wants speculate; then
    title "prompt lookup"
    $bin/bench_speculate "$model" "$threads"
fi
if wants arrivals; then
    title "a stream while prompts of 2 044 tokens arrive: chunk, prompts, steps, median ms, longest ms, in medians of one prompt"
    logged $bin/bench_arrivals "$model" "$threads"
    record arrivals arrivals.csv "chunk,prompts,steps,median ms,longest ms,in medians of one prompt"
fi
if wants offload; then
    title "offload: depth, tokens a second in memory, offloaded, ratio, MiB read a token; cold: depth, tokens a second, MB/s, MB/s of the storage, ratio;
trace of a cold step (build/offload-DEPTH.json): depth, ms, of them computing, share of the computing with a read in flight"
    logged $bin/bench_offload "$model" "$threads" cold
    record offload offload.csv "depth,tokens a second in memory,offloaded,ratio,MiB read a token"
    record cold offload-cold.csv "depth,tokens a second,MB/s read,MB/s of the storage,ratio"
    record trace offload-trace.csv "depth,ms of a cold step,ms computing,share of the computing with a read in flight"
fi
if wants reuse; then
    title "a text again: what, milliseconds, of computing it, KiB in the file or written to it"
    logged $bin/bench_reuse "$model" "$threads"
    record reuse reuse.csv "what,milliseconds,of computing the text,KiB of the file or written to it"
fi
if wants start; then
    title "the start, milliseconds; the first run builds what the user's cache directory keeps"
    rm -rf $kept
    XDG_CACHE_HOME=$PWD/$kept logged $bin/bench_start "$model"
    sed 1d $log | while IFS=, read -r what figures; do
        [ "$others" -gt 10 ] || echo "$date,$cpu,${model##*/}: $what,used,$figures" >>bench/results/start.csv
    done
fi
if wants quantize && [ "${FLOAT_MODEL-}" ]; then
    title "--quantize of $FLOAT_MODEL, the whole command, milliseconds: type, first run, median of five later runs, MiB kept"
    for type in none q8_0 q4_0 q4_k; do
        rm -rf $kept
        set -- ./kvik generate "$FLOAT_MODEL" --input-ids 1,504,3575 --max-new-tokens 1 --threads "$threads"
        [ $type = none ] || set -- "$@" --quantize $type
        first=$(milliseconds "$@")
        sleep 2 # a kept file is trusted when it is two seconds old
        milliseconds "$@" >/dev/null
        for i in 1 2 3 4 5; do milliseconds "$@"; done | sort -n >$log
        size=$(du -sm $kept/kvik/weights 2>/dev/null | cut -f1)
        figures="$first,$(sed -n 3p $log),$(sed -n 1p $log),$(sed -n 5p $log)"
        echo "quantize,$type,$figures,${size:-0}"
        [ "$others" -gt 10 ] || echo "$date,$cpu,${FLOAT_MODEL##*/} --quantize $type: whole command,used,$figures" >>bench/results/start.csv
    done
fi
if wants caches; then
    title "all strategies; build/caches.html shows them"
    ./kvik bench "$model" --caches --depths 0,512,2048 --threads "$threads" --report build/caches.html
fi
if wants package; then
    title "the Python package next to the command, tokens a second"
    if make -s python && python=$(scripts/python.sh); then "$python" bench/package.py "$model" "$threads"; fi
fi
