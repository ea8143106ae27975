#!/bin/sh
# kvik render over recorded chats of Transformers, through the line protocol: the cases in this repository, and the
# published templates where the shared data is present (KVIK_TEST_SHARED names its golden folder).
. "$(dirname "$0")/lib.inc"

cat >"$work/cases.py" <<'PY'
import collections, json, os, subprocess, sys
cases, folder, kvik = sys.argv[1:4]
by = collections.OrderedDict()
for l in open(cases, encoding="utf-8"):
    c = json.loads(l)
    by.setdefault(c["template"], []).append(c)
n = bad = 0
for template, rows in by.items():
    path = os.path.join(folder, template)
    if not os.path.exists(path): path = os.path.join(os.path.dirname(cases), "published", template)
    ask = "".join(json.dumps({k: c[k] for k in ("messages", "kwargs", "special_tokens", "now") if k in c}) + "\n" for c in rows)
    r = subprocess.run([kvik, "render", "--template", path, "--jsonl", "-"], input=ask.encode(), capture_output=True)
    out = [json.loads(l) for l in r.stdout.decode().splitlines()]
    if len(out) != len(rows): out += [{}] * (len(rows) - len(out))
    for c, o in zip(rows, out):
        n += 1
        ok = "error" in o if "raises" in c else o.get("rendered") == c.get("rendered")
        if not ok:
            bad += 1
            if bad < 4: print("differs", c["id"], json.dumps(o)[:300], "want", json.dumps(c.get("rendered", c.get("raises")))[:300])
print(f"chats of {os.path.basename(cases)}: {n} ran, {bad} differ")
sys.exit(bad != 0 or n == 0)
PY
chat=$golden/chat
[ -d "$chat" ] || chat=${KVIK_TEST_SHARED:-/nonexistent}/chat
if [ -f "$chat/cases.jsonl" ]; then
    check "own templates" python3 "$work/cases.py" "$chat/cases.jsonl" "$chat/templates" "$KVIK"
else
    skip "no chat cases here"
fi
published=${KVIK_TEST_SHARED:-/nonexistent}/chat
if [ -f "$published/cases-published.jsonl" ]; then
    check "published templates" python3 "$work/cases.py" "$published/cases-published.jsonl" "$published/published" "$KVIK"
fi

# Times, flags and messages on the command line.
printf '%s' '{{ strftime_now("%Y-%m-%d %H:%M") }}|{{ bos_token }}|{{ messages | length }}|{{ mood }}|{{ add_generation_prompt }}' >"$work/t.jinja"
run render --template "$work/t.jinja" --now 2025-03-07T14:05:09 --special-tokens '{"bos_token": "<s>"}' --kwargs '{"mood": "calm"}' one two three
check "time, special tokens, variables, turns" same "$(cat "$work/out")" "2025-03-07 14:05|<s>|3|calm|True"
run render --template "$work/t.jinja" --now 2025-03-07 --add-generation-prompt false one
check "a date alone is midnight" same "$(cat "$work/out")" "2025-03-07 00:00||1||False"
run render --template "$work/t.jinja" --messages '[{"role": "user", "content": "x"}]' --now 2025-13-07
refused "a month that does not exist" 1 now
run render --template "$work/t.jinja" --messages '[{"role": '
refused "messages that are not JSON" 2 messages
run render --template "$work/t.jinja" --kwargs '{"tools": 3}' one
refused "tools that are not a list" 1 tools
run render --template "$work/t.jinja"
refused "nothing to render" 2 messages
run render
refused "neither a model nor a template" 2 MODEL
run render $golden/models/llama-mha one
check "a model without tokenizer files is refused" status 1
finish
