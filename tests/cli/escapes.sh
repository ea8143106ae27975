#!/bin/sh
# What a terminal would obey does not reach it: text of models and templates, names of branches and files, metadata, errors.
# Pipes and files get the exact bytes, and so does a terminal with --raw. Also: the cause when output cannot be written.
. "$(dirname "$0")/lib.inc"
if ! has_pty; then
    finish
    exit
fi
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99

# shown COMMAND...: runs a command whose output is a terminal of 80 columns.
shown() {
    last="$*"
    python3 tests/cli/screen.py $patience 80 "[]" "$work/out" "$work/err" "$@" </dev/null
    rc=$?
}
# clean: the terminal got no control character but line ends and tabs, and no other direction of text.
clean() {
    python3 - "$work/out" <<'PY'
import re, sys
s = open(sys.argv[1], encoding="utf-8", newline="").read().replace("\r\n", "\n")
# On a slow machine there are progress lines; their codes are kvik's own.
s = re.sub("\r((?:loading|reading|hashing|looking for|saving) [^\r\n]*)(?=\r)", r"\1", s).replace("\r\x1b[K", "")
bad = re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", s)
if bad: print("  ", ascii("".join(bad[:20])), ascii(s[:300]))
sys.exit(bool(bad))
PY
}
esc=$(printf '\033') bell=$(printf '\007') csi8=$(printf '\302\233') bidi=$(printf '\342\200\256') del=$(printf '\177')
evil="${esc}]0;title${bell}${csi8}31m${bidi}x${del}"

# Text of a model: only the bytes of ESC (id 32), BEL (12), CR (18), "a" (102), and those of U+009B (199, 160).
others=$(seq -s, 0 383 | tr , '\n' | grep -vxE '32|12|18|102|199|160' | tr '\n' , | sed 's/,$//')
text="generate $work/tiny abc --do-sample --temperature 1000 --top-k 0 --seed 3 --max-new-tokens 60 --suppress-tokens $others"
# shellcheck disable=SC2086
"$KVIK" $text >"$work/exact" 2>"$work/err"
check "a pipe gets the bytes of the model" grep -q "$esc" "$work/exact"
# On a busy machine the progress line appears on standard error, so that is not the terminal here.
shown sh -c "'$KVIK' $text 2>/dev/null"
check "text of a model: exit 0" status 0
check "text of a model is cleaned" clean
check "and what was replaced shows" out_has '�'
shown sh -c "'$KVIK' $text --raw 2>/dev/null"
check "--raw prints it as it is" python3 -c "
import sys
a, b = (open(f, 'rb').read().replace(b'\r\n', b'\n') for f in ('$work/exact', '$work/out'))
sys.exit(a.decode('utf-8', 'replace') != b.decode('utf-8', 'replace'))"
# shellcheck disable=SC2086
shown sh -c "'$KVIK' $text >'$work/piped'"
check "a file gets the exact bytes beside a terminal" cmp -s "$work/exact" "$work/piped"

# Names of branches; standard input is a pipe, so nothing else prints codes.
printf '/fork a%s\n/branches\n/fork a%s\n/switch no%s\n/cache\n/undo\n' "$evil" "$evil" "$evil" >"$work/lines"
shown env NO_COLOR=1 sh -c "'$KVIK' chat '$work/tiny' <'$work/lines'"
check "names of branches are cleaned" clean
check "names of branches show" out_has 'now on a�]0;title��31m�x�'
# The prompt, on a terminal, after such a branch was loaded; colours and the codes of the editor are kvik's own.
printf '/fork a%s\n/save %s/s\n' "$evil" "$work" | "$KVIK" chat "$work/tiny" >"$work/out" 2>&1
python3 tests/cli/screen.py $patience 80 "[('> ', '\x04')]" "$work/out" "$work/err" "$KVIK" chat "$work/tiny" --session "$work/s"
rc=$?
check "the prompt: exit 0" status 0
check "the prompt is cleaned" sh -c "! grep -q '$esc]0\|$bell\|$bidi' '$work/out'"

# The system message, which comes from a file of the conversation, and a message that /undo quotes.
printf '/system %s\n/system\nab%s\n/undo\n' "$evil" "$evil" >"$work/lines"
shown env NO_COLOR=1 sh -c "'$KVIK' chat '$work/tiny' --max-new-tokens 3 <'$work/lines' >'$work/piped'"
check "messages are cleaned" clean
check "messages show" out_has 'removed: ab'

# Files: names in errors, text of templates, metadata.
for command in "generate '$work/$evil' --input-ids 5" "inspect '$evil'" "chat '$work/tiny' --template '$evil'" "generate '$work/tiny' a --generation-config '$evil'" \
    "chat '$work/tiny' --session '$work/none$evil/x'" "'$evil'" "generate --'$evil'"; do
    shown sh -c "'$KVIK' $command </dev/null"
    check "an error is cleaned: $command" clean
done
printf '{{ raise_exception("%s") }}' "$evil" >"$work/template"
shown sh -c "echo hello | '$KVIK' chat '$work/tiny' --template '$work/template'"
check "the words of a template are cleaned" clean
check "the words of a template show" out_has ']0;title'
shown "$KVIK" tokenize "$work/tiny" --decode 32,98,12
check "decoded text is cleaned" clean
python3 tests/cli/gguf.py $golden/models/gemma3.gguf "$work/evil.gguf" "general.name=$evil" || exit 99
for more in "" --json --caches; do
    # shellcheck disable=SC2086
    shown env NO_COLOR=1 "$KVIK" inspect "$work/evil.gguf" $more
    check "metadata is cleaned: inspect $more" clean
done

# Output that cannot be written names its cause, whatever prints it and however much that is.
if [ -w /dev/full ]; then
    for command in --version --help "generate --help-all" "generate $work/tiny abc --max-new-tokens 3" "generate $work/tiny abc --max-new-tokens 200" \
        "generate $work/tiny abc --max-new-tokens 3 --json" "inspect $work/tiny" "inspect $work/tiny --json" "tokenize $work/tiny abc" "tokenize $work/tiny --decode 102,103" \
        "render $work/tiny hello" "models" "completion bash" "completion zsh" "chat $work/tiny --max-new-tokens 5"; do
        last="kvik $command >/dev/full"
        # shellcheck disable=SC2086
        echo '[{"role": "user", "content": "hello"}]' | "$KVIK" $command >/dev/full 2>"$work/err"
        rc=$?
        check "a full device is exit 1: $command" status 1
        check "a full device is named: $command" err_has 'standard output cannot be written: No space left on device'
    done
else
    skip "a full device (no /dev/full)"
fi
finish
