#!/bin/bash
# run-tests.sh [asan|tsan|long [SECTION...]] - runs the tests, counts them and ends with "N passed, N failed, N skipped".
#
# Without an argument, everything (make test): house rules; unit tests, command tests, examples and golden cases in
# the release build; unit tests and the fuzz corpora again under ASan and UBSan; the table of vulnerability
# classes. asan, tsan: only the unit tests and corpora of that build. long: the tests that are too slow for every
# change (make test-long), or only the sections named: units, checker, tsan, fuzz, soak, arm.
#
# All tests share one queue, and the ASan build is made while the release tests run, so that no core waits at the end
# of a section. One test more than there are cores runs at a time, because some tests sleep. A line of the report
# names the wall time and the CPU time of a test.
#
# KVIK_TEST_MODEL tells tests where the real model is. If it is not set, the script fetches the model; without
# network it skips the tests that need the model and counts them as skipped. The sanitizer builds run with
# KVIK_TEST_SHORT=1 (TSan: 2, shorter still) and without the model (except for three tokens): they look for memory
# errors and races, and the release build looks for wrong numbers. Logs stay in build/logs.
set -u
cd "$(dirname "$0")/.." || exit 1
unset CMOCKA_TEST_FILTER # it would leave cases out
make=${MAKE:-make}
only=${1:-all}
[ $# = 0 ] || shift
jobs=$(scripts/cpus.sh)
logs=build/logs
passed=0 failed=0 skipped=0
broken=() left_out=() # tests that failed, and "NAME: REASON" of those that were skipped
started=$SECONDS

rm -rf "$logs" && mkdir -p "$logs"
# handle_X=2: cmocka catches signals and would hide the sanitizer's report. detect_stack_use_after_return stays off,
# because the fake frames of gcc 12 do not align 64-byte vectors (GCC bug 110027).
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/scripts/tsan.supp
export LC_ALL=C.UTF-8

# Spilled pages go to a disk. On some systems the directory for them is in memory, where kvik refuses to put them.
if [ "$(stat -f -c %T "${TMPDIR:-/var/tmp}" 2>/dev/null)" = tmpfs ]; then
    mkdir -p build/tmp
    export TMPDIR=$PWD/build/tmp KVIK_TEST_DIR=$PWD/build/tmp
fi

# miss WHAT: counts something that should have run and cannot as a failed test.
miss() {
    echo "  FAIL $1"
    failed=$((failed + 1))
    broken+=("$1")
}

# some FILE...: true if the files of a pattern are there. A directory that is missing is a failed test, not an empty one.
some() {
    [ ! -e "$1" ] || return 0
    miss "no file $1"
    return 1
}

section() { printf '\n== %s (at %d s)\n' "$1" $((SECONDS - started)); }

# launch NAME COMMAND...: runs one test in the background as soon as there is room for it.
running=()
launch() {
    local name=$1
    shift
    while [ "$(jobs -rp | wc -l)" -gt "$jobs" ]; do
        wait -n
        reap
    done
    running+=("$name")
    {
        local t0=${EPOCHREALTIME/./} rc
        timeout -k 10 "${KVIK_TEST_TIMEOUT:-1500}" "$@" </dev/null >"$logs/$name.log" 2>&1
        rc=$?
        times >"$logs/$name.times"
        echo "$rc $(((${EPOCHREALTIME/./} - t0) / 100000))" >"$logs/$name.rc.new"
        mv "$logs/$name.rc.new" "$logs/$name.rc"
    } &
}

# cpu_of NAME: prints the CPU time of a test in tenths of a second: user and system, with its children.
cpu_of() {
    awk 'NR == 2 { gsub(/[ms]/, " "); print int(600 * ($1 + $3) + 10 * ($2 + $4) + 0.5) }' "$logs/$1.times" 2>/dev/null
}

# sum_of WORD FILE: adds up the numbers in cmocka's closing lines, one line per group.
sum_of() { sed -n "s/^\[ *$1 *\] \([0-9]*\) test(s).*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# skip_one REASON: counts a test that is not run.
skip_one() {
    skipped=$((skipped + 1))
    left_out+=("$1")
}

# reasons NAME: prints why tests were skipped: the sentences of a script, or the names of cmocka's tests.
reasons() {
    local why
    why=$(sed -n -e 's/^skipped: //p' -e 's/^\[  SKIPPED \] \([a-z_A-Z].*\)/\1/p' \
        -e "s/.*\.\.\. skipped ['\"]\(.*\)['\"]$/\1/p" "$logs/$1.log" | sort -u)
    [ -n "$why" ] || why=$(tail -n 1 "$logs/$1.log")
    sed "s/^/$1: /" <<<"$why"
}

# silent NAME: true if a test that passed without counting tests should have counted some: a test of the command ended
# before its closing lines, or a test of unittest ran nothing.
silent() {
    case $1 in
    cli-*) true ;;
    python-test_*) grep -q 'unittest.main' "tests/python/${1#python-}.py" && ! grep -q '^Ran [1-9]' "$logs/$1.log" ;;
    *) false ;;
    esac
}

