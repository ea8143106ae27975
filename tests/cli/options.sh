#!/bin/sh
# The source of an option's value: single options win over --generation-config, which wins over the model's own
# generation_config.json, which wins over the defaults. Also options of every type on the command line.
. "$(dirname "$0")/lib.inc"
source=$golden/models/llama-mha

# model JSON: makes a model like llama-mha with this generation_config.json.
model() {
    rm -rf "$work/model"
    cp -R "$source" "$work/model"
    printf '%s' "$1" >"$work/model/generation_config.json"
}
# gives NAME CONDITION ARGS...: checks a condition on a run of three prompt tokens; `new` is the generated tokens.
gives() {
    gives_name=$1
    gives_condition=$2
    shift 2
    run generate "$work/model" --input-ids 120,153,322 --json "$@"
    check "$gives_name: exit 0" status 0
    check "$gives_name" json "(lambda new: $gives_condition)(o['sequences'][0][3:])"
}

model '{"eos_token_id": []}'
gives "nothing set: 20 new tokens" 'len(new) == 20'
model '{"eos_token_id": [], "max_new_tokens": 5}'
gives "the model's file sets a length" 'len(new) == 5'
gives "--generation-config over the model's file" 'len(new) == 6' --generation-config '{"max_new_tokens": 6}'
gives "an option over both" 'len(new) == 7' --generation-config '{"max_new_tokens": 6}' --max-new-tokens 7
gives "an option over the model's file" 'len(new) == 7' --max-new-tokens 7
gives "null is not given" 'len(new) == 5' --generation-config '{"max_new_tokens": null}'
gives "max_new_tokens wins over max_length, wherever it is set" 'len(new) == 5' --max-length 20
printf '{"max-new-tokens": 8}' >"$work/config.json"
gives "--generation-config as a file, dashes as underscores" 'len(new) == 8' --generation-config "$work/config.json"
model '{"eos_token_id": [], "max_length": 9}'
gives "max_length of the model's file counts the prompt" 'len(new) == 6'
gives "an option's max_length over the file's" 'len(new) == 7' --max-length 10
gives "max_new_tokens over the file's max_length" 'len(new) == 12' --max-new-tokens 12

# A filter set in one place stays when another place sets another option.
model '{"eos_token_id": [], "max_new_tokens": 4, "suppress_tokens": [1, 2], "some_future_key": 1}'
gives "the model's file suppresses tokens" 'not {1, 2} & set(new)'
first=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["sequences"][0][3])' "$work/out")
gives "an option suppresses the first choice" "new[0] != $first" --suppress-tokens "$first"
gives "in a list" "new[0] != $first" --suppress-tokens "[7, $first]"
gives "given twice" "new[0] != $first" --suppress-tokens 7 --suppress-tokens "$first"
gives "at the beginning only" "new[0] != $first" --begin-suppress-tokens "$first"
gives "as a bad word" "new[0] != $first" --bad-words-ids "$first"
gives "as a bad word after the prompt's last token" "new[0] != $first" --bad-words-ids "322,$first"
gives "as a bad word after another token" "new[0] == $first" --bad-words-ids "321,$first"
gives "among bad words" "new[0] != $first" --bad-words-ids 7,8 --bad-words-ids "[[9], [$first]]"
gives "by a bias" "new[0] != $first" --sequence-bias "[[[$first], -1e6]]"
gives "by a bias of a pair, in an object" "new[0] != $first" --sequence-bias "{\"322, $first\": -1e6}"
gives "a token forced by a bias" "new == [9, 9, 9, 9]" --sequence-bias '[[[9], 1e6]]'
gives "a forced end" "new[3] == 9" --forced-eos-token-id 9
gives "a decay ends the text" "new[-1] == 9 and len(new) == 3" --eos-token-id 9 \
    --exponential-decay-length-penalty 1,1e6 --sequence-bias '[[[9], 0.001]]'
gives "the decay as a list" "new[-1] == 9 and len(new) == 3" --eos-token-id 9 \
    --exponential-decay-length-penalty '[1, 1e6]'
gives "no token twice" "len(set(new) | {120, 153, 322}) == 7" --no-repeat-ngram-size 1
gives "time" "len(new) == 1" --max-time 1e-9
check "the reason is reported" json "'time' in json.dumps(o)"

run generate "$work/model" --input-ids 120,153,322 --negative-prompt-attention-mask 1
refused "a mask without its ids" 2 negative_prompt_ids
run generate "$work/model" --input-ids 120,153,322 --suppress-tokens 9 --forced-eos-token-id 9
refused "a forced end that is suppressed" 1 suppress_tokens
run generate "$work/model" --input-ids 120,153,322 --bad-words-ids 9999
refused "an id outside the vocabulary" 1 9999 vocabulary
model '{"temperature": -1}'
run generate "$work/model" --input-ids 120
refused "the model's file has a value out of range" 1 generation_config.json temperature
model '{"dola_layers": "low"}'
run generate "$work/model" --input-ids 120
refused "the model's file has an unsupported option" 1 dola_layers
run generate "$work/model" --input-ids 120 --dola-layers null --json
check "and runs when the option is reset" status 0

# An option without effect is ignored with a notice.
model '{"eos_token_id": [], "max_new_tokens": 2}'
told() {
    gives "$1" 'len(new) == 2' --"$2" "$3"
    check "$1, with a notice" err_has "^--$(echo "$2" | tr _ -) has no effect $4\$"
}
for option in temperature top_k top_p typical_p; do
    told "$option without sampling" $option 1 'in greedy decoding; add --do-sample'
done
told "length_penalty without beams" length_penalty 2 'without beams; add --num-beams 4'
told "max_length beside the file's max_new_tokens" max_length 30 'beside max_new_tokens, which wins; give only one of them'
told "min_length without an end" min_length 3 'because no token ends the text; add --eos-token-id ID'
gives "max_cache_len with the dynamic cache" 'len(new) == 2' --max-cache-len 3
check "max_cache_len with the dynamic cache: what limits it" err_has "^--max-cache-len has no effect with a dynamic cache, .* --cache-config '{\"max_cache_len\": N}'\$"
gives "max_cache_len with a static cache" 'len(new) == 2' --max-cache-len 30 --cache-implementation static
check "max_cache_len with a static cache: no notice" err_empty
gives "with sampling it has one" 'len(new) == 2' --do-sample --temperature 2
check "without a notice" err_empty

run generate --help-all
for group in length sampling scores search speculation cache results; do
    check "--help-all has the group $group" out_has "^$group\$"
done
for name in sequence-bias exponential-decay-length-penalty prompt-lookup-num-tokens; do
    check "--help-all lists --$name" out_has "^  --$name "
done

# The documentation equals the table.
table=build/release/ex_options
if [ -x "$table" ]; then
    check "docs/OPTIONS.md is the table" sh -c "$table | cmp -s - docs/OPTIONS.md"
    sed -n '/options: made by/,/options: end/{/options: /!p;}' man/kvik.1 >"$work/man"
    check "the manual page has the table" sh -c "$table man | cmp -s - '$work/man'"
else
    skip "the pages of options: $table is not built"
fi
finish
