#!/bin/sh
# Output that only a terminal shows: the progress bar, Ctrl-C, line editing in a chat. Also a chat over pipes. Runs on a
# tiny model with a made tokenizer, so it needs no download.
. "$(dirname "$0")/lib.inc"
if ! has_pty; then
    finish
    exit
fi
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99

# terminal SECONDS STEPS ARGS...: runs kvik under a pseudo terminal. STEPS is a Python list of (text to wait for, keys
# to send then). Leaves the output in $work/out and the exit status in $rc.
cat >"$work/terminal.py" <<'PY'
import errno, os, pty, select, signal, sys, time
limit, steps, out, argv = float(sys.argv[1]), eval(sys.argv[2]), sys.argv[3], sys.argv[4:]
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(argv[0], argv)
seen, start, asked = b"", 0, time.time()
def step():
    global steps, start
    while steps and steps[0][0].encode() in seen[start:]:
        start = seen.index(steps[0][0].encode(), start) + len(steps[0][0])
        time.sleep(0.05)
        os.write(fd, steps[0][1].encode())
        steps = steps[1:]
while time.time() - asked < limit:
    r, _, _ = select.select([fd], [], [], 0.1)
    if r:
        try:
            data = os.read(fd, 65536)
        except OSError as e:
            if e.errno == errno.EIO: break
            raise
        if not data: break
        seen += data
    step()
else:
    os.kill(pid, signal.SIGKILL)
open(out, "wb").write(seen)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status) % 256 if not steps else 98)
PY
terminal() {
    limit=$1 steps=$2
    shift 2
    last="kvik $*  (terminal: $steps)"
    python3 "$work/terminal.py" "$limit" "$steps" "$work/out" "$KVIK" "$@" >"$work/err" 2>&1
    rc=$?
}

run generate "$work/tiny" "abc" --max-new-tokens 5
check "text in, text out" status 0
check "a pipe sees no terminal codes" sh -c "! grep -q '$(printf '\033')' '$work/out' '$work/err'"
run generate "$work/tiny" "abc" "defg" --max-new-tokens 5 --json
check "two prompts are a batch" json "len(o['text']) == 2 and all(isinstance(t, str) for t in o['text'])"
printf 'abc\n' | "$KVIK" generate "$work/tiny" --max-new-tokens 5 --json >"$work/out" 2>"$work/err"
check "a prompt from a pipe, without its newline" json "len(o['sequences'][0]) == 3 + 5"
piped 'abc\n' generate "$work/tiny" - --max-new-tokens 5 --json
check "the prompt - is standard input" json "len(o['sequences'][0]) == 3 + 5"
piped 'abc\n' generate "$work/tiny" xy - --max-new-tokens 5 --json
check "it is one prompt of a batch" json "[len(s) for s in o['sequences']] in ([8, 8], [7, 8])"
piped 'abc\n' generate "$work/tiny" --max-new-tokens 5 --json -- -
check "behind -- a dash is a prompt" json "len(o['sequences'][0]) == 1 + 5"
piped '\n' generate "$work/tiny" - --max-new-tokens 5
refused "a prompt of a newline alone" 2 'the text on standard input is empty'
terminal $patience '[("type the text; Ctrl-D", "abc\n"), ("abc", "\x04")]' generate "$work/tiny" - --max-new-tokens 5 --json
check "a prompt that is typed" out_has '"sequences"'

long=$(python3 -c "print(','.join(str(5 + i % 250) for i in range(200)))")
slow="--use-cache false --min-new-tokens 56 --max-new-tokens 56 --threads 1"
# shellcheck disable=SC2086
terminal $patience "[('', '')]" generate "$work/tiny" --input-ids "$long" $slow
check "a terminal: the run completes" status 0
terminal $patience "[('PROMPT', '')]" generate "$work/tiny"
check "without a prompt a terminal is asked for one" status 2

