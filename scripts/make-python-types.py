#!/usr/bin/env python3
"""make-python-types.py [--check] - writes the parts of the Python package that only type checkers and editors read.

python/kvik/_options.pyi has the options of generate() from the library's own table (kvik_option_at), and those of a cache
from kvik.store.Settings.  python/kvik/models/_classes.pyi has the classes of architectures from the table of kvik.models.
--check compares the files with what would be written; exit 1 if they differ.  Needs numpy and libkvik.so.
"""
import ctypes
import os
import sys
import typing
from dataclasses import fields

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))

import kvik  # noqa: E402
from kvik import _abi, models, speech, store  # noqa: E402
from kvik._lib import lib  # noqa: E402
from kvik.generation import configuration_utils  # noqa: E402

# Parameters of generate() itself, which its other keyword arguments must not repeat.
NAMED = ("negative_prompt_ids", "negative_prompt_attention_mask", "return_dict_in_generate")
TYPES = {"bool": "bool", "uint": "Integer", "int": "Integer", "float": "Number", "strings": "Union[str, Sequence[str]]",
         "ids": "Ids", "lists": "Sequence[Sequence[Integer]]", "pair": "Sequence[Number]", "json": "Configuration",
         "schema": "Union[str, bool, Mapping[str, Any]]",
         "biases": "Union[Mapping[Tuple[int, ...], Number], Sequence[Any]]"}
WIDER = {"temperature": "Union[Number, Sequence[Number]]",  # of speech models: temperatures that are tried in turn
         "negative_prompt_ids": "Union[Ids, Sequence[Sequence[Integer]]]",
         "negative_prompt_attention_mask": "Union[Ids, Sequence[Sequence[Integer]]]",
         "cache_config": "Configuration", "cross_cache_config": "Configuration", "cache_memory": "Union[int, str]"}
# Keys of a speech model's generation_config.json besides the options of speech.
OF_SPEECH_FILES = ("alignment_heads", "lang_to_id", "max_initial_timestamp_index", "no_timestamps_token_id", "prev_sot_token_id",
                   "return_token_timestamps", "task_to_id")
HEAD = "# Written by scripts/make-python-types.py, for type checkers and editors.  Do not edit.\n"
OPTIONS_HEAD = HEAD + '''from typing import Any, Dict, Literal, Mapping, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
from typing_extensions import TypedDict

Integer = Union[int, np.integer[Any]]
Number = Union[float, np.floating[Any], np.integer[Any]]

class Listed(Protocol):
    """An array or a tensor."""
    def tolist(self) -> Any: ...

class Described(Protocol):
    """A configuration that is an object, such as QuantizedCacheConfig."""
    def to_dict(self) -> Dict[str, Any]: ...

Ids = Union[int, Sequence[Integer], Listed]
Configuration = Union[str, Mapping[str, Any], Described]
'''


def options():
    """Returns the rows of the library's table."""
    rows = []
    while True:
        row = lib.kvik_option_at(len(rows))
        if not row:
            return rows
        rows.append(ctypes.cast(row, ctypes.POINTER(_abi.kvik_option)).contents)


def type_of(option):
    """Returns the type of an option.  Names of a list are proposed by editors, and a variable with a name is right, too."""
    name, kind = option.name.decode(), option.type.decode()
    if name in WIDER:
        return WIDER[name]
    choices = option.choices.decode().split("|") if option.choices else []
    if name in ("cache_implementation", "cross_cache_implementation"):
        choices += store.CACHE_NAMES
    words = ", ".join(f'"{c}"' for c in choices if c not in ("true", "false"))
    if kind == "choice":
        return f"Union[bool, Literal[{words}]]"
    if kind == "string":
        return f"Union[Literal[{words}], str]" if words else "str"
    return TYPES[kind]


def entry(name, kind, text=""):
    """Returns the lines of one option."""
    return f"    {name}: Optional[{kind}]\n" + (f'    """{text}"""\n' if text else "")


def option_types():
    """Returns the text of _options.pyi."""
    table = [(o.name.decode(), type_of(o), o.help.decode()) for o in options()]
    names = {name for name, *_ in table}
    others = sorted(configuration_utils._OTHERS - names)
    speaks = sorted({*speech._OF_SPEECH, *OF_SPEECH_FILES} - names - {*others})
    given = typing.get_type_hints(store.Settings)
    settings = [(f.name, WIDER.get(f.name) or typing.get_args(given[f.name])[0].__name__) for f in fields(store.Settings)]
    known = dict((name, kind) for name, kind, _ in table)
    parts = [OPTIONS_HEAD]
    parts += ["\nclass CallOptions(TypedDict, total=False):\n    \"\"\"Options of one call of generate().\"\"\"\n",
              *(entry(*row) for row in table if row[0] not in NAMED), *(f"    {name}: Any\n" for name in others)]
    parts += ["\nclass GenerationOptions(CallOptions, total=False):\n    \"\"\"Options of a GenerationConfig.\"\"\"\n",
              *(entry(*row) for row in table if row[0] in NAMED), *(f"    {name}: Any\n" for name in speaks)]
    parts += ["\nclass OptionAttributes:\n    \"\"\"The same as attributes.\"\"\"\n", *(entry(*row[:2]) for row in table),
              *(f"    {name}: Any\n" for name in [*others, *speaks])]
    parts += ["\nclass StoreSettings(TypedDict, total=False):\n    \"\"\"Settings of a cache that are no options of generate().\"\"\"\n",
              *(entry(name, kind) for name, kind in settings if name not in names)]
    parts += ["\nclass CacheSettings(StoreSettings, total=False):\n    \"\"\"All settings of a cache.\"\"\"\n",
              *(entry(name, known[name]) for name, _ in settings if name in names)]
    return "".join(parts)


def class_types():
    """Returns the text of models/_classes.pyi."""
    parts = [HEAD, "from ..configuration import PretrainedConfig\nfrom ..model import AutoModel, PreTrainedModel\n",
             "from ..seq2seq import Seq2SeqModel\nfrom ..speech import SpeechSeq2SeqModel\n",
             "from ..tokenization import PreTrainedTokenizer\n\n", "__all__ = [\n"]
    names = sorted([*models.CLASSES, *models.CONFIGS, *kvik._TOKENIZERS])
    parts += [f'    "{name}",\n' for name in names] + ["]\n\n"]
    for name in names:
        base = "PretrainedConfig" if name in models.CONFIGS else "PreTrainedTokenizer"
        if name in models.CLASSES:
            found = models.class_named(name).__mro__[1].__name__
            base = "AutoModel" if name.endswith("Model") and not name.endswith("LMHeadModel") else found
        parts.append(f"class {name}({base}): ...\n")
    return "".join(parts)


def main():
    check, bad = sys.argv[1:] == ["--check"], False
    for path, text in (("_options.pyi", option_types()), (os.path.join("models", "_classes.pyi"), class_types())):
        path = os.path.join(ROOT, "python", "kvik", path)
        if not check:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            continue
        with open(path, encoding="utf-8") as f:
            if f.read() != text:
                print(f"{os.path.relpath(path, ROOT)} is not what the tables say; run scripts/make-python-types.py")
                bad = True
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
