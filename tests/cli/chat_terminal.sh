#!/bin/sh
# What a chat does on a terminal: pasted blocks, quoted messages, keys typed during a reply, history, Tab, word wrap,
# resizing, and the mode of the terminal afterwards. screen.py shows what a person would see.
. "$(dirname "$0")/lib.inc"
if ! has_pty; then
    finish
    exit
fi
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
export XDG_STATE_HOME="$work/state"
unset KVIK_HISTORY LC_ALL LC_CTYPE LANG
paste=$(printf '\033[200~')
ends=$(printf '\033[201~')

# screen COLUMNS STEPS COMMAND...: leaves the raw output in $work/out and what is on the screen in $work/err.
screen() {
    columns=$1 steps=$2
    shift 2
    last="$*  (steps: $steps)"
    python3 tests/cli/screen.py $patience "$columns" "$steps" "$work/out" "$work/err" "$@"
    rc=$?
}
# on COLUMNS STEPS ARGS...: the same for a greedy chat with short replies.
on() {
    columns=$1 steps=$2
    shift 2
    screen "$columns" "$steps" "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4 "$@"
}
shows() { err_has "$@"; }
n_times() { [ "$(grep -c -- "$1" "$work/err")" = "$2" ]; }

# Pasted blocks.
on 80 "[('> ', '${paste}one\rtwo\r$ends'), ('two', '!\r'), ('prefill', ''), ('> ', '/branches\n'), ('2 messages', '\x04')]" --cache-report
check "a pasted block is one message" status 0
check "a pasted block: its lines are shown" shows '^two$'
check "a pasted block: with its line ends and what was typed behind" shows 'prefill 11 tokens'
on 80 "[('> ', '$paste/exit\r/bye$ends\r'), ('prefill', ''), ('> ', '\x04')]" --cache-report
check "a pasted block that begins with a slash is a message" shows 'prefill 12 tokens'
on 80 "[('> ', '${paste}one\r\ntwo\r\n\r\nfour$ends\r'), ('prefill', '\x04')]" --cache-report
check "the line ends of a pasted block of another system are line ends" shows 'prefill 15 tokens'
on 80 "[('> ', '${paste}one\rtwo\r\rfour$ends\r'), ('prefill', '\x04')]" --cache-report
check "as are those of this one" shows 'prefill 15 tokens'
on 80 "[('> ', '$paste/branches\r$ends\r'), ('0 messages', '\x04')]"
check "a pasted command of one line is a command" status 0
on 80 "[('> ', '${paste}a\x07b\x1b[31mc\xe9$ends\r'), ('prefill', '\x04')]" --cache-report
check "control characters in a pasted block are left out" shows '^> ab\[31mcé$'
check "pasted text is marked by the terminal, as long as the chat runs" sh -c \
    "python3 -c \"import sys; s = open('$work/out').read(); sys.exit(not (s.count('\\x1b[?2004h') == 1 and s.rstrip().endswith('\\x1b[?2004l')))\""

# Lines of kvik's own are broken between words.
screen 60 "[('> ', '/set temprature 0.5\r'), ('did you mean temperature', '/nonsense\r'), ('lists them', '\x04')]" "$KVIK" chat "$work/tiny" --seed 123456
check "the source of the values is wrapped" shows '^switches sampling off)$'
screen 50 "[('> ', '\x04')]" "$KVIK" chat "$work/tiny" --seed 123456
check "the banner is wrapped at words" shows '^sampling: temperature 0.6, top_k 50, top_p 0.9,$'
check "the banner is wrapped: the rest" shows '^seed 123456$'
screen 40 "[('> ', '/set temprature 0.5\r'), ('temperature?', '\x04')]" "$KVIK" chat "$work/tiny"
check "errors are wrapped" shows '^you mean temperature?$'

