#!/bin/bash
# run-tests.sh [asan|tsan|long] - runs the tests, counts them and ends with "N passed, N failed, N skipped".
#
# Without an argument, everything (make test): house rules; unit tests, command tests, examples and golden cases in
# the release build; unit tests and the fuzz corpora again under ASan and UBSan; the table of vulnerability
# classes. asan, tsan: only the unit tests and corpora of that build. long: the tests that are too slow for every
# change (make test-long).
#
# KVIK_TEST_MODEL tells tests where the real model is. If it is not set, the script fetches the model; without
# network it skips the tests that need the model and counts them as skipped. The sanitizer builds run with
# KVIK_TEST_SHORT=1 and without the model (except for three tokens): they look for memory errors, and the release
# build looks for wrong numbers. Logs stay in build/logs.
set -u
cd "$(dirname "$0")/.." || exit 1
make=${MAKE:-make}
only=${1:-all}
jobs=$(nproc 2>/dev/null || echo 2)
logs=build/logs
passed=0 failed=0 skipped=0
broken=()
started=$SECONDS

rm -rf "$logs" && mkdir -p "$logs"
# handle_X=2: cmocka catches signals and would hide the sanitizer's report. detect_stack_use_after_return stays off,
# because the fake frames of gcc 12 do not align 64-byte vectors (GCC bug 110027).
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export LC_ALL=C.UTF-8

section() { printf '\n== %s (at %d s)\n' "$1" $((SECONDS - started)); }

# launch NAME COMMAND...: runs one test in the background, at most $jobs at a time.
names=()
launch() {
    local name=$1
    shift
    names+=("$name")
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    {
        local t0=${EPOCHREALTIME/./}
        timeout -k 10 "${KVIK_TEST_TIMEOUT:-1500}" "$@" </dev/null >"$logs/$name.log" 2>&1
        echo "$? $(((${EPOCHREALTIME/./} - t0) / 100000))" >"$logs/$name.rc"
    } &
}

