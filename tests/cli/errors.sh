#!/bin/sh
# Mistakes of a first day: JSON as Python or a shell writes it, options of other programs, files of other programs.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha

# JSON.
run generate "$model" --input-ids 5 --cache-config "{'nbits':4}"
refused "single quotes: the message is about quotes" 2 "cache-config: JSON takes double quotes" '{"nbits":4}'
check "and not the parser's" sh -c "! grep -q 'near\|expected\|line 1' '$work/err'"
run generate "$model" --input-ids 5 --cache-config '{nbits:4}'
refused "no quotes: the message is about quotes" 2 "cache-config: names in JSON stand in double quotes"
run generate "$model" --input-ids 5 --cache-config '{"offloading":True}'
refused "Python's True" 2 cache-config "true, false and null"
run generate "$model" --input-ids 5 --cache-config '{"nbits":4'
refused "a bracket that is not closed" 2 cache-config "not closed"
run generate "$model" --input-ids 5 --generation-config "{'max_new_tokens':4}"
refused "single quotes in --generation-config" 2 generation-config "double quotes"
run generate "$model" --input-ids 5 --cache-config 4
refused "a number is no object" 2 "cache_config must be an object"
run generate "$model" --input-ids 5 --cache-config "$(python3 -c 'print("{" + chr(39) * 100000)')"
refused "100000 quotes are an error" 2 cache-config
run generate "$model" --input-ids 5 --cache-config "$(printf "{'a\033[31m':4}")"
refused "control characters do not reach the terminal" 2 cache-config
check "no escape in the message" sh -c "! grep -q '$(printf '\033')' '$work/err'"

# Files of options with a NUL byte are refused, not cut there.
for words in 'generate:--generation-config:{"max_new_tokens": 3}\0{' 'chat:--generation-config:{"max_new_tokens": 3}\0' 'chat:--template:{{ messages }}\0{{' \
    'generate:--chat --template:chatml\0'; do
    command=${words%%:*} rest=${words#*:}
    option=${rest%%:*}
    # shellcheck disable=SC2059 # the text has an escape
    printf "${rest#*:}" >"$work/nul"
    # shellcheck disable=SC2086
    run "$command" "$model" $option "$work/nul"
    refused "$command $option: a NUL byte" "$rc" nul
    check "$command $option: a NUL byte is an error" sh -c "[ $rc = 1 ] || [ $rc = 2 ]"
done
printf '[{"role": "user", "content": "a"}]\0' >"$work/nul"
run render --template chatml --messages "$work/nul"
refused "render --messages: a NUL byte" 2 NUL
run generate "$model" --input-ids 5 --generation-config "$work/none"
refused "a --generation-config that is not there" 1 none
echo '[1]' >"$work/list"
run generate "$model" --input-ids 5 --generation-config "$work/list"
refused "a --generation-config that is no object" 2 list "JSON object"

# A value that is missing: what it would be.
needs() {
    run generate "$model" --input-ids 5 "$1"
    refused "$1 without a value" 2 "$1 needs a value: $2"
}
needs --stop-strings "a text"
needs --system "a text"
needs --prefix-cache "the name of a directory"
needs --compute "one of exact|fast"
needs --max-new-tokens "an integer from 1"
needs --temperature "a number from 0"
needs --eos-token-id "a list of token ids"
needs --cache-config "a JSON object"
needs --sequence-bias "token sequences"

# Limits and files of the command.
run generate "$model" --input-ids 5 --max-new-tokens -1
refused "-1 is no limit elsewhere" 2 "for no limit give a large number"
run generate "$model" --input-ids 5 --max-new-tokens 2 --cache-memory 100
refused "the limit is named as the command spells it" 1 "raise --cache-memory"
for option in 'generate:--input-ids 5 --logits-file' 'bench: --report'; do
    # shellcheck disable=SC2086
    run "${option%%:*}" "$model" ${option#*:} "$work/absent/file"
    refused "a directory that is absent is found before computing" 1 "--${option##*--}" "absent/file"
done

for option in 'generate:--input-ids 5 --logits-file' 'generate:--input-ids 5 --trace' 'bench: --report'; do
    # shellcheck disable=SC2086
    run "${option%%:*}" "$model" ${option#*:} ""
    refused "a file without a name is refused before computing" 2 "--${option##*--} needs the name of a file"
done

# Options of llama.cpp and Ollama: their names in kvik, not the nearest spelling.
other() {
    run generate "$model" --input-ids 5 "$1" 4
    refused "$1 names kvik's own" 2 "unknown option $1" "$2"
}
other -p PROMPT
other --prompt PROMPT
other -m MODEL
other --model MODEL
other -hf MODEL
other -f 'standard input'
other -n --max-new-tokens
other --n-predict --max-new-tokens
other --num-predict --max-new-tokens
other --num_predict --max-new-tokens
other -c --cache-memory
other --ctx-size max_cache_len
other --session 'kvik chat MODEL --session'
other --stream 'leave the option out'
other --num_ctx max_cache_len
other -t --threads
other --num-thread --threads
other -ngl CPU
other --n-gpu-layers CPU
other --cache-type-k nbits_key
other --cache-type-v nbits_value
other -ctk nbits_key
other --temp --temperature
other --repeat-penalty --repetition-penalty
other --repeat-last-n --repetition-penalty
other -s --seed
other --stop --stop-strings
other --ignore-eos --eos-token-id
other -i 'kvik chat'
other --chat-template --template
other --prompt-cache --prefix-cache
other --model-draft --assistant-model
other --mlock 'leave the option out'
other --output 'standard output'
other -osrt '[-]-format'
other --translate '[-]-task'
other --tools 'kvik render MODEL TEXT --kwargs'
other --image 'text alone'
other --mmproj 'text alone'
other --embedding 'no embeddings'
for option in -l:'[-]-language' -m:'kvik transcribe MODEL FILE' -f:'kvik transcribe MODEL FILE' -bs:'[-]-num-beams' -t:'[-]-threads'; do
    run transcribe W "${option%%:*}" x
    refused "transcribe ${option%%:*}, as whisper.cpp has it" 2 "unknown option ${option%%:*}" "${option#*:}"
done
for option in -m:'kvik run MODEL PROMPT' -p:'kvik run MODEL PROMPT' -f:'kvik run MODEL - < FILE'; do
    run run "$model" "${option%%:*}" x
    refused "run ${option%%:*}, as llama.cpp has it" 2 "unknown option ${option%%:*}" "${option#*:}"
done
for magic in lmgg fmgg tjgg; do # ggml, ggmf, ggjt in little endian
    printf "$magic\\1\\0\\0\\0" >"$work/ggml-base.bin"
    for command in "transcribe $work/ggml-base.bin x.wav" "run $work/ggml-base.bin"; do
        # shellcheck disable=SC2086
        run $command
        refused "${command%% *}: a model of whisper.cpp" 1 "ggml-base.bin: a ggml file" "kvik transcribe openai/whisper-base FILE"
    done
done
for command in chat run 'generate --chat'; do
    # shellcheck disable=SC2086
    run ${command%% *} tests/fixtures/speech/tiny hello ${command#"${command%% *}"}
    refused "$command with a Whisper model" 1 "holds no chat" "kvik transcribe tests/fixtures/speech/tiny FILE"
done
run generate tests/fixtures/speech/tiny hello
refused "generate with a Whisper model" 1 "continues no text" "kvik transcribe tests/fixtures/speech/tiny FILE"
for option in --cache-type-k --cache-type-v; do # the answer has to work as it stands
    run generate "$model" --input-ids 5 $option q4_0
    config=$(sed "s/.*--cache-config '\([^']*\)'.*/\1/" "$work/err")
    run generate "$model" --input-ids 5 --max-new-tokens 2 --cache-implementation quantized --cache-config "$config"
    check "$option: the suggested settings work" status 0
done
for value in True False; do # Python's; the word is not a prompt
    run generate "$model" --input-ids 5 --max-new-tokens 2 --do_sample $value
    check "--do_sample $value" status 0
    run generate "$model" --input-ids 5 --max-new-tokens 2 --use-cache=$value
    check "--use-cache=$value" status 0
done
run generate "$model" --input-ids 5 --temp=0.8
refused "with = too" 2 --temperature
run generate "$model" --input-ids 5 --top-k 40 --max-new-tokens 1
check "--top-k is kvik's own too" status 0
run generate "$model" --input-ids 5 --generation-config '{"num_ctx": 4096}'
refused "in --generation-config" 2 num_ctx max_cache_len
run generate "$model" --input-ids 5 --generation-config '{"num_predict": 3, "repeat_penalty": 1.1}'
refused "two of them" 2 "unknown option"
run chat "$model" --num-ctx 4
refused "chat has the table too" 2 max_cache_len
run generate "$model" --input-ids 5 -x
refused "an unknown letter" 2 "two dashes"

# Every option that the messages name exists.
"$KVIK" generate --help-all >"$work/help"
"$KVIK" chat --help-all >>"$work/help"
"$KVIK" transcribe --help-all >>"$work/help"
"$KVIK" render --help-all >>"$work/help"
"$KVIK" --help | grep -o -- '--version' | sed 's/^/  /' >>"$work/help"
check "every option that alias.c names exists" python3 - "$work/help" src/cli/alias.c src/cli/advice.c <<'PY'
import re, sys
have = set(re.findall(r"^  (--[a-z-]+)", open(sys.argv[1]).read(), re.M))
named = {o for f in sys.argv[2:] for o in re.findall(r"--[a-z]+(?:-[a-z]+)*", open(f).read())}
missing = named - have
print("  missing:", missing) if missing else None
sys.exit(bool(missing) or len(named) < 20)
PY

# A directory with weights that Python pickled.
mkdir "$work/pickle"
cp "$model/config.json" "$work/pickle"
echo x >"$work/pickle/pytorch_model.bin"
run generate "$work/pickle" --input-ids 5
refused "pytorch_model.bin: how to convert it" 1 pytorch_model.bin safetensors save_pretrained "$work/pickle"
mv "$work/pickle/pytorch_model.bin" "$work/pickle/pytorch_model.bin.index.json"
run inspect "$work/pickle"
refused "in several files" 1 pytorch_model.bin.index.json safetensors
finish