# count NAME: counts a test that has ended, prints its line, and shows the output of a failed one.
count() {
    local name=$1 rc tenths cpu p f s
    read -r rc tenths <"$logs/$name.rc" || rc=99 tenths=0
    cpu=$(cpu_of "$name")
    p=$(sum_of PASSED "$logs/$name.log")
    f=$(sum_of FAILED "$logs/$name.log")
    s=$(sum_of SKIPPED "$logs/$name.log")
    # A crash prints no closing line, and a script prints none at all: then the exit status counts as one test.
    if [ "$rc" = 77 ] && [ $((p + f + s)) = 0 ]; then s=1
    elif [ "$rc" != 0 ] && [ "$f" = 0 ]; then f=1
    elif [ $((p + f + s)) = 0 ] && silent "$name"; then
        f=1
        echo "ran no test" >>"$logs/$name.log"
    elif [ $((p + f + s)) = 0 ]; then p=1; fi
    # A Python test that lists its methods says of each that it skips why: "test_x (...) ... skipped 'no model'".
    [[ $name != python-* ]] || s=$((s + $(grep -c "\.\.\. skipped ['\"]" "$logs/$name.log")))
    # Tests that the short form leaves to the release build are not skipped tests of the suite.
    case $name in asan-* | tsan-*) s=0 ;; esac
    [ "$s" = 0 ] || mapfile -t -O ${#left_out[@]} left_out < <(reasons "$name")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '  %-36s %4d passed %3d failed %3d skipped %5d.%d s, cpu %4d.%d s\n' "$name" "$p" "$f" "$s" \
        $((tenths / 10)) $((tenths % 10)) $((cpu / 10)) $((cpu % 10))
    if [ "$f" != 0 ]; then
        broken+=("$name")
        [ "$rc" != 124 ] || echo "    (stopped after ${KVIK_TEST_TIMEOUT:-1500} s)"
        tail -n 120 "$logs/$name.log" | sed 's/^/    | /'
    fi
}

# reap: counts the tests that have ended since the last call.
reap() {
    local name left=()
    for name in "${running[@]}"; do
        if [ -f "$logs/$name.rc" ]; then count "$name"; else left+=("$name"); fi
    done
    running=("${left[@]}")
}

# gather: waits for all launched tests.
gather() {
    wait
    local name
    for name in "${running[@]}"; do count "$name"; done
    running=()
}

# build WHAT...: a failed build counts as one failed test, and the tests that need it do not run.
build() {
    local log
    log=$logs/build-$(echo "$*" | tr -c 'A-Za-z0-9\n' '-').log
    local TIMEFORMAT=$'\n%lU %lS' # as times writes it
    if ! { time $make --no-print-directory -j"$jobs" "$@" >"$log" 2>&1; } 2>"${log%.log}.times"; then
        echo "  build failed: make $*"
        grep -nE 'error|undefined|\*\*\*' "$log" | head -n 40 | sed 's/^/    | /'
        failed=$((failed + 1))
        broken+=("$(basename "$log" .log)")
        return 1
    fi
}

# run_units MODE: the tests that take longest come first, so that none of them is alone at the end. A test whose caches
# do not name their number of threads gets one: two tests with two threads each on two cores spend most of their time
# waiting for each other. Golden cases, command tests, examples and TSan run with the default number.
slow="smollm2 identity forks beam_cache stream_faults matrix matrix_kv arch_identity request kv power_cuts file_faults
save_faults budget dev_attn codec_kernels tok_hostile api_calls hearing stream plan"
run_units() {
    local b name threads=1 without=test_golden # runs with a part as its argument, below
    # The shim of these tests would be called before TSan has found the C library's functions.
    [ "$1" != tsan ] || threads= without="$without test_memory_faults test_file_faults test_power_cuts"
    for name in $slow; do
        [[ " $without " != *" test_$name "* ]] || continue
        some "tests/unit/test_$name.c" && launch "$1-test_$name" env KVIK_THREADS=$threads "build/$1/test_$name"
    done
    for b in tests/unit/test_*.c; do
        some "$b" || break
        name=$(basename "$b" .c)
        [[ " $without " != *" $name "* ]] || continue
        [[ " ${slow//$'\n'/ } " != *" ${name#test_} "* ]] || continue
        launch "$1-$name" env KVIK_THREADS=$threads "build/$1/$name"
    done
}

