#!/bin/sh
# What the command does to files that exist already, to devices and FIFOs, past the limit on file sizes, and with closed
# standard streams.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha
ids=$(seq -s, 5 100)
logits() { run generate "$model" --input-ids 5,6,7 --max-new-tokens 2 --json --logits-file "$1"; }

# The names that --logits-file and --report write to keep what they are.
logits "$work/first"
check "a new file: exit 0" status 0
for mode in 600 640 755; do
    cp "$work/first" "$work/l"
    chmod $mode "$work/l"
    logits "$work/l"
    check "mode $mode: exit 0" status 0
    check "mode $mode: stays" same "$(stat -c %a "$work/l")" $mode
    check "mode $mode: written" cmp -s "$work/first" "$work/l"
done
ln -s real "$work/link"
for there in no yes; do
    logits "$work/link"
    check "link, file there: $there: stays" test -L "$work/link"
    check "link, file there: $there: the file is written" cmp -s "$work/first" "$work/real"
done
logits /dev/null
check "a device: exit 0" status 0
check "a device: stays" test -c /dev/null
mkfifo "$work/fifo"
timeout -k 5 $patience cat "$work/fifo" >"$work/through" &
logits "$work/fifo"
wait $!
check "a FIFO: exit 0" status 0
check "a FIFO: stays" test -p "$work/fifo"
check "a FIFO: gets all bytes" cmp -s "$work/first" "$work/through"
run generate "$model" --input-ids 5,6 --max-new-tokens 2 --trace "$work/fifo"
check "a FIFO that nobody reads: exit 1" status 1
check "a FIFO that nobody reads: the message" err_has "no process reads from it"
here=$PWD
kvik=$(realpath "$KVIK")
cd "$work" || exit 99
for option in "generate m --input-ids 5 --trace" "generate m --input-ids 5 --logits-file" "bench m --report"; do
    "$kvik" $option - >>dash 2>&1
    echo "rc $?" >>dash
done
cd "$here" || exit 99
check "- as a file to write is refused" same "$(grep -c 'rc 2' "$work/dash")" 3
check "and the message says how to write a file of that name" same "$(grep -c '[.]/-' "$work/dash")" 3
check "and no file of that name is made" test ! -e "$work/-"
logits /dev/full
check "a full device: exit 1" status 1
check "a full device: the message" err_has "No space left"
touch "$work/r.html"
chmod 600 "$work/r.html"
run bench "$model" --depths 0 --steps 1 --runs 1 --report "$work/r.html"
check "bench: exit 0" status 0
check "bench: the mode of the report stays" same "$(stat -c %a "$work/r.html")" 600
check "bench: the report is written" grep -q '</html>' "$work/r.html"
run bench "$model" --depths 0 --steps 1 --runs 1 --report /dev/null
check "bench: a device stays" test -c /dev/null

# Past the limit on file sizes: a sentence, no signal and no temporary file.
mkdir "$work/small"
limited() {
    last="ulimit -f 8; kvik $*"
    (ulimit -f 8 && exec timeout -k 5 $patience "$KVIK" "$@" >"$work/out" 2>"$work/err" </dev/null)
    rc=$?
}
limited generate "$model" --input-ids "$ids" --max-new-tokens 9 --json --logits-file "$work/small/l"
check "logits past the limit: exit 1" status 1
check "logits past the limit: the message" err_has "ulimit -f"
limited generate "$model" --input-ids "$ids" --max-new-tokens 2 --json --prefix-cache "$work/small"
check "a saved prompt past the limit: the message" err_has "ulimit -f"
check "past the limit: nothing is left" test -z "$(ls -A "$work/small")"
limited chat --help-all
check "text past the limit: exit 1" status 1
check "text past the limit: the message" err_has "File too large"

# Closed standard streams: the spill file takes no number of theirs, so no text goes into it.
offload="--cache-implementation offloaded --cache-memory 416K --cache-report --verbose"
spill() { timeout -k 5 $patience "$KVIK" generate "$model" --input-ids "$ids" --max-new-tokens 40 --json $offload --logits-file "$1"; }
spill "$work/open.l" >"$work/out" 2>"$work/err" </dev/null
rc=$?
check "an offloaded run: exit 0" status 0
check "an offloaded run: writes to the disk" err_has "on disk\|to disk"
spill "$work/closed.l" <&- >&- 2>&-
rc=$?
check "closed streams: exit 0" status 0
check "closed streams: the same logits" cmp -s "$work/open.l" "$work/closed.l"
spill "$work/closed.l" 2>&- >"$work/closed" </dev/null
check "closed standard error: the same logits" cmp -s "$work/open.l" "$work/closed.l"

# A history that is no regular file does not block the chat.
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
if has_pty; then
    mkfifo "$work/history"
    last="kvik chat, the history is a FIFO"
    KVIK_HISTORY="$work/history" python3 tests/cli/screen.py $patience 80 "[('> ', 'x\r'), ('tokens', '\x04')]" "$work/out" \
        "$work/err" "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4
    rc=$?
    check "a FIFO as history: the chat ends" status 0
    check "a FIFO as history: said" err_has "cannot be kept in"
    last="kvik chat, the home is not there"
    (
        unset KVIK_HISTORY XDG_STATE_HOME XDG_CACHE_HOME
        HOME="$work/nobody" python3 tests/cli/screen.py $patience 80 "[('> ', 'x\r'), ('tokens', '\x04')]" "$work/out" \
            "$work/err" "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4
    )
    rc=$?
    check "a home that is not there: the chat ends" status 0
    check "a home that is not there: said" err_has "cannot be kept in"
    check "a home that is not there: is not made" test ! -e "$work/nobody"
fi
finish
