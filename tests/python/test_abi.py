"""The declarations of the package are those of the header: every function, every constant, every struct field."""
import ctypes
import os
import subprocess
import tempfile
import unittest

from common import ROOT, kvik  # noqa: F401

from kvik import _abi, _lib  # isort: skip


class Abi(unittest.TestCase):
    def test_functions(self):
        with open(os.path.join(ROOT, "src", "api", "exports.txt"), encoding="utf-8") as f:
            exported = {line.strip() for line in f if line.strip() and not line.startswith("#")}
        self.assertEqual(set(_abi.FUNCTIONS), exported)
        for name in exported:
            self.assertTrue(hasattr(_lib.lib, name), name)

    def test_layout(self):
        structs = {n: v for n, v in vars(_abi).items() if isinstance(v, type) and issubclass(v, ctypes.Structure)}
        constants = {n: v for n, v in vars(_abi).items() if n.startswith("KVIK_") and isinstance(v, int)}
        headers = sorted(n for n in os.listdir(os.path.join(ROOT, "include")) if n.endswith(".h"))
        lines = ["#include <stdio.h>", *(f"#include <{name}>" for name in headers), "int main(void) {"]
        for name, struct in structs.items():
            # A struct of a typedef or of a tag: the header has a typedef for both.
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));' for field, *_ in struct._fields_]
        lines += [f'printf("{name} %lld\\n", (long long)({name}));' for name in constants]
        lines.append("return 0; }")
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "layout.c")
            with open(source, "w", encoding="utf-8") as f:
                f.write("\n".join(lines))
            program = os.path.join(folder, "layout")
            subprocess.run([os.environ.get("CC", "cc").split()[0], "-I", os.path.join(ROOT, "include"), "-o", program, source],
                           check=True)
            printed = dict(line.rsplit(" ", 1) for line in
                           subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
        got = {}
        for name, struct in structs.items():
            got[name] = str(ctypes.sizeof(struct))
            got.update({f"{name}.{field}": str(getattr(struct, field).offset) for field, *_ in struct._fields_})
        got.update({name: str(value) for name, value in constants.items()})
        self.assertEqual(got, printed)


if __name__ == "__main__":
    unittest.main()
