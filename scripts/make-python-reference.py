#!/usr/bin/env python3
"""make-python-reference.py PACKAGE OUT - writes the reference of the Python package, in Markdown, from its docstrings.
make-python-reference.py --check PACKAGE - names every public class, function and method without a docstring; exit 1 if there is one.

Reads the sources as text, so neither numpy nor the library is needed.  The page has what kvik/__init__.py exports, in the order
of the modules below.  A method without a docstring has that of the class in the package which it overrides.
"""
import ast
import os
import sys

# Modules of the page, by what a reader looks for.  Others that __init__ imports from follow in the order of their names.
ORDER = ["model", "seq2seq", "speech", "processing", "generation.utils", "generation.seeds", "generation.configuration_utils",
         "generation.logits_process", "generation.stopping_criteria", "generation.streamers", "cache_utils", "caches", "prefix_store",
         "tokenization", "tokenizer_files", "tokenizer_parts", "batch_encoding", "pipelines", "outputs", "configuration",
         "devices", "errors"]
SHOWN = ("__call__", "__getitem__", "__iter__", "__len__")


def is_overload(node):
    """True for a function that tells type checkers one form of the function behind it."""
    return any(getattr(d, "id", "") == "overload" for d in getattr(node, "decorator_list", ()))


def read(package):
    """Returns {module: tree} of the modules of the package, and {module: tree} of its submodules with architectures."""
    trees, models = {}, {}
    for folder, _, files in sorted(os.walk(package)):
        for name in sorted(files):
            if not name.endswith(".py") or name == "_abi.py":
                continue
            path = os.path.join(folder, name)
            module = os.path.relpath(path, package)[:-3].replace(os.sep, ".")
            with open(path, encoding="utf-8") as f:
                tree = ast.parse(f.read(), path)
            tree.body = [n for n in tree.body if not is_overload(n)]
            (models if module.startswith("models.") else trees)[module] = tree
    return trees, models


def doc(node):
    """Returns the docstring of a node, or an empty text."""
    return ast.get_docstring(node) or ""


def classes(trees):
    """Returns {name: (module, class)} of all modules."""
    return {n.name: (m, n) for m, t in trees.items() for n in t.body if isinstance(n, ast.ClassDef)}


def bases(node, known):
    """Returns the classes of the package that a class has above it, nearest first."""
    out = []
    for base in node.bases:
        name = base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
        if name in known:
            out += [known[name][1], *bases(known[name][1], known)]
    return out


def methods(node):
    """Returns the functions of a class by name; of a property, what reads it."""
    out = {}
    for f in node.body:
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
                isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter") for d in f.decorator_list):
            out[f.name] = f
    return out


def doc_of(name, node, known):
    """Returns the docstring of a method, or that of what it overrides."""
    for c in [node, *bases(node, known)]:
        f = methods(c).get(name)
        if f is not None and doc(f):
            return doc(f)
    return ""


def missing(trees, models):
    """Returns what is public and has no docstring."""
    known, out = classes(trees), []
    for module, tree in {**trees, **models}.items():
        where = "kvik" if module == "__init__" else f"kvik.{module}"
        where = where[:-len(".__init__")] if where.endswith(".__init__") else where
        if not doc(tree):
            out.append(where)
        if module.rpartition(".")[2].startswith("_") and module != "__init__":
            continue  # private modules
        for n in tree.body:
            if isinstance(n, ast.FunctionDef) and not n.name.startswith("_") and not doc(n):
                out.append(f"{where}.{n.name}()")
            if isinstance(n, ast.ClassDef) and not n.name.startswith("_"):
                if not doc(n):
                    out.append(f"{where}.{n.name}")
                out += [f"{where}.{n.name}.{m}()" for m in methods(n)
                        if not m.startswith("_") and not doc_of(m, n, known)]
    return out


def kind(f):
    """Returns "property", "classmethod", "staticmethod" or an empty text."""
    names = [d.id for d in f.decorator_list if isinstance(d, ast.Name)]
    return next((n for n in names if n in ("property", "classmethod", "staticmethod")), "")


def signature(name, f):
    """Returns a call as it is written: names and defaults, without types and without self."""
    a = f.args
    args = [x.arg for x in a.posonlyargs + a.args]
    values = [None] * (len(args) - len(a.defaults)) + [ast.unparse(d) for d in a.defaults]
    parts = [n if v is None else f"{n}={v}" for n, v in zip(args, values)]
    if kind(f) != "staticmethod" and args[:1] and args[0] in ("self", "cls"):
        parts = parts[1:]
    if a.vararg:
        parts.append("*" + a.vararg.arg)
    elif a.kwonlyargs:
        parts.append("*")
    parts += [x.arg if d is None else f"{x.arg}={ast.unparse(d)}" for x, d in zip(a.kwonlyargs, a.kw_defaults)]
    if a.kwarg:
        parts.append("**" + a.kwarg.arg)
    return f"{name}({', '.join(parts)})"


