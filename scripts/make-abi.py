#!/usr/bin/env python3
"""Writes the ctypes declarations of the Python package from the public headers.

usage: make-abi.py include/kvik.h include/kvik_compat.h python/kvik/_abi.py

Constants, enumerations, structs, callbacks and functions of the headers become Python, so that the package cannot drift from
the header.  A pointer to a known struct keeps its type; a pointer to characters becomes c_char_p; every other pointer is a
c_void_p, which takes addresses of arrays and what ctypes.byref returns.
"""
import re
import sys

SCALARS = {
    "bool": "C.c_bool", "char": "C.c_char", "int": "C.c_int", "float": "C.c_float", "double": "C.c_double",
    "size_t": "C.c_size_t", "int32_t": "C.c_int32", "int64_t": "C.c_int64", "uint8_t": "C.c_uint8",
    "uint32_t": "C.c_uint32", "uint64_t": "C.c_uint64", "uint16_t": "C.c_uint16", "int8_t": "C.c_int8",
    "unsigned": "C.c_uint", "kvik_seq": "C.c_uint32", "void": "None",
}


class Header:
    """The declarations of the headers, in the order in which Python needs them."""

    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//[^\n]*", " ", text)
        self.structs, self.callbacks, self.enums = {}, {}, set()
        self.constants, self.functions = [], []
        for name, value in re.findall(r"^#define (KVIK_[A-Z0-9_]+) +(\S.*)$", text, flags=re.M):
            self.define(name, value.strip())
        text = re.sub(r"#ifdef __cplusplus\n.*?#endif", "", text, flags=re.S)
        text = re.sub(r"^#(?:.*\\\n)*.*$", "", text, flags=re.M)
        self.sizes = {name: int(value) for name, value in self.constants if re.fullmatch(r"\d+", value)}
        for item in self.split(text):
            self.read(item)

    def define(self, name, value):
        if name == "KVIK_API":
            return
        value = re.sub(r"\b(\d+)u\b", r"\1", value)
        if re.fullmatch(r'"[^"]*"|[\d()<|+\- ]+', value):
            self.constants.append((name, value))

    @staticmethod
    def split(text):
        """Yields declarations; a semicolon inside braces does not end one."""
        depth, start = 0, 0
        for i, c in enumerate(text):
            depth += (c == "{") - (c == "}")
            if c == ";" and depth == 0:
                yield " ".join(text[start:i].split())
                start = i + 1

    def read(self, item):
        item = item.lstrip("} ")
        if m := re.match(r"(?:typedef )?enum (\w+) ?\{(.*)\}", item):
            self.enum(m[1], m[2])
        elif m := re.match(r"(?:typedef )?struct (\w+) \{(.*)\}", item):
            self.structs[m[1]] = [self.variable(f) for line in m[2].split(";") if line.strip()
                                  for f in self.declarators(line.strip())]
        elif m := re.match(r"typedef (.*?) ?\( ?\* ?(\w+)\)\((.*)\)$", item):
            self.callbacks[m[2]] = (m[1], [self.variable(a) for a in m[3].split(",")])
        elif m := re.match(r"KVIK_API (.*?)(\w+)\((.*)\)$", item):
            arguments = [] if m[3] == "void" else [self.variable(a) for a in m[3].split(",")]
            self.functions.append((m[2], m[1].strip(), arguments))

    def enum(self, name, body):
        self.enums.add(name)
        value = -1
        for entry in body.split(","):
            key, _, given = entry.strip().partition("=")
            if key.strip():
                value = int(given, 0) if given else value + 1
                self.constants.append((key.strip(), str(value)))

    @staticmethod
    def declarators(line):
        """Yields "int a", "int *b" of "int a, *b".  A pointer to a function is one declarator."""
        if "(" in line:
            yield line
            return
        first, *rest = line.split(",")
        base = re.match(r"(?:const |struct |enum )*\w+", first)[0]
        yield first
        for other in rest:
            yield f"{base} {other.strip()}"

    @staticmethod
    def variable(text):
        """Returns (name, type, number of elements or "")."""
        text = text.strip()
        if m := re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", text):
            return m[2], f"function {m[1]}|{m[3]}", ""
        m = re.match(r"(.*?)(\w+) ?(?:\[(\w*)\])?$", text)
        kind = m[1].strip()
        if not kind:  # a parameter without a name
            return "", m[2], ""
        return m[2], kind + (" *" if m[3] == "" else ""), m[3] or ""

    def type(self, kind):
        if kind.startswith("function "):
            result, arguments = kind[9:].split("|")
            return self.callback(result.strip(), [self.variable(a) for a in arguments.split(",")])
        stars = kind.count("*")
        base = re.sub(r"\b(const|struct|enum)\b|\*", "", kind).strip()
        if stars == 0:
            if base in SCALARS:
                return SCALARS[base]
            if base in self.enums:
                return "C.c_int"
            if base in self.callbacks or base in self.structs:
                return base
            raise SystemExit(f"make-abi: unknown type {kind!r}")
        if base == "char":
            return "C.c_char_p" if stars == 1 else "C.POINTER(C.c_char_p)"
        if base in self.structs:
            return "C.POINTER(" * stars + base + ")" * stars
        return "C.c_void_p"

    def parameter(self, kind):
        """Parameters of functions: every pointer takes an address, or bytes where it is a text."""
        if "*" not in kind:
            return self.type(kind)
        return "C.c_char_p" if re.fullmatch(r"const char \*", kind) else "C.c_void_p"

    def callback(self, result, arguments):
        kinds = [self.parameter(kind) for _, kind, _ in arguments]
        return f"C.CFUNCTYPE({', '.join([self.type(result), *kinds])})"

    def lines(self):
        yield '"""Declarations of libkvik, written by scripts/make-abi.py from the public headers.  Do not edit."""'
        yield "import ctypes as C"
        yield ""
        for name, value in self.constants:
            yield f"{name} = {value}"
        for name in self.structs:
            yield f"\n\nclass {name}(C.Structure):\n    pass"
        yield ""
        yield ""
        for name, (result, arguments) in self.callbacks.items():
            yield f"{name} = {self.callback(result, arguments)}"
        for name, fields in self.structs.items():
            yield f"{name}._fields_ = ["
            for field, kind, count in fields:
                number = f" * {self.sizes.get(count, count)}" if count else ""
                yield f'    ("{field}", {self.type(kind)}{number}),'
            yield "]"
        yield "FUNCTIONS = {"
        for name, result, arguments in self.functions:
            given = ", ".join(self.parameter(kind) for _, kind, _ in arguments)
            yield f'    "{name}": ({self.type(result)}, [{given}]),'
        yield "}"


def main():
    *sources, target = sys.argv[1:]
    texts = []
    for source in sources:
        with open(source, encoding="utf-8") as f:
            texts.append(f.read())
    header = Header("\n".join(texts))
    with open(target, "w", encoding="utf-8") as f:
        f.write("\n".join(header.lines()) + "\n")


if __name__ == "__main__":
    main()