run_replays() { # MODE
    local f name
    for f in tests/fuzz/fuzz_*.c; do
        some "$f" || break
        name=$(basename "$f" .c)
        name=${name#fuzz_}
        [ -d "tests/fuzz/corpus/$name" ] || { miss "$f has no corpus tests/fuzz/corpus/$name"; continue; }
        launch "$1-replay-$name" "build/$1/replay_$name" tests/fuzz/corpus/"$name"
    done
}

# sanitized MODE: launches the tests of a sanitizer build, which must have been built.
sanitized() {
    local kept=${KVIK_TEST_MODEL-} name
    export KVIK_TEST_SHORT=1 KVIK_TEST_MODEL=none
    [ "$1" != tsan ] || KVIK_TEST_SHORT=2
    unset KVIK_TEST_LONG
    for name in serve usage failures generate; do
        launch "$1-cli-$name" env KVIK=build/"$1"/kvik tests/cli/$name.sh
    done
    run_units "$1"
    run_replays "$1"
    [ ! -f "$kept" ] || launch "$1-smollm2" build/"$1"/kvik generate "$kept" "The sea" --max-new-tokens 3
    unset KVIK_TEST_SHORT KVIK_TEST_MODEL
    [ -z "$kept" ] || export KVIK_TEST_MODEL=$kept
}

# cpu_times: prints the CPU time of each kind of test.
cpu_times() {
    local f name
    for f in "$logs"/*.times; do
        [ -f "$f" ] || continue
        name=$(basename "$f" .times)
        echo "${name%%-*} $(cpu_of "$name")"
    done | awk '{ n[$1] += $2 } END { for (k in n) printf "%s %.0f s\n", k, n[k] / 10 }' | sort | paste -sd, | sed 's/,/, /g'
}

# why NAME: prints at most 8 lines of what a failed test said: of FAIL the line after it, of an exception the place.
why() {
    [ -f "$logs/$1.log" ] || return 0
    cut -c 1-200 "$logs/$1.log" | awk '
        function say(line) { if (n < 8 && line != "") said[n++] = line }
        { last[NR % 8] = $0 }
        after { after = 0; say($0); next }
        /^\[ *FAILED *\] [0-9]+ test/ { next }
        /^ *File .*, line / { place = $0 }
        /^FAIL/ { after = 1; say($0); next }
        /^\[ *(FAILED|ERROR|LINE) *\] |^ERROR: |==ERROR: |runtime error: |WARNING: ThreadSanitizer|SUMMARY: |: error: |\*\*\* / { say($0) }
        /^[A-Za-z_.]*(Error|Exception|Timeout|TimeoutExpired)(:|$)/ { say(place); say($0); place = "" }
        END {
            if (!n) for (i = NR > 8 ? NR - 7 : 1; i <= NR; i++) say(last[i % 8])
            for (i = 0; i < n; i++) print "    | " said[i]
        }'
}

# finish: the last lines say what failed and why, for somebody who sees no more of the output than these.
finish() {
    local name
    printf '\nwall time: %d s on %d cores; cpu: %s\n' $((SECONDS - started)) "$jobs" "$(cpu_times)"
    [ ${#left_out[@]} = 0 ] || printf 'skipped: %s\n' "${left_out[@]}"
    for name in "${broken[@]}"; do
        echo "failed: $name"
        why "$name"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" != 0 ] || exit 1
    exit 0
}

# find_model: sets KVIK_TEST_MODEL, to "none" without a model, and $model.
find_model() {
    if model=$(scripts/fetch-model.sh 2>"$logs/fetch.log"); then
        export KVIK_TEST_MODEL=$model
    else
        sed 's/^/  /' "$logs/fetch.log"
        echo "  no model: the tests that need SmolLM2 are skipped"
        export KVIK_TEST_MODEL=none
    fi
}

# The sections of the long form. Each can run alone.
long_units() {
    section "unit tests in their long form, release"
    build unit || return
    find_model
    run_units release
    gather
}
long_checker() {
    section "a million operations of the cache's model checker, ASan"
    build MODE=asan build/asan/test_kv || return
    launch model-checker build/asan/test_kv --ops 1000000 --seed 1
    gather
    tail -n 3 "$logs/model-checker.log" | sed 's/^/  /'
}
long_tsan() {
    section "threads, TSan"
    build MODE=tsan all unit replay || return
    sanitized tsan
    gather
}
long_fuzz() {
    section "whisper-base against Transformers"
    launch speech scripts/test-speech.sh
    gather
    section "fuzzing"
    launch fuzz "$make" --no-print-directory fuzz
    gather
    cat "$logs/fuzz.log"
}

long_soak() {
    section "the server: long requests, and load for half an hour"
    build all || return
    find_model
    launch soak python3 tests/serve/soak.py
    launch sockets python3 tests/serve/sockets.py
    launch long-requests python3 tests/serve/long_requests.py
    gather
    grep -hE '^soak:| times parked|: worst' "$logs/soak.log" "$logs/long-requests.log"
}
long_arm() {
    section "64-bit ARM under qemu"
    launch arm env -u KVIK_TEST_LONG KVIK_TEST_MODEL=none scripts/test-arm.sh # where the tools are missing it says which, and is skipped
    gather
    cat "$logs/arm.log"
}

case $only in
asan | tsan)
    section "unit tests and corpora, $only"
    ! build MODE="$only" all unit replay || sanitized "$only"
    gather
    finish
    ;;
long)
    export KVIK_TEST_TIMEOUT=${KVIK_TEST_TIMEOUT:-7200}
    for part in ${*:-units checker tsan fuzz soak arm}; do
        export KVIK_TEST_LONG=1
        case $part in
        units | checker | tsan | fuzz | soak | arm) "long_$part" ;;
        *) echo "run-tests.sh: no section \"$part\"; there are units, checker, tsan, fuzz, soak and arm" && exit 2 ;;
        esac
    done
    finish
    ;;
all) # without lines, which `make asan` has, programs of 40 MB link in half the time, and with lld in half of that
    export TEST_LDFLAGS=-Wl,-S
    ! command -v ld.lld >/dev/null || TEST_LDFLAGS="-Wl,-S -fuse-ld=lld"
    ;;
*)
    echo "usage: run-tests.sh [asan|tsan|long [units|checker|tsan|fuzz|soak|arm]...]"
    exit 2
    ;;
esac

section "release build"
build TOGETHER=1 all unit examples build/release/test_golden
find_model

section "tests"
# The ASan build is one of the launched jobs, beside the tests of the release build.
launch build-asan "$make" --no-print-directory -j"$jobs" MODE=asan TOGETHER=1 all unit replay
built=$!
launch check scripts/check.sh
launch check-abi scripts/check-abi.sh
run_units release
launch golden-A build/release/test_golden A
launch golden-B build/release/test_golden B
launch golden-C build/release/test_golden C
launch golden-D build/release/test_golden D
launch golden-script-D build/release/test_golden_script D
launch golden-own build/release/test_golden own
for part in A D own; do # on a device whose memory the host cannot touch (tests/hidden)
    launch "hidden-$part" env KVIK_DEVICE=hidden build/release/test_golden "$part"
done
for part in A D own; do # the kernels for GPUs, emulated (tests/cuda)
    launch "emulated-$part" env KVIK_DEVICE=cuda KVIK_CUDA_LIBRARY=build/release/libkvik-cuda-emulated.so build/release/test_golden "$part"
done
launch emulated-B env KVIK_DEVICE=cuda KVIK_CUDA_LIBRARY=build/release/libkvik-cuda-emulated.so build/release/test_golden B -o llama-d64
for t in encoded probe_reference interchange legacy padded session_dir; do
    launch "hidden-$t" env KVIK_DEVICE=hidden build/release/test_"$t"
done
for t in tests/cli/*.sh; do
    some "$t" || break
    launch "cli-$(basename "$t" .sh)" env KVIK=./kvik "$t"
done
for e in examples/c/*.c; do
    some "$e" || break
    name=$(basename "$e" .c)
    if [ -n "$model" ]; then
        file= # of the one that keeps a session
        [ "$name" != save_load ] || file=build/story.session
        launch "example-$name" build/release/ex_"$name" "$KVIK_TEST_MODEL" ${file:+"$file"}
    else
        skip_one "example-$name: no model"
    fi
done

# The Python package.
if $make --no-print-directory python >"$logs/python.log" 2>&1 && python=$(scripts/python.sh 2>>"$logs/python.log"); then
    for t in tests/python/test_*.py; do
        some "$t" || break
        launch "python-$(basename "$t" .py)" "$python" -X faulthandler "$t"
    done
    for e in examples/python/*.py; do
        some "$e" || break
        name=$(basename "$e" .py)
        if [ -n "$model" ]; then
            launch "python-example-$name" env PYTHONPATH=python "$python" -X faulthandler tests/python/example.py "$e" "$model"
        else
            skip_one "python-example-$name: no model"
        fi
    done
else
    sed 's/^/  /' "$logs/python.log"
    skip_one "python: no Python with numpy, so the tests of the package are not run"
fi

# Each mutant breaks one rule of the reduction order, and the identity test must fail on it.
launch mutants scripts/mutants.sh

wait "$built"
read -r rc _ <"$logs/build-asan.rc"
[ "$rc" != 0 ] || sanitized asan
gather

section "vulnerability classes"
launch classes scripts/test-classes.sh
gather
[[ ${broken[*]-} == *classes* ]] || cat "$logs/classes.log"

finish
