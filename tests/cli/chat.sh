#!/bin/sh
# kvik chat over pipes: commands, branches, retry and undo, continued lines, the display of the cache. Runs on a tiny
# model with a made tokenizer. terminal.sh tests what only a terminal shows.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99

# talk INPUT ARGS...: runs a chat over a pipe.
talk() {
    input=$1
    shift
    last="kvik chat $* <<< '$input'"
    printf "$input" | timeout -k 5 $patience "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4 "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
err_count() { [ "$(grep -c -- "$1" "$work/err")" = "$2" ]; }

talk '/help\n'
check "help lists the commands" err_has '/retry'
check "and continued lines" err_has 'continues the message'
check "and no history if none is kept" sh -c "! grep -q KVIK_HISTORY '$work/err'"
KVIK_HISTORY=$work/typed
talk '/help\n'
KVIK_HISTORY=
check "and the file of the history" err_has "are kept in $work/typed; KVIK_HISTORY= keeps none"
check "exit 0" status 0

talk 'ab\n/fork side\ncd\n/switch main\nef\n/branches\n/drop side\n/branches\n' --cache-report
check "branches: exit 0" status 0
check "branches: the fork shares the rows" err_has 'now on side, which shares'
check "branches: listed, the current one marked" err_has '^\* main .* 4 messages'
check "branches: the other branch is listed" err_has '^  side .* 4 messages'
check "branches: not listed after /drop" err_count '^  side ' 1
check "branches: the fork reused the prefix" sh -c \
    "grep 'prompt token' '$work/err' | sed -n 2p | grep -vq ' 0 prompt'"

talk 'ab\n/fork side\n/fork side\n/fork\n/switch sied\n/drop side\n/fork a/b\n'
check "branches: errors have messages" err_count '^kvik: ' 5
check "branches: exit 1 after errors in a pipe" status 1
check "branches: a name already in use" err_has 'a branch side exists already'
check "branches: the nearest name is suggested" err_has 'did you mean side'
check "branches: the current branch cannot be dropped" err_has '/switch to another branch first'

talk 'ab\n/undo\nab\n' --cache-report
check "undo: names the message" err_has '^removed: ab'
check "undo: the same message again reuses the prompt" err_has '^ .* 3 prompt tokens reused'
sed -n 1p "$work/out" >"$work/first"
sed -n 2p "$work/out" >"$work/second"
check "undo: the same reply" cmp -s "$work/first" "$work/second"
talk 'abcdefghijklmnopqrstuvwxyz\n/reset\nabcdefghijklmnopqrstuvwxyz\n' --cache-report
check "reset: a common prefix is reused" err_has '^ .* 27 prompt tokens reused'
talk '/undo\n/retry\n'
check "undo and retry: nothing yet" err_count '^kvik: there is no' 2
talk 'ab\n/retry\n/retry\ncd\n' --cache-report --seed 3
check "retry: exit 0" status 0
check "retry: four replies" err_count '^cache ' 4
check "retry: the prompt is reused" err_count ' [1-9][0-9]* prompt tokens* reused' 3

talk 'one \\\\\ntwo\n' --cache-report
check "a continued line is one message" err_count '^cache ' 1
check "and has both lines" err_has 'prefill 11 tokens'
talk 'one \\\\' --cache-report
check "the last line may end with a backslash" err_count '^cache ' 1

talk '"""one\ntwo\n"""\n"""three"""\n' --cache-report
check "quotes: a message of several lines, and of one" err_count '^cache ' 2
check "quotes: the line ends stay" err_has 'prefill 9 tokens'
talk '"""\n/exit\n"""\nab\n' --cache-report
check "quotes: no command inside" err_count '^cache ' 2
check "quotes: their own lines are no part of the message" err_has 'prefill 7 tokens'
talk '"""one\ntwo' --cache-report
check "quotes: the end of the input ends the message" err_count '^cache ' 1
check "quotes: nothing is lost" err_has 'prefill 9 tokens'
talk '/undoo\n/byebye\n/bey\n' --cache-report
check "unknown: every nearest command" err_has 'did you mean /undo?'
check "unknown: of the new ones, too" err_has 'did you mean /bye?'
talk 'ab\n/clear\n/branches\n/bye\ncd\n' --cache-report
check "clear: a new conversation" err_has '^\* main .* 0 messages'
check "bye: leaves" err_count '^cache ' 1
talk 'ab\n/clear\n/system\n' --system 'Given.'
check "clear: the system message of the option stays" err_has '^Given\.$'
check "clear: and is said to stay" err_has '^a new conversation, with the same system message$'
talk '/system Set.\nab\n/clear\n/branches\n/system\nab\n' --system 'Given.'
check "clear: the system message of /system stays" err_has '^Set\.$'
check "clear: the other messages do not" err_has '^\* main .* 1 message'
cp "$work/out" "$work/cleared"
talk 'ab\nab\n' --system 'Set.'
check "clear: the next message is answered as the first" same "$(sed -n 2p "$work/cleared")" "$(sed -n 1p "$work/out")"
talk '/system -\nab\n/clear\n/system\n' --system 'Given.'
check "clear: a system message that was removed does not come back" err_has '^no system message; /system TEXT'
check "clear: and none is spoken of" err_has '^a new conversation$'

talk '/system\n/system Be brief.\n/system\nab\n/system -\n/system\n'
check "system: none" err_count 'no system message; /system TEXT' 2
check "system: set and shown" err_has '^Be brief\.$'
check "system: no other messages, so none stay" err_has '^a new system message$'
check "system: removed, and the exchange stays" err_has '^no system message; the other messages stay$'
talk '/system\n' --system 'Given.'
check "system: of the option" err_has '^Given\.$'

# A prompt on the command line: its reply alone, with nothing read from standard input.
once() {
    last="kvik run tiny $*"
    printf 'not read\n' | timeout -k 5 $patience "$KVIK" run "$work/tiny" --greedy --max-new-tokens 4 "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
talk 'ab cd\n'
cp "$work/out" "$work/typed-reply"
once 'ab cd'
check "prompt: exit 0" status 0
check "prompt: the reply of a chat" cmp -s "$work/out" "$work/typed-reply"
check "prompt: nothing else" err_empty
once ab cd
check "prompt: words are joined by blanks" cmp -s "$work/out" "$work/typed-reply"
printf 'cd\n' | "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4 ab - >"$work/out" 2>"$work/err"
check "prompt: - is standard input" cmp -s "$work/out" "$work/typed-reply"
once /help
check "prompt: a slash begins no command" err_empty
once ''
refused "prompt: an empty one" 2 'PROMPT is empty'
once 'ab' --session "$work/once"
once 'cd' --session "$work/once" --cache-report
check "prompt: continues a session" err_has ' [1-9][0-9]* prompt tokens reused'
talk '/branches\n' --session "$work/once"
check "prompt: and is saved there" err_has '^\* main .* 4 messages'
# The reply would never end, so Ctrl-C comes before its end on any machine.
last="kvik run tiny ab, SIGINT at the first text"
timeout -k 5 $patience python3 - "$KVIK" "$work/tiny" <<'PY' >"$work/out" 2>"$work/err"
import signal, subprocess, sys
p = subprocess.Popen([sys.argv[1], "run", sys.argv[2], "ab", "--cache-implementation", "sink", "--cache-config",
                      '{"window_length": 32, "num_sink_tokens": 4}', "--min-new-tokens", "9999999", "--max-new-tokens", "9999999"],
                     stdout=subprocess.PIPE)
p.stdout.read(1)
p.send_signal(signal.SIGINT)
p.communicate()
sys.exit(p.returncode % 256)
PY
rc=$?
check "prompt: Ctrl-C ends with 130" status 130
once "$(head -c 400 /dev/zero | tr '\0' a)"
check "prompt: one that does not fit fails" status 1

talk 'abcdefghijklmnop\n/cache\n/fork b\n/cache\n'
check "cache: tokens" err_has 'main: .* tokens of'
check "cache: a map of own blocks" err_has '0 ro$'
check "cache: shared after a fork" err_has '0 RO$'
check "cache: the legend" err_has 'R shared with others'
check "cache: no colours in a pipe" sh -c "! grep -q '$(printf '\033')' '$work/err'"
talk 'abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz\n/cache\n' --cache-config '{"backend": "quanto", "q_group_size": 16, "residual_length": 1}'
check "cache: quantized tiles" err_has ' tiles of .* in '
check "cache: quantized blocks in the map" err_has ' ee*[eo]*$'
talk 'abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz\n/cache\n' --cache-config '{"sliding_window": 16}'
check "cache: a window evicts rows" err_has ' \.\.[.ro]*$'

# Sessions: all branches with their messages and their KV rows.
talk "abcdefghijklmnop\n/fork side\ncd\n/switch main\n/save $work/s.kvik\n"
check "save: reports the branches" err_has 'saved 2 branches to'
check "save: writes a file" test -s "$work/s.kvik"
talk "/load $work/s.kvik\n/branches\ngh\n" --cache-report
check "load: reports the branches" err_has '2 branches, on main'
check "load: the branches" err_has '^  side .* 4 messages'
check "load: the rows" err_has ' [1-9][0-9]* prompt tokens reused'
cp "$work/out" "$work/loaded"
talk 'abcdefghijklmnop\ngh\n'
sed -n '$p' "$work/out" >"$work/second"
check "load: the same reply as without a save" same "$(tail -c 4 "$work/loaded" | od -c)" "$(tail -c 4 "$work/second" | od -c)"
talk "ab\n/load $work/none\ncd\n" --cache-report
check "load: a missing file is an error, and the conversation continues" err_count '^cache ' 2
head -c 100 "$work/s.kvik" >"$work/short"
talk "ab\n/load $work/short\n/branches\n"
check "load: a short file is refused" err_count '^kvik: ' 1
check "load: and changes nothing" err_has '^\* main .* 2 messages'
talk 'ab\n' --session "$work/live" --seed 4
talk 'cd\n' --session "$work/live" --seed 4 --cache-report
check "session: continues and reuses the rows" err_has ' [1-9][0-9]* prompt tokens reused'
talk '/branches\n' --session "$work/live"
check "session: has both turns" err_has '^\* main .* 4 messages'
# Two chats on one session: the one that would drop the other's turns keeps its own under another name.
mkfifo "$work/two-in"
timeout -k 5 $patience "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4 --session "$work/two" <"$work/two-in" >"$work/two-out" 2>"$work/two-err" &
exec 3>"$work/two-in"
echo 'ab' >&3
within [ -s "$work/two" ]
flock "$work/two" true # the first has its name now, but its save ends when its directory is on the disk
talk 'cd\nef\n' --session "$work/two"
check "two chats: the second continues what the first saved" status 0
cp "$work/two" "$work/kept"
printf 'gh\n/save %s\nij\n' "$work/mine" >&3
exec 3>&-
wait $!
rc=$?
check "two chats: the first fails" status 1
check "two chats: the session of the second stays" cmp -s "$work/two" "$work/kept"
check "two chats: how to keep both" grep -q 'to keep both, save under another name: /save NAME' "$work/two-err"
check "two chats: the first continues under the other name" grep -q 'this chat is saved in .*/mine from now on' "$work/two-err"
talk '/branches\n' --session "$work/mine"
check "two chats: the first has all its turns" err_has '^\* main .* 6 messages'
talk '/branches\n' --session "$work/two"
check "two chats: the second has all its turns" err_has '^\* main .* 6 messages'
talk "ab\n/save $work/two\n"
check "save over another session: refused" err_has 'is not replaced; to keep both'
check "save over another session: the session stays" cmp -s "$work/two" "$work/kept"
# A session that this run cannot continue is refused before the first reply, with both names and the way out.
talk 'cd\n' --session "$work/live" --cache-implementation quantized
check "session of another strategy: exit 1" status 1
check "session of another strategy: both names" err_has 'saved with cache_implementation "dynamic"; this cache has "quantized"'
check "session of another strategy: the way out" err_has 'Open it with "dynamic", or name another file'
check "session of another strategy: no description of layers" sh -c "! grep -q 'layers of rows' '$work/err'"
check "session of another strategy: no reply" out_empty
talk 'cd\n' --session "$work/live" --cache-config '{"sliding_window": 16}'
check "session of another cache_config: said" err_has 'another cache_config: the file has'
talk 'cd\n' --session "$work/nowhere/x"
check "session without a directory: exit 1" status 1
check "session without a directory: named" err_has "cannot be made: there is no directory $work/nowhere"
check "session without a directory: no reply" out_empty
talk 'cd\n' --session "$work"
check "session: a directory is refused before a reply" err_has 'is a directory; name a file'
mkfifo "$work/session-fifo"
for odd in "$work/session-fifo" /dev/null; do
    talk 'cd\n' --session "$odd"
    check "session: $odd: exit 1" status 1
    check "session: $odd is refused" err_has 'is not a regular file; name another one'
    check "session: $odd is refused before a reply" out_empty
done

# An explicit system message replaces that of a saved conversation.
talk 'ab\n' --session "$work/told" --system 'First.'
talk '/system\ncd\n' --session "$work/told" --system 'Second.' --cache-report
check "session with --system: said" err_has 'told: --system replaces the system message$'
check "session with --system: replaced" err_has '^Second\.$'
check "session with --system: the conversation is recomputed from there" err_has 'the text changed at token'
talk '/system\n/branches\n' --session "$work/told" --system 'Second.'
check "session with the same --system: nothing is said" sh -c "! grep -q 'the system message' '$work/err'"
check "session with --system: saved" err_has '^Second\.$'
check "session with --system: the messages stay" err_has '^\* main .* 5 messages'
talk '/system\n' --session "$work/live" --system 'Third.'
check "session with a first --system" err_has 'live: --system adds the system message$'
mkdir "$work/prefix"
talk 'abcdefghijklmnop qrstuvwxyz\n' --prefix-cache "$work/prefix"
talk 'abcdefghijklmnop qrstuvwxyz!\n/fork b\ncd\n' --prefix-cache "$work/prefix" --cache-report
check "prefix cache: exit 0" status 0
check "prefix cache: another run reuses it" sh -c \
    "grep 'prompt token' '$work/err' | sed -n 1p | grep -q '[1-9][0-9]* prompt tokens reused'"
# A line longer than 16 MiB, and a quoted message longer than 64 MiB, are errors, neither the end of the input nor Ctrl-C.
head -c 17000000 /dev/zero | tr '\0' a >"$work/line"
last="kvik chat with a line of 17 MB"
timeout -k 5 $patience "$KVIK" chat "$work/tiny" <"$work/line" >"$work/out" 2>"$work/err"
rc=$?
check "a line that is too long: exit 1" status 1
check "a line that is too long: said" err_has 'a line is longer than the limit of 16 MiB'
check "a line that is too long: it is left out" out_empty
{ cat "$work/line"; printf '\nhello\n'; } >"$work/lines"
timeout -k 5 $patience "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 5 --min-new-tokens 5 <"$work/lines" >"$work/out" 2>"$work/err"
rc=$?
check "a line that is too long: exit 1 in the end" status 1
check "a line that is too long: the next message is answered" same "$(wc -l <"$work/out" | tr -d ' ')" 1
head -c 15000000 /dev/zero | tr '\0' a >"$work/line"
echo >>"$work/line"
last="kvik chat with a quoted message of 75 MB"
{ echo '"""'; cat "$work/line" "$work/line" "$work/line" "$work/line" "$work/line"; } |
    timeout -k 5 $patience "$KVIK" chat "$work/tiny" >"$work/out" 2>"$work/err"
rc=$?
check "a quoted message that is too long: exit 1" status 1
check "a quoted message that is too long: said" err_has 'the message is longer than the limit of 64 MiB'
last="kvik chat with 75 MB of lines that end in a backslash"
{ for _ in 1 2 3 4 5; do tr '\n' '\\' <"$work/line"; echo; done; echo end; echo hello; } |
    timeout -k 5 $patience "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 5 --min-new-tokens 5 >"$work/out" 2>"$work/err"
rc=$?
check "continued lines that are too long: exit 1" status 1
check "continued lines that are too long: said" err_has 'the message is longer than the limit of 64 MiB'
check "continued lines that are too long: the next message is answered" same "$(wc -l <"$work/out" | tr -d ' ')" 1
talk '/save\n/load\n'
check "save and load need a file" err_count 'needs a file name' 2

talk '/cahce\n/zzzzzzz\n/undo now\n'
check "unknown: the nearest command is suggested" err_has 'did you mean /cache'
check "unknown: the list is named" err_has '/help lists'
check "no argument where none is taken" err_has '/undo takes no argument'
finish
