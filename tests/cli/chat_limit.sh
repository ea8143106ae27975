#!/bin/sh
# A conversation at its limit: the model's context, max_cache_len or max_length. --context-full drop removes the oldest
# exchanges, stop refuses. Runs on a tiny model with a made tokenizer of bytes.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99

# talk INPUT ARGS...: runs a chat over a pipe.
talk() {
    input=$1
    shift
    last="kvik chat $* <<< '$input'"
    printf "$input" | timeout -k 5 $patience "$KVIK" chat "$work/tiny" --greedy "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
err_count() { [ "$(grep -c -- "$1" "$work/err")" = "$2" ]; }
a=$(printf 'a%.0s' $(seq 20))
b=$(printf 'b%.0s' $(seq 20))
c=$(printf 'c%.0s' $(seq 30))
short="--min-new-tokens 6 --max-new-tokens 6"

# The third message needs the room of the first two exchanges; what follows is a chat of the third alone.
# shellcheck disable=SC2086
for how in "--max-cache-len 72" "--cache-config {\"max_cache_len\":72}" "--max-cache-len 72 --cache-implementation static" \
    "--max-cache-len 72 --cache-implementation offloaded" "--max-cache-len 72 --cache-implementation quantized" \
    "--max-cache-len 72 --cache-config {\"sliding_window\":24}"; do
    talk "$a\n$b\n$c\n/branches\n" $short $how --system SYS --cache-report
    check "drop, $how: exit 0" status 0
    check "drop, $how: a line says so" err_has '^kvik: dropped the .*oldest exchanges* ([0-9]* tokens) to stay within max_cache_len 72$'
    check "drop, $how: the system message, the last message and its reply stay" err_has '^\* main .* 3 messages'
    tail -n 1 "$work/out" >"$work/third"
    if [ "$how" = "--max-cache-len 72" ]; then
        cp "$work/third" "$work/plain"
        check "drop: two exchanges with their tokens" err_has 'dropped the 2 oldest exchanges (80 tokens)'
        check "drop: the system message stays cached" sh -c \
            "grep 'prompt token' '$work/err' | tail -n 1 | grep -q ' [1-9][0-9]* prompt tokens reused'"
    fi
    # Quantized rows depend on the turns in which they were computed.
    case $how in *quantized) continue ;; esac
    talk "$c\n" $short $how --system SYS
    check "drop, $how: the reply of a chat without the dropped exchanges" cmp -s "$work/third" "$work/out"
done

# shellcheck disable=SC2086
talk "$a\n$b\n$c\n/branches\n" $short --max-cache-len 105
check "drop: one exchange, in the singular" err_has '^kvik: dropped the oldest exchange ([0-9]* tokens) to stay within max_cache_len 105$'
check "drop: the rest stays" err_has '^\* main .* 4 messages'
# shellcheck disable=SC2086
talk "$a\n$b\n$c\n$a\n$b\n$c\n$a\n$b\n$c\n$a\n$b\n$c\n/branches\n" $short
check "drop: at the model's context" err_has 'oldest exchanges* ([0-9]* tokens) to stay within the model.s context of 256 tokens'
check "drop: exit 0" status 0
check "drop: not at every message" sh -c "[ \$(grep -c dropped '$work/err') -le 2 ]"

talk "m\nm\nm\nm\nm\nm\nm\nm\nm\nm\nm\nm\n$a$b\n/branches\n" --min-new-tokens 1 --max-new-tokens 1 --max-cache-len 110
check "drop: as few of many exchanges as make room" err_has '^kvik: dropped the 7 oldest exchanges ('
check "drop: the others stay" err_has '^\* main .* 12 messages'

