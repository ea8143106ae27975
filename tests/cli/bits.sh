#!/bin/sh
# nbits "auto": what is chosen is told once, holds by the measure of kvik eval, is kept for later runs, and does not depend on
# threads, instruction sets, or on what somebody has left in the cache directory.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-bf16-long "$work/tiny" || exit 99
export XDG_CACHE_HOME="$work/cache"
mkdir "$work/cache"
auto='{"backend":"kvik","nbits":"auto"}'
sleep 2.5 # a file of the model that is younger could change again without a new time

# choose NAME [OPTIONS]: opens a cache, and leaves the notice in $work/NAME.
choose() {
    name=$1
    shift
    run generate "$work/tiny" "abc" --max-new-tokens 2 "$@"
    grep '^nbits "auto" chose' "$work/err" >"$work/$name" || : >"$work/$name"
}
kept() { find "$work/cache/kvik/bits" -type f 2>/dev/null | wc -l; }
same() { [ -s "$work/$1" ] && cmp -s "$work/$1" "$work/$2"; }

choose first --cache-config "$auto" --threads 1
check "auto succeeds" status 0
check "what was chosen is told in one line" [ "$(wc -l <"$work/first")" = 1 ]
check "before that, that it is measured" err_has '^nbits "auto" measures this model once, with about 14 windows of 1024 tokens$'
check "it names the divergence and the limit" grep -q 'mean KLD 0\.00[0-4].*max_kld 0.005$' "$work/first"
check "it is kept" [ "$(kept)" = 1 ]
choose again --cache-config "$auto" --threads 1
check "a later run has the same choice" same first again
check "and measures nothing" sh -c "! grep -q 'measures this model' '$work/err'"
run plan "$work/tiny" --context 600 --bytes-only --cache-config "$auto"
check "kvik plan tells the choice" sh -c "grep -q '^nbits \"auto\" chose' '$work/err'"
run eval "$work/tiny" --text examples/text/nowhere.txt --context 512 --tokens 1 --cache-config "$auto"
check "and so does kvik eval" sh -c "grep -q '^nbits \"auto\" chose' '$work/err'"
check "a window with tiles that are full is long enough" sh -c "! grep -q 'too short' '$work/err'"

# The measure is that of kvik eval, to the last digit that is told.  It is taken in the order of sums that nearly all instruction sets share.
export KVIK_ISA=ref
config=$(sed 's/^nbits "auto" chose \(.*\): [0-9.]* bits a value.*/\1/' "$work/first")
window=$(python3 -c "import json; print(min(1024, json.load(open('$work/tiny/config.json'))['max_position_embeddings']))")
run eval "$work/tiny" --text examples/text/nowhere.txt --context "$window" --tokens 1 --threads 1 --json --cache-config "$config"
check "kvik eval finds the same divergence" json \
    "'mean KLD %.3g,' % o['caches'][1]['kld'] in open('$work/first').read()"
# One step less is too much: of the rungs below, none is within the limit.
run eval "$work/tiny" --text examples/text/nowhere.txt --context "$window" --tokens 1 --threads 1 --json \
    --cache-config '{"backend":"kvik","k_bits":4,"v_bits":4}' --cache-config '{"backend":"kvik","k_bits":8,"v_bits":4}'
check "cheaper rungs are above the limit" json "all(c['kld'] > 0.005 for c in o['caches'][1:])"

unset KVIK_ISA
entry=$(find "$work/cache/kvik/bits" -type f)
for damage in short empty other; do
    case $damage in
    short) truncate -s 40 "$entry" ;;
    empty) : >"$entry" ;;
    other) printf 'kvik bits 2\n{"config": "{\\"backend\\":\\"kvik\\",\\"nbits\\":2}", "kld": 0, "bits": 2}' >"$entry" ;;
    esac
    choose damaged --cache-config "$auto" --threads 1
    check "an entry that is damaged ($damage) is made again" same first damaged
done
chmod 777 "$work/cache/kvik/bits"
choose shared --cache-config "$auto" --threads 1
check "a directory that others can write is not believed" same first shared
chmod 500 "$work/cache/kvik/bits"
choose readonly --cache-config "$auto" --threads 1
check "a directory that cannot be written is no error" same first readonly
chmod 700 "$work/cache/kvik/bits"

export XDG_CACHE_HOME="$work/none"
choose two --cache-config "$auto" --threads 2
check "threads change nothing" same first two
rm -rf "$work/none"
choose scalar --cache-config "$auto" --isa ref
check "instruction sets change nothing" same first scalar
export XDG_CACHE_HOME="$work/cache"

choose exact --cache-config "$auto" --compute exact
check "a model that computes in another way is measured" err_has 'measures this model once'
check "and has an entry of its own" [ "$(kept)" = 2 ]
choose loose --cache-config '{"backend":"kvik","nbits":"auto","max_kld":0.5}'
check "another limit is another choice" grep -q '"k_bits":[234],.*max_kld 0.5$' "$work/loose"
check "and an entry of its own" [ "$(kept)" = 3 ]
# Layers are named by their number in the model, where some keep states and no rows: here two of four, of which one gets more bits.
python3 tests/cli/tiny.py $golden/models/qwen3-next "$work/mixed" || exit 99
run inspect "$work/mixed" --json
rows=$(python3 -c "import json; print(' '.join(str(l['layer']) for l in json.load(open('$work/out'))['layers'] if l['kv_heads']))")
run generate "$work/mixed" "abc" --max-new-tokens 2 --cache-config '{"backend":"kvik","nbits":"auto","max_kld":0.002}'
check "layers are named as the model counts them" err_has "\"layers\":{\"${rows%% *}\":{"
check "the first of them keeps states" [ "${rows%% *}" != 0 ]
run generate "$work/tiny" "abc" --max-new-tokens 2 --cache-config '{"backend":"kvik","nbits":"auto","max_kld":1e-12}'
refused "a limit that 8 bits miss" 1 'max_kld 1e-12'
choose words --cache-config '{"backend":"Kvik","nbits":"Auto"}'
check "case does not matter, as in names of backends" same first words
for line in '{"backend":"kvik","nbits":"auto","k_bits":4}|leave out k_bits' '{"backend":"kvik","k_bits":"auto"}|"auto" is a value of nbits alone' '{"backend":"quanto","nbits":"auto"}|for backend "kvik"' \
    '{"backend":"kvik","max_kld":0.1}|max_kld is for' '{"backend":"kvik","nbits":"auto","layers":{"0":{"nbits":8}}}|leave out layers' \
    '{"backend":"kvik","nbits":"auto","max_kld":-1}|a number above 0' '{"nbits":"auto"}|needs a backend'; do
    run generate "$work/tiny" "abc" --max-new-tokens 2 --cache-config "${line%%|*}"
    check "refused: ${line%%|*}" err_has "${line#*|}"
done
finish