# Ctrl-C by signal, sent when the first text appears. The text would take many seconds, so the signal comes in time on a
# busy machine too.
cp -r "$work/tiny" "$work/wide"
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 8192/' "$work/wide/config.json"
endless="--use-cache false --min-new-tokens 4000 --max-new-tokens 4000 --threads 1"
cat >"$work/stop.py" <<'PY'
import os, signal, subprocess, sys
p = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
os.read(p.stdout.fileno(), 1)
p.send_signal(signal.SIGINT)
out, err = p.communicate()
open(sys.argv[1], "wb").write(out + err)
sys.exit(p.returncode % 256)
PY
last="SIGINT during kvik generate"
# shellcheck disable=SC2086
timeout -k 5 "$patience" python3 "$work/stop.py" "$work/out" "$KVIK" generate "$work/wide" "$(printf 'a%.0s' $(seq 180))" $endless --cache-report 2>"$work/err"
rc=$?
check "Ctrl-C ends with 130" status 130
check "the run ends after the current token, with its report" out_has 'cache  none'

# A conversation over pipes: replies on stdout, errors on stderr, and the sequence is reused.
printf 'ab\ncd\n/reset\nef\n/nonsense\n//x\n' >"$work/turns"
"$KVIK" chat "$work/tiny" --max-new-tokens 4 --cache-report <"$work/turns" >"$work/out" 2>"$work/err"
rc=$?
last="kvik chat < turns"
check "chat: exit 1, as a command was unknown" status 1
check "chat: four reports" same "$(grep -c '^cache' "$work/err")" 4
check "chat: the second turn reuses the first" sh -c "grep 'prompt token' '$work/err' | sed -n 2p | grep -vq ' 0 prompt'"
check "chat: the message names the unknown command" err_has '/nonsense'
check "chat: no prompt character in a pipe" sh -c "! grep -q '^> ' '$work/out' '$work/err'"
python3 -c "print('x' * 400)" | "$KVIK" chat "$work/tiny" >"$work/out" 2>"$work/err"
rc=$?
last="kvik chat < a message over the context"
check "chat: a message longer than the context gives exit 1" status 1
check "chat: it names the limit and the way out" err_has 'the limit is the model.s context of 256 tokens; shorten the message'
run chat $golden/models/llama-mha
refused "chat: a model without a tokenizer" 1 tokenizer
run chat "$work/tiny" --use-cache false
refused "chat: use-cache=false is refused" 1 use-cache

# The same on a terminal: editing, Ctrl-C at the prompt, Ctrl-D.
terminal $patience "[('> ', 'hellp\x7fo\n'), ('cache  ', ''), ('> ', '/cache\n'), ('tokens of', ''), ('> ', 'ab\x03'), ('Ctrl-D', ''), ('> ', '\x04')]" \
    chat "$work/tiny" --max-new-tokens 3 --cache-report
check "terminal chat: a turn, /cache, Ctrl-C, Ctrl-D" status 0
check "terminal chat: the line was edited" out_has 'hell'
terminal $patience "[('> ', 'abcdefghijklmnop\\\\\n'), ('... ', 'cd\n'), ('tokens/s]', '/fork side\n'), ('side> ', '/cache\n'), ('shared with others', 'ef\n'), ('shared by 2 branches', ''), ('side> ', '/retry\n'), ('tokens/s]', '/undo\n'), ('removed', '/switch main\n'), ('main> ', '/drop side\n'), ('> ', 'xy\\\\\n'), ('... ', '\x03'), ('Ctrl-D', '/exit\n')]" \
    chat "$work/tiny" --max-new-tokens 30 --min-new-tokens 30
check "terminal chat: continued lines, branches, retry, undo, the map" status 0
check "terminal chat: the status line" out_has 'of 256 tokens, 0 reused'
check "terminal chat: colours" out_has "$(printf '\033')\[36mR"
NO_COLOR=1 terminal $patience "[('> ', 'abcd\n'), ('tokens/s]', '/cache\n'), ('being filled', '/exit\n')]" chat "$work/tiny" --max-new-tokens 3
check "terminal chat: NO_COLOR" sh -c "! grep -q '$(printf '\033')\[[0-9;]*m' '$work/out'"
# Ctrl-C stops a reply; the part already generated stays in the conversation.
terminal $patience "[('> ', 'ab\n'), ('w', '\x03'), ('tokens/s]', '/branches\n'), ('2 messages', '/exit\n')]" chat "$work/tiny" --max-new-tokens 250 --min-new-tokens 250 --threads 1
check "terminal chat: Ctrl-C keeps the partial reply" status 0
terminal $patience "[('> ', 'again\n'), ('> ', '/exit\n')]" chat "$work/tiny" --max-new-tokens 200 --min-new-tokens 100
check "terminal chat: /exit" status 0
finish
