#!/bin/sh
# A model file that is truncated while a chat uses it: one error message and exit 1, no signal. class: mmap-sigbus
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
last="kvik chat, model cut short"
mkfifo "$work/in"
timeout -k 5 $patience "$KVIK" chat "$work/tiny" --max-new-tokens 4 <"$work/in" >"$work/out" 2>"$work/err" &
exec 3>"$work/in"
echo "one" >&3
check "the first reply arrived" within [ -s "$work/out" ]
truncate -s 4096 "$work/tiny/model.safetensors"
echo "two" >&3
exec 3>&-
wait $!
rc=$?
check "exit 1" status 1
check "the message says what happened" err_has "shrank\|truncated"
finish
