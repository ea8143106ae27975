#!/bin/sh
# kvik inspect: what a file says of itself, its mix of types, bytes of the cache with windows. And the limit that ends a text.
. "$(dirname "$0")/lib.inc"
gemma=$golden/models/gemma3.gguf

# Bytes at the whole context: layers with a window keep the rows of their window. inspect and inspect --caches agree.
for model in "$gemma" $golden/models/mistral.gguf $golden/models/llama-mha $golden/models/gpt2.gguf; do
    run inspect "$model" --caches --json
    most=$(python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
print(o["rows"], [c for c in o["caches"] if c["cache_implementation"] == "dynamic"][0]["max_bytes"])' "$work/out")
    run inspect "$model" --json
    check "$model: the bytes are those of the dynamic cache" \
        json "o['cache_bytes_at_context']['${most% *}'] == ${most#* }"
done
run inspect "$gemma" --json
check "windows count" json "o['cache_bytes_at_context']['f32'] < o['cache_bytes_per_token']['f32'] * o['context'] / 3"
run inspect $golden/models/llama-mha --json
check "without windows it is bytes per token times context" \
    json "all(o['cache_bytes_at_context'][t] == n * o['context'] for t, n in o['cache_bytes_per_token'].items())"
run inspect "$gemma"
check "the text has the bytes" out_has '94.0 KiB for the whole context'

# The name of the file, its mix of types.
mixed=$work/mixed.gguf
python3 tests/cli/gguf.py "$gemma" "$mixed" general.name="Tiny Gemma" general.file_type:=15
run inspect "$mixed"
check "the name" out_has '^  name  *Tiny Gemma$'
check "the mix as the file names it" out_has '^  weights  *f32 100%; file type Q4_K_M$'
run inspect "$mixed" --json
check "as JSON" json "o['name'] == 'Tiny Gemma' and o['file_type'] == 'Q4_K_M' and o['weights'] == 'f32'"
check "bytes by type" json "o['weight_types'] == {'f32': o['bytes']}"
run inspect $golden/models/gpt-oss-mxfp4 --json
check "types of a mixed model, largest first" \
    json "len(o['weight_types']) > 1 and sum(o['weight_types'].values()) == o['bytes'] and list(o['weight_types'].values()) == sorted(o['weight_types'].values(), reverse=True)"
check "a directory has no name of its own" json "o['name'] is None and o['file_type'] is None"
run inspect $golden/models/gpt-oss-mxfp4
check "shares" out_has '^  weights  *[a-z0-9_]* [0-9.]*%, [a-z0-9_]* [0-9.]*%'
python3 tests/cli/gguf.py "$gemma" "$work/odd.gguf" general.name="$(printf 'a\033[31mb')" general.file_type:=4000000000
run inspect "$work/odd.gguf"
check "a number that names no type opens" status 0
check "a number that names no type is left out" sh -c "! grep -q 'file type' '$work/out'"
check "an escape in a name does not reach the terminal" sh -c "! grep -q '$(printf '\033')' '$work/out'"
python3 tests/cli/gguf.py "$gemma" "$work/latin.gguf" general.name="$(printf 'caf\351')"
run inspect "$work/latin.gguf" --json
check "a name that is not UTF-8 is left out" json "o['name'] is None"

# A text that ends with fewer tokens than asked: which limit it was.
ids=$(seq -s, 1 250)
run generate "$gemma" --input-ids "$ids" --max-new-tokens 50 --eos-token-id '[]' --json
check "finish_reason is the context" json "o['finish_reason'] == ['context'] and len(o['sequences'][0]) == 257"
check "one line says so" err_has '^kvik: the text ended after 7 new tokens, at the model.s context of 256 tokens; '
run generate "$gemma" --input-ids "$ids" --eos-token-id '[]' --json
check "the default of 20 too" json "o['finish_reason'] == ['context']"
run generate "$gemma" --input-ids "$ids" --max-new-tokens 7 --eos-token-id '[]' --json
check "as many as asked: length" json "o['finish_reason'] == ['length']"
check "nothing to say" err_empty
run generate "$gemma" --input-ids 1,2,3 --input-ids "$ids" --max-new-tokens 50 --eos-token-id '[]' --json
check "each row has its own" json "o['finish_reason'] == ['length', 'context']"
check "the line counts" err_has '^kvik: text 2 ended after 7 new'
run generate "$gemma" --input-ids 1,2,3 --cache-config '{"max_cache_len": 8}' --max-new-tokens 50 --eos-token-id '[]' --json
check "max_cache_len" json "o['finish_reason'] == ['max_cache_len'] and len(o['sequences'][0]) == 9"
check "and its line" err_has 'max_cache_len of --cache-config'
run generate "$gemma" --input-ids 1,2,3 --cache-config '{"max_cache_len": 8}' --max-new-tokens 50 --eos-token-id '[]' --num-beams 2 --json
check "with beams" json "o['finish_reason'] == ['max_cache_len']"
run generate "$gemma" --input-ids 1,2,3 --cache-config '{"max_cache_len": 8}' --max-new-tokens 50 --eos-token-id '[]' --do-sample --num-return-sequences 2 --json
check "with samples" json "o['finish_reason'] == ['max_cache_len'] * 2"
run generate "$gemma" --input-ids 1,2,3 --cache-config '{"max_cache_len": 8}' --max-new-tokens 50 --eos-token-id '[]' --prompt-lookup-num-tokens 3 --json
check "with drafts" json "o['finish_reason'] == ['max_cache_len']"
first=$(./kvik generate "$gemma" --input-ids 1,2,3 --max-new-tokens 6 --eos-token-id '[]' | cut -d, -f6)
run generate "$gemma" --input-ids 1,2,3 --cache-config '{"max_cache_len": 8}' --max-new-tokens 50 --eos-token-id "$first" --json
check "an end-of-sequence token there is the reason" json "o['finish_reason'] == ['eos']"
finish
