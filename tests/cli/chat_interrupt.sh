#!/bin/sh
# Ctrl-C at the prompt of a chat is never lost: it comes just before each call in which the editor draws, sets the terminal,
# waits or reads. tests/shim/interrupt_at.c raises it there.
. "$(dirname "$0")/lib.inc"
if ! has_pty; then
    finish
    exit
fi
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
cc -shared -fPIC -O1 -o "$work/shim.so" tests/shim/interrupt_at.c -ldl || exit 99

# at CALL NTH KEYS: the signal comes before the NTH call after the prompt, while KEYS are typed.
at() {
    rm -f "$work/after" "$work/done"
    last="Ctrl-C before call $2 of $1, keys $3"
    python3 tests/cli/screen.py $patience 80 \
        "[('> ', ('sh', 'touch $work/after')), ('', '$3'), ('\0leaves)', '\x15\x04')]" "$work/out" "$work/err" \
        env LD_PRELOAD="$work/shim.so" KVIK_TEST_CALL="$1" KVIK_TEST_NTH="$2" KVIK_TEST_AFTER="$work/after" \
        KVIK_TEST_DONE="$work/done" "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 2
    rc=$?
    check "Ctrl-C before call $2 of $1 with $3: it came" [ -e "$work/done" ]
    check "Ctrl-C before call $2 of $1 with $3: the line ends and the chat stays" status 0
}
for keys in ab abcdefgh; do
    for call in read tcgetattr fflush; do
        for nth in 1 2; do at $call $nth $keys; done
    done
    at ppoll 1 $keys
done
paste=$(printf '\033[200~')
at tcgetattr 2 "${paste}one"
at read 5 "${paste}one"
finish
