#!/usr/bin/env python3
"""check-python-floors.py PACKAGE - prints each import of the Python package that goes up, and each that hides in a function.

A file imports only files that stand before it in FLOORS, so the package has no circle and every file can be read with those below
it.  Importing a module of a folder runs the folder's __init__ first, which counts as an import of both.  Imports for type checkers
(`if TYPE_CHECKING`) never run and may name any file.  A new file needs its place here.
"""
import ast
import os
import sys

# The floors from the lowest, and the files of each in the order in which they may import each other.
FLOORS = (
    ("library", "_abi errors _lib _arrays pickles busy"),
    ("show", "memory display outputs tool_schema utils.logging utils.chat_template_utils utils.generic utils.import_utils utils progress"),
    ("files", "files hub download devices config_defaults configuration config_changes languages"),
    ("store", "store encoder legacy linear_states layer_store cache_files cache_outline cache_states cache_edits "
              "states_beside cache_texts"),
    ("caches", "layer_views cache_layers caches layered_cache written_caches cache_configs cache_utils cross_cache prefix_store"),
    ("text", "tokenizer_parts tokenizer_files tokenizer_vocabulary tokenizer_rows batch_encoding tokenizer_chats tokenization processing"),
    ("generation", "generation.seeds generation.watermark_configs generation.configuration_utils generation.options generation.logits_process "
                   "generation.watermarks generation.watermarking generation.healing "
                   "generation.stopping_criteria generation.streamers generation.texts generation.callbacks generation.result "
                   "generation.advice generation.loop generation.beams generation.call generation.watched generation.utils generation"),
    ("models", "kept_rows weights step model seq2seq hearing speech models"),
    ("program", "pipelines __init__"),
)
# Imports inside functions, and why they are there.
INSIDE = {
    ("_arrays", "torch"): "torch takes seconds to import and may be missing; a program that asks for tensors gets it",
    ("tokenization", "tokenizers"): "the package may be missing, and only a program that asks for its object needs it",
    ("progress", "tqdm.auto"): "tqdm may be missing, and only a program that enables bars needs it",
}


def modules(package):
    """Returns {module: path} of the package's files, "" for its __init__ and the folder's name for that of a folder."""
    found = {}
    for folder, _, files in sorted(os.walk(package)):
        for name in sorted(files):
            if name.endswith(".py"):
                module = os.path.relpath(os.path.join(folder, name), package)[:-3].replace(os.sep, ".")
                found[module[:-len(".__init__")] if module.endswith(".__init__") else module] = os.path.join(folder, name)
    return found


def is_typing(node):
    """True for `if TYPE_CHECKING`."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def statements(node, inside=False):
    """Yields (import statement, True if it stands in a function) of what runs."""
    for child in ast.iter_child_nodes(node):
        if is_typing(child):
            for other in child.orelse:
                yield from statements(ast.Module([other], []), inside)
        elif isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, inside
        else:
            yield from statements(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def targets(node, module, is_folder, known):
    """Returns the files of the package that an import statement runs; names of other packages as they are written."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not node.level:
        return [node.module]
    parts = module.split(".") if module != "__init__" else []
    base = parts[:len(parts) - node.level + (1 if is_folder else 0)]
    base += node.module.split(".") if node.module else []
    out = []
    for alias in node.names:
        full = ".".join([*base, alias.name])
        out.append(full if full in known else ".".join(base) or "__init__")
    return out


def main():
    package = sys.argv[1]
    known, place = modules(package), {}
    for floor, names in FLOORS:
        for name in names.split():
            place[name] = (len(place), floor)
            if name not in known and name != "_abi":  # the build makes _abi.py
                print(f"{package}/{name}: there is no such file; take it out of FLOORS in scripts/check-python-floors.py")
    used = set()
    for module, path in known.items():
        if module not in place:
            print(f"{path}: is on no floor; give it a place in FLOORS of scripts/check-python-floors.py")
            continue
        with open(path, encoding="utf-8") as f:
            tree = ast.parse(f.read(), path)
        is_folder = os.path.basename(path) == "__init__.py" and module != "__init__"
        for node, inside in statements(tree):
            for target in sorted({*targets(node, module, is_folder or module == "__init__", place)}):
                if inside and (module, target) not in INSIDE:
                    print(f"{path}:{node.lineno}: imports {target} inside a function; import it at the top")
                used.add((module, target))
                folder = target.split(".")[0]
                ran = {target, folder} if folder != module.split(".")[0] else {target}
                for one in sorted(ran & place.keys()):
                    if place[one][0] >= place[module][0] and one != module:
                        print(f"{path}:{node.lineno}: {module} (floor {place[module][1]}) may not import {one} (floor {place[one][1]})")
    for module, target in sorted(INSIDE.keys() - used):
        print(f"{package}/{module}.py: imports {target} in no function; take it out of INSIDE in scripts/check-python-floors.py")


main()
