#!/bin/sh
# compile-commands.sh - prints compile_commands.json for clangd: how make compiles each C file of the library, the command,
# the tests and the benchmarks. It asks make itself (a dry run), so the flags cannot differ from those of the build.
set -eu
cd "$(dirname "$0")/.."
"${MAKE:-make}" --no-print-directory -nB V=1 MODE=release all unit $(ls bench/*.c | sed 's|bench/\(.*\)\.c|build/release/bench_\1|') |
    awk -v dir="$PWD" '
    / -c -o / {
        file = $NF
        gsub(/\\/, "\\\\"); gsub(/"/, "\\\"")
        sub(/^[ \t]+/, "")
        printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s\"}", (n++ ? ",\n" : "[\n"), dir, file, $0
    }
    END { print n ? "\n]" : "[]"; exit !n }'
