#!/bin/sh
# scripts/check-api.py: a break of the header that the changelog does not name is found, one that it names is not, and what is
# only added is none.
. "$(dirname "$0")/lib.inc"
fresh() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/scripts" "$work/tree/include"
    cp scripts/check-api.py scripts/make-abi.py "$work/tree/scripts"
    cp include/*.h "$work/tree/include"
    version=$(sed -n 's/^#define KVIK_VERSION "\(.*\)"/\1/p' include/kvik.h)
    printf '# Changelog\n\n## %s (2026-01-01)\n\n- API: kvik_tokenizer_find of another version.\n' "$version" >"$work/tree/CHANGELOG.md"
    "$work/tree/scripts/check-api.py" write
}
# edit SED: changes the header, and goes to the next version.
edit() {
    fresh
    sed -i -e "$1" -e "s/^#define KVIK_VERSION .*/#define KVIK_VERSION \"9.9.9\"/" "$work/tree/include/"*.h
    sed -i 's/^# Changelog$/# Changelog\n\n## 9.9.9 (unreleased)\n\n- Another line./' "$work/tree/CHANGELOG.md"
}
compare() {
    last="check-api.py"
    "$work/tree/scripts/check-api.py" >"$work/out" 2>"$work/err"
    rc=$?
}
broken() {
    edit "$2"
    compare
    check "$1: found" status 1
    check "$1: named" out_has "^$3 .*no line \"- API:\""
    check "$1: one break" same "$(wc -l <"$work/out")" 1
    sed -i "s/^- Another line.$/- API: a change of\n  \`$3\` is told./" "$work/tree/CHANGELOG.md"
    compare
    check "$1: told in the changelog" status 0
}
fresh
compare
check "the same header" status 0
broken "a function that is gone" '/kvik_tokenizer_find(/d' kvik_tokenizer_find
broken "a function of another type" 's/KVIK_API uint32_t kvik_tokenizer_vocab(/KVIK_API int32_t kvik_tokenizer_vocab(/' kvik_tokenizer_vocab
broken "a field of another type" 's/^    kvik_row \*\*row;/    kvik_row *row;/' kvik_result
broken "a field in front of others" 's/^typedef struct kvik_span {/&\n    int first;/' kvik_span
broken "a field that is gone" '/^typedef struct kvik_span {/,/^}/{/uint32_t n;/d}' kvik_span
broken "a function of the other header" '/kvik_export_free(/d' kvik_export_free
broken "a constant of another value" 's/KVIK_ARG = -2/KVIK_ARG = -222/' KVIK_ARG
edit 's/^} kvik_span;/    int last;\n} kvik_span;/'
compare
check "a field behind the others is no break" status 0
edit 's/^KVIK_API void kvik_free(void \*p);/&\nKVIK_API int kvik_new_one(int a);/'
compare
check "a new function is no break" status 0
fresh
sed -i 's/^## .*/## Some day/' "$work/tree/CHANGELOG.md"
compare
check "a heading without the version is found" out_has "newest heading"
finish
