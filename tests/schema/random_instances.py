#!/usr/bin/env python3
"""Random schemas of hypothesis-jsonschema, with random instances: what is valid is accepted, and what jsonschema refuses is refused.

A schema that kvik refuses by its keyword is counted and passed over.  Skips by name where the packages are missing.

usage: random_instances.py BENCH_SCHEMA TOKENIZER [SCHEMAS [SEED]]
"""
import json
import random
import subprocess
import sys
import warnings

try:
    import jsonschema
    from hypothesis import HealthCheck, given, settings
    from hypothesis import seed as hypothesis_seed
    from hypothesis import strategies as st
    from hypothesis_jsonschema import from_schema
except ImportError as e:
    print(f"skipped: {e.name} is not installed (pip install hypothesis-jsonschema jsonschema)")
    sys.exit(0)
warnings.filterwarnings("ignore")

LEAVES = [
    {"type": "null"}, {"type": "boolean"}, {"type": "string"}, {"type": "string", "minLength": 2, "maxLength": 5}, {"type": "integer"},
    {"type": "string", "pattern": "^[a-c]{2,4}$"}, {"type": "integer", "minimum": -20, "maximum": 130}, {"enum": ["a", "bb", None, 3, True]},
    {"type": "integer", "multipleOf": 7}, {"type": "string", "pattern": "x[0-9]+"}, {"const": {"k": [1, "z"]}},
    {"type": ["integer", "string"], "exclusiveMinimum": 3, "maxLength": 2}]


def schemas(draw, depth=0):
    """Makes a schema of keywords that are supported."""
    kind = draw.randrange(9 if depth < 3 else 1)
    if kind < 3:
        return draw.choice(LEAVES)
    if kind < 5:
        names = draw.sample(["a", "b", "long name", "\u00e9", "q\"\\", ""], draw.randrange(4))
        out = {"type": "object", "properties": {n: schemas(draw, depth + 1) for n in names}}
        out["required"] = [n for n in names if draw.random() < 0.5]
        if draw.random() < 0.6:
            out["additionalProperties"] = draw.choice([False, {"type": "integer"}])
        if draw.random() < 0.2:
            out["maxProperties"] = len(out["required"]) + draw.randrange(3)
        if draw.random() < 0.2:
            out["patternProperties"] = {"^p": schemas(draw, depth + 1)}
        return out
    if kind < 7:
        out = {"type": "array", "items": schemas(draw, depth + 1)}
        if draw.random() < 0.4:
            out["minItems"] = draw.randrange(3)
            out["maxItems"] = out["minItems"] + draw.randrange(3)
        return out
    if kind < 8:
        return {"anyOf": [schemas(draw, depth + 1) for _ in range(1 + draw.randrange(3))]}
    leaf = draw.choice(LEAVES)
    return draw.choice([
        {"allOf": [schemas(draw, depth + 1), schemas(draw, depth + 2)]},
        {"oneOf": [draw.choice(LEAVES), draw.choice(LEAVES), schemas(draw, depth + 2)]},
        {"not": leaf if leaf.get("const") is None else {"type": "array"}},
        {"if": {"properties": {"a": draw.choice(LEAVES[:10])}}, "then": schemas(draw, depth + 2), "else": schemas(draw, depth + 2)},
        {"type": "object", "dependentRequired": {"a": ["b"], "b": ["p1"]}, "properties": {"a": schemas(draw, depth + 1)}},
        {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": schemas(draw, depth + 1)}])


def judged(value):
    """False for values whose spelling kvik does not accept: floats with an exponent, and lone surrogates."""
    if isinstance(value, float):
        return "e" not in repr(value) and value != int(value)
    if isinstance(value, str):
        return not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
    if isinstance(value, dict):
        return all(judged(k) and judged(v) for k, v in value.items())
    return all(map(judged, value)) if isinstance(value, list) else True


def instances(schema, seed):
    """Returns random instances of a schema."""
    out = []

    @hypothesis_seed(seed)
    @settings(max_examples=20, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(from_schema(schema))
    def collect(value):
        out.append(value)
    collect()
    return out


ANY = st.recursive(st.none() | st.booleans() | st.integers(-50, 200) | st.text(max_size=5) | st.sampled_from(["a", "bb", "x1", "abc", {"k": [1, "z"]}]),
                   lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "long name", "\u00e9", "p1", "q\"\\", ""]), x, max_size=3),
                   max_leaves=6)


def others(seed):
    """Returns random values that know nothing of a schema."""
    out = []

    @hypothesis_seed(seed)
    @settings(max_examples=30, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(ANY)
    def collect(value):
        out.append(value)
    collect()
    return out


def main():
    """Runs the schemas."""
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    draw = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    program = subprocess.Popen([sys.argv[1], sys.argv[2], "judge"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    counts = {"schemas": 0, "refused schemas": 0, "valid": 0, "invalid": 0}
    wrong = 0
    for i in range(n):
        schema = schemas(draw)
        try:
            values = instances(schema, i) + others(i)
        except Exception:  # nothing is valid, or hypothesis-jsonschema cannot say
            continue
        values = [v for v in values if judged(v)]
        texts = [json.dumps(v, separators=s, ensure_ascii=a, indent=d) for v in values
                 for s, a, d in ((None, True, None), ((",", ":"), False, None), (None, False, 2))]
        program.stdin.write(json.dumps({"schema": schema, "texts": texts}) + "\n")
        program.stdin.flush()
        answer = json.loads(program.stdout.readline())
        counts["schemas"] += 1
        if "error" in answer:
            counts["refused schemas"] += 1
            continue
        check = jsonschema.Draft202012Validator(schema)
        for k, text in enumerate(texts):
            valid = check.is_valid(values[k // 3])
            counts["valid" if valid else "invalid"] += 1
            if answer["accepts"][k] != valid:
                wrong += 1
                print(f"{'refuses' if valid else 'ACCEPTS'} {text} under {json.dumps(schema)}")
    print(json.dumps(counts), f"wrong: {wrong}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
