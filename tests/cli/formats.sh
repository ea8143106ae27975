#!/bin/sh
# --template: built-in chat formats by name, files, the guess from the vocabulary, hostile files. The exact text of every
# format is in tests/unit/test_formats.c.
. "$(dirname "$0")/lib.inc"
llama=$golden/models/llama-mha

gguf() {
    python3 tests/cli/gguf.py $golden/models/gemma3.gguf "$work/$1.gguf" "tokens=$2"
}
gguf gemma '<start_of_turn>,<end_of_turn>'
gguf chatml '<|im_start|>,<|im_end|>'
gguf llama3 '<|start_header_id|>,<|end_header_id|>,<|eot_id|>'
gguf llama4 '<|header_start|>,<|header_end|>,<|eot|>'
gguf phi3 '<|user|>,<|assistant|>,<|end|>'
gguf mistral '[INST],[/INST]'
gguf deepseek '<｜User｜>,<｜Assistant｜>'
gguf none ''
gguf half '<start_of_turn>'

# The guess: what it renders, one line that names it and the way to another.
for format in gemma chatml llama3 llama4 phi3 mistral deepseek; do
    run render "$work/$format.gguf" Hello
    cp "$work/out" "$work/guessed"
    check "$format is guessed" err_has "^kvik: $format.gguf has no chat template; .* format $format, and --template NAME"
    check "$format: one line" err_lines 1
    run render --template "$format" --special-tokens '{"bos_token": "<bos>", "eos_token": "<eos>"}' Hello
    check "$format: the guess is the format of that name" cmp -s "$work/out" "$work/guessed"
    check "$format: by name nothing is said" err_empty
done
for model in none half; do
    run render "$work/$model.gguf" Hello
    refused "$model: no guess, so it lists the formats" 1 "no chat template" chatml gemma llama2 alpaca vicuna
    run generate "$work/$model.gguf" Hello --chat
    refused "$model: generate too" 1 "no chat template" --template
    run chat "$work/$model.gguf"
    refused "$model: chat too" 1 "no chat template" --template
done

# generate and chat: the guess, a name, a file; the end of a turn ends a reply.
run generate "$work/gemma.gguf" Hello --chat --max-new-tokens 2 --json
check "generate guesses" err_has 'the format gemma'
guessed=$(cat "$work/out")
check "the prompt has the tokens of turns" json "o['sequences'][0][:2] == [2, 4] and o['sequences'][0].count(5) >= 1"
run generate "$work/gemma.gguf" Hello --chat --template gemma --max-new-tokens 2 --json
check "the same by name" json "o['sequences'] == json.loads('''$guessed''')['sequences']"
check "by name nothing is said" err_empty
printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}' >"$work/own.jinja"
run generate "$work/gemma.gguf" Hello --chat --template "$work/own.jinja" --max-new-tokens 2 --json
check "a file" json "bytes(i - 6 for i in o['sequences'][0][:11] if i >= 6).decode() == '<user>Hello'"
run generate "$work/gemma.gguf" Hello --chat --template llama2 --max-new-tokens 2 --json
check "another format than the guess" json "5 not in o['sequences'][0][:-2]"
bias='[[[5], 1e6]]'
run generate "$work/gemma.gguf" Hello --chat --max-new-tokens 9 --sequence-bias "$bias" --json
check "the token that ends a turn ends the reply" json "o['finish_reason'] == ['eos'] and o['sequences'][0][-1] == 5"
run generate "$work/gemma.gguf" Hello --chat --max-new-tokens 9 --sequence-bias "$bias" --eos-token-id 1 --json
check "unless --eos-token-id says otherwise" json "o['finish_reason'] == ['length']"
run generate "$work/gemma.gguf" Hello --template gemma --max-new-tokens 2
refused "--template needs --chat" 2 --chat
printf 'Hello\n' | "$KVIK" chat "$work/gemma.gguf" --max-new-tokens 3 >"$work/out" 2>"$work/err"
rc=$?
check "chat guesses" status 0
check "and says so" err_has 'the format gemma'
printf 'Hello\n' | "$KVIK" chat "$work/none.gguf" --template vicuna --max-new-tokens 3 >"$work/out" 2>"$work/err"
rc=$?
check "chat takes a name" status 0
# What a person types never becomes a special token.
run generate "$work/gemma.gguf" 'a<end_of_turn>b' --chat --template gemma --max-new-tokens 1 --json
check "a special token that is typed stays text" json "o['sequences'][0].count(5) == 1"
# A model with a template keeps it.
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" 2>/dev/null
run generate "$work/tiny" Hello --chat --max-new-tokens 2
check "a model with a template guesses nothing" err_empty
run generate "$work/tiny" Hello --chat --template chatml --max-new-tokens 2
check "and takes another" status 0

# Hostile and mistaken files.
bad() {
    bad_name=$1 bad_file=$2
    shift 2
    run render --template "$bad_file" Hello
    refused "$bad_name" 1 "$@"
    run generate "$work/gemma.gguf" Hello --chat --template "$bad_file"
    refused "$bad_name: generate" 1 "$@"
    run chat "$work/gemma.gguf" --template "$bad_file"
    refused "$bad_name: chat" 1 "$@"
}
bad "a name that is nearly one" gema 'did you mean "gemma"'
bad "no such file" "$work/absent.jinja" absent.jinja chatml
bad "an empty name" "" "built-in formats"
bad "a directory" "$work" directory
head -c 3000 /dev/urandom >"$work/binary"
printf 'a\0b' >>"$work/binary"
bad "a binary file" "$work/binary" "not text"
printf 'caf\351' >"$work/latin"
bad "not UTF-8" "$work/latin" UTF-8
truncate -s 5000000 "$work/huge"
bad "a huge file" "$work/huge" 5000000 limit
mkfifo "$work/fifo"
bad "a pipe that nobody writes" "$work/fifo" fifo
ln -s nowhere "$work/dangling"
bad "a link to nothing" "$work/dangling" dangling
echo '{"a": 1}' >"$work/config.json"
bad "JSON without a template" "$work/config.json" JSON chat_template
printf 'line\n{{ messages[0].content ' >"$work/open.jinja"
bad "a template with an error: its line" "$work/open.jinja" "line 2"
printf '%s' '{"chat_template": "{% for m in messages %}({{ m.content }}){% endfor %}"}' >"$work/tokenizer_config.json"
run render --template "$work/tokenizer_config.json" Hello
check "a file of JSON with a template" same "$(cat "$work/out")" "(Hello)"
cp "$work/own.jinja" "$work/gemma"
(cd "$work" && "$OLDPWD/kvik" render --template gemma Hello) >"$work/out" 2>"$work/err"
check "a built-in name wins over a file" out_has start_of_turn
(cd "$work" && "$OLDPWD/kvik" render --template ./gemma Hello) >"$work/out" 2>"$work/err"
check "with ./ it is the file" same "$(cat "$work/out")" "<user>Hello"
finish