screen 40 "[('> ', 'abcdefgh\r'), ('drop', '\x04')]" "$KVIK" chat "$work/tiny" --seed 7 --context-full stop --max-cache-len 40
check "notices of a chat are wrapped" shows '^kvik: the reply ended at max_cache_len$'

# Messages of several lines.
on 80 "[('> ', '\"\"\"one\r'), ('... ', 'two \\\\\r'), ('... ', '/exit\r'), ('... ', '\"\"\"\r'), ('prefill', ''), ('> ', '\x04')]" --cache-report
check "quotes begin and end a message" shows 'prefill 17 tokens'
on 80 "[('> ', '\"\"\"one\r'), ('... ', '\x03'), ('Ctrl-D', '/branches\r'), ('0 messages', '\x04')]"
check "Ctrl-C leaves a quoted message" status 0

# Keys typed during a reply.
on 80 "[('> ', 'ab\r'), ('w', 'typed'), ('tokens/s]', ''), ('typed', '\r'), ('tokens/s]', '\x04')]" \
    --max-new-tokens 100 --min-new-tokens 100 --threads 1
check "keys typed during a reply: exit 0" status 0
check "keys typed during a reply wait for the next message" shows '^> typed$'
check "keys typed during a reply do not show in it" n_times typed 1

# A reply without a limit asks at --reply-tokens whether to go on.
pause() {
    steps=$1
    shift
    screen 80 "$steps" "$KVIK" chat "$work/tiny" --greedy --suppress-tokens 2 "$@"
}
pause "[('> ', 'ab\r'), ('(10 tokens; Enter goes on', '\r'), ('(20 tokens; Enter goes on', '\x03'), ('> ', '/branches\r'), ('2 messages     23 tokens', 'cd\r'), ('(10 tokens; ', '\x03'), ('> ', '\x04')]" \
    --reply-tokens 10
check "a long reply asks, and the next one asks again: exit 0" status 0
pause "[('> ', 'ab\r'), ('(10 tokens; Enter goes on', '/branches\r'), ('2 messages', '\x04')]" --reply-tokens 10
check "what is typed at the question is the next message" status 0
pause "[('> ', 'ab\r'), ('(10 tokens; ', '\x04'), ('> ', '\x04')]" --reply-tokens 10
check "Ctrl-D at the question ends the reply, not the chat" shows '^> ^D'
pause "[('> ', 'ab\r'), ('tokens/s]', '\x04')]" --reply-tokens 10 --max-new-tokens 30
check "--max-new-tokens: no question" n_times 'Enter goes on' 0
pause "[('> ', 'ab\r'), ('tokens/s]', '\x04')]" --reply-tokens 0
check "--reply-tokens 0: no question before the end of the context" n_times 'Enter goes on' 0
check "--reply-tokens 0: the reply fills the context" shows 'the reply ended at the model.s context'
pause "[('> ', 'ab\r'), ('ended after 10 tokens', '\x04')]" --reply-tokens 10 --num-beams 2
check "beams have their text at the end: they end there" status 0

# The history, in a file of this user alone.
on 80 "[('> ', 'first\r'), ('tokens', '${paste}two\rlines$ends\r'), ('tokens', '/branches\r'), ('messages', '\x04')]"
check "history: the file" test -f "$work/state/kvik/history"
check "history: its mode" same "$(stat -c %a "$work/state/kvik/history" "$work/state/kvik" | tr '\n' ' ')" "600 700 "
on 80 "[('> ', '\x1b[A\x1b[A'), ('lines', '\r'), ('prefill', '\x1b[A\x1b[A\x1b[A\x1b[A'), ('first', '\r'), ('prefill', '\x04')]" --cache-report
check "history: another chat recalls messages" status 0
check "history: of several lines too" shows 'prefill 11 tokens'
cp "$work/state/kvik/history" "$work/before"
KVIK_HISTORY='' on 80 "[('> ', 'secret\r'), ('tokens', '\x04')]"
check "history: an empty KVIK_HISTORY keeps none" cmp -s "$work/before" "$work/state/kvik/history"
KVIK_HISTORY="$work/mine" on 80 "[('> ', 'a\\\\b\r'), ('tokens', '\x04')]"
check "history: KVIK_HISTORY names the file" same "$(cat "$work/mine")" 'a\\b'
mkdir "$work/file" && printf 'message\n%.0s' $(seq 2100) >"$work/file/long"
KVIK_HISTORY="$work/file/long" on 80 "[('> ', 'last\r'), ('tokens', '\x04')]"
check "history: a long file is shortened" same "$(wc -l <"$work/file/long")" 1001
# 18 MiB in 300 pasted blocks and a line of 1 MiB that no chat writes.
python3 - "$work/file/large" <<'PY'
import sys
with open(sys.argv[1], "w") as f:
    for i in range(300):
        f.write(f"paste {i} " + 60000 * "x" + "\n")
    f.write((1 << 20) * "y" + "\nnewest\n")
