#!/bin/sh
# tidy.sh [FILE...] - runs clang-tidy (.clang-tidy) on C files of src, or on all of them (make tidy; minutes). Instruction sets
# have files of the same code, of which the scalar one stands for all. Exit 77: clang-tidy is not installed.
set -eu
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null || { echo "tidy: skipped, clang-tidy is not installed (apt-get install clang-tidy)"; exit 77; }
[ $# -gt 0 ] || set -- src/*/*.c src/*/*/*.c
for f; do
    case $f in src/*.c) ;; *) continue ;; esac
    case $f in *_avx*.c | *_sse*.c | *_neon*.c) continue ;; esac
    [ ! -f "$f" ] || printf '%s\0' "$f"
done | xargs -0 -r -n 4 -P "${JOBS:-$(scripts/cpus.sh)}" sh -c '
    clang-tidy --quiet "$@" -- -std=c11 -D_GNU_SOURCE -DKVIK_URING -DKVIK_AUDIO -DKVIK_REDIS -DKVIK_TLS -I/usr/include/hiredis -Iinclude -Isrc 2>/dev/null' tidy
