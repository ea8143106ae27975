#!/bin/sh
# kvik generate with draft tokens: prompt lookup and --assistant-model give the same text in fewer steps.
. "$(dirname "$0")/lib.inc"
model=$golden/models/gemma3
ids=5,6,7,8,9,5,6,7,8,9,5,6,7

run generate "$model" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --json --logits-file "$work/plain.safetensors"
check "plain: exit 0" status 0
check "plain: one step per token" json "o['usage']['steps'] == 40 and o['usage']['drafted'] == 0"
cp "$work/out" "$work/plain"
equal() { json "all(o[k] == json.load(open('$work/plain'))[k] for k in ('sequences', 'finish_reason'))"; }

# A model whose text repeats itself a little: prompt lookup checks no draft tokens before some would have been right.
loops=$golden/models/qwen3-mixed
for cache in dynamic static hybrid quantized; do
    config=
    [ $cache != quantized ] || config='--cache-config {"residual_length":8,"q_group_size":16}'
    # shellcheck disable=SC2086
    run generate "$loops" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --cache-implementation $cache $config --json
    check "$cache: exit 0" status 0
    cp "$work/out" "$work/plain"
    # shellcheck disable=SC2086
    run generate "$loops" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --cache-implementation $cache $config \
        --prompt-lookup-num-tokens 4 --json
    check "$cache, lookup: the same text" equal
    check "$cache, lookup: fewer steps" json "o['usage']['steps'] < 40 and 0 < o['usage']['accepted'] <= o['usage']['drafted']"
done

run generate "$model" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --json
cp "$work/out" "$work/plain"
run generate "$model" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --assistant-model "$model" \
    --num-assistant-tokens 9 --assistant-confidence-threshold 0 --json --logits-file "$work/drafted.safetensors"
check "assistant: the same text" equal
check "assistant: the same logits" cmp -s "$work/plain.safetensors" "$work/drafted.safetensors"
check "assistant: all draft tokens are accepted" json "o['usage']['accepted'] == o['usage']['drafted'] > 0 and o['usage']['steps'] == 5"
run generate "$model" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --assistant-model "$golden/models/gpt2" --json
check "another assistant: the same text" equal

run generate "$loops" --input-ids $ids --input-ids 3,4 --max-new-tokens 40 --prompt-lookup-num-tokens 4 --cache-report
check "the report counts draft tokens" err_has "drafts [0-9]* of [0-9]* tokens\\{0,1\\} accepted"
run generate "$model" --input-ids $ids --max-new-tokens 10 --prompt-lookup-num-tokens 4 --num-beams 2 --json
check "beams: exit 0" status 0
check "beams: a notice" err_has "ignored"

run generate "$model" --input-ids $ids --assistant-model "$work/none"
refused "an assistant that is not there" 1 none
run generate "$model" --input-ids $ids --assistant-model "$golden/models/qwen3-mixed"
refused "another vocabulary" 1 64 384 vocabulary
run generate "$model" --input-ids $ids --prompt-lookup-num-tokens 3 --use-cache false
refused "no cache" 1 use_cache prompt_lookup_num_tokens
run generate "$model" --input-ids $ids --num-assistant-tokens-schedule sometimes
refused "a schedule that does not exist" 2 heuristic

if [ -f "${KVIK_TEST_MODEL:-none}" ]; then
    for how in --greedy "--seed 5"; do
        for options in "" "--prompt-lookup-num-tokens 5" "--assistant-model $KVIK_TEST_MODEL"; do
            # shellcheck disable=SC2086
            printf 'Name a colour.\nAnd another one.\n' | "$KVIK" chat "$KVIK_TEST_MODEL" --max-new-tokens 12 $how $options \
                >"$work/out" 2>"$work/err"
            rc=$? last="kvik chat $how $options"
            [ -n "$options" ] || cp "$work/out" "$work/replies"
            check "chat $how $options: exit 0" status 0
            check "chat $how $options: the same replies" cmp -s "$work/out" "$work/replies"
        done
    done
else
    skip "chat with draft tokens (no model)"
fi
finish