PY
KVIK_HISTORY="$work/file/large" on 80 "[('> ', '\x1b[A'), ('newest', '\r'), ('tokens', '\x04')]"
check "history: the newest message of a large file is recalled" shows '^> newest$'
check "history: a large file is shortened to 4 MiB of whole messages" python3 - "$work/file/large" <<'PY'
import sys
s = open(sys.argv[1]).read().split("\n")
n = sum(len(line) + 1 for line in s)
sys.exit(not (4000000 < n < (4 << 20) + 10 and s[-4].startswith("paste 299 x") and s[-3:] == ["newest", "newest", ""]
              and all(line.startswith("paste ") for line in s[:-3])))
PY
KVIK_HISTORY="$work/tiny/config.json/x" on 80 "[('> ', 'x\r'), ('tokens', 'y\r'), ('tokens', '\x04')]"
check "history: a file that cannot be made is said once" n_times 'the history cannot be kept' 1

# Tab.
on 80 "[('> ', '/fork side\r'), ('now on', '/sw\tm\t\r'), ('now on main', '/set top_\t'), ('top_p', '\x15/se\t'), ('/set', 'ed\t5\r'), ('seed 5', '/set do_s\tt\t\r'), ('sampling', '/x\t\x15\x04')]"
check "Tab: completes" status 0
check "Tab: commands and branches" shows 'side> /switch main$'
check "Tab: lists options" shows '^top_h  *top_k  *top_p  *top_n_sigma'
check "Tab: lists commands" shows '^/set   /seed'
check "Tab: words of an option" shows '> /set do_sample true$'
touch "$work/saved-here"
on 120 "[('> ', '/load $work/sav\t\r'), ('kvik: ', '\x04')]"
check "Tab: files" shows "> /load $work/saved-here\$"

# UTF-8, in any locale.
on 80 "[('> ', 'é漢x\x7f\x7fa\r'), ('prefill', '\x04')]" --cache-report
check "UTF-8 is edited by characters in the C locale" shows '^> éa$'
check "UTF-8 reaches the model" shows 'prefill 5 tokens'

