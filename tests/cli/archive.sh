#!/bin/sh
# libkvik.a in programs that use its internal names themselves: only public functions are visible outside.
. "$(dirname "$0")/lib.inc"
unset MAKEFLAGS MFLAGS MAKELEVEL MODE
export LC_ALL=C # sort and comm agree
last="make libkvik.a"
make --no-print-directory libkvik.a libkvik.so >"$work/out" 2>"$work/err"
rc=$?
check "make libkvik.a" status 0

nm -g --defined-only libkvik.a | awk 'NF == 3 { print $3 }' | sort -u >"$work/visible"
grep -v '^#' src/api/exports.txt | sort -u >"$work/exports"
check "the archive shows the functions of src/api/exports.txt and nothing else" \
    cmp "$work/visible" "$work/exports"

# Every name that is global inside the library, and those of jansson's archive.
nm -g --defined-only build/release/kvik.o | awk 'NF == 3 && $3 !~ /^kvik_/ { print $3 }' | sort -u >"$work/inside"
check "the library has hundreds of internal names" [ "$(wc -l <"$work/inside")" -gt 300 ]
for name in utf8_encode mem_alloc err_set json_parse; do
    check "$name is one of them" grep -qx "$name" "$work/inside"
done
# Sections are joined by name as symbols are, so their names are the library's own as well.
objdump -h build/release/kvik.o | awk '$1 ~ /^[0-9]+$/ && $2 ~ /^[a-z_]+$/ { print $2 }' | sort -u >"$work/sections"
check "registration sections begin with kvik_" sh -c "! grep -v '^kvik_' '$work/sections'"

# program NAME LANGUAGE LEFT_OUT: a program that defines all internal names except those in the file LEFT_OUT.
program() {
    sort -u "$3" | comm -23 "$work/inside" - >"$work/$1.names"
    {
        echo '#include "kvik.h"'
        echo '#include <jansson.h>'
        echo '#include <stdio.h>'
        echo '#include <string.h>'
        [ "$2" = c ] || echo 'extern "C" {'
        sed 's/.*/int &(void);\nint &(void) { return 1; }/' "$work/$1.names"
        [ "$2" = c ] || echo '}'
        echo 'static int (*const mine[])(void) = {'
        sed 's/$/,/' "$work/$1.names"
        echo '};'
        cat <<'C'
int main(int argc, char **argv)
{
    kvik_model *m;
    kvik_cache *c;
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p;
    const int32_t ids[] = {1, 5, 9, 13};
    int sum = 0;
    memset(&p, 0, sizeof p);
    p.size = sizeof p;
    p.ids = ids;
    p.n = 4;
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        sum += mine[i]();
    json_t *j = json_loads("[\"\\u00e9\", 7]", 0, NULL);
    if (!j || json_integer_value(json_array_get(j, 1)) != 7) return 3;
    json_decref(j);
    if (argc != 2 || sum != (int)(sizeof mine / sizeof *mine)) return 4;
    if (kvik_model_open(argv[1], &m) < 0 || kvik_cache_open(m, NULL, &c) < 0) return 5;
    if (kvik_generation_init(&g, m) < 0) return 6;
    if (kvik_generation_set(&g, "{\"max_new_tokens\": 8, \"repetition_penalty\": 1.3}") < 0) return 7;
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) return 8;
    for (size_t i = 0; i < r->row[0]->n; i++)
        printf("%s%d", i ? "," : "", (int)r->row[0]->ids[i]);
    puts("");
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}
C
    } >"$work/$1.$2"
}

# defines ARCHIVE...: the names that archives of other libraries define.
defines() { nm -g --defined-only "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u; }

model=$golden/models/llama-mha
packages="jansson libpcre2-8 libutf8proc nettle"
nm -u build/release/kvik.o | grep -q io_uring_queue_init && packages="$packages liburing"
static_libs="$(pkg-config --static --libs $packages) -lunistring"
# Debian has no archives of libsndfile and libsoxr, and GnuTLS has many libraries of its own, so they stay shared in every program.
audio=
if nm -u build/release/kvik.o | grep -q sf_open_fd; then audio=$(pkg-config --libs sndfile soxr zlib); fi
if nm -u build/release/kvik.o | grep -q redisReaderCreate; then audio="$audio $(pkg-config --libs hiredis)"; fi
if nm -u build/release/kvik.o | grep -q gnutls_init; then audio="$audio $(pkg-config --libs gnutls)"; fi
archives=$(for name in jansson pcre2-8 utf8proc nettle unistring uring; do cc -print-file-name=lib$name.a; done)

# What the same calls give with the shared library, from a program that defines one of the names.
grep -vx mem_alloc "$work/inside" >"$work/but_one"
program shared c "$work/but_one"
cc -Iinclude -o "$work/shared" "$work/shared.c" -L. -lkvik -Wl,-rpath,"$PWD" $(pkg-config --libs jansson) 2>"$work/err"
rc=$?
check "a program links the shared library" status 0
want=$("$work/shared" "$model" 2>"$work/err")
check "it generates" sh -c "echo '$want' | grep -qx '1,5,9,13\(,[0-9]*\)\{8\}'"

# linked NAME LANGUAGE COMPILER FLAGS...: the program links libkvik.a, runs, and gives the same tokens.
linked() {
    linked_name=$1 source=$work/$1.$2 compiler=$3
    shift 3
    last="$compiler $*"
    # shellcheck disable=SC2068
    $compiler -Iinclude -o "$work/$linked_name" "$source" libkvik.a $@ >"$work/out" 2>"$work/err"
    rc=$?
    check "$linked_name: links" status 0
    "$work/$linked_name" "$model" >"$work/out" 2>"$work/err"
    rc=$?
    check "$linked_name: runs" status 0
    check "$linked_name: gives the same tokens" same "$(cat "$work/out")" "$want"
}
compilers="c:cc"
if command -v c++ >/dev/null 2>&1; then compilers="$compilers cc:c++"; else skip "C++: no compiler"; fi
# shellcheck disable=SC2086 # a list of files
defines $archives >"$work/of_archives"
: >"$work/none"
for pair in $compilers; do
    extension=${pair%%:*} compiler=${pair#*:}
    # All names; jansson and the others are shared libraries, whose own names are hidden.
    program "all_$extension" "$extension" "$work/none"
    linked "all_$extension" "$extension" "$compiler" $static_libs $audio -lm -pthread
    # Unused sections are dropped; those that register architectures, kernels, codecs and processors must stay.
    linked "all_$extension" "$extension" "$compiler" -Wl,--gc-sections $static_libs $audio -lm -pthread
    # Everything static: jansson's archive defines utf8_encode and others for itself, and the program the rest.
    missing=
    for archive in $archives; do
        case $archive in
        */*) ;;
        liburing.a) [ "${packages##* }" != liburing ] || missing="$missing $archive" ;;
        *) missing="$missing $archive" ;;
        esac
    done
    if [ -n "$missing" ]; then
        skip "a static program in $compiler: not installed:$missing"
        continue
    fi
    program "static_$extension" "$extension" "$work/of_archives"
    check "static_$extension: defines a hundred names" [ "$(wc -l <"$work/static_$extension.names")" -gt 100 ]
    if [ -n "$audio" ]; then
        linked "static_$extension" "$extension" "$compiler" -Wl,-Bstatic $static_libs -Wl,-Bdynamic $audio -lm -pthread
    else
        linked "static_$extension" "$extension" "$compiler" -static $static_libs -lm -pthread
    fi
done
finish