# shellcheck disable=SC2086
talk "$a\n$b\n$c\n/branches\nd\n" $short --max-cache-len 80 --context-full stop
check "stop: exit 1" status 1
check "stop: the limit and the ways out" err_has 'the conversation has 101 tokens, and the limit is max_cache_len 80; raise --max-cache-len, start a new conversation with /clear, or drop the oldest exchanges with --context-full drop'
check "stop: the message that did not fit is removed" err_has '^\* main .* 4 messages'
check "stop: a shorter message fits" same "$(wc -l <"$work/out")" 3
talk "$a\n" --max-cache-len 40 --context-full stop --min-new-tokens 200
check "a reply that ends at the limit: its name and the ways out" err_has '^kvik: the reply ended at max_cache_len 40; raise --max-cache-len, start a new'
talk "$a\n" --cache-config '{"max-cache-len": 40}' --context-full stop --min-new-tokens 200
check "a reply that ends at the limit of cache_config" err_has 'ended at max_cache_len 40; raise max_cache_len in --cache-config'
talk "$a\n" --max-length 40 --min-new-tokens 200
check "a reply that ends at max_length" err_has '^kvik: the reply ended at max_length 40; the next message makes room'
talk "$a\n" --min-new-tokens 240 --context-full stop
check "a reply that ends at the context, stop" err_has '^kvik: the reply ended at the model.s context of 256 tokens; start a new conversation with /clear, or drop'
talk "$a\n" --min-new-tokens 240
check "a reply that ends at the context" err_has '^kvik: the reply ended at the model.s context of 256 tokens; the next message makes room by dropping'
talk "$a\n" --max-new-tokens 10 --min-new-tokens 10
check "a reply that ends by max_new_tokens: nothing is said" err_empty
talk "/set max_length 200\n$a$b\n/branches\n" --max-length 40
check "max_length raised by /set: longer messages fit" err_has '^\* main .* 2 messages'
check "max_length raised by /set: exit 0" status 0
talk "/set max_new_tokens 6\n$a$b\n/branches\n" --max-length 40
check "max_new_tokens set over max_length: longer messages fit" err_has '^\* main .* 2 messages'
talk "a\n" --context-full sometimes
check "another word: refused" status 2

# A message that cannot fit even alone is refused, and the conversation stays as it was.
# shellcheck disable=SC2086
talk "$a\n$c$c$c$c\n/branches\nd\n" $short --max-cache-len 72
check "too long a message: said" err_has 'the message has 12[0-9] tokens with the template and the system message, and the limit is max_cache_len 72; raise --max-cache-len, shorten the message'
check "too long a message: nothing is lost" err_has '^\* main .* 2 messages'
check "too long a message: exit 1" status 1

# A chat takes thousands of messages in the memory of hundreds.
last="kvik chat with 300 and 3000 messages"
timeout -k 5 $patience python3 - "$KVIK" "$work/tiny" >"$work/out" 2>"$work/err" <<'PY'
import os, subprocess, sys
peak = []
for n in (300, 3000):
    p = subprocess.Popen([sys.argv[1], "chat", sys.argv[2], "--greedy", "--max-new-tokens", "1", "--context-full", "drop"],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    p.stdin.write(b"m\n" * n)
    p.stdin.close()
    _, status, usage = os.wait4(p.pid, 0)
    assert status == 0, status
    peak.append(usage.ru_maxrss)
print(peak, "KiB")
sys.exit(peak[1] > peak[0] + 2048)
PY
rc=$?
check "thousands of messages: no more memory than hundreds" status 0

# Branches drop for themselves; a session at its limit goes on.
# shellcheck disable=SC2086
talk "$a\n$b\n/fork side\n$c\n/branches\n/switch main\n/branches\n" $short --max-cache-len 72
check "branches: the current one drops" err_has '^\* side .* 2 messages'
check "branches: the other one keeps all" err_has '^\* main .* 4 messages'
# shellcheck disable=SC2086
talk "$a\n$b\n" $short --max-cache-len 72 --session "$work/s" --system SYS
# shellcheck disable=SC2086
talk "$c\n/branches\n" $short --max-cache-len 72 --session "$work/s" --cache-report
check "session: drops" err_has '^kvik: dropped the 2 oldest exchanges'
check "session: the same reply as in one run" cmp -s "$work/out" "$work/plain"
talk "/branches\n" --max-cache-len 72 --session "$work/s"
check "session: what was dropped is not saved" err_has '^\* main .* 3 messages'
talk "x\n" --max-cache-len 30 --session "$work/s"
check "session over the limit: exit 1" status 1
check "session over the limit: said, with the way out" err_has 'the saved sequence has [0-9]* tokens, more than max_cache_len 30; raise max_cache_len'
finish
