#!/bin/sh
# kvik bench: the table, its JSON, the report, usage errors. The measured numbers depend on the machine and are not checked.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha

run bench $golden/models/llama-bf16-long --caches --depths 600 --steps 2 --runs 1 --json
check "bench: windows and sinks hold what their rows take, and less than dynamic" json \
    "all(s['depths'][0]['cache_bytes'] <= p['memory_bytes'] <= p['peak_bytes'] <= o['strategies'][1]['peak_bytes'] and p['memory_bytes'] < o['strategies'][0]['prompt_in_one_call']['memory_bytes'] for s in o['strategies'] if 'window' in s['strategy'] for p in [s['prompt_in_one_call']])"

run bench "$model" --caches --depths 0,40 --steps 2 --runs 2 --json --report "$work/r.html" --svg "$work/r.svg"
check "bench succeeds" status 0
check "bench announces its work" err_has "measuring 10 strategies, 2 runs"
check "bench: every strategy has numbers or a reason" json \
    "len(o['strategies']) >= 8 and all(('refused' in s) != (len(s['depths']) == 2) for s in o['strategies'])"
check "bench: the dynamic cache is the measure" json \
    "all(d['ratio_to_dynamic'] == 1 for d in o['strategies'][0]['depths'])"
check "bench: strategies decode in turn with the dynamic cache" json \
    "o['in_turn'] and all(d['ratio_to_dynamic'] > 0 for s in o['strategies'] if 'refused' not in s for d in s['depths'])"
check "bench: memory is sampled" json "len(o['strategies'][0]['memory']) >= 2"
check "bench names the model, the machine and the day" json \
    "o['model'] == 'llama-mha' and o['cpu'] and o['threads'] >= 1 and len(o['date']) == 10 and o['window'] == 32"
check "bench: a quantized prompt in one call peaks above what it holds" json \
    "all(p['peak_bytes'] > p['memory_bytes'] for s in o['strategies'] if s['strategy'] in ('quanto 4 bits', 'hqq 4 bits') for p in [s['prompt_in_one_call']])"
check "bench: what keeps native rows has identical logits" json \
    "all(s['prompt_in_one_call']['quality']['identical'] for s in o['strategies'][:4])"
check "bench: quantized and forgotten rows change logits" json \
    "all(0 < s['prompt_in_one_call']['quality']['kld'] for s in o['strategies'][4:])"
check "bench: the report is a whole page with a chart and three plots" sh -c \
    "tail -1 '$work/r.html' | grep -q '</html>' && [ \$(grep -c '<figure' '$work/r.html') = 4 ]"
check "bench: the report asks for nothing from elsewhere" sh -c "! grep -qE '(src|href)=|url\(|@import' '$work/r.html'"
check "bench: the picture and the page are well-formed" python3 - "$work/r.svg" "$work/r.html" <<'PY'
import sys
from html.parser import HTMLParser
from xml.dom import minidom
minidom.parse(sys.argv[1])
class Page(HTMLParser):
    open = []
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"): self.open.append(tag)
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: sys.exit(f"</{tag}> at {self.getpos()}")
    def handle_startendtag(self, tag, attrs): pass
page = Page(convert_charrefs=True)
page.feed(open(sys.argv[2], encoding="utf-8").read())
sys.exit(f"not closed: {page.open}" if page.open else 0)
PY
check "bench: a page as narrow as a phone keeps a chart" python3 - "$work/r.html" <<'PY'
import re, sys
page = open(sys.argv[1], encoding="utf-8").read()
charts = re.findall(r'<svg class="(wide|narrow)".*?</svg>', page, re.S)
phone = re.search(r'@media\(max-width:46rem\)\{(.*?)\}\}', page, re.S).group(1)
bars = re.search(r'<svg class="narrow".*?</svg>', page, re.S).group(0).count('class="k-speed"')
ok = charts == ["wide", "narrow"] and "svg.narrow{display:block" in phone and ".chart" not in phone and bars >= 9
sys.exit(0 if ok else f"{charts} {bars} {phone}")
PY
check "bench: the picture has a width of its own" grep -q 'viewBox="0 0 800' "$work/r.svg"

