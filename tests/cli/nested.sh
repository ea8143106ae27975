#!/bin/sh
# Arrays and objects nested 100 000 levels deep, in every file and option of JSON: an error that names it, no crash.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
python3 - "$work" <<'PY'
import struct, sys
work = sys.argv[1]
n = 100_000
texts = {"array": "[" * n + "]" * n, "object": '{"a":' * n + "1" + "}" * n, "open": "[" * n,
         "inside": '{"a": ' + "[" * n + "]" * n + "}"}
for name, text in texts.items():
    with open(f"{work}/{name}", "w") as f:
        f.write(text)
    with open(f"{work}/{name}.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text.encode())
PY
for kind in array object open inside; do
    for file in config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json \
        chat_template.json model.safetensors; do
        rm -rf "$work/m"
        cp -r "$work/tiny" "$work/m"
        case $file in
        model.safetensors) cp "$work/$kind.safetensors" "$work/m/$file" ;;
        *) cp "$work/$kind" "$work/m/$file" ;;
        esac
        run generate "$work/m" hello --max-new-tokens 2
        refused "$file: $kind" 1 "$file"
    done
    rm -rf "$work/m"
    cp -r "$work/tiny" "$work/m"
    rm "$work/m/model.safetensors"
    cp "$work/$kind" "$work/m/model.safetensors.index.json"
    run generate "$work/m" hello
    refused "model.safetensors.index.json: $kind" 1 model.safetensors.index.json
    rm -rf "$work/w"
    cp -r tests/fixtures/speech/tiny "$work/w"
    cp "$work/$kind" "$work/w/preprocessor_config.json"
    run transcribe "$work/w" tests/fixtures/audio/tone.wav
    refused "preprocessor_config.json: $kind" 1 preprocessor_config.json
    run generate "$work/tiny" hello --generation-config "$work/$kind"
    refused "--generation-config: $kind" "$rc" "$kind"
    check "--generation-config: $kind: an error" sh -c "[ $rc = 1 ] || [ $rc = 2 ]"
    run render "$work/tiny" --messages "$work/$kind"
    check "render --messages: $kind: an error" sh -c "[ $rc = 1 ] || [ $rc = 2 ]"
    check "render --messages: $kind: no result" out_empty
    run render "$work/tiny" --template "$work/$kind" Hello
    check "--template: $kind: an end" sh -c "[ $rc -lt 3 ]"
    for command in "render $work/tiny" "tokenize $work/tiny"; do
        # shellcheck disable=SC2086
        "$KVIK" $command --jsonl "$work/$kind" >"$work/out" 2>"$work/err" </dev/null
        rc=$?
        check "$command --jsonl: $kind: an end" sh -c "[ $rc -lt 3 ]"
        check "$command --jsonl: $kind: an error" grep -q 'nested deeper than' "$work/out" "$work/err"
    done
done
# A word of a command line is 128 KiB at most.
deep=$(printf '%60000s' '' | tr ' ' '[')
run render "$work/tiny" Hello --kwargs "$deep"
check "--kwargs: an error" sh -c "[ $rc = 1 ] || [ $rc = 2 ]"
for option in --cache-config --sequence-bias --generation-config; do
    run generate "$work/tiny" hello $option "$deep"
    check "$option: an error" sh -c "[ $rc = 1 ] || [ $rc = 2 ]"
    check "$option: one short message" sh -c "[ \$(wc -c <'$work/err') -lt 1000 ]"
done
finish
