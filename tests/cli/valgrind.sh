#!/bin/sh
# Memcheck has nothing to report of an example of C and of the command. Where valgrind's header was absent when kvik was built,
# it takes memory that the system cleared for memory that nobody wrote, so the test is skipped.
. "$(dirname "$0")/lib.inc"
if ! command -v valgrind >/dev/null 2>&1 || ! echo '#include <valgrind/memcheck.h>' | cc -E - >/dev/null 2>&1; then
    skip "valgrind, or its header, is not installed"
    finish
    exit
fi
model=$work/tiny
python3 tests/cli/tiny.py $golden/models/llama-mha "$model" || exit 99
export KVIK_THREADS=1 # valgrind runs one thread at a time

# clean NAME COMMAND...: memcheck reports neither an error nor a leak.
clean() {
    name=$1
    shift
    last="valgrind $*"
    timeout -k 5 $patience valgrind -q --leak-check=full --error-exitcode=99 "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
    check "$name: exit 0" status 0
    check "$name: no report" sh -c "! grep -q '^==' '$work/err'"
}
for example in complete quanto save_load; do
    cc -Iinclude -o "$work/$example" examples/c/$example.c -L. -lkvik -Wl,-rpath,"$PWD" 2>"$work/err"
    rc=$?
    check "the example $example is compiled" status 0
    clean "$example" "$work/$example" "$model" "$work/file"
done
for cache in dynamic quantized offloaded; do
    clean "generate, $cache" "$KVIK" generate "$model" hello --max-new-tokens 4 --cache-implementation $cache
done
finish
