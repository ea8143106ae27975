#!/bin/sh
# kvik generate for machines: ids in, JSON and logits out, equal to the recorded cases of Transformers.
. "$(dirname "$0")/lib.inc"

# same_case ID ARGS...: compares the command's sequences with those of a golden case.
same_case() {
    id=$1
    shift
    python3 - "$golden" "$id" "$work" >"$work/args" <<'PY'
import json, sys
d = json.load(open(f"{sys.argv[1]}/cases/{sys.argv[2]}.json"))
print(f"{sys.argv[1]}/models/{d['model']}")
mask = d.get("attention_mask")
for i, row in enumerate(d["input_ids"]):
    print("--input-ids"); print(",".join(map(str, row)))
    if mask:
        print("--attention-mask"); print(",".join(map(str, mask[i])))
print("--generation-config"); print(json.dumps(d["generate"]))
json.dump(d["expect"]["sequences"], open(f"{sys.argv[3]}/want", "w"))
PY
    IFS='
'
    set -f
    # shellcheck disable=SC2046
    run generate $(cat "$work/args") --json "$@"
    set +f
    unset IFS
    check "$id $*: exit 0" status 0
    check "$id $*: sequences" json "o['sequences'] == json.load(open('$work/want'))"
}
same_case llama-mha.basic.dynamic
same_case llama-mha.basic.nocache
same_case llama-mha.basic.static
same_case llama-mha.leftpad.dynamic
same_case llama-gqa-l3.leftpad.static
same_case llama-v5fmt.leftpad.dynamic
same_case llama-mha.prefill-chunk.chunked
same_case llama-bf16.basic.dynamic
same_case llama-mha.basic.dynamic --threads 1
same_case llama-mha.basic.dynamic --threads 2
same_case llama-mha.basic.dynamic --compute exact

# Models with an encoder: the prompt goes to it, and the text begins with the decoder's own tokens.
run generate "$golden/models/t5" --input-ids 138,332,71,355,55,165,249,285,242 --max-new-tokens 12 --json
check "an encoder reads the prompt" json "o['sequences'] == [[0, 121, 96, 272, 272, 345, 272, 96, 96, 317, 317, 317, 317]]"
run generate "$golden/models/t5" --input-ids 138,332,71,355,55,165,249,285,242 --decoder-input-ids 0,121,96 \
    --max-new-tokens 3 --cross-cache-implementation static --json
check "decoder tokens begin the text" json "o['sequences'] == [[0, 121, 96, 272, 272, 345]]"
run generate "$golden/models/t5" --input-ids 5,6 --decoder-input-ids 0,1 --decoder-input-ids 0
refused "more decoder texts than prompts" 2 decoder-input-ids
run generate "$golden/models/t5" --input-features "$golden/cases/whisper.basic.dynamic.safetensors"
refused "features for an encoder of ids" 1 input-features
run generate "$golden/models/llama-mha" --input-ids 5,6 --decoder-input-ids 0 --max-new-tokens 2
refused "decoder tokens without an encoder" 1 decoder-input-ids
run generate "$golden/models/t5" --input-ids 5,6 --cross-cache-implementation sink --max-new-tokens 2
refused "an encoder's rows in a window" 1 cross_cache_implementation

run inspect "$golden/models/t5"
check "inspect shows the rows of both caches" sh -c "grep -q '^  f32  *768 bytes per token' '$work/out' && grep -q '^  cross f32  *768 bytes per row of the encoder' '$work/out'"

model=$golden/models/llama-mha
# Beams: rows of each prompt with the best first, their scores, and the beam of each token.
run generate "$model" --input-ids 5,6,7 --input-ids 8,9 --num-beams 4 --num-return-sequences 2 \
    --early-stopping true --length-penalty 0.5 --eos-token-id 49,157,285 --max-new-tokens 9 --json \
    --logits-file "$work/beams.safetensors"
check "beams: exit 0" status 0
check "beams: rows" json "[s[:3] for s in o['sequences'][:2]] == [[5, 6, 7]] * 2 and [s[:2] for s in o['sequences'][2:]] == [[8, 9]] * 2"
check "beams: scores descend" json "all(o['sequences_scores'][i] >= o['sequences_scores'][i + 1] for i in (0, 2))"
check "beams: indices are of the prompt's own beams" json "all(x == -1 or x // 4 == i // 2 for i, r in enumerate(o['beam_indices']) for x in r)"
check "beams: the beams share rows" json "o['cache']['forks'] == 6"
run generate "$model" --input-ids 5,6,7 --num-return-sequences 3 --do-sample --seed 3 --max-new-tokens 9 --json
check "samples: three rows, not all alike" json "len(o['sequences']) == 3 and len({tuple(s) for s in o['sequences']}) > 1"
check "samples: no scores" json "'sequences_scores' not in o"
check "samples: the prompt is computed once" json "o['usage']['computed_tokens'] == 3 + 3 * 8 and o['cache']['reused'] == 6"

