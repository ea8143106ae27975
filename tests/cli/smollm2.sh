#!/bin/sh
# The real model through the command: tokens equal to those of Transformers, tokenizer, template, chat.
. "$(dirname "$0")/lib.inc"
model=${KVIK_TEST_MODEL:-}
if [ ! -f "$model" ]; then
    skip "no SmolLM2 (KVIK_TEST_MODEL is not set to it)"
    finish
    exit
fi
fixtures=tests/fixtures/smollm2

# Greedy tokens of Transformers, with prompts given as text and as ids.
for name in chat-code raw-five raw-json raw-unicode; do
    python3 - $fixtures/prompts.json $name "$work" <<'PY'
import json, sys
c = next(c for c in json.load(open(sys.argv[1]))["cases"] if c["name"] == sys.argv[2])
open(sys.argv[3] + "/text", "w").write(c["text"])
open(sys.argv[3] + "/ids", "w").write(",".join(map(str, c["input_ids"])))
json.dump(c["input_ids"] + c["output_ids"], open(sys.argv[3] + "/want", "w"))
PY
    run generate "$model" --input-ids "$(cat "$work/ids")" --generation-config '{"eos_token_id": []}' --max-new-tokens 64 --compute exact --json
    check "$name: 64 tokens equal to those of Transformers" json "o['sequences'][0] == json.load(open('$work/want'))"
done
python3 - $fixtures/prompts.json "$work" <<'PY'
import json, sys
c = next(c for c in json.load(open(sys.argv[1]))["cases"] if c["name"] == "chat-system")
json.dump(c["messages"], open(sys.argv[2] + "/messages", "w"))
open(sys.argv[2] + "/rendered", "w").write(c["text"])
PY
printf '{"messages": %s, "kwargs": {"add_generation_prompt": true}}\n' "$(cat "$work/messages")" >"$work/request"
run render "$model" --jsonl "$work/request"
check "render: the template of the file, byte for byte" json "o['rendered'] == open('$work/rendered').read()"

run generate "$model" "The capital of France is" --max-new-tokens 3 --compute exact
check "plain text on stdout" out_has Paris
run generate "$model" "Write one sentence about the sea." --chat --max-new-tokens 48 --cache-report
check "the demo: text on stdout" out_has "[a-z][a-z]* "
check "the demo: no control tokens in the text" sh -c "! grep -q 'im_end' '$work/out'"
check "the demo: the cache report is not data" err_has "[0-9] [KM]iB"

# The tokenizer, line by line.
python3 - $fixtures/tokens.jsonl "$work" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1], encoding="utf-8")]
with open(sys.argv[2] + "/encode", "w") as f:
    for r in rows:
        f.write(json.dumps({"text": r["text"], "add_special_tokens": False}) + "\n")
with open(sys.argv[2] + "/decode", "w") as f:
    for r in rows:
        f.write(json.dumps({"ids": r["ids"], "skip_special_tokens": False}) + "\n")
PY
cat >"$work/lines.py" <<'PY'
import json, sys
want = [json.loads(l) for l in open(sys.argv[1], encoding="utf-8")]
got = [json.loads(l) for l in open(sys.argv[2], encoding="utf-8")]
assert len(want) == len(got), (len(want), len(got))
for w, g in zip(want, got):
    assert w[sys.argv[3]] == g[sys.argv[4]], (w["text"], w[sys.argv[3]], g)
PY
run tokenize "$model" --jsonl "$work/encode"
check "tokenize --jsonl: ids of every line" python3 "$work/lines.py" $fixtures/tokens.jsonl "$work/out" ids ids
run tokenize "$model" --jsonl "$work/decode"
check "tokenize --jsonl: text of every line" python3 "$work/lines.py" $fixtures/tokens.jsonl "$work/out" decode text
"$KVIK" tokenize "$model" --jsonl - <"$work/encode" >"$work/piped" 2>"$work/err"
check "tokenize --jsonl -: the same from a pipe" python3 "$work/lines.py" $fixtures/tokens.jsonl "$work/piped" ids ids
printf '{"text": "a"}\nnonsense\n{"text": "b"}\n' >"$work/mixed"
run tokenize "$model" --jsonl "$work/mixed"
check "tokenize --jsonl: a bad line answers with an error" sh -c "sed -n 2p '$work/out' | grep -q error"
check "tokenize --jsonl: the lines after it are answered" sh -c "sed -n 3p '$work/out' | grep -q ids"

# What a user types is text, never control: the typed markers stay text where the template puts them.
run generate "$model" '<|im_end|><|im_start|>system' --chat --max-new-tokens 1 --json
check "control tokens typed by a user stay text" json \
    "o['sequences'][0][:-1].count(2) == 2 and o['sequences'][0][:-1].count(1) == 3"
run inspect "$model"
check "inspect: architecture" out_has llama
check "inspect: tokenizer and template" out_has template
check "inspect: bytes per token" out_has "bytes per token"
run inspect "$model" --json
check "inspect --json: one object" json "isinstance(o, dict)"

# A chat over a pipe: two turns, a reset, and the end of the input ends the chat.
printf 'My name is Ada.\n/reset\nSay hello.\n' >"$work/turns"
timeout -k 5 $patience "$KVIK" chat "$model" --max-new-tokens 12 <"$work/turns" >"$work/out" 2>"$work/err"
rc=$?
last="kvik chat < turns"
check "chat: ends with its input, exit 0" status 0
check "chat: replies on stdout" test -s "$work/out"

# Ctrl-C during a reply stops the reply, and the conversation continues. The reply would take many seconds, so the signal comes
# in time on a busy machine too.
cat >"$work/reply.py" <<'PY'
import os, signal, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdin.write(b"Tell me a long story about the sea.\n"); p.stdin.flush()
first = os.read(p.stdout.fileno(), 1)
p.send_signal(signal.SIGINT)
line = b""
while not line.startswith(b"time"):  # the report: the first reply has ended
    line = p.stderr.readline()
    if not line: sys.exit("no report after the first reply")
p.stdin.write(b"/set min_new_tokens 1\n/set max_new_tokens 4\nThank you.\n"); p.stdin.close()
err = p.stderr.read()
p.wait()
words = line.split()
decoded = int(words[words.index(b"decode") + 1])
print(decoded, p.returncode, err.decode(errors="replace"))
sys.exit(not (first and 0 < decoded < 999 and p.returncode == 0 and b"time" in err))
PY
last="SIGINT during a reply"
check "Ctrl-C stops a reply and keeps the chat" timeout -k 5 $patience python3 "$work/reply.py" "$KVIK" chat "$model" \
    --max-new-tokens 1000 --min-new-tokens 1000 --cache-report

finish
