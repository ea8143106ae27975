#!/bin/sh
# Sessions through the command. A directory of prompts gives the same ids with fewer computed tokens. inspect reads and
# checks a saved session and says what is wrong with a damaged one.
. "$(dirname "$0")/lib.inc"

llama=$golden/models/llama-mha
ids=$(seq -s, 5 64)
dir=$work/prefixes

gen() { run generate "$llama" --input-ids "$@" --max-new-tokens 8 --json; }
new() { python3 -c "import json; print(json.load(open('$work/out'))['sequences'])"; }
reused() { json "o['cache']['reused'] $1"; }

for how in "" "--cache-implementation static" "--cache-implementation offloaded" \
    "--cache-config {\"sliding_window\":20}"; do
    rm -rf "$dir"
    gen "$ids" $how
    check "$how: exit 0" status 0
    want=$(new)
    gen "$ids" $how --prefix-cache "$dir"
    check "$how, an empty directory: exit 0" status 0
    check "$how, an empty directory: the same ids" same "$(new)" "$want"
    check "$how: one file" test "$(ls "$dir" | wc -l)" = 1
    gen "$ids" $how --prefix-cache "$dir"
    check "$how, the same prompt: the same ids" same "$(new)" "$want"
    gen "$ids,65,66,67" $how
    want=$(new)
    gen "$ids,65,66,67" $how --prefix-cache "$dir"
    check "$how, a longer prompt: the same ids" same "$(new)" "$want"
    check "$how: exit 0" status 0
done
rm -rf "$dir"
gen "$ids" --prefix-cache "$dir"
gen "$ids" --prefix-cache "$dir"
check "the prompt is reused except its last token" reused "== 59"
gen "$ids,70,71" --prefix-cache "$dir"
check "a prompt with another continuation reuses the common prefix" reused "== 60"
gen "9,8,7" --prefix-cache "$dir"
check "another prompt reuses nothing" reused "== 0"

