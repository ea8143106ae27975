"""The languages of Whisper: their names, codes and tokens."""
import ctypes
from typing import Dict

from ._lib import lib
from .errors import ArgumentError


def language_names() -> Dict[str, str]:
    """Returns the code of each language by its name: {"german": "de", ...}."""
    names: Dict[str, str] = {}
    code = ctypes.c_char_p()
    while True:
        name = lib.kvik_speech_language(len(names), ctypes.byref(code))
        if not name:
            return names
        names[name.decode()] = (code.value or b"").decode()


def language_id(languages: Dict[str, int], name: str) -> int:
    """Returns the token of a language by its code, "de", or its token, "<|de|>"; or by its English name."""
    token = name.lower() if name.startswith("<") else f"<|{language_names().get(name.lower(), name.lower())}|>"
    if token not in languages:
        raise ArgumentError(f"the model knows no language {name!r}; it has {', '.join(t[2:-2] for t in languages)}")
    return int(languages[token])