def exported(tree):
    """Returns [(module, name)] of what __init__ imports from its modules and names in __all__."""
    listed = set()
    for n in tree.body:
        if isinstance(n, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in n.targets):
            listed = {e.value for e in n.value.elts if isinstance(e, ast.Constant)}
    return [(n.module, a.name) for n in tree.body if isinstance(n, ast.ImportFrom) and n.level == 1 and n.module
            for a in n.names if a.name in listed]


def home(trees, module, name):
    """Returns the module that a name comes from, which may be one of a subpackage."""
    if module in trees:
        return module
    for n in trees[module + ".__init__"].body:
        if isinstance(n, ast.ImportFrom) and n.level == 1 and name in {a.name for a in n.names}:
            return f"{module}.{n.module or name}"  # a module itself has no other
        if getattr(n, "name", None) == name:
            return f"{module}.__init__"
    raise LookupError(f"{module} has no {name}")


def architectures(models):
    """Returns the classes of single architectures, from the table of kvik/models."""
    values = {}
    for n in models["models.__init__"].body:
        target = n.targets[0] if isinstance(n, ast.Assign) else getattr(n, "target", None)
        if getattr(target, "id", "") == "_TEXT":
            values["_TEXT"] = ast.literal_eval(n.value)
        if getattr(target, "id", "") == "_TABLE":
            rows = [row.elts for row in n.value.elts]
            return [row[1].value + suffix for row in rows
                    for suffix in (values[row[3].id] if isinstance(row[3], ast.Name) else ast.literal_eval(row[3]))]
    raise LookupError("kvik/models/__init__.py has no _TABLE")


def unlisted(own, public):
    """Returns the classes above a class up to the first public one: the page shows their methods in the class itself."""
    out = []
    for c in own:
        if c.name in public:
            break
        out.append(c)
    return [c for c in out if not c.name.startswith("_")]


def of_class(name, node, known, public, put):
    """Writes a class."""
    own = bases(node, known)
    init = next((methods(c)["__init__"] for c in [node, *own] if "__init__" in methods(c)), None)
    opened = "from_pretrained" in {m for c in [node, *own] for m in methods(c)}  # nobody calls the constructor of a model
    put(f"### {signature(name, init) if init and not opened else name}", "")
    above = [c.name for c in own if c.name in public][:1]
    put(doc(node), "", *(f"Its base is {a}." for a in above), *[""] * len(above))
    seen = {**methods(node)}
    for c in unlisted(own, public):
        seen = {**seen, **{m: f for m, f in methods(c).items() if m not in seen}}
    for m, f in seen.items():
        text = doc_of(m, node, known)
        if (m.startswith("_") and m not in SHOWN) or not text:
            continue
        what = kind(f)
        call = m if what == "property" else signature("" if m == "__call__" else m, f)
        put(f"- **`{call}`**{' *' + what + '*' if what else ''}: " + text.replace("\n", "\n  ").rstrip(), "")


def page(trees, models, put):
    """Writes the page."""
    known = classes(trees)
    put("# Reference of the Python package", "",
        "Written from the docstrings by scripts/make-python-reference.py (`make python-reference`). `help(kvik.DynamicCache)` shows the same",
        "text. Arrays are those of numpy, or of torch where the program gives torch tensors. Options of `generate()` are in OPTIONS.md.",
        "Sections are modules of the package; all names below can be imported from `kvik`.", "",
        doc(trees["__init__"]), "")
    names = [(known[n][0] if n in known else home(trees, m, n), n) for m, n in exported(trees["__init__"])]
    names.append(("errors", "OutOfMemoryError"))  # exported by __getattr__
    modules = sorted({m for m, _ in names}, key=lambda m: (ORDER.index(m) if m in ORDER else len(ORDER), m))
    for module in modules:
        put(f"## {module}", "", doc(trees[module]), "")
        for _, name in [x for x in names if x[0] == module]:
            whole = module.endswith("." + name)
            for node in trees[module].body:
                own = getattr(node, "name", "_")
                if own != name and not (whole and own[0] != "_"):
                    continue
                if isinstance(node, ast.ClassDef):
                    of_class(own, node, known, {n for _, n in names}, put)
                elif isinstance(node, ast.FunctionDef):
                    put(f"### {signature(own, node)}\n", doc(node), "")
    put("## Classes of one architecture", "",
        "They open a model as AutoModelForCausalLM does, and warn about a model of another type: "
        + ", ".join(f"`{n}`" for n in architectures(models)) + ".")


def main():
    """Checks or writes."""
    check = sys.argv[1:2] == ["--check"]
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    trees, models = read(sys.argv[2] if check else sys.argv[1])
    if check:
        found = missing(trees, models)
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    lines = []
    page(trees, models, lambda *parts: lines.extend(parts))
    os.makedirs(os.path.dirname(sys.argv[2]) or ".", exist_ok=True)
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
