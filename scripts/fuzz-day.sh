#!/bin/bash
# fuzz-day.sh [run | state | keep] - a day of fuzzing that may be interrupted: every target gets the same processor time, in turn.
#
#   run    goes on where the last run ended, until each target has HOURS (24) divided by their number. Ctrl-C, a reboot or UNTIL=HH:MM
#          ends it; the same command goes on.
#   state  prints what was reached: processor seconds, inputs, edges of the code, and crashes of each target
#   keep   takes the inputs that reach code which the corpus of the repository does not, as few as do, into that corpus
#
# SLICE (300) processor seconds are what a target gets before the next one is due. PAUSE=FILE: nothing begins while that file exists.
# Targets run in one process each, one at a time: for a busy machine, under nice. make fuzz-day builds them first.
# build/fuzz/day has the state: a line NAME SECONDS INPUTS EDGES CRASHES for each target. Another version of kvik begins at 0 with `rm`.
# A crash does not end the run: its input is in build/fuzz/crashes, the next target follows, and the exit status at the end is 1.
set -u
cd "$(dirname "$0")/.." || exit 1
state=build/fuzz/day
hours=${HOURS:-24}
slice=${SLICE:-300}
targets=${TARGETS:-$(for f in tests/fuzz/fuzz_*.c; do f=${f##*/fuzz_}; echo "${f%.c}"; done)}
n=0
for _ in $targets; do n=$((n + 1)); done
each=$((hours * 3600 / n)) # processor seconds of a target
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=64}
mkdir -p build/fuzz/crashes build/fuzz/corpus
touch $state

field() { awk -v t="$1" -v f="$2" '$1 == t { v = $f } END { print v + 0 }' $state; } # NAME COLUMN
# note NAME SECONDS INPUTS EDGES CRASHES: replaces the line of a target; a reader or a power cut finds the old file or the new one.
note() {
    { awk -v t="$1" '$1 != t' $state && echo "$*"; } >$state.new && sync $state.new && mv $state.new $state
}
ended() { [ -n "${UNTIL-}" ] && [ "$(date +%s)" -ge "$end" ]; }
[ -z "${UNTIL-}" ] || end=$(date -d "$UNTIL" +%s) || exit 2

# True if what a failed run left are only inputs that seemed slow, and take less than 10 s of processor time alone: on a busy machine, or where the
# process was stopped for a while, the clock runs on. Such inputs are removed.
only_slow() { # NAME
    local f tell spent
    ls build/fuzz/crashes/"$1"-timeout-* >/dev/null 2>&1 || return 1
    for f in build/fuzz/crashes/"$1"-timeout-*; do
        tell=$(mktemp)
        { time timeout 900 build/fuzz/fuzz_"$1" -timeout=0 "$f" >/dev/null 2>&1; } 2>"$tell" || { rm -f "$tell"; return 1; }
        spent=$(awk '{ printf "%d", $1 + $2 }' "$tell")
        rm -f "$tell"
        [ "$spent" -lt 10 ] || return 1
        rm -f "$f"
    done
    rm -f build/fuzz/crashes/"$1"-slow-unit-*
}

# Gives a target a slice of processor time: in pieces of a minute, so that a pause and the end are soon noticed.
turn() { # NAME
    local name=$1 log=build/fuzz/$1.day.log used=0 spent runs all edges crashes args=() tell
    [ ! -f "tests/fuzz/dict/$name.dict" ] || args+=(-dict="tests/fuzz/dict/$name.dict")
    mkdir -p build/fuzz/corpus/"$name"
    while [ "$used" -lt "$slice" ] && [ "$(field "$name" 2)" -lt $each ]; do
        while [ -n "${PAUSE-}" ] && [ -e "$PAUSE" ] && ! ended; do sleep 5; done
        ended && return
        tell=$(mktemp)
        TIMEFORMAT='%U %S'
        { time build/fuzz/fuzz_"$name" "${args[@]}" -max_total_time=60 -timeout=10 -rss_limit_mb=512 -print_final_stats=1 -reload=0 \
            -artifact_prefix=build/fuzz/crashes/"$name"- build/fuzz/corpus/"$name" tests/fuzz/corpus/"$name" >"$log" 2>&1; } 2>"$tell"
        local rc=$?
        spent=$(awk '{ s = $1 + $2 } END { printf "%d", s < 1 ? 1 : s + 0.5 }' "$tell")
        rm -f "$tell"
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        edges=$(sed -n 's/.* cov: \([0-9]*\) ft: .*/\1/p' "$log" | tail -n 1)
        crashes=$(field "$name" 5)
        # 130 and 143: somebody ended it
        case $rc in 0 | 130 | 143) ;; *) only_slow "$name" || crashes=$((crashes + 1)) ;; esac
        [ "$crashes" = "$(field "$name" 5)" ] || cp "$log" build/fuzz/crashes/"$name-$crashes.log"
        all=$(($(field "$name" 2) + spent))
        note "$name" $all $(($(field "$name" 3) + ${runs:-0})) "${edges:-$(field "$name" 4)}" "$crashes"
        case $rc in 130 | 143) exit $rc ;; esac
        used=$((used + spent + 1)) # a target that crashes at once ends as well
        [ $rc = 0 ] || return
    done
}

run() {
    local left=1 name
    trap 'exit 130' INT TERM
    while [ $left = 1 ]; do
        left=0
        # the target that has had least comes first, so that a run that is cut short leaves none behind
        for name in $(for t in $targets; do echo "$(field "$t" 2) $t"; done | sort -n | cut -d' ' -f2); do
            ended && { show; return; }
            [ "$(field "$name" 2)" -ge $each ] && continue
            left=1
            turn "$name"
        done
    done
    show
}

show() {
    local sum=0 name crashed=0
    for name in $targets; do
        printf '%-12s %6d of %d s, %d inputs, %d edges, %d crashes\n' "$name" "$(field "$name" 2)" $each "$(field "$name" 3)" "$(field "$name" 4)" "$(field "$name" 5)"
        sum=$((sum + $(field "$name" 2)))
        crashed=$((crashed + $(field "$name" 5)))
    done
    echo "$((sum / 3600)) h $((sum % 3600 / 60)) min of $hours h of processor time"
    [ $crashed = 0 ]
}

# The fewest new inputs that reach what the corpus does not; of each target at most 64, of at most 16 KiB.
keep() {
    local name out before f
    for name in $targets; do
        [ -d build/fuzz/corpus/"$name" ] || continue
        out=build/fuzz/kept/$name
        rm -rf "$out"
        mkdir -p "$out"
        cp tests/fuzz/corpus/"$name"/* "$out" 2>/dev/null
        before=$(find "$out" -type f | wc -l)
        build/fuzz/fuzz_"$name" -set_cover_merge=1 -timeout=10 -rss_limit_mb=512 "$out" build/fuzz/corpus/"$name" >build/fuzz/"$name".keep.log 2>&1 ||
            { echo "$name: build/fuzz/$name.keep.log says what went wrong"; continue; }
        for f in $(find "$out" -type f -size -17k -printf '%s %p\n' | sort -n | cut -d' ' -f2); do
            [ -e "tests/fuzz/corpus/$name/${f##*/}" ] && continue
            [ "$(find tests/fuzz/corpus/"$name" -type f | wc -l)" -lt $((before + 64)) ] || break
            cp "$f" tests/fuzz/corpus/"$name/$(basename "$f" | cut -c1-12)"
        done
        echo "$name: $before inputs, now $(find tests/fuzz/corpus/"$name" -type f | wc -l)"
    done
}

case ${1:-run} in
run) run ;;
state) show ;;
keep) keep ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