run generate "$model" --input-ids 5,6,7 --max-new-tokens 6 --json --logits-file "$work/a.safetensors"
check "json: one row" json "len(o['sequences']) == 1 and len(o['text']) == 1 and len(o['finish_reason']) == 1"
check "json: prompt included" json "o['sequences'][0][:3] == [5, 6, 7] and len(o['sequences'][0]) == 9"
check "json: finish reason" json "o['finish_reason'][0] in ('length', 'eos')"
check "json: cache fields" json "all(k in o['cache'] for k in ('bytes','peak_bytes','live','shared','staging','states','tokens','reused'))"
check "json: the cache held something" json "o['cache']['peak_bytes'] > 0"
check "json: usage and timings" json "isinstance(o['usage'], dict) and isinstance(o['timings'], dict)"
check "json: nothing else on stdout" json "True"
cp "$work/out" "$work/first"

# Logits: [steps, rows, vocab] f32, and the argmax of each step is the token.
cat >"$work/logits.py" <<'PY'
import json, struct, sys
def load(path):
    b = open(path, "rb").read()
    n = int.from_bytes(b[:8], "little")
    h = json.loads(b[8:8 + n])["logits"]
    assert h["dtype"] == "F32"
    s, e = h["data_offsets"]
    return h["shape"], b[8 + n + s:8 + n + e]
shape, data = load(sys.argv[1])
o = json.load(open(sys.argv[2]))
assert shape == [6, 1, 384], shape
for t in range(6):
    row = struct.unpack("<384f", data[t * 1536:(t + 1) * 1536])
    assert row.index(max(row)) == o["sequences"][0][3 + t], t
if len(sys.argv) > 3:
    assert load(sys.argv[3])[1] == data, "logits differ"
PY
check "logits file: shape, type, argmax" python3 "$work/logits.py" "$work/a.safetensors" "$work/first"
for options in "--use-cache false" "--cache-implementation static" "--threads 1" "--threads 2" "--prefill-chunk-size 1" \
    "--cache-config {\"max_cache_len\":64}"; do
    # shellcheck disable=SC2086
    run generate "$model" --input-ids 5,6,7 --max-new-tokens 6 --json --logits-file "$work/b.safetensors" $options
    check "same logits bits with $options" python3 "$work/logits.py" "$work/a.safetensors" "$work/first" "$work/b.safetensors"
done

# A text without a length says where it ended.
run generate "$model" --input-ids 5,6,7
check "the default length is said" same "$(cat "$work/err")" "kvik: the text ended after 20 new tokens, the default; --max-new-tokens N allows more"
check "the default length: exit 0" status 0
run generate "$model" --input-ids 5,6,7 --input-ids 8,9 --json
check "the default length of a batch is said, with --json too" same "$(cat "$work/err")" "kvik: 2 of 2 texts ended after 20 new tokens, the default; --max-new-tokens N allows more"
for length in --max-new-tokens --max-length; do
    run generate "$model" --input-ids 5,6,7 $length 20
    check "a length that was given is not said ($length)" err_empty
done
first=$(run generate "$model" --input-ids 5,6,7 --max-new-tokens 1; cut -d, -f1 "$work/out")
run generate "$model" --input-ids 5,6,7 --eos-token-id "$first"
check "a text that ended by itself says nothing" err_empty

printf '{"max_new_tokens": 3}' >"$work/gen.json"
run generate "$model" --input-ids 5,6,7 --generation-config "$work/gen.json" --json
check "a generation config from a file" json "len(o['sequences'][0]) == 6"
run generate "$model" --input-ids 5,6,7 --generation-config "$work/gen.json" --max-new-tokens 2 --json
check "an option wins over the config" json "len(o['sequences'][0]) == 5"
run generate "$model" --input-ids 5,6,7 --max-length 7 --json
check "max_length counts the prompt" json "len(o['sequences'][0]) == 7"
run generate "$model" --input-ids 5,6,7 --input-ids 8,9 --max-new-tokens 3 --json
check "a ragged batch" json "len(o['sequences']) == 2"
cp "$work/out" "$work/batch"
run generate "$model" --input-ids 8,9 --max-new-tokens 3 --json
check "another row in the batch changes nothing" json \
    "[t for t in json.load(open('$work/batch'))['sequences'][1] if t != 0][-3:] == o['sequences'][0][-3:]"
for draw in 1.a 1.b 2.c; do
    run generate "$model" --input-ids 5,6,7 --max-new-tokens 12 --do-sample --seed ${draw%.*} --temperature 3 --json
    cp "$work/out" "$work/draw.${draw#*.}"
done
check "the same seed draws the same tokens, another seed others" python3 -c "
import json
a, b, c = (json.load(open('$work/draw.' + x))['sequences'] for x in 'abc')
assert a == b and a != c"
run generate "$model" --input-ids 5,6,7 --max-new-tokens 2 --verbose --json
check "--verbose writes to stderr only" json "len(o['sequences'][0]) == 5"
finish
