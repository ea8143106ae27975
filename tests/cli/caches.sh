#!/bin/sh
# Cache strategies through the command: the same ids under every strategy, error messages for contradictory options,
# hints and notices on standard error, properties of every strategy.
. "$(dirname "$0")/lib.inc"

ids=5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25
llama=$golden/models/llama-mha
gemma=$golden/models/gemma2

# same MODEL ARGS...: compares the ids with those of the dynamic cache.
dynamic() {
    run generate "$1" --input-ids $ids --max-new-tokens 30 --json
    check "$1 dynamic" status 0
    cp "$work/out" "$work/dynamic"
}
same() {
    from=$1
    shift
    run generate "$from" --input-ids $ids --max-new-tokens 30 --json "$@"
    check "$from $*: exit 0" status 0
    check "$from $*: the ids of dynamic" json "o['sequences'] == json.load(open('$work/dynamic'))['sequences']"
}
for model in "$llama" "$gemma"; do
    dynamic "$model"
    for how in static offloaded offloaded_static; do same "$model" --cache-implementation $how; done
    same "$model" --cache-config '{"offloading": true}'
    same "$model" --on-full offload --spill-dir "$work"
done
for how in hybrid hybrid_chunked sliding_window offloaded_hybrid offloaded_hybrid_chunked; do
    same "$gemma" --cache-implementation $how
done
dynamic "$llama"
same "$llama" --cache-implementation sink --cache-config '{"window_length": 200, "num_sink_tokens": 4}'
same "$llama" --cache-implementation sliding_window --cache-config '{"sliding-window": 200}'

run generate "$llama" --input-ids $ids --cache-implementation static --max-cache-len 200 --verbose
check "static: the report tells what is reserved" err_has "reserved [0-9.]* KiB more"
run generate "$llama" --input-ids $ids --cache-implementation static --max-cache-len 200 --cache-memory 100K
check "static: too long for the budget fails before it starts" status 1
check "static: and names the length of the reserve" err_has "a reserve of 200 tokens"
run generate "$llama" --input-ids $ids --verbose
check "dynamic: nothing is reserved" sh -c "! grep -q 'reserved' '$work/err'"

run generate "$llama" --input-ids $ids --cache-implementation quantized --cache-config '{"q_group_size": 8}' --cache-report
check "quantized: the report counts what was quantized" err_has ', [1-9][0-9]* groups of rows quantized, '
run generate "$llama" --input-ids $ids --cache-memory 10
refused "a limit of 10 bytes: both numbers have units" 1 'the limit of 10 B is too small. [0-9.]* KiB are needed: one block for each of 2 sequences, two for each of max_sequences, and'
run generate "$llama" --input-ids $ids --json --max-new-tokens 20 --cache-implementation quantized --cache-config '{"q_group_size": 8}'
check "quantized: exit 0" status 0
check "quantized: rows were quantized" json "o['cache']['seals'] > 0"
check "quantized: nothing on stderr" test ! -s "$work/err"
run generate "$llama" --input-ids $ids --json --max-new-tokens 20 --cache-config '{"backend": "HQQ", "q-group-size": 8}'
check "hqq: exit 0" status 0
check "hqq with axis 0: one line of advice" test "$(wc -l <"$work/err")" = 1
check "hqq with axis 0: names the keys" err_has axis_key
run generate "$llama" --input-ids $ids --json --max-new-tokens 20 --cache-config '{"backend": "hqq", "axis-key": 1, "axis-value": 1, "q-group-size": 8}'
check "hqq with axis 1: no advice" test ! -s "$work/err"
run generate "$llama" --input-ids $ids --json --max-new-tokens 20 --cache-config '{"backend": "kvik", "residual-length": 32}'
check "kvik with residual_length: exit 0" status 0
check "kvik with residual_length: a notice that it has no effect" err_has 'residual_length has no effect: backend "kvik"'
run generate "$llama" --input-ids $ids --json --max-new-tokens 20 --cache-config '{"backend": "kvik", "residual-length": 128}'
check "kvik with the usual residual_length: no notice" test ! -s "$work/err"
check "json: bytes by kind" json "all(k in o['cache'] for k in ('live','shared','staging','states','spilled','streaming'))"

