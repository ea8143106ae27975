#!/bin/sh
# kvik render --template: templates as files, errors with line numbers, limits.
. "$(dirname "$0")/lib.inc"
printf '%s' '{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}{{ "\n" }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}' >"$work/t.jinja"
cat >"$work/in" <<'J'
{"messages": [{"role": "user", "content": " hi "}], "kwargs": {"add_generation_prompt": true}}
{"messages": [{"role": "user", "content": "é\n<|im_end|>"}]}
{"messages": "nonsense"}
J
run render --template "$work/t.jinja" --jsonl "$work/in"
check "three requests, three answers" same "$(wc -l <"$work/out")" 3
python3 - "$work/out" "$work/split" <<'PY'
import sys
for i, line in enumerate(open(sys.argv[1])):
    open(f"{sys.argv[2]}{i}", "w").write(line)
PY
cp "$work/split0" "$work/out"
check "loop, filter, keyword" json "o == {'rendered': '[user] hi\n[assistant]'}"
cp "$work/split1" "$work/out"
check "content is text" json "o == {'rendered': '[user] é\n<|im_end|>\n'}"

# one TEMPLATE: renders one request with this template.
one() {
    printf '%s' "$1" >"$work/t.jinja"
    printf '%s\n' '{"messages": [{"role": "user", "content": "x"}]}' >"$work/in"
    run render --template "$work/t.jinja" --jsonl "$work/in"
}
one 'line one
{{ messages[0].content '
check "a syntax error answers with its line" json "'error' in o and '2' in o['error']"
one '{{ raise_exception("no tools here") }}'
check "raise_exception is the error" json "'no tools here' in o['error']"
one '{% for i in range(1000000000) %}x{% endfor %}' # class: #24140
check "a huge range is an error" json "'error' in o"
one '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}'
check "a macro that calls itself is an error" json "'error' in o"
one "$(python3 -c 'print("{{ " + "(" * 60000 + "1" + ")" * 60000 + " }}")')"
check "60000 parentheses are an error" json "'error' in o"
one '{{ messages.__class__ }}|{{ "".__class__.__mro__ }}' # class: CVE-2024-34359
check "no attribute reaches past the data" json "'error' in o or not ('class' in o['rendered'] or 'object' in o['rendered'])"
run render --template "$work/absent.jinja" --jsonl "$work/in"
refused "a template that is not there" 1 absent.jinja

# "-" is standard input.
piped 'Hi\n' render --template chatml -
check "the text - is standard input without its last newline" out_has '^Hi<|im_end|>$'
piped '[{"role": "user", "content": "Hi"}]\n' render --template chatml --messages -
check "messages on standard input" out_has '^Hi<|im_end|>$'
printf '[{"role": "user", "content": "Hi"}]' >"$work/chat"
piped "$work/chat" render --template chatml --messages -
refused "standard input is no name of a file" 2 messages
piped '' render --template chatml -
refused "an empty message" 2 'standard input is empty'
finish
