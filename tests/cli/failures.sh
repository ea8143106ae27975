#!/bin/sh
# Bad input gives one message on stderr that names the cause, exit 1, nothing on stdout, and no partly written file.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha

# edit NAME PYTHON: makes a copy of the model whose config is changed by Python statements on c.
edit() {
    rm -rf "$work/$1"
    cp -r "$model" "$work/$1"
    chmod -R u+w "$work/$1"
    python3 - "$work/$1/config.json" "$2" <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(c, open(sys.argv[1], "w"))
PY
}

run generate "$work/absent" --input-ids 5
refused "a model that is not there" 1 absent
run generate "$work" --input-ids 5
refused "a directory without a config" 1 config.json
: >"$work/empty.gguf"
run generate "$work/empty.gguf" --input-ids 5
refused "an empty file" 1 empty.gguf
printf 'GGUF' >"$work/four.gguf"
run generate "$work/four.gguf" --input-ids 5 # class: CVE-2024-39720
refused "the four bytes of a GGUF" 1 four.gguf

edit other 'c["model_type"] = "bert"; c["architectures"] = ["BertModel"]'
run generate "$work/other" --input-ids 5
refused "an unsupported architecture names itself" 1 bert
edit shape 'c["intermediate_size"] = 97'
run generate "$work/shape" --input-ids 5
refused "a tensor of the wrong shape is named" 1 mlp
edit layers 'c["num_hidden_layers"] = 4'
run generate "$work/layers" --input-ids 5
refused "a missing tensor is named" 1 'layers.3'
edit heads 'c["num_attention_heads"] = 0'
run generate "$work/heads" --input-ids 5
refused "zero heads" 1 num_attention_heads
edit rope 'c["rope_scaling"] = {"rope_type": "spiral", "factor": 2.0}'
run generate "$work/rope" --input-ids 5
refused "an unknown rope type is named" 1 spiral
edit broken 'pass'
printf '{"model_type": "llama"' >"$work/broken/config.json"
run generate "$work/broken" --input-ids 5
refused "a config that is not JSON" 1 config.json
edit short 'pass'
head -c 100000 "$model/model.safetensors" >"$work/short/model.safetensors"
run generate "$work/short" --input-ids 5
refused "a truncated weight file" 1 safetensors

run generate "$model" --input-ids 5,9999
refused "an id outside the vocabulary" 1 9999
long=$(seq -s, 5 270)
run generate "$model" --input-ids "$long"
refused "a prompt longer than the context gives both numbers" 1 266 256
run generate "$model" "Hello"
refused "text for a model without a tokenizer" 1 tokenizer

# No partly written file: a file appears whole or not at all, and an old file stays unchanged after a failure.
run generate "$model" --input-ids 5,9999 --logits-file "$work/l.safetensors"
check "no logits file after a failure" test ! -e "$work/l.safetensors"
run generate "$model" --input-ids 5,6 --max-new-tokens 2 --logits-file "$work/none/l.safetensors"
check "a logits file that cannot be written fails" status 1
check "and names the file" err_has l.safetensors
echo old >"$work/l.safetensors"
run generate "$model" --input-ids 5,9999 --logits-file "$work/l.safetensors"
check "an old logits file survives a failure" same "$(cat "$work/l.safetensors")" old

run generate "$model" --input-ids 5,6,7 --max-new-tokens 4 --cache-implementation static --cache-config '{"max_cache_len": 4}'
refused "a static cache that overflows names the setting" 1 max_cache_len
run generate "$model" --input-ids 5,6,7 --max-new-tokens 40 --cache-memory 1K
refused "a budget that is too small names it" 1 "cache.memory"
run generate "$model" --input-ids 5,6,7 --max-new-tokens 100 --cache-memory 100K --json
refused "a budget that ends in the middle: what it lacks, and the remedy" 1 "cache.memory" "more than the limit of" "on-full offload"
run generate "$model" --input-ids 5,6 --attention-mask 1
refused "a mask of another length" 2 attention-mask

# Numbers that are not finite: refused in metadata and options, reported in logits, and never an answer with exit 0.
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
cp -r "$work/tiny" "$work/nan"
python3 - "$work/nan/model.safetensors" <<'PY'
import json, struct, sys
d = bytearray(open(sys.argv[1], "rb").read())
n, = struct.unpack_from("<Q", d)
at = 8 + n + json.loads(d[8:8 + n])["model.norm.weight"]["data_offsets"][0]
struct.pack_into("<f", d, at, float("nan"))
open(sys.argv[1], "wb").write(d)
PY
run generate "$work/nan" abc --max-new-tokens 5
refused "logits that are not finite" 1 "row 0 ends after 0 new tokens" "not finite"
run generate "$work/nan" abc --max-new-tokens 5 --num-beams 2
refused "a beam search without finite logits" 1 "not finite"
run generate "$work/nan" abc def --max-new-tokens 5 --json
check "logits that are not finite, with --json: exit 1" status 1
check "and the finish reason" json "o['finish_reason'] == ['not_finite'] * 2 and o['text'] == ['', '']"
check "and one notice" err_lines 1
printf 'hello\nagain\n' | "$KVIK" chat "$work/nan" >"$work/out" 2>"$work/err"
rc=$?
last="kvik chat without finite logits"
check "chat: logits that are not finite give exit 1" status 1
check "chat: each message has its notice" same "$(grep -c 'not finite' "$work/err")" 2
edit nan 'c["rms_norm_eps"] = float("nan")'
run generate "$work/nan" --input-ids 5
refused "NaN in config.json" 1 rms_norm_eps
edit large 'pass'
sed -i 's/"rms_norm_eps": [^,}]*/"rms_norm_eps": 1e999/' "$work/large/config.json"
run generate "$work/large" --input-ids 5
refused "a number beyond all floats in config.json" 1 config.json
edit options 'pass'
echo '{"temperature": NaN, "do_sample": true}' >"$work/options/generation_config.json"
run generate "$work/options" --input-ids 5
refused "NaN in generation_config.json" 1 generation_config.json temperature
for value in nan NaN inf -inf 1e999; do
    run generate "$model" --input-ids 5 --do-sample --temperature=$value
    refused "temperature $value" 2 temperature
    run generate "$model" --input-ids 5 --generation-config "{\"do_sample\": true, \"temperature\": $value}"
    check "temperature $value in --generation-config is refused" sh -c "[ $rc -gt 0 ] && [ -s '$work/err' ] && [ ! -s '$work/out' ]"
done
python3 tests/cli/gguf.py $golden/models/gemma3.gguf "$work/nan.gguf" gemma3.attention.layer_norm_rms_epsilon:=nan || exit 99
run generate "$work/nan.gguf" --input-ids 5
refused "NaN in the metadata of a GGUF names the key" 1 layer_norm_rms_epsilon "not finite"

# The disk is full: the output could not be delivered, which is a failure.
if [ -w /dev/full ]; then
    "$KVIK" generate "$model" --input-ids 5,6 --max-new-tokens 2 --json >/dev/full 2>"$work/err"
    rc=$?
    last="kvik generate > /dev/full"
    check "output that cannot be written is exit 1" status 1
    run generate "$model" --input-ids 5,6 --max-new-tokens 2 --trace /dev/full
    check "a trace that cannot be written is exit 1" status 1
    check "a trace that cannot be written is one line" err_lines 1
    check "and names the file" err_has /dev/full
fi
finish
