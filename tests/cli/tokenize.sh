#!/bin/sh
# kvik tokenize on directories with only tokenizer files: the recorded lines of Transformers through the line protocol
# in both directions, and the plain forms of the command.
. "$(dirname "$0")/lib.inc"

cat >"$work/pairs.py" <<'PY'
# Writes the requests of each recorded line and the answers they must get.
import json
def pairs(path):
    for l in open(path, encoding="utf-8"):
        r = json.loads(l)
        if "text" in r:
            yield {"text": r["text"], "add_special_tokens": False}, {"ids": r["ids"]}
            yield {"text": r["text"], "add_special_tokens": True}, {"ids": r["ids_special"]}
            yield {"text": r["text"]}, {"ids": r["ids_special"]}
            yield {"ids": r["ids"], "skip_special_tokens": False}, {"text": r["decode"]}
            yield {"ids": r["ids_special"]}, {"text": r["decode_special"]}
            yield {"ids": r["ids_special"], "skip_special_tokens": True}, {"text": r["decode_skip"]}
        else:
            yield {"ids": r["decode_ids"]}, {"text": r["decode"]}
            yield {"ids": r["decode_ids"], "skip_special_tokens": True}, {"text": r["decode_skip"]}
PY
cat >"$work/ask.py" <<'PY'
import json, lzma, os, shutil, sys
from pairs import pairs
source, lines, work = sys.argv[1:4]
os.makedirs(work + "/model", exist_ok=True)
open(work + "/model/tokenizer.json", "wb").write(lzma.open(source + "/tokenizer.json.xz").read())
shutil.copy(source + "/tokenizer_config.json", work + "/model/")
open(work + "/ask", "w").write("".join(json.dumps(q) + "\n" for q, _ in pairs(lines)))
PY
cat >"$work/compare.py" <<'PY'
import json, sys
from pairs import pairs
got = [json.loads(l) for l in open(sys.argv[2], encoding="utf-8")]
want = [w for _, w in pairs(sys.argv[1])]
bad = [i for i, (w, g) in enumerate(zip(want, got)) if w != g]
print(len(want), "requests,", len(bad), "differ")
for i in bad[:3]: print(i, want[i], got[i])
sys.exit(len(want) != len(got) or len(want) < 2000 or bool(bad))
PY
for name in llama2 qwen3; do
    rm -rf "$work/model"
    python3 "$work/ask.py" $golden/tokenizers/$name $golden/tokenizers/$name.jsonl "$work"
    run tokenize "$work/model" --jsonl "$work/ask"
    check "$name: exit 0" status 0
    check "$name: every line, both directions" python3 "$work/compare.py" $golden/tokenizers/$name.jsonl "$work/out"
done

# The plain forms, on the second tokenizer.
run tokenize "$work/model" "Hello world" "a"
check "one line of ids per text" same "$(wc -l <"$work/out")" 2
ids=$(sed -n 1p "$work/out")
run tokenize "$work/model" --decode "$ids"
check "decode gives the text back" same "$(cat "$work/out")" "Hello world"
run tokenize "$work/model" "Hello world" --json
check "json" json "o['ids'] == [$ids]"
run tokenize "$work/model" "Hello world" --pieces
check "pieces: id, tab, text" out_has "	\"Hello\""
printf 'Hello world' | "$KVIK" tokenize "$work/model" >"$work/piped" 2>"$work/err"
check "a text from a pipe" same "$(cat "$work/piped")" "$ids"
"$KVIK" tokenize "$work/model" -- "--json" >"$work/out" 2>"$work/err"
rc=$?
check "every argument after -- is text" status 0

# "-" is standard input.
piped 'Hello world' tokenize "$work/model" -
check "the text - is standard input" same "$(cat "$work/out")" "$ids"
piped 'Hello world' tokenize "$work/model" a -
check "it can stand beside other texts" same "$(sed -n 2p "$work/out")" "$ids"
piped 'Hello world' tokenize "$work/model" - a -
refused "standard input is read once" 2 'read once'
piped 'Hello world' tokenize "$work/model" -- -
cp "$work/out" "$work/dash"
check "behind -- a dash is a text" sh -c "[ \"\$(wc -l <'$work/dash')\" = 1 ] && [ \"\$(cat '$work/dash')\" != '$ids' ]"
piped '' tokenize "$work/model" -
check "an empty text has its special tokens" status 0
check "an empty standard input: a notice" err_has '^kvik: standard input is empty$'
piped 'ab\377' tokenize "$work/model" -
refused "bytes that are no UTF-8" 1 'standard input is not a text in UTF-8: byte 2 is 0xff'
piped 'a\000b' tokenize "$work/model" -
refused "a NUL byte" 1 'byte 1 is 0x00'
"$KVIK" tokenize "$work/model" - >"$work/out" 2>"$work/err" <"$work"
rc=$?
refused "a directory as standard input" 1 'standard input cannot be read'

# A repository id, from the local hub cache.
commit=0123456789abcdef0123456789abcdef01234567
repo=$work/hub/models--some-org--tiny.model
mkdir -p "$repo/refs" "$repo/snapshots"
printf '%s' $commit >"$repo/refs/main"
cp -r "$work/model" "$repo/snapshots/$commit"
HF_HUB_CACHE=$work/hub "$KVIK" tokenize some-org/tiny.model "Hello world" >"$work/out" 2>"$work/err"
check "a repository id finds its snapshot" same "$(cat "$work/out")" "$ids"
printf '../../model' >"$repo/refs/main"
HF_HUB_CACHE=$work/hub "$KVIK" tokenize some-org/tiny.model "Hello world" >"$work/out" 2>"$work/err"
rc=$?
refused "a ref that is not a commit is not followed" 1 some-org/tiny.model

# A request that cannot be answered gets an error, and the next request is answered.
printf '%s\n' nonsense '{"text": 5}' '{"ids": [-1]}' '{"ids": [1], "text": "a"}' '{"ids": [999999999]}' '' '{"text": "a", "add_special_tokens": 1}' '[1]' '{"text": "a\ud800"}' '{"text": ""}' '{"ids": []}' >"$work/odd"
run tokenize "$work/model" --jsonl "$work/odd"
check "bad lines: exit 0" status 0
check "bad lines: each is answered" same "$(grep -c error "$work/out")/$(wc -l <"$work/out")" 7/10
check "an id without a token is empty text" same "$(sed -n 5p "$work/out")" '{"text":""}'
run tokenize "$work/model" --jsonl "$work/absent"
refused "a file that is not there" 1 absent
"$KVIK" tokenize "$work/model" "Hello world" | "$KVIK" tokenize "$work/model" --decode >"$work/out" 2>"$work/err"
rc=$?
check "ids that a pipe brings become the text again" out_has "Hello world"
run tokenize "$work/model" --decode " [$(echo "$ids" | sed 's/,/, /g')]
"
check "so do ids in brackets with a newline behind them" out_has "Hello world"
run tokenize "$work/model" --decode 1,x
refused "ids that are not numbers" 2 decode
run tokenize "$work/model" --jsonl - text
refused "lines and texts exclude each other" 2 jsonl
run tokenize "$work/absent" text
refused "a directory that is not there" 1 absent
run tokenize
refused "a model is needed" 2 MODEL
finish