# A budget that is reached in the middle: one notice, and the same ids.
long=$(seq -s, 5 155)
run generate "$llama" --input-ids "$long" --max-new-tokens 80 --json
cp "$work/out" "$work/dynamic"
run generate "$llama" --input-ids "$long" --max-new-tokens 80 --json --cache-memory 400K --on-full encode
check "on_full=encode: exit 0" status 0
check "on_full=encode: one line of notice" sh -c "grep -c 'rows are encoded with' '$work/err' | grep -qx 1"
check "on_full=encode: within the budget, and no disk" \
    json "o['cache']['peak_bytes'] <= 400 << 10 and o['cache']['encoded8'] + o['cache']['encoded4'] > 0 and not o['cache']['tier_written'] and o['cache']['expected_kld'] > 0"
run generate "$llama" --input-ids "$long" --max-new-tokens 80 --json --cache-memory 400K --on-full offload
check "on_full=offload: exit 0" status 0
check "on_full=offload: one line of notice" test "$(cat "$work/err")" = \
    "cache memory 400.0 KiB full at token 64; continuing with cache_implementation='offloaded'"
check "on_full=offload: the ids of dynamic" json "o['sequences'] == json.load(open('$work/dynamic'))['sequences']"
check "on_full=offload: within the budget" json "o['cache']['peak_bytes'] <= 400 << 10 and o['cache']['streaming'] and o['cache']['spilled'] > 0"
run generate "$llama" --input-ids "$long" --max-new-tokens 80 --json --cache-memory 400K --cache-implementation offloaded
check "offloaded: no notice" test ! -s "$work/err"
check "offloaded: the ids of dynamic" json "o['sequences'] == json.load(open('$work/dynamic'))['sequences']"
run generate "$llama" --input-ids "$long" --max-new-tokens 80 --cache-memory 200K
refused "on_full=error: what it lacks, and the way out" 1 "cache.memory" "more than the limit of" "on-full offload"
run generate "$llama" --input-ids "$long" --max-new-tokens 3 --cache-implementation offloaded --spill-dir /nowhere/at/all
refused "a spill directory that is not there" 1 /nowhere/at/all

# A sink cache continues past the model's context of 256 tokens, in memory that does not grow.
window='{"window_length": 64, "num_sink_tokens": 4}'
run generate "$llama" --input-ids $ids --max-new-tokens 900 --eos-token-id -1 --json --cache-implementation sink --cache-config "$window"
check "sink: continues past the context" json "len(o['sequences'][0]) == 921"
check "sink: memory does not grow" json "o['cache']['bytes'] <= 6 * 16 * 1536"
run generate "$llama" --input-ids "$long,$long" --max-new-tokens 8 --json --cache-implementation sink --cache-config "$window"
cp "$work/out" "$work/dynamic"
check "sink: a prompt past the context" json "len(o['sequences'][0]) == 310"
run generate "$llama" --input-ids "$long,$long" --max-new-tokens 8 --json --cache-config "$window" --prefill-chunk-size 7
check "sink: the same for every prefill chunk size" json "o['sequences'] == json.load(open('$work/dynamic'))['sequences']"

