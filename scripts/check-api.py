#!/usr/bin/env python3
"""Compares the public headers with scripts/kvik.api, the declarations that programs were written against.

usage: check-api.py          prints each break that CHANGELOG.md does not name, and exits with 1 if there is one
       check-api.py write    writes scripts/kvik.api anew, when a version is released (make api)

A break is a function, callback or constant that is gone or has another type, and a struct whose old fields are not the first
of the new ones, with the same types.  Each needs its name in a line that begins with "- API:", in CHANGELOG.md above the
heading of the version that kvik.api describes.  What was only added is no break.  Nothing is released yet: until then kvik.api
describes the header of 2026-11-22, under the version 0.0.0.
"""
import importlib.util
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
COMMITTED, CHANGES = TOP / "scripts" / "kvik.api", TOP / "CHANGELOG.md"


def declarations(text):
    """Returns the declarations of the headers by name: what they are, and their parts in order."""
    spec = importlib.util.spec_from_file_location("make_abi", TOP / "scripts" / "make-abi.py")
    make_abi = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_abi)
    header, kinds = make_abi.Header(text), {}
    for name, value in header.constants:
        if name != "KVIK_VERSION":
            kinds[name] = ["constant", value]
    for name in re.findall(r"^#define (kvik_\w+)\(", text, flags=re.M):
        kinds[name] = ["macro"]
    for name, (result, arguments) in header.callbacks.items():
        kinds[name] = ["callback", result, *(kind for _, kind, _ in arguments)]
    for name, fields in header.structs.items():
        kinds[name] = ["struct", *(f"{kind}{f'[{n}]' if n else ''} {field}" for field, kind, n in fields)]
    for name, result, arguments in header.functions:
        kinds[name] = ["function", result, *(kind for _, kind, _ in arguments)]
    return kinds


def committed():
    """Returns the version that kvik.api describes and its declarations."""
    version, *lines = [line for line in COMMITTED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return version, {line.split("; ")[1]: [line.split("; ")[0], *line.split("; ")[2:]] for line in lines}


def write(version, kinds):
    """Writes kvik.api."""
    lines = ["# kvik.api - the declarations of the public headers in the version that the line after these names, which make api wrote.",
             "# make check compares the headers of today with them; scripts/check-api.py says how.", version]
    lines += sorted("; ".join([parts[0], name, *parts[1:]]) for name, parts in kinds.items())
    COMMITTED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def told(version):
    """Returns the text of the lines "- API:" above the heading of a version."""
    text, wanted = [], False
    for line in CHANGES.read_text(encoding="utf-8").splitlines():
        if line.startswith("## ") and line[3:].split()[0] == version:
            break
        wanted = line.startswith("- API:") or (wanted and line.startswith("  "))
        if wanted:
            text.append(line)
    return "\n".join(text)


def broken(old, new):
    """Says how a declaration breaks programs; None if it does not."""
    if new is None:
        return "is gone"
    if old[0] == "struct" and new[0] == "struct":
        moved = next((a for a, b in zip(old[1:], new[1:] + [""] * len(old)) if a != b), None)
        return f"has not \"{moved}\" at its place" if moved else None
    return f"was \"{'; '.join(old)}\" and is \"{'; '.join(new)}\"" if old != new else None


def main():
    header = "".join(path.read_text(encoding="utf-8") for path in sorted((TOP / "include").glob("*.h")))
    version, kinds = re.search(r'define KVIK_VERSION "([^"]+)"', header)[1], declarations(header)
    if sys.argv[1:] == ["write"]:
        write(version, kinds)
        return 0
    of, old = committed()
    text, found = told(of), []
    for name, parts in old.items():
        why = broken(parts, kinds.get(name))
        if why and not re.search(rf"\b{name}\b", text):
            found.append(f"{name} {why}; CHANGELOG.md has no line \"- API:\" that names it")
    heading = re.search(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", CHANGES.read_text(encoding="utf-8"), re.M)
    if not heading or heading[1] != version:
        found.append(f"the newest heading of CHANGELOG.md is not \"## {version} (unreleased)\" or \"## {version} (DATE)\"")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
