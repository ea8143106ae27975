#!/bin/sh
# kvik plan: bytes by kind, what fits a memory limit, refusals and usage errors. tests/unit/test_plan.c compares the bytes with real caches.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-bf16-long

run plan "$model" --context 1000 --decoded 100 --json --threads 1
check "plan succeeds" status 0
check "plan: dynamic, each codec and offloaded" json \
    "[c['cache'] for c in o['caches']][0] == 'dynamic' and o['caches'][-1]['cache'] == 'offloaded' and {'quanto 4 bits', 'hqq 1 bit'} <= {c['cache'] for c in o['caches']}"
check "plan: 63 blocks of 16 rows of 256 bytes" json "o['caches'][0]['rows_bytes'] == 63 * 16 * 256 and o['caches'][0]['quantized_bytes'] == 0"
check "plan: a prompt in one call peaks above what a quantized cache holds" json \
    "all(c['peak_bytes'] > c['rows_bytes'] + c['quantized_bytes'] > 0 for c in o['caches'] if 'bit' in c['cache'])"
check "plan: what is needed is the peak with tables" json \
    "all(c['needed_bytes'] == c['peak_bytes'] + c['tables_bytes'] and 'fits' not in c for c in o['caches'] if c['cache'] != 'offloaded')"
check "plan: offloaded rows can be on disk" json "o['caches'][-1]['disk_bytes'] == o['caches'][0]['rows_bytes']"
check "plan: a speed for each" json "o['read_bandwidth'] > 0 and all(c['tokens_per_second'] > 0 for c in o['caches'])"
check "plan: steps are measured at the planned length" json "{c['measured_tokens'] for c in o['caches']} == {1000 - 64}"
run plan "$model" --context 1000 --decoded 300 --beams 3 --cache-implementation dynamic --threads 1
check "plan: beams are measured behind a prompt and tokens of their own, and nothing is extrapolated" sh -c \
    "grep -q '^dynamic .* [0-9.][0-9.]*$' '$work/out' && ! grep -q '~' '$work/out'"

# Programs that take all processors meanwhile: the speeds are said to be those of a busy machine.
busy=
for i in $(seq "$(nproc)"); do
    sh -c 'while :; do :; done' &
    busy="$busy $!"
done
run plan "$model" --context 2000 --cache-implementation dynamic --cache-config '{}' --json --threads 1
kill $busy
wait $busy 2>/dev/null
check "plan: on a busy machine" json "o['other_programs'] is None or o['other_programs'] > 0.1"
check "plan: says so" sh -c "grep -q '\"other_programs\": *null' '$work/out' || grep -q 'machine was busy' '$work/err'"

run plan "$model" --context 1000 --decoded 100 --beams 5 --bytes-only --cache-implementation dynamic --json
check "plan: beams share the prompt" json \
    "[c['further_sequence_bytes'] for c in o['caches']] == [7 * 16 * 256] and o['caches'][0]['peak_bytes'] == (63 + 4 * 7) * 16 * 256"
check "plan --bytes-only predicts no speed" json "o['caches'][0]['tokens_per_second'] is None"

# What a plan needs is enough for a run.
run plan "$model" --context 1000 --decoded 100 --bytes-only --json --cache-config '{}' --cache-config '{"backend":"kvik"}'
cp "$work/out" "$work/plan"
for config in '{}' '{"backend":"kvik"}'; do
    needs=$(python3 -c 'import json, sys; print([c["needed_bytes"] for c in json.load(open(sys.argv[1]))["caches"] if c["cache_config"] == sys.argv[2]][0])' "$work/plan" "$config")
    run generate "$model" --input-ids "$(seq -s, 3 299),$(seq -s, 3 299),$(seq -s, 3 308)" --max-new-tokens 100 --min-new-tokens 100 \
        --cache-config "$config" --cache-memory $needs
    check "a cache that is planned with $config holds the run" status 0
done

