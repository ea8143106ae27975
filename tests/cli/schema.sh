#!/bin/sh
# --json-schema: answers that are valid under a schema, in every way of decoding, and what is refused before a model is loaded.
. "$(dirname "$0")/lib.inc"

cat >"$work/person" <<'END'
{"type": "object", "properties": {"name": {"type": "string", "maxLength": 30},
 "age": {"type": "integer", "minimum": 0, "maximum": 120}, "alive": {"type": "boolean"}},
 "required": ["name", "age", "alive"], "additionalProperties": false}
END
echo '{"type": "array", "uniqueItems": true}' >"$work/unique"

run generate missing.gguf --json-schema "$work/unique" x
refused "a keyword that is not supported" 2 'json_schema: #: the keyword "uniqueItems" is not supported'
run generate missing.gguf --json-schema "$work/none" x
refused "a file that is missing" 2 'json-schema takes a FILE'
run generate missing.gguf --json-schema '{"type": 1}' x
refused "a schema that is none" 2 'type must be'

if [ -n "${KVIK_TEST_MODEL-}" ] && [ -f "$KVIK_TEST_MODEL" ]; then
    valid="all(set(json.loads(t)) == {'name', 'age', 'alive'} and 0 <= json.loads(t)['age'] <= 120 for t in o['text'])"
    for way in "" "--num-beams 3" "--do-sample --seed 3 --num-return-sequences 3" "--prompt-lookup-num-tokens 4" \
        "--penalty-alpha 0.6 --top-k 4"; do
        # shellcheck disable=SC2086
        run generate "$KVIK_TEST_MODEL" --json --max-new-tokens 90 --json-schema "$work/person" $way "A person as JSON:"
        check "valid: $way" json "$valid and set(o['finish_reason']) == {'eos'}"
    done
    run generate "$KVIK_TEST_MODEL" --json --max-new-tokens 40 --json-schema "$work/person" --eos-token-id "[]" "JSON:"
    refused "no token ends a text" 1 'json_schema needs an end-of-sequence token'
    run generate "$KVIK_TEST_MODEL" --json-schema "$work/person" --forced-eos-token-id 2 "JSON:"
    refused "a forced token" 1 'json_schema with forced_eos_token_id'
else
    skip "answers: no model"
fi
finish
