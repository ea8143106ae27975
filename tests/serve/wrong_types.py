"""A field of a wrong type is an error 400 that names it: every field that docs/openapi.json describes, in every path."""
import json
import os

from harness import ROOT, Server, check, finish, tiny

CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
VALUES = {"string": "zz", "number": 1.5, "integer": 3, "boolean": True, "array": [{}], "object": {"a": {}}}
BODIES = {"/v1/chat/completions": CHAT, "/v1/completions": {"prompt": "a", "max_tokens": 2}, "/v1/responses": {"input": "a", "max_output_tokens": 2},
          "/v1/responses/input_tokens": {"input": "a"}, "/v1/messages": CHAT, "/v1/messages/count_tokens": CHAT, "/api/chat": {**CHAT, "stream": False},
          "/api/generate": {"prompt": "a", "stream": False}, "/completion": {"prompt": "a", "n_predict": 2}, "/tokenize": {"content": "a"}, "/detokenize": {"tokens": [1]},
          "/apply-template": CHAT, "/chat/completions/input_tokens": CHAT}
with open(os.path.join(ROOT, "docs/openapi.json")) as f:
    API = json.load(f)


def resolve(schema):
    while "$ref" in schema:
        schema = API["components"]["schemas"][schema["$ref"].split("/")[-1]]
    return schema


def branches(schema):
    """Yields a schema and all schemas that it is made of."""
    schema = resolve(schema)
    yield schema
    for key in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(key, []):
            yield from branches(one)


def types(schema):
    found = set()
    for one in branches(schema):
        given = one.get("type", [])
        found |= set([given] if isinstance(given, str) else given)
        if "enum" in one or "const" in one:
            found.add("string")
    return found


s = Server(tiny("llama-mha"), "--temperature", "0", "--max-new-tokens", "2")
for path, body in BODIES.items():
    schema = API["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = {name: types(one) for part in branches(schema) for name, one in part.get("properties", {}).items()}
    bad, tried = [], 0
    for name, allowed in fields.items():
        for kind, value in VALUES.items():
            if not allowed or kind in allowed or (kind == "integer" and "number" in allowed):
                continue
            code, a = s.post(path, {**body, name: value})
            tried += 1
            if code != 400 or name not in json.dumps(a):
                bad.append((name, kind, code, a))
    check(f"{path}: {len(fields)} fields, {tried} values of wrong types", tried and not bad, [b[:3] if b[2] == 200 else b for b in bad])
check("SIGTERM", s.stop() == 0, s.said)
finish()
