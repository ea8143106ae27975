#!/bin/sh
# A cache directory (~/.cache/kvik) that belongs to another user: one that may be read, one that may not. Nothing can be kept
# there, and everything else works as with a directory of one's own.
. "$(dirname "$0")/lib.inc"
chmod 755 "$work"
kvik=$(realpath "$KVIK")
as_nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
if [ "$(id -u)" != 0 ] || ! $as_nobody test -x "$kvik" 2>/dev/null; then
    skip "a cache of another user: this needs root, and a command that the user nobody can run"
    finish
    exit
fi
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
home=$work/home
own=$home/.cache/kvik
mkdir -p "$own"
cp $golden/models/gemma3.gguf "$own/small.gguf"
chmod -R a+rX "$work"
chown 65534:65534 "$home" "$home/.cache"
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME

other() {
    last="kvik $*"
    # shellcheck disable=SC2086
    HOME=$home timeout -k 5 $patience $as_nobody "$kvik" "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
run generate "$work/tiny" hello --max-new-tokens 4
cp "$work/out" "$work/want"
ls -lR "$own" >"$work/before"
for mode in 755 700; do
    chmod $mode "$own"
    other generate "$work/tiny" hello --max-new-tokens 4
    check "$mode: a model elsewhere opens" status 0
    check "$mode: the same text" cmp -s "$work/out" "$work/want"
    check "$mode: nothing is said" err_empty
    other generate "$work/tiny" hello --max-new-tokens 2 --quantize q8_0
    check "$mode: weights are quantized in memory" err_has "in memory, because they could not be kept"
    other generate small --input-ids 5 --max-new-tokens 2
    if [ $mode = 755 ]; then
        check "a model in a cache of another user" status 0
        other models
        check "it is listed" out_has "^small.gguf"
    else
        refused "a cache that may not be read is told" 1 "$own (which this user may not read)"
        other models
        refused "kvik models says why it lists nothing" 1 "$own: Permission denied"
    fi
done
chmod 755 "$own"
ls -lR "$own" >"$work/after"
check "the directory is as it was" cmp -s "$work/before" "$work/after"
finish
