#!/bin/sh
# kvik bench: the table, its JSON, the report, usage errors. The measured numbers depend on the machine and are not checked.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha

run bench "$model" --caches --depths 0,40 --steps 2 --runs 1 --json --report "$work/r.html"
check "bench succeeds" status 0
check "bench: every strategy has numbers or a reason" json \
    "len(o['strategies']) >= 8 and all(('refused' in s) != (len(s['depths']) == 2) for s in o['strategies'])"
check "bench: the dynamic cache is the measure" json \
    "all(d['ratio_to_dynamic'] == 1 for d in o['strategies'][0]['depths'])"
check "bench: memory is sampled" json "len(o['strategies'][0]['memory']) >= 2"
check "bench: the report is a whole page with two plots" sh -c \
    "tail -1 '$work/r.html' | grep -q '</html>' && [ \$(grep -c '<figure>' '$work/r.html') = 2 ]"
check "bench: the report asks for nothing from elsewhere" sh -c "! grep -qE '(src|href)=' '$work/r.html'"

run bench "$model" --depths 0,16 --steps 1 --runs 1
check "bench without --caches succeeds" status 0
check "bench without --caches has dynamic only" sh -c "grep -q dynamic '$work/out' && ! grep -q sink '$work/out'"

run bench "$model" --depths 40,0 --steps 1
refused "--depths must ascend" 2 ascend
run bench "$model" --depths 1000000
refused "--depths within the context" 2 context
run bench "$model" --depths x
refused "--depths are numbers" 2 depths
run bench "$model" --report "$work/absent/r.html" --depths 0 --steps 1 --runs 1
check "a report that cannot be written fails" status 1
run bench
refused "bench needs a model" 2 MODEL
finish
