#!/bin/sh
# Documents before a prompt (--document), whose rows an earlier run has saved, in another order (--recompute). The tokenizer has a token
# for each byte, so the numbers of tokens are exact.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-bf16-long "$work/model" || exit 99
printf 'The harbour was built in 1864, and the crane in 1902.\n' >"$work/a" # 53 bytes without the end of the line
printf 'Anders Lund built the Gudrun, which is a boat of oak and pine.\n' >"$work/b" # 62
printf 'It rained for a week, and then the sun came out once more.' >"$work/c" # 58
moves='{"moved_chunks": 16}'
ask() { # ORDER ARGS...
    order=$1
    shift
    for d in $order; do set -- "$@" --document "$work/$d"; done
    run generate "$work/model" "Who?" --max-new-tokens 8 "$@"
}
said() { grep -q "$1" "$work/err"; }

ask "a b"
check "documents stand before the prompt: exit 0" status 0
cp "$work/out" "$work/plain"
ask "a b" --recompute 1000 --prefix-cache "$work/dir" --cache-config "$moves"
check "with all computed again: exit 0" status 0
check "with all computed again: the text of computing" cmp -s "$work/out" "$work/plain"
check "with all computed again: nothing moves" said ' 0 tokens were read at another position'
check "each document was saved" [ "$(find "$work/dir" -type f | wc -l)" = 2 ]
ask "b a" --recompute 4 --prefix-cache "$work/dir" --cache-config "$moves"
check "the other order: exit 0" status 0
# What stands first in the prompt stands where it was saved, so its rows are exact.
check "the other order: what is not first moves, but for 4 tokens" said ' 49 tokens were read at another position'
check "the other order: what is first is a prefix" said ', 62 were a cached prefix'
ask "c b a" --recompute 0 --prefix-cache "$work/dir" --cache-config "$moves"
check "a document more: the new one is computed, and saved" [ "$(find "$work/dir" -type f | wc -l)" = 3 ]
check "a document more: both others are read" said ' 115 tokens were read at another position, 58 were a cached prefix'
ask "a" --recompute 0 --prefix-cache "$work/dir"
check "without moved_chunks: exit 1" status 1
check "without moved_chunks: what to set" said 'moved_chunks'
ask "a" --recompute 4
check "without a directory: exit 2" status 2
run generate "$work/model" "Who?" --recompute 4 --prefix-cache "$work/dir"
check "without documents: exit 2" status 2

# In a chat the template decides what stands around the documents; the first stands where it was saved, with all before it.
printf '%s' "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<a>" >"$work/template"
chat() { order=$1; shift; ask "$order" --chat --template "$work/template" --system "Be brief." --prefix-cache "$work/chats" --cache-config "$moves" "$@"; }
chat "a b" --recompute 1000
check "a chat: exit 0" status 0
check "a chat: the documents were saved" [ -n "$(find "$work/chats" -type f)" ]
cp "$work/out" "$work/computed"
run generate "$work/model" "$(cat "$work/a")

$(cat "$work/b")

Who?" --max-new-tokens 8 --chat --template "$work/template" --system "Be brief."
check "a chat: with all computed again the text is that of a message with the documents" cmp -s "$work/out" "$work/computed"
chat "b a" --recompute 4
check "a chat in the other order: exit 0" status 0
check "a chat in the other order: what is not first moves, but for 4 tokens" said ' 49 tokens were read at another position'
check "a chat in the other order: what is first is a prefix, with all before it" said ", $((62 + 26)) were a cached prefix"
printf '%s' "{% for m in messages %}{{ m.content | upper }}{% endfor %}" >"$work/template"
chat "a b" --recompute 4
check "a chat that changes documents: exit 0" status 0
check "a chat that changes documents: they are computed" said 'the chat has none of them'

ask "none"
check "a file that is not there: exit 1" status 1
check "a file that is not there is named" said "$work/none"
printf '\377\376' >"$work/bytes"
ask "bytes"
check "no text: exit 1" status 1
: >"$work/empty"
ask "empty"
check "an empty file: exit 1" status 1
finish
