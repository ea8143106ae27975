#!/bin/sh
# kvik eval: the list of codecs, the report, Markdown, refusals and usage errors. tests/python/test_eval.py checks the numbers.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-bf16-long "$work/tiny" || exit 99
text=examples/text/nowhere.txt
head -c 400 $text >"$work/text"

check "the texts that figures are measured with are the ones named" sh -c "cd examples/text && sha256sum --quiet -c SHA256SUMS"
run eval "$work/tiny" --text "$work/text" --context 64 --tokens 100 --threads 1 --json --report "$work/r.html"
check "eval succeeds" status 0
check "eval announces its work" err_has "4 windows of 64 tokens, [1-9][0-9]* caches beside the reference"
check "eval says that a window is too short for tiles of 128 rows" err_has '[1-9][0-9]* caches predicted what the reference did, bit for bit: a window of 64 tokens'
cp "$work/out" "$work/all"
check "eval: every codec of the build, with each number of bits" json \
    "o['caches'][0]['reference'] and {'quanto 4 bits', 'quanto 2 bits', 'hqq 8 bits', 'hqq 4 bits', 'hqq 3 bits', 'hqq 2 bits', 'hqq 1 bit'} <= {c['rows'] for c in o['caches']}"
check "eval: more bits are nearer" json \
    "all(a['kld'] < b['kld'] for rows in [{c['rows']: c for c in o['caches']}] for a, b in (('hqq 8 bits', 'hqq 4 bits'), ('hqq 4 bits', 'hqq 3 bits'), ('hqq 3 bits', 'hqq 2 bits')) for a, b in [(rows[a], rows[b])])"
check "eval: bits with scales" json \
    "[c['bits_per_value'] for c in o['caches'] if c['rows'] in ('quanto 4 bits', 'quanto 2 bits')] == [4.5, 2.5]"
check "eval: the text is named, and its digest" json \
    "o['text'] == 'text' and len(o['text_sha256']) == 64 and o['scored'] == 128 and o['windows'] == 4 and o['prompt'] == 32"
check "eval: the report is a whole page" sh -c "tail -1 '$work/r.html' | grep -q '</html>'"
check "eval: the report asks for nothing from elsewhere" sh -c "! grep -qE '(src|href)=|url\\(|@import|fetch\\(' '$work/r.html'"
check "eval: the script makes no markup of texts" sh -c "! grep -qE 'innerHTML|insertAdjacent|document.write|eval\\(' '$work/r.html'"
check "eval: the page has its own title" grep -q '<title>kvik eval</title>' "$work/r.html"
check "eval: the figures of the page are those of --json" python3 - "$work/r.html" "$work/all" <<'PY'
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
o = json.loads(re.search(r'<script id="figures" type="application/json">(.*?)</script>', page, re.S)[1])
told = json.load(open(sys.argv[2], encoding="utf-8"))
del o["method"]
sys.exit(o != told)
PY

# Every listed codec is a cache that opens, under the name that it has.
run inspect "$work/tiny" --caches --json
check "the list of codecs" json \
    "[c['name'] for c in o['codecs']] and all(json.loads(c['cache_config'])['backend'] == c['backend'] and c['name'].startswith(c['backend']) for c in o['codecs'])"
run eval "$work/tiny" --text "$work/text" --context 64 --tokens 1 --threads 1 --cache-config '{}' --cache-config '{"backend":"quanto","q_group_size":48}' \
    --cache-config '{"offloading":true}' --markdown
check "eval --markdown succeeds" status 0
check "eval --markdown has a row for each cache that works" sh -c "test \$(grep -c '^|' '$work/out') = 5"
check "eval: a cache of the same rows changes nothing" out_has '^| {} | 16.00 | .* | 0 | 0 | 100.00 % |$'
run eval "$work/tiny" --text "$work/text" --context 64 --tokens 1 --threads 1 --cache-config '{"backend":"quanto","q_group_size":48}'
check "eval: a shape that a codec refuses is told in the table" out_has 'q_group_size 48 with axis_key 0'
check "eval: the rest is measured" status 0
run eval "$work/tiny" --text "$work/text" --context 64 --tokens 9999 --threads 1 --cache-config '{}'
check "eval says how much of the text it has" err_has 'the text has [0-9]* tokens to score; --tokens asked for 9999'

run eval "$work/tiny" --text "$work/text" --context 64 --cache-config '{"nbits":4'
refused "a configuration that is no JSON" 2 'cache-config'
run eval "$work/tiny" --text "$work/text" --context 4000
refused "a window beyond the context" 2 'exceeds the model.s context of 2048'
run eval "$work/tiny" --text "$work/text"
refused "a text that is too short" 2 'needs 1025; give a longer text or a smaller --context'
run eval "$work/tiny"
refused "no text" 2 'needs --text FILE'
run eval "$work/tiny" --text "$work/absent"
refused "a text that is not there" 1 'absent cannot be read: No such file'
printf 'abc\377' >"$work/binary"
run eval "$work/tiny" --text "$work/binary"
refused "a text that is none" 1 'binary: text is not UTF-8'
run eval $golden/models/llama-bf16-long --text "$work/text"
refused "a model without a tokenizer" 1 'has no tokenizer'
run eval $golden/models/t5 --text "$work/text"
refused "a model with an encoder" 1 'encoder'
run eval --text "$work/text"
refused "no model" 2 'needs a MODEL'
run eval "$work/tiny" --text "$work/text" --report "$work/absent/r.html"
refused "a report that cannot be written" 1 '--report'
finish