try() { run generate "$llama" --input-ids $ids "$@"; }
try --cache-implementation sink
refused "sink needs both lengths" 1 window_length num_sink_tokens
try --cache-implementation sink --cache-config '{"window_length": 4, "num_sink_tokens": 4}'
refused "a window no larger than its sinks: both numbers" 1 "window_length 4" "num_sink_tokens 4"
try --cache-implementation sliding_window
refused "no window anywhere" 1 '{"sliding_window": N}'
try --cache-config '{"window_length": 9, "num_sink_tokens": 1, "sliding_window": 8}'
refused "two windows" 1 "window_length 9" "sliding_window 8"
try --cache-config '{"nbits": 4}'
refused "a codec's key without a codec" 1 nbits backend
try --cache-implementation quantized --cache-config '{"nbits": 5}'
refused "bits that quanto lacks" 1 nbits 5
try --cache-implementation offloaded --cache-config '{"offloading": false}'
refused "offloaded and offloading=false contradict each other" 1 offloaded offloading=false
try --cache-config '{"ofloading": true}'
refused "a mistyped key is refused before the model is loaded" 2 offloading
try --cache-implementation quantised
refused "a mistyped name suggests the nearest" 2 quantized
try --on-full halt
refused "--on-full names its values" 2 error encode offload

run inspect "$llama" --caches
check "inspect --caches: exit 0" status 0
check "inspect --caches: what the context takes" out_has '; the KV rows are f[0-9]*; the whole context takes [0-9.]* [KM]iB$'
check "inspect --caches: the headings" sh -c "tr -s ' ' <'$work/out' | grep -q '^ cache_implementation .*init. texts a token at most at most$'"
check "inspect --caches: a line for each" test "$(grep -c '^  [a-z]' "$work/out")" = 12
run inspect "$llama" --caches --json
check "inspect --caches --json: eleven" json "len(o['caches']) == 11 and all(c['available'] for c in o['caches'])"
check "inspect --caches --json: quantized is smaller" json \
    "[c['max_bytes'] for c in o['caches'] if c['cache_implementation'] == 'quantized'][0] < o['dense_bytes']"
run inspect "$golden/models/mamba" --caches --json
check "inspect --caches: the states of a recurrent model count, and long texts take no more" json \
    "o['dense_bytes'] > 0 and all(c['long_context'] for c in o['caches'] if c['available'])"
run inspect "$golden/models/gpt2" --caches --json
check "inspect --caches: a model that cannot have sinks says why" json \
    "any(not c['available'] and c['reason'] for c in o['caches'] if c['cache_implementation'] == 'sink')"
run inspect "$golden/models/mamba"
check "inspect: states take the same for any text" out_has '^  states  *11.2 KiB for a text of any length'
check "inspect: no bytes per token where there are no rows" sh -c "! grep -q 'per token' '$work/out'"
check "inspect: only what makes a difference" out_has '^  implementations  *dynamic static$'
run inspect "$golden/models/gpt2"
check "inspect: no sinks where they cannot be exact" sh -c "grep -q 'implementations  *dynamic .*offloaded_hybrid_chunked$' '$work/out'"
run inspect "$golden/models/jamba"
check "inspect: a hybrid has bytes per token" out_has 'bytes per token'
dynamic "$golden/models/jamba"
for how in jamba mamba hybrid; do same "$golden/models/jamba" --cache-implementation $how; done
run generate "$llama" --input-ids $ids --cache-implementation mamba
refused "the cache of another architecture" 1 'for models with recurrent states'
run generate "$golden/models/mamba" --input-ids 5,6,7 --max-new-tokens 2 --cache-implementation quantized
check "quantized states: works" status 0
check "quantized states: says that nothing changes" err_has 'nothing is quantized: the model has no attention'
run inspect "$llama"
check "inspect: tensors of layers that are alike are one line" out_has '^  model.layers.0-[0-9]*.self_attn.k_proj.weight *f[0-9]* .*, [0-9]* times$'
check "inspect: no line for each layer" test "$(grep -c 'k_proj' "$work/out")" = 1
run inspect "$golden/models/mixtral"
check "inspect: experts as well" out_has '^  model.layers.0-[0-9]*.*experts.0-3.w1.weight .*, [0-9]* times$'
run inspect --architectures
check "inspect --architectures" out_has llama
run inspect --architectures --json
check "inspect --architectures --json" json "['gpt2'] in o"
run inspect "$llama" --architectures
refused "--architectures needs no model" 2 architectures
finish