# Words are wrapped: the same words as in a pipe, with no line longer than the screen. Only letters and spaces are allowed,
# so that there are words.
python3 - "$work/tiny/tokenizer.json" >"$work/others" <<'PY'
import json, sys
vocab = json.load(open(sys.argv[1]))["model"]["vocab"]
print(",".join(str(i) for t, i in vocab.items() if t not in ("Ġ", *"abcdefgh")))
PY
words="--suppress-tokens $(cat "$work/others") --seed 4 --temperature 1000 --top-p 1 --max-new-tokens 200"
# shellcheck disable=SC2086
echo hello | "$KVIK" chat "$work/tiny" $words >"$work/text" 2>/dev/null
# shellcheck disable=SC2086
screen 30 "[('> ', 'hello\r'), ('tokens/s]', '\x04')]" "$KVIK" chat "$work/tiny" $words
check "word wrap: exit 0" status 0
python3 - "$work/text" "$work/err" >"$work/verdict" <<'PY'
import sys
text = open(sys.argv[1]).read().split()
lines = open(sys.argv[2]).read().split("\n")
first = lines.index("> hello") + 1
last = next(i for i in range(first, len(lines)) if lines[i].startswith("["))
reply = lines[first:last]
full = all(len(a) + 1 + len(b.split()[0]) > 29 for a, b in zip(reply, reply[1:]) if b.split())
print(" ".join(reply).split() == text, max(map(len, reply)) <= 29, len(reply) > 5, full)
PY
check "word wrap: the words are whole, the lines are full and fit" same "$(cat "$work/verdict")" "True True True True"
# shellcheck disable=SC2086
screen 30 "[('> ', 'hello\r'), ('tokens/s]', '\x04')]" sh -c "$KVIK chat $work/tiny $words >$work/piped"
check "word wrap: not in a file" cmp -s "$work/text" "$work/piped"
# shellcheck disable=SC2086
screen 30 "[('> ', 'hello\r'), ('tokens/s]', '\x04')]" env TERM=dumb "$KVIK" chat "$work/tiny" $words
check "word wrap: not on a terminal that cannot move its cursor" sh -c "! grep -q '$(printf '\033')' '$work/out'"

# A save that waits for another process shows a progress line, except where the line could not be erased.
mkdir -m 700 "$work/prompts"
for term in xterm dumb; do
    # the lock is kept longer than a save waits for it
    screen 80 "[('> ', 'a message of more than sixteen letters\r'), ('tokens', '\x04')]" \
        flock "$work/prompts" env TERM=$term "$KVIK" chat "$work/tiny" --greedy --max-new-tokens 4 --prefix-cache "$work/prompts"
    check "progress, TERM=$term: exit 0" status 0
    check "progress, TERM=$term: nothing is left of it" n_times 'saving the prompt' 0
    cp "$work/out" "$work/$term"
done
check "progress: shown" grep -q 'saving the prompt in --prefix-cache' "$work/xterm"
check "progress: not on a terminal that cannot erase it" sh -c "! grep -q 'saving the prompt' '$work/dumb'"
check "no code reaches such a terminal" sh -c "! grep -q '$(printf '\033')' '$work/dumb'"

# The reply may still be on its way through a pipe to the same terminal, so no line is drawn.
for to in '| cat' ">$work/replies"; do
    screen 80 "[('done', '')]" sh -c "echo 'a message of more than sixteen letters' | flock '$work/prompts' '$KVIK' chat '$work/tiny' \
        --greedy --max-new-tokens 4 --prefix-cache '$work/prompts' $to; echo done"
    check "progress, $to: exit 0" status 0
    case $to in
    *cat) check "progress: not beside text from a pipe" sh -c "! grep -q 'saving the prompt' '$work/out'" ;;
    *) check "progress: beside text in a file" grep -q 'saving the prompt' "$work/out" ;;
    esac
done

# A save that failed is tried once more at the end of the chat, and what stays unsaved is a failure.
mkdir "$work/away"
for back in true false; do
    rm -rf "$work/away" "$work/moved"
    mkdir "$work/away"
    on 80 "[('> ', 'one\r'), ('tokens', ''), ('> ', ('sh', 'mv $work/away $work/moved')), ('', 'two\r'), ('kvik: ', ''), ('> ', ('sh', '$back && mv $work/moved $work/away')), ('', '\x04')]" --session "$work/away/s"
    if $back; then
        check "a save that failed succeeds at the end: exit 0" status 0
        printf '/branches\n' | "$KVIK" chat "$work/tiny" --session "$work/away/s" >"$work/out" 2>"$work/err"
        check "and the session has all messages" err_has '^\* main .* 4 messages'
    else
        check "a save that fails at the end: exit 1" status 1
        check "a save that fails at the end: said" shows 'the end of this conversation is not saved'
    fi