# sum_of WORD FILE: adds up the numbers in cmocka's closing lines, one line per group.
sum_of() { sed -n "s/^\[ *$1 *\] \([0-9]*\) test(s).*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# gather [noskip]: waits for the launched tests, counts them, and shows the output of failed ones.
gather() {
    wait
    local name rc tenths p f s
    for name in "${names[@]}"; do
        read -r rc tenths <"$logs/$name.rc" || rc=99 tenths=0
        p=$(sum_of PASSED "$logs/$name.log")
        f=$(sum_of FAILED "$logs/$name.log")
        s=$(sum_of SKIPPED "$logs/$name.log")
        # A crash prints no closing line, and a script prints none at all: then the exit status counts as one test.
        if [ "$rc" = 77 ] && [ $((p + f + s)) = 0 ]; then s=1
        elif [ "$rc" != 0 ] && [ "$f" = 0 ]; then f=1
        elif [ $((p + f + s)) = 0 ]; then p=1; fi
        # Tests that the short form leaves to the release build are not skipped tests of the suite.
        [ "${1-}" != noskip ] || s=0
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        printf '  %-44s %4d passed %3d failed %3d skipped %6d.%d s\n' "$name" "$p" "$f" "$s" \
            $((tenths / 10)) $((tenths % 10))
        if [ "$f" != 0 ]; then
            broken+=("$name")
            [ "$rc" != 124 ] || echo "    (stopped after ${KVIK_TEST_TIMEOUT:-1500} s)"
            tail -n 120 "$logs/$name.log" | sed 's/^/    | /'
        fi
    done
    names=()
}

# build WHAT...: a failed build counts as one failed test, and the tests that need it do not run.
build() {
    local log
    log=$logs/build-$(echo "$*" | tr -c 'A-Za-z0-9\n' '-').log
    if ! $make --no-print-directory -j"$jobs" "$@" >"$log" 2>&1; then
        echo "  build failed: make $*"
        grep -nE 'error|undefined|\*\*\*' "$log" | head -n 40 | sed 's/^/    | /'
        failed=$((failed + 1))
        broken+=("build: $*")
        return 1
    fi
}

run_units() { # MODE
    local b name
    for b in tests/unit/test_*.c; do
        name=$(basename "$b" .c)
        [ "$name" != test_golden ] || continue # runs with a part as its argument, below
        [ -x "build/$1/$name" ] || continue
        launch "$1-$name" "build/$1/$name"
    done
}

run_replays() { # MODE
    local f name
    for f in tests/fuzz/fuzz_*.c; do
        [ -e "$f" ] || continue
        name=$(basename "$f" .c)
        name=${name#fuzz_}
        [ -d "tests/fuzz/corpus/$name" ] || { echo "  $f has no corpus tests/fuzz/corpus/$name"; failed=$((failed + 1)); continue; }
        launch "$1-replay-$name" "build/$1/replay_$name" tests/fuzz/corpus/"$name"
    done
}

sanitized() { # MODE
    build MODE="$1" all unit replay || return
    local kept=${KVIK_TEST_MODEL-} name
    export KVIK_TEST_SHORT=1 KVIK_TEST_MODEL=none
    run_units "$1"
    run_replays "$1"
    for name in usage failures generate; do
        launch "$1-cli-$name" env KVIK=build/"$1"/kvik tests/cli/$name.sh
    done
    [ ! -f "$kept" ] || launch "$1-smollm2" build/"$1"/kvik generate "$kept" "The sea" --max-new-tokens 3
    gather noskip
    unset KVIK_TEST_SHORT KVIK_TEST_MODEL
    [ -z "$kept" ] || export KVIK_TEST_MODEL=$kept
}

finish() {
    printf '\nwall time: %d s on %d cores\n' $((SECONDS - started)) "$jobs"
    [ ${#broken[@]} = 0 ] || printf 'failed: %s\n' "${broken[@]}"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] || exit 1
    exit 0
}

case $only in
asan | tsan)
    section "unit tests and corpora, $only"
    sanitized "$only"
    finish
    ;;
long)
    export KVIK_TEST_TIMEOUT=7200
    section "unit tests in their long form, release"
    if build unit; then
        KVIK_TEST_MODEL=$(scripts/fetch-model.sh) && export KVIK_TEST_MODEL
        run_units release
        gather
    fi
    section "a million operations of the cache's model checker, ASan"
    if build MODE=asan build/asan/test_kv; then
        launch model-checker build/asan/test_kv --ops 1000000 --seed 1
        gather
        tail -n 3 "$logs/model-checker.log" | sed 's/^/  /'
    fi
    section "threads, TSan"
    sanitized tsan
    section "fuzzing"
    launch fuzz "$make" --no-print-directory fuzz
    gather
    cat "$logs/fuzz.log"
    finish
    ;;
esac

section "release build"
build all unit examples build/release/test_golden
if model=$(scripts/fetch-model.sh 2>"$logs/fetch.log"); then
    export KVIK_TEST_MODEL=$model
else
    sed 's/^/  /' "$logs/fetch.log"
    echo "  no model: the tests that need SmolLM2 are skipped"
    export KVIK_TEST_MODEL=none
fi

section "house rules"
launch check scripts/check.sh
launch check-abi scripts/check-abi.sh
gather

section "unit tests, release"
run_units release
gather

section "golden cases, command, examples"
launch golden-A build/release/test_golden A
launch golden-B build/release/test_golden B
launch golden-C build/release/test_golden C
launch golden-D build/release/test_golden D
launch golden-script-D build/release/test_golden_script D
launch golden-own build/release/test_golden own
for t in tests/cli/*.sh; do
    [ -e "$t" ] || continue
    launch "cli-$(basename "$t" .sh)" env KVIK=./kvik "$t"
done
for e in examples/c/*.c; do
    [ -e "$e" ] || continue
    name=$(basename "$e" .c)
    if [ -n "$model" ]; then
        file= # of the one that keeps a session
        [ "$name" != save_load ] || file=build/story.session
        launch "example-$name" build/release/ex_"$name" "$KVIK_TEST_MODEL" ${file:+"$file"}
    else
        skipped=$((skipped + 1))
    fi
done
gather

# Each mutant breaks one rule of the reduction order, and the identity test must fail on it.
launch mutants scripts/mutants.sh
gather

section "unit tests and corpora, ASan and UBSan"
sanitized asan

section "vulnerability classes"
launch classes scripts/test-classes.sh
gather
[[ ${broken[*]-} == *classes* ]] || cat "$logs/classes.log"

finish
