"""The files of a tokenizer: what they say besides what the library reads, and copies with the settings of a tokenizer."""
import json
import os
import shutil
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import files
from .errors import UnsupportedError

# What a directory may have of a tokenizer besides tokenizer_config.json.  Roles of special_tokens_map.json go to that file.
_COPIED = ("tokenizer.json", "chat_template.jinja", "chat_template.json", "added_tokens.json", "vocab.json", "merges.txt",
           "tokenizer.model", "spiece.model", "normalizer.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


class AddedToken:
    """A token that is found in a text before anything else: ``content``, ``single_word``, ``lstrip``, ``rstrip``,
    ``normalized``, ``special``.

    single_word: it is no part of a longer word.  lstrip, rstrip: it takes the white space beside it.  normalized: it is
    searched in the normalized text.  special: decoding can skip it.
    """

    def __init__(self, content: str = "", single_word: bool = False, lstrip: bool = False, rstrip: bool = False,
                 special: bool = False, normalized: Optional[bool] = None) -> None:
        self.content, self.single_word, self.lstrip, self.rstrip, self.special = content, single_word, lstrip, rstrip, special
        self.normalized = not special if normalized is None else normalized

    def __str__(self) -> str:
        return self.content

    def __repr__(self) -> str:
        return (f'AddedToken("{self.content}", rstrip={self.rstrip}, lstrip={self.lstrip}, single_word={self.single_word}, '
                f"normalized={self.normalized}, special={self.special})")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, AddedToken) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.content)


def read_object(path: str, name: str) -> Dict[str, Any]:
    """Returns the object in a JSON file of a directory; an empty one where there is none, and of a .gguf file."""
    file = os.path.join(path, name)
    return files.read_object(file) if files.exists(file) else {}


def _part(path: str, name: str) -> Dict[str, Any]:
    """Returns a part of tokenizer.json."""
    found = read_object(path, "tokenizer.json").get(name)
    return found if isinstance(found, dict) else {}


def added_tokens(path: str) -> Dict[str, AddedToken]:
    """Returns the added tokens of tokenizer.json by their text."""
    listed = read_object(path, "tokenizer.json").get("added_tokens")
    names = ("single_word", "lstrip", "rstrip", "special", "normalized")
    return {str(t.get("content")): AddedToken(str(t.get("content")), **{n: t[n] for n in names if n in t})
            for t in (listed if isinstance(listed, list) else []) if isinstance(t, dict)}


def is_bpe(path: str) -> bool:
    """Returns False for a tokenizer.json of another kind (Unigram), else True."""
    model = _part(path, "model")
    return bool(model.get("type", "Unigram" if "unk_id" in model else "BPE") == "BPE")


def trimming(path: str) -> Optional[bool]:
    """Returns None for a tokenizer that leaves offsets as they are; else whether it adds a space in front of a text."""
    post = _part(path, "post_processor")
    steps: List[Dict[str, Any]] = [post] if post else []
    while steps:
        step = steps.pop()
        if step.get("type") == "Sequence":
            steps += step.get("processors") or []
        elif step.get("type") in ("ByteLevel", "RobertaProcessing") and step.get("trim_offsets", True):
            return bool(step.get("add_prefix_space", True))
    return None


def copy_files(source: str, folder: Union[str, "os.PathLike[str]"], settings: Dict[str, Any], template: Optional[str],
               changed: bool) -> Tuple[str, ...]:
    """Copies the files of a tokenizer and returns their paths.

    settings: entries of tokenizer_config.json; None removes one.  changed: the template takes the place of that of the files.
    """
    if not os.path.isdir(source):
        raise UnsupportedError(f"{source} is one file with the model and its tokenizer; copy that file")
    os.makedirs(folder, exist_ok=True)
    config = {**read_object(source, "special_tokens_map.json"), **read_object(source, "tokenizer_config.json"), **settings}
    config = {k: v for k, v in config.items() if v is not None and not (changed and k == "chat_template")}
    made = [write_object(folder, "tokenizer_config.json", config)]
    for name in _COPIED:
        path = os.path.join(source, name)
        if changed and name in _TEMPLATES or not files.exists(path):
            continue
        target = os.path.join(folder, name)
        if not (os.path.exists(target) and os.path.samefile(path, target)):
            shutil.copyfile(path, target)
        made.append(target)
    if changed and template:
        made.append(_write(folder, "chat_template.jinja", template))
    return tuple(made)


def write_layouts(folder: Union[str, "os.PathLike[str]"], one: Sequence[Tuple[int, int]], two: Sequence[Tuple[int, int]],
                  token: Callable[[int], str]) -> None:
    """Writes into a copy of tokenizer.json what stands around one text, and around two: (id, type) of each part."""
    def pieces(parts: Sequence[Tuple[int, int]]) -> List[Dict[str, Any]]:
        return [{"SpecialToken": {"id": token(i), "type_id": kind}} if i >= 0 else {"Sequence": {"id": "AB"[-1 - i], "type_id": kind}}
                for i, kind in parts]
    root = read_object(os.fspath(folder), "tokenizer.json")
    special = {token(i): {"id": token(i), "ids": [i], "tokens": [token(i)]} for i, _ in two if i >= 0}
    root["post_processor"] = {"type": "TemplateProcessing", "single": pieces(one), "pair": pieces(two), "special_tokens": special}
    _write(folder, "tokenizer.json", json.dumps(root, ensure_ascii=False))


def write_object(folder: Union[str, "os.PathLike[str]"], name: str, values: Dict[str, Any]) -> str:
    """Writes an object to a JSON file, and returns the path of the file."""
    return _write(folder, name, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def _write(folder: Union[str, "os.PathLike[str]"], name: str, text: str) -> str:
    """Writes a file, which has either its old contents or the new ones at any time."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".new", path)
    return path
