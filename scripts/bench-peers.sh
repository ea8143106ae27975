#!/bin/sh
# bench-peers.sh MODEL - measures kvik, llama.cpp and Transformers on the same model in one run, in turn (make bench-peers).
#
# Prints a table of medians and ratios, with the quality of each cache, and appends all figures to bench/results/peers.csv.
# llama.cpp is built once from the source package of llama-cpp-python, in the user's cache directory; that takes six minutes
# of two cores and the network.  A program that is not there is left out, with a sentence.  An interrupted run is
# continued by the next one within a day.
#
#   LLAMA_BENCH=[NAME=]FILE       a llama-bench that is there already, of llama.cpp or a fork of it, is measured too
#   KVIK_REFERENCE_PYTHON=FILE    a Python with torch, transformers and accelerate (without it Transformers is left out)
#   CACHES="f16 q8_0 q4_0"        rows of 16, 8 and 4 bits.  kvik's are those of hqq and quanto.  Transformers has f32 rows, and
#                                 is measured beside f16
#   RUNS=3  THREADS=N             repetitions; threads (all)
#   PEERS="kvik llama transformers bench"   the programs
#   RUN="COMMAND"                 runs each measurement, for example "chrt -f 50"
set -eu
cd "$(dirname "$0")/.."
model=${1:?usage: bench-peers.sh MODEL}
threads=${THREADS:-$(nproc)}
peers=${PEERS:-kvik llama transformers bench}
python=${KVIK_REFERENCE_PYTHON:-}
bench=${LLAMA_BENCH:-}
bench_name=${bench%%=*}
[ "$bench_name" != "$bench" ] || bench_name=llama-bench
bench=${bench#*=}
work=build/peers
eval "$(python3 bench/plan.py)" # PROMPT, STEPS, depths
say() { printf 'bench-peers: %s\n' "$*" >&2; }
wants() { case " $peers " in *" $1 "*) ;; *) return 1 ;; esac; }

# --- llama.cpp ------------------------------------------------------------------------------------
. scripts/llama.inc
# --- One measurement ------------------------------------------------------------------------------
# Runs a program and prints its lines "what,tokens a second".
measure() { # PROGRAM CACHE [LOGITS]
    case $1 in
    kvik) ${RUN-} build/release/bench_rates "$model" "$threads" "$2" $work/ids ${3+"$3"} ;;
    llama) ${RUN-} "$peer" "$model" "$threads" "$2" $work/ids ${3+"$3"} ;;
    transformers) ${RUN-} "$python" bench/peers/transformers.py "$model" "$threads" "$2" $work/ids ${3+"$3"} ;;
    bench) # runs in $work, because some forks write a log into the directory where they run
        # llama.cpp's -d is newer than -gp, and measures prefill at a depth too
        if (cd $work && "$bench_file" --help 2>&1) | grep -q -- '--n-depth'; then set -- "$2" -d "$(echo $depths | tr ' ' ,)"
        else set -- "$2" $(for d in $depths; do [ "$d" = 0 ] || echo "-gp $d,$STEPS"; done); fi
        type=$1
        shift
        (cd $work && ${RUN-} "$bench_file" -m "$model_file" -t "$threads" -p $PROMPT -n $STEPS -r 3 -fa 1 -ctk "$type" -ctv "$type" "$@" 2>/dev/null) |
            awk -F'|' -v prompt=$PROMPT -v steps=$STEPS '
            NF < 4 { next }
            { test = $(NF - 2); speed = $(NF - 1) + 0; at = 0
              if (match(test, /(@ *d|@ *pp)[0-9]+/)) { at = substr(test, RSTART, RLENGTH); gsub(/[^0-9]/, "", at) } }
            test ~ "^ *pp" prompt { printf "prefill %d at %s,%.2f\n", prompt, at, speed }
            test ~ "^ *tg" steps { printf "decode at %s,%.2f\n", at, speed }' ;;
    esac
}

# --- The run --------------------------------------------------------------------------------------
mkdir -p $work
if wants llama && ! llama_peer; then
    say "llama.cpp is left out: it could not be fetched or built ($work/pip.log, $work/llama.log)"
    peers=$(echo " $peers " | sed 's/ llama / /')
fi
if wants transformers && ! { [ -n "$python" ] && "$python" -c 'import torch, transformers, accelerate' 2>/dev/null; }; then
    say "Transformers is left out: KVIK_REFERENCE_PYTHON names no Python with torch, transformers and accelerate"
    peers=$(echo " $peers " | sed 's/ transformers / /')
fi
if wants bench && ! [ -x "$bench" ]; then
    [ -z "$bench" ] || say "$bench_name is left out: $bench cannot be run"
    peers=$(echo " $peers " | sed 's/ bench / /')
fi
./kvik tokenize "$model" <docs/CACHE.md >$work/ids
model_file=$(realpath "$model" 2>/dev/null || echo "$model")
bench_file=$([ -z "$bench" ] || realpath "$bench")
# A run is named by what is measured, so that an interrupted one is found again.
state=$work/run-$(printf '%s\n' "$model" "$threads" "${CACHES-}" "$peers" "$bench" "${KVIK_ISA-}" | cksum | cut -d' ' -f1).csv
[ -z "$(find "$state" -mtime +0 2>/dev/null)" ] || rm -f "$state"
touch "$state"
[ ! -s "$state" ] || say "going on with a run that was interrupted ($state)"
run=1
while [ $run -le "${RUNS:-3}" ]; do
    for type in ${CACHES:-f16 q8_0 q4_0}; do
        for peer in $peers; do
            t=$type
            if [ "$peer" = transformers ]; then
                [ "$type" = f16 ] || continue
                t=f32
            fi
            ! grep -q "^$run,$peer,$t,end" "$state" || continue
            say "run $run, $peer, rows in $t"
            # A program that stops early has measured what it has printed.
            measure "$peer" $t >$work/lines || say "$peer failed with rows in $t after $(grep -c , $work/lines) figures"
            sed "s/^/$run,$peer,$t,/" $work/lines >>"$state"
            echo "$run,$peer,$t,end" >>"$state"
        done
    done
    run=$((run + 1))
done
# Logits of the others are kept; those of kvik are computed anew after a build.
logits=$work/logits-$(printf '%s' "$model" | cksum | cut -d' ' -f1)
for peer in $(echo "kvik $peers" | tr ' ' '\n' | sort -u); do
    for type in exact ${CACHES:-f16 q8_0 q4_0}; do
        case $peer,$type in
        bench,* | llama,exact | transformers,q* | transformers,exact) continue ;;
        transformers,*) type=f32 ;;
        esac
        file=$logits-$peer-$type
        case $peer in
        kvik) source=build/release/bench_rates ;;
        llama) source=$work/llama ;;
        *) source=bench/peers/$peer.py ;;
        esac
        [ -s "$file" ] && [ "$file" -nt "$model" ] && [ "$file" -nt $source ] && continue
        say "quality of $peer, $type"
        measure "$peer" $type $work/logits && mv $work/logits "$file" || say "no logits of $peer, $type"
    done
done
scripts/peers-table.py "$state" "$logits" bench/results/peers.csv "$model" "$threads" "llama=llama.cpp of llama-cpp-python $VERSION" "bench=$bench_name"
rm -f "$state"