# A cache whose rows can go to disk is planned with the limit, whatever else it does with its rows, and runs in it.
for config in '{"offloading":true}' '{"backend":"kvik","offloading":true}' '{"window_length":300,"num_sink_tokens":4,"offloading":true}'; do
    run plan "$model" --context 1000 --decoded 100 --memory 300K --bytes-only --json --cache-config "$config"
    check "plan --memory: $config fits" json \
        "[(c['fits'], c['needed_bytes'] <= 300 << 10) for c in o['caches']] == [(True, True)]"
    run generate "$model" --input-ids "$(seq -s, 3 299),$(seq -s, 3 299),$(seq -s, 3 308)" --max-new-tokens 100 --min-new-tokens 100 \
        --cache-config "$config" --cache-memory 300K
    check "and runs in it" status 0
done

# With a memory limit: the best first; what does not fit says up to where it would.
run plan "$model" --context 1000 --memory 300K --bytes-only --json
check "plan --memory: what fits comes first" json \
    "sorted((c['fits'] for c in o['caches']), reverse=True) == [c['fits'] for c in o['caches']]"
check "plan --memory: dynamic fits up to a length" json \
    "[(c['fits'], 100 < c['longest'] < 1000) for c in o['caches'] if c['cache'] == 'dynamic'] == [(False, True)]"
check "plan --memory: what is quantized when a call ends fits in shorter calls" json \
    "[(c['fits'], c['fits_in_calls']) for c in o['caches'] if c['cache'] in ('dynamic', 'quanto 2 bits')] == [(False, True), (False, False)]"
longest=$(python3 -c 'import json, sys; print([c["longest"] for c in json.load(open(sys.argv[1]))["caches"] if c["cache"] == "dynamic"][0])' "$work/out")
run plan "$model" --context $longest --decoded 250 --memory 300K --bytes-only --json --cache-config '{}'
check "plan --memory: a cache of that length fits" json "o['caches'][0]['fits']"
run plan "$model" --context $((longest + 80)) --decoded 250 --memory 300K --bytes-only --json --cache-config '{}'
check "plan --memory: one that is a little longer does not" json "not o['caches'][0]['fits']"
run plan "$model" --context 1000 --memory 1G --bytes-only
check "plan --memory: with room, rows as they are come first" sh -c "sed -n 4p '$work/out' | grep -q '^dynamic .*  yes$'"
check "plan --memory: then more bits before fewer" sh -c "test \"\$(sed -n '5,6p' '$work/out' | cut -c1-10 | tr -d ' ' | tr '\n' ' ')\" = 'hqq8bits hqq4bits '"
run plan "$model" --context 1000 --memory 1G --bytes-only --json --cache-config '{"sliding-window":100}' \
    --cache-config '{"backend_key":"kvik"}' --cache-config '{"backend":"none"}'
check "plan --memory: exact before codecs of one plane before what forgets, however they are spelled" json \
    "[list(json.loads(c['cache_config']))[0] for c in o['caches']] == ['backend', 'backend_key', 'sliding-window']"

run plan $golden/models/jamba --bytes-only --json --cache-config '{}'
check "plan: states" json "o['caches'][0]['states_bytes'] > 0 and o['caches'][0]['rows_bytes'] > 0"
run plan $golden/models/gemma3 --bytes-only --json --cache-config '{}' --cache-config '{"sliding_window":4}'
check "plan: a window takes less" json "o['caches'][1]['rows_bytes'] < o['caches'][0]['rows_bytes']"
run plan "$model" --bytes-only --cache-config '{"backend":"quanto","q_group_size":48}'
check "plan: a refused shape is told in its row" out_has 'q_group_size 48 with axis_key 0'
check "plan: nothing that is possible" status 1
run plan "$model" --bytes-only --cache-config '{"backend":"quanto","q_group_size":48}' --cache-config '{}'
check "plan: something is possible" status 0
run plan "$model" --bytes-only --json --cache-implementation dynamical
check "plan: a strategy that is none" sh -c "test $rc = 1 && grep -q 'did you mean' '$work/out'"

run plan "$model" --context 4000 --bytes-only
refused "a length beyond the context" 2 'exceeds the model.s context of 2048'
run plan "$model" --context 10 --decoded 10
refused "no prompt" 2 'leaves no prompt'
run plan "$model" --beams 0
refused "no beams" 2 'beams is 0 and must be from 1 to'
run plan "$model" --memory x
refused "a memory that is none" 2 'not a number of bytes'
run plan $golden/models/t5
refused "a model with an encoder" 1 'encoder'
run plan
refused "no model" 2 'needs a MODEL'
finish
