#!/usr/bin/env python3
"""Judges schemas in both directions with the JSON Schema Test Suite (Debian's json-schema-test-suite).

Each schema of the suite is compiled.  An instance that is valid must be accepted as json.dumps writes it, and one that is not must be
refused.  What is not so must be in the list beside this file, which says why: a schema that is refused by its keyword, or an instance
whose spelling is not accepted.  A line of the list that is not needed fails, too.

usage: judge.py BENCH_SCHEMA TOKENIZER [--write]     --write: prints the list as it is now
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE = os.environ.get("KVIK_TEST_SCHEMAS", "/usr/share/json-schema-test-suite/tests")
DRAFTS = {"draft4": "http://json-schema.org/draft-04/schema#", "draft6": "http://json-schema.org/draft-06/schema#",
          "draft7": "http://json-schema.org/draft-07/schema#"}


def cases():
    """Yields (draft, file, case) of the suite."""
    for draft in DRAFTS:
        folder = os.path.join(SUITE, draft)
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".json"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                for case in json.load(f):
                    yield draft, name[:-5], case


def main():
    """Runs the suite and compares what is not as it should be with the list."""
    if not os.path.isdir(SUITE):
        print(f"skipped: no {SUITE} (apt-get install json-schema-test-suite)")
        return 0
    program = subprocess.Popen([sys.argv[1], sys.argv[2], "judge"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found, counts = [], {"accepted": 0, "refused": 0, "schemas": 0, "unsupported": 0}
    for draft, name, case in cases():
        schema = case["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFTS[draft], **schema}
        where = f"{draft}/{name}: {case['description']}"
        counts["schemas"] += 1
        texts = [json.dumps(t["data"], separators=(",", ":")) for t in case["tests"]]
        program.stdin.write(json.dumps({"schema": schema, "texts": texts}) + "\n")
        program.stdin.flush()
        answer = json.loads(program.stdout.readline())
        if "error" in answer:
            none_valid = not any(t["valid"] for t in case["tests"])
            if not (none_valid and "no value is valid" in answer["error"]):
                counts["unsupported"] += 1
                found.append(f"{where}: {answer['error']}")
            continue
        for test, text, accepts in zip(case["tests"], texts, answer["accepts"]):
            counts["accepted"] += test["valid"] and accepts
            counts["refused"] += not test["valid"] and not accepts
            if accepts != test["valid"]:
                found.append(f"{where}: {test['description']}: {'refuses' if test['valid'] else 'ACCEPTS'} {text[:60]}")
    program.stdin.close()
    program.wait()
    print(json.dumps(counts))
    path = os.path.join(HERE, "unsupported.txt")
    if "--write" in sys.argv:
        print("\n".join(found))
        return 0
    with open(path, encoding="utf-8") as f:
        known = [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    for line in sorted(set(found) - set(known)):
        print(f"not in {path}: {line}")
    for line in sorted(set(known) - set(found)):
        print(f"not needed in {path}: {line}")
    wrong = [line for line in found if "ACCEPTS" in line]
    return 1 if set(found) != set(known) or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