done

# A window that changes its size while a line is edited, and during a reply.
on 40 "[('> ', 'abcdefghij klmnopqrst uvwxyz abcdefghij last'), ('last', ('resize', 60)), ('last', 'X\r'), ('tokens', '\x04')]"
check "resizing: the edited line is drawn once more" shows '^> abcdefghij klmnopqrst uvwxyz abcdefghij lastX$'
# shellcheck disable=SC2086
screen 30 "[('> ', 'hello\r'), ('a', ('resize', 50)), ('tokens/s]', '\x04')]" "$KVIK" chat "$work/tiny" $words
check "resizing during a reply: exit 0" status 0

# The terminal is as it was, whatever ends the chat.
ulimit -c 0 # some of the signals write a core file
for end in "'/bye\r'" "'\x04'" 15 1 3 6 7 10 11 24; do
    on 80 "[('> ', $end)]"
    check "the mode of the terminal after $end" shows '^mode: ECHO ICANON ISIG;'
    check "the terminal no longer marks pasted text after $end" sh -c "grep -o '2004[hl]' '$work/out' | tail -n 1 | grep -q l"
done
on 80 "[('> ', 'ab'), ('ab', 15)]"
check "a signal while a line is edited: the mode of the terminal" shows '^mode: ECHO ICANON ISIG;'
on 80 "[('> ', 'ab\x03\x04')]"
check "Ctrl-D right behind Ctrl-C leaves" status 0
on 80 "[('> ', 'ab\x03cd'), ('> ', 'e\r'), ('prefill', '\x04')]" --cache-report
check "keys right behind Ctrl-C begin the next line" shows '^> cde$'
if [ -f "${KVIK_TEST_MODEL:-}" ]; then # a tiny model is too fast to be interrupted twice
    long=$(python3 -c "print('word ' * 700)")
    # The first Ctrl-C must reach the chat before the second, and both in one step of the prompt: a busy machine may need more
    # than one try. A chat that got the second one at its prompt leaves by Ctrl-D, with status 0.
    for _ in 1 2 3 4 5; do
        screen 80 "[('> ', '$paste$long$ends'), ('word word', '\r'), ('reading the prompt', '\x03'), ('', '\x03'), ('leaves)', '\x04')]" \
            "$KVIK" chat "$KVIK_TEST_MODEL" --threads 1
        ! shows '; status 130$' || break
    done
    check "Ctrl-C twice ends the chat" shows '; status 130$'
    check "the mode of the terminal after Ctrl-C twice" shows '^mode: ECHO ICANON ISIG;'
    screen 40 "[('> ', '$paste$long$ends'), ('word word', '\r'), ('reading the prompt', '\x03'), ('> ', '\x04')]" "$KVIK" chat "$KVIK_TEST_MODEL" --threads 1
    check "a narrow window: Ctrl-C while the prompt is read" status 0
    check "a narrow window: the progress line is erased" n_times 'reading the prompt' 0
else
    skip "Ctrl-C twice, progress in a narrow window (no model)"
fi
screen 80 "[('\$ ', '$KVIK chat $work/tiny --greedy\r'), ('> ', 'kept'), ('kept', '\x1a'), ('topped', 'stty -a\r'), ('isig', 'fg\r'), ('kept', 'X\r'), ('tokens', '\x04'), ('\$ ', 'exit\r')]" \
    env PS1='$ ' ENV= sh -i
check "Ctrl-Z: stops and goes on" status 0
check "Ctrl-Z: the shell has its terminal" shows '^isig icanon iexten echo '
check "Ctrl-Z: the edited line stays" shows '^> keptX$'
on 80 "[('> ', 'kept'), ('kept', 19), ('', ('cooked',)), ('kept', 'X\r'), ('tokens', '\x04')]"
check "SIGSTOP: goes on" status 0
check "SIGSTOP: the line is edited as before" shows '> keptX$'
finish