file=$(ls "$dir"/*.kvik | head -n 1)
run inspect "$file"
check "inspect: exit 0" status 0
check "inspect: the model" out_has "llama-mha"
check "inspect: the checksums are checked" out_has "all checksums right"
check "inspect: tokens" out_has "tokens in"
run inspect "$file" --json
check "inspect --json: exit 0" status 0
check "inspect --json: the kind of file" json "o['type'] == 'session' and o['version'] == 2 and o['saves'] >= 1"
check "inspect --json: the sequence" json "o['sequences'][0]['tokens'] >= 67 and o['live_bytes'] <= o['bytes']"
run inspect "$file" --caches
check "inspect --caches needs a model" status 2

# Damage: inspect reports it, and a run ignores the damaged file.
cp "$file" "$work/good"
python3 - "$file" <<'PY'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[len(b) // 2] ^= 1
open(sys.argv[1], "wb").write(b)
PY
run inspect "$file"
check "inspect, a changed byte: exit 1" status 1
check "inspect, a changed byte: the message" err_has "damaged"
gen "$ids" --prefix-cache "$dir"
check "a run with a damaged prefix: exit 0" status 0
head -c 2000 "$work/good" >"$file"
run inspect "$file"
check "a truncated file: the message" err_has "truncated"
printf 'KVIKSESS\377\000\000\000' >"$file"
head -c 2000 /dev/zero >>"$file"
run inspect "$file"
check "a newer version: the message" err_has "version 255"

# A directory that cannot be used is an error before any text; one that has no effect is said.
for command in generate chat; do
    ids_of() { test $command = chat || echo "--input-ids $ids"; }
    run $command "$llama" $(ids_of) --prefix-cache "$work/good"
    check "$command, a file instead of a directory: exit 1" status 1
    check "$command, a file instead of a directory: no text" test ! -s "$work/out"
    check "$command, a file instead of a directory: the message" err_has "not a directory"
done
run generate "$work/no-model" --input-ids "$ids" --prefix-cache "$work/good/directory"
check "a directory that cannot be made: the message" err_has "cannot make the directory"
gen "$ids" --prefix-cache "$work/new/directory" --prefix-store "file://$work/new/one/rows"
check "a directory in one that is not there: exit 0" status 0
check "a directory in one that is not there: both are made, for this user alone" test "$(stat -c %a "$work/new" "$work/new/directory" "$work/new/one/rows" | sort -u)" = 700
quanto='{"backend":"quanto","nbits":4,"q_group_size":8}'
gen "$ids" --cache-implementation quantized --cache-config "$quanto" --prefix-cache "$work/none"
check "a quantized cache: exit 0" status 0
check "a quantized cache: one line says that nothing is saved" err_has "prefix-cache has no effect"
check "a quantized cache: nothing is saved" test -z "$(ls "$work/none")"
gen "$ids" --use-cache false --prefix-cache "$work/none"
check "no cache: one line says that nothing is saved" err_has "prefix-cache has no effect"
gen "$ids" --prefix-cache "$work/one"
check "a cache that is saved: no word" test ! -s "$work/err"

# Files that others can write are not believed, with one line that says so.
gen "$ids" --prefix-cache "$work/trust"
want=$(new)
for open in "$work/trust" "$work"/trust/*.kvik; do
    chmod go+w "$open"
    gen "$ids" --prefix-cache "$work/trust"
    chmod go-w "$open"
    check "$(basename "$open"), open to others: the same ids" same "$(new)" "$want"
    check "$(basename "$open"), open to others: nothing is reused" reused "== 0"
    check "$(basename "$open"), open to others: one line" err_lines 1
    check "$(basename "$open"), open to others: said" err_has "$open is not used, because"
done

# Prompts with a common beginning store it once, in one call or in several.
size() { cat "$work/$1"/*.kvik | wc -c; }
gen "$ids,7,7,7" --input-ids "$ids,8,8,8" --input-ids "$ids,9,9,9" --prefix-cache "$work/call"
for i in 7 8 9; do
    gen "$ids,$i,$i,$i" --prefix-cache "$work/calls"
done
check "three prompts in one call are one file" test "$(ls "$work/call" | wc -l)" = 1
check "three prompts in three calls are one file" test "$(ls "$work/calls" | wc -l)" = 1
check "in one call: less than the bytes of two" test "$(size call)" -lt $(($(size one) * 2))
check "in three calls: less than the bytes of two" test "$(size calls)" -lt $(($(size one) * 2))
gen "$ids,9,9,9" --prefix-cache "$work/call"
check "the last of them is found whole" reused "== 62"

# Prompts of one call compute their common beginning once, whether a directory keeps it or not. The ids are those of
# single runs. Each row feeds three of its four new tokens.
three() { run generate "$llama" --input-ids "$ids,7,7,7" --input-ids "$ids,8,8,8" --input-ids "$ids,9,9,9" --max-new-tokens 4 "$@"; }
computed() { json "o['usage']['computed_tokens'] $1"; }
for how in "" "--cache-implementation static" "--num-beams 2" "--num-return-sequences 2 --num-beams 2"; do
    rm -rf "$work/three"
    alone=
    for i in 7 8 9; do
        run generate "$llama" --input-ids "$ids,$i,$i,$i" --max-new-tokens 4 --json $how
        alone="$alone + $(new)"
    done
    all() { json "o['sequences'] == [] $alone"; }
    case $how in *beams*) fed=18 ;; *) fed=9 ;; esac
    three $how --json
    check "$how, three prompts: the ids of single runs" all
    check "$how, three prompts: the beginning is computed once" computed "== 63 + 3 + 3 + $fed"
    three $how --json --prefix-cache "$work/three"
    check "$how, into a directory: the ids of single runs" all
    check "$how, into a directory: the beginning is computed once" computed "== 63 + 3 + 3 + $fed"
    three $how --json --prefix-cache "$work/three"
    check "$how, from a directory: the ids of single runs" all
    check "$how, from a directory: the beginning is not computed" computed "<= 1 + 3 + 3 + $fed"
    check "$how, from a directory: the rows stand once" json "o['cache']['shared'] > 0"
done
three --json --num-return-sequences 2 --do-sample
check "three prompts with two answers each: the beginning is computed once" computed "== 63 + 3 + 3 + 18"
three --cache-report
check "three prompts: the report counts what is fed" err_has "prefill 69 tokens"
three --cache-report --prefix-cache "$work/report"
check "three prompts into a directory: the report counts what is fed" err_has "prefill 69 tokens"
check "three prompts into a directory: the rows stand once" err_has "shared [1-9]"
three --cache-report --prefix-cache "$work/report"
check "three prompts from a directory: the report counts what is fed" err_has "prefill [1-7] tokens"

# A reader that was written from docs/SESSION-FORMAT.md alone.
reader() { python3 "$(dirname "$0")/session.py" "$@" >"$work/read"; }
gen "$ids" --prefix-cache "$work/full"
want=$(python3 -c "import json; print(*json.load(open('$work/out'))['sequences'][0], sep=',')")
check "another reader: the file is as documented" reader "$work"/full/*.kvik
check "another reader: finds the ids" same "$(cat "$work/read")," \
    "$(echo "$want," | head -c "$(wc -c <"$work/read")")"
gen "$ids,65" --prefix-cache "$work/full"
check "another reader: a file that was added to" reader "$work"/full/*.kvik
gen "$ids,65" --cache-config '{"sliding_window":20}' --prefix-cache "$work/window"
check "another reader: a window" reader "$work"/window/*.kvik

# A session belongs to all weights of its model. --verify hashes them, and changes no text.
cp -r "$llama" "$work/model" && chmod -R u+w "$work/model"
mine() { run generate "$work/model" --input-ids "$ids" --max-new-tokens 8 --json "$@"; }
flip() { python3 -c "
f = open('$work/model/model.safetensors', 'r+b'); f.seek(-5000, 2); b = f.read(1); f.seek(-1, 1); f.write(bytes([b[0] ^ 8]))"; }
mine --prefix-cache "$work/mine"
mine --prefix-cache "$work/mine" --verify --verbose
check "--verify: exit 0" status 0
check "--verify: says what was done" err_has "all weights are hashed"
check "--verify: the prompt is reused" reused "== 59"
flip
mine --prefix-cache "$work/mine"
check "a changed byte of the weights: exit 0" status 0
check "a changed byte of the weights: nothing is reused" reused "== 0"
mine --prefix-cache "$work/mine"
check "a changed byte of the weights: its own rows are reused" reused "== 59"
printf 'hello\n' >"$work/in"
python3 tests/cli/tiny.py "$llama" "$work/model"
talk() { "$KVIK" chat "$work/model" --session "$work/talk" --max-new-tokens 4 <"$work/in" >"$work/out" 2>"$work/err"; rc=$?; }
talk
check "a chat with a session: exit 0" status 0
flip
talk
check "a chat with other weights: refused" status 1
check "a chat with other weights: says so" err_has "saved with other weights of this model"
flip
talk
check "a chat with the weights of then: exit 0" status 0
run inspect "$work/talk"
check "inspect prints the digest of the weights" out_has "digest of weights"
run inspect "$work/model" --verify
check "inspect --verify: exit 0" status 0
finish
