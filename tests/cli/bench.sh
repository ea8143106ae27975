#!/bin/sh
# kvik bench: the table, its JSON, the report, usage errors. The measured numbers depend on the machine and are not checked.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha

run bench $golden/models/llama-bf16-long --caches --depths 600 --steps 2 --runs 1 --json
check "bench: windows and sinks hold what their rows take, and less than dynamic" json \
    "all(s['depths'][0]['cache_bytes'] <= p['memory_bytes'] <= p['peak_bytes'] <= o['strategies'][1]['peak_bytes'] and p['memory_bytes'] < o['strategies'][0]['prompt_in_one_call']['memory_bytes'] for s in o['strategies'] if 'window' in s['strategy'] for p in [s['prompt_in_one_call']])"

run bench "$model" --caches --depths 0,40 --steps 2 --runs 2 --json --report "$work/r.html"
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
check "bench: the report is a whole page" sh -c "tail -1 '$work/r.html' | grep -q '</html>'"
check "bench: the report asks for nothing from elsewhere" sh -c "! grep -qE '(src|href)=|url\\(|@import|fetch\\(' '$work/r.html'"
check "bench: the script makes no markup of texts" sh -c "! grep -qE 'innerHTML|insertAdjacent|document.write|eval\\(' '$work/r.html'"
# figures FILE EXPRESSION: the page is well-formed, and the expression holds for o, the figures in it, and for text, its source.
figures() {
    python3 - "$1" "$2" <<'PY'
import json, sys
from html.parser import HTMLParser
class Page(HTMLParser):
    open, figures, inside, scripts = [], "", False, 0
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"): self.open.append(tag)
        self.scripts += tag == "script"
        self.inside = ("id", "figures") in attrs
    def handle_endtag(self, tag):
        self.inside = False
        if not self.open or self.open.pop() != tag: sys.exit(f"</{tag}> at {self.getpos()}")
    def handle_data(self, data):
        if self.inside: self.figures += data
text = open(sys.argv[1], encoding="utf-8").read()
page = Page(convert_charrefs=True)
page.feed(text)
o = json.loads(page.figures)
if page.open or page.scripts != 2 or not eval(sys.argv[2]):
    sys.exit(f"open: {page.open}, scripts: {page.scripts}, figures: {page.figures[:900]}")
PY
}
check "bench: the figures of the page are those of --json" figures "$work/r.html" \
    "all(o[k] == v for k, v in json.load(open('$work/out')).items() if k != 'strategies') and [dict(s, lost=0, comparable=0) for s in o['strategies']] == [dict(s, lost=0, comparable=0) for s in json.load(open('$work/out'))['strategies']]"
check "bench: the page says what was found, and of what text" figures "$work/r.html" \
    "'tokens in' in o['said']['headline'] and 'llama-mha' in o['said']['method'] and o['tokens'] == 40 and o['turn_tokens'] == 256"
check "bench: the page judges every strategy" figures "$work/r.html" \
    "all(isinstance(s[k], bool) for s in o['strategies'] for k in ('lost', 'comparable'))"

# The page as a browser draws it, in chromium where that is installed.
# drawn FILE: leaves the document in $work/dom, after the script has run.
drawn() {
    timeout -k 5 $patience chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget=5000 \
        "--window-size=$2,900" --dump-dom "file://$1" >"$work/dom" 2>"$work/err"
}
if command -v chromium >/dev/null; then
    check "bench: a browser opens the page" drawn "$work/r.html" 1200
    check "bench: the page has a chart, three plots and their tables" sh -c \
        "[ \$(grep -o '<svg role=\"img\"' '$work/dom' | wc -l) = 4 ] && [ \$(grep -o '<table' '$work/dom' | wc -l) = 5 ] && [ \$(grep -o '<details' '$work/dom' | wc -l) = 3 ]"
    check "bench: every chart has a name for screen readers, and axes have units" sh -c \
        "[ \$(grep -oE '<svg role=\"img\" aria-label=\"[^\"]{5}' '$work/dom' | wc -l) = 4 ] && grep -q 'MiB of memory<' '$work/dom' && grep -q 'decoded tokens per second<' '$work/dom' && grep -q 'cached tokens<' '$work/dom'"
    check "bench: each bar has its figure" sh -c "[ \$(grep -o 'class=\"bar[01]\"' '$work/dom' | wc -l) = 20 ] && grep -qE '>[0-9]+ /s' '$work/dom'"
    # A window without a head is never as narrow as a phone, so the page gets a narrow body.
    sed 's/max-width: 70rem/max-width: 22rem/' "$work/r.html" >"$work/slim.html"
    check "bench: a narrow page opens" drawn "$work/slim.html" 1200
    check "bench: a narrow page keeps the bar chart, and numbers its lines" sh -c \
        "[ \$(grep -oE 'class=\"bar[01]\"' '$work/dom' | wc -l) = 22 ] && [ \$(grep -o '<ol class=\"key\"' '$work/dom' | wc -l) = 3 ]"
else
    skip "bench: no chromium to draw the page"
fi

# A name is hostile: with markup, with the end of a script, with a slot of the page, and with bytes that are no UTF-8.
for name in 'a<b>&c' '<!--<script>alert(1)' '{{script}}' "$(printf 'caf\351')"; do
    cp -r "$model" "$work/$name"
    run bench "$work/$name" --depths 0,40 --steps 1 --runs 1 --json --report "$work/e.html"
    check "bench $name: exit 0" status 0
    check "bench $name: the name stays text" figures "$work/e.html" \
        "text.count('<script') == 2 and o['model'] == json.load(open('$work/out'))['model'] and o['model'] in o['said']['method']"
    command -v chromium >/dev/null || continue
    check "bench $name: a browser opens the page" drawn "$work/e.html" 1200
    check "bench $name: its charts are drawn" sh -c "[ \$(grep -o '<svg role=\"img\"' '$work/dom' | wc -l) = 4 ]"
done
run bench "$model" --depths 0,40 --steps 1 --runs 1
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
mkdir -p "$work/x<"
mkdir "$work/x</script>"
cp "$work/text" "$work/x</script>/text"
run bench "$work/tiny" --depths 0,16 --steps 1 --runs 1 --text "$work/x</script>/text" --report "$work/t.html" --json
check "bench --text: a name that would end the script stays text" figures "$work/t.html" \
    "text.count('</script') == 2 and o['text'] == '$work/x</script>/text'"
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
run bench "$model" --report "$work/fifo" --depths 0 --steps 1 --runs 1
wait
check "a page into a FIFO succeeds" status 0
check "a FIFO stays one" test -p "$work/fifo"
check "a FIFO: the page goes through it" grep -q '</html>' "$work/through"
echo old >"$work/target.html"
ln -s target.html "$work/link.html"
run bench "$model" --report "$work/link.html" --depths 0 --steps 1 --runs 1
check "a link stays one" test -L "$work/link.html"
check "a link: its file has the page" grep -q '</html>' "$work/target.html"
run bench "$golden/models/t5"
refused "bench: a model with an encoder" 1 "does not measure models with an encoder"
run bench
refused "bench needs a model" 2 MODEL
finish