# A name with markup stays text, in the page and in the picture.
cp -r "$model" "$work/a<b>&c"
run bench "$work/a<b>&c" --depths 0,40 --steps 1 --runs 1 --report "$work/e.html" --svg "$work/e.svg"
check "bench: a model's name is escaped" sh -c \
    "grep -q 'a&lt;b&gt;&amp;c' '$work/e.html' && ! grep -q 'a<b>' '$work/e.html' '$work/e.svg' && grep -q 'a&lt;b' '$work/e.svg'"
check "bench: one run is one run" out_has "one run"

# One second is less than these steps take on any machine; the second strategy has a run or says that it has none.
run bench $golden/models/llama-bf16-long --caches --depths 0,1500 --steps 256 --runs 16 --seconds 1 --json
check "bench --seconds succeeds" status 0
check "bench --seconds announces the limit" err_has "at most 1 second$"
check "bench --seconds says what was left out" err_has 'The limit of 1 s was reached: .*--seconds N allows more'
check "bench --seconds: the dynamic cache is measured, the rest says why not" json \
    "o['limit_seconds'] == 1 and o['strategies'][0]['runs'] >= 1 and all(s['runs'] or 'no time was left' in s['refused'] for s in o['strategies']) and any(s['runs'] < 16 for s in o['strategies'])"
run bench "$model" --depths 0,40 --steps 2 --runs 2 --json
check "bench: marks, runs and the load are in the JSON" json \
    "all(set(d['marks']) <= {'scatters', 'above floor', 'prefill scatters'} for s in o['strategies'] for d in s['depths']) and 2 <= o['strategies'][0]['runs'] <= 6 and (o['other_programs'] is None or 0 <= o['other_programs'] <= 1)"

python3 tests/cli/tiny.py "$model" "$work/tiny" || exit 99
seq 400 >"$work/text"
run bench "$work/tiny" --depths 0,16 --steps 1 --runs 1 --text "$work/text" --markdown
check "bench --text --markdown succeeds" status 0
check "bench --markdown prints a row of the table" out_has '^| dynamic | '
check "bench announces one strategy" err_has "1 strategy, 1 run"
echo short >"$work/text"
run bench "$work/tiny" --depths 0,16 --steps 1 --runs 1 --text "$work/text"
check "bench: a text that is too short is refused with numbers" err_has "these --depths need"
run bench "$work/tiny" --depths 0,16 --steps 1 --runs 1 --text "$work/absent"
check "bench: a text that is not there is refused" status 1

run bench "$model" --depths 0,16 --steps 1 --runs 1
check "bench without --caches succeeds" status 0
check "bench without --caches has dynamic only" sh -c "grep -q dynamic '$work/out' && ! grep -q sink '$work/out'"

run bench "$model" --depths 40,0 --steps 1
refused "--depths must ascend" 2 'must ascend: 0 comes after 40'
run bench "$model" --depths 1000000
refused "--depths within the context" 2 context
run bench "$model" --depths x
refused "--depths are numbers" 2 depths
run bench "$model" --report "$work/absent/r.html" --depths 0 --steps 1 --runs 1
check "a report that cannot be written fails" status 1
mkfifo "$work/fifo"
cat "$work/fifo" >"$work/through" &
run bench "$model" --svg "$work/fifo" --depths 0 --steps 1 --runs 1
wait
check "a picture into a FIFO succeeds" status 0
check "a FIFO stays one" test -p "$work/fifo"
check "a FIFO: the picture goes through it" grep -q '</svg>' "$work/through"
echo old >"$work/target.svg"
ln -s target.svg "$work/link.svg"
run bench "$model" --svg "$work/link.svg" --depths 0 --steps 1 --runs 1
check "a link stays one" test -L "$work/link.svg"
check "a link: its file has the picture" grep -q '</svg>' "$work/target.svg"
run bench "$golden/models/t5"
refused "bench: a model with an encoder" 1 "does not measure models with an encoder"
run bench
refused "bench needs a model" 2 MODEL
finish
