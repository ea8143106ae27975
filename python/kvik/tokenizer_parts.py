"""Where tokens come from: pieces of the vocabulary, offsets in the text, and words."""
import ctypes
import json
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _abi
from ._lib import call, lib, view

_NO_WORD = 2**32 - 1


class CharSpan(NamedTuple):
    """Characters [start, end) of a text."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Tokens [start, end) of an encoded text."""

    start: int
    end: int


class Encoding:
    """A row of encoded text: ``ids``, ``tokens``, ``offsets`` (characters), ``word_ids``, ``sequence_ids``,
    ``special_tokens_mask`` and ``attention_mask``, one entry for each token."""

    def __init__(self, ids: List[int], tokens: List[str], offsets: List[Tuple[int, int]], words: List[Optional[int]],
                 added: List[int]) -> None:
        self.ids, self.tokens, self.offsets, self.word_ids = ids, tokens, offsets, words
        self.special_tokens_mask = added
        self.attention_mask = [1] * len(ids)

    @property
    def sequence_ids(self) -> List[Optional[int]]:
        """0 for tokens of the text, None for those that the tokenizer has added."""
        return [None if a else 0 for a in self.special_tokens_mask]

    @property
    def words(self) -> List[Optional[int]]:
        """The numbers of the words."""
        return self.word_ids

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, at: Sequence[int]) -> "Encoding":
        """Returns the tokens at these places."""
        return Encoding(*([row[i] for i in at] for row in (self.ids, self.tokens, self.offsets, self.word_ids,
                                                           self.special_tokens_mask)))

    def pad(self, n: int, left: bool, pad: int, token: str) -> None:
        """Adds n tokens of padding."""
        for name, fill in (("ids", pad), ("tokens", token), ("offsets", (0, 0)), ("word_ids", None), ("special_tokens_mask", 1),
                           ("attention_mask", 0)):
            row = getattr(self, name)
            setattr(self, name, [fill] * n + row if left else row + [fill] * n)

    # -- between characters, tokens and words

    def char_to_token(self, char_index: int) -> Optional[int]:
        """Returns the token that has a character."""
        return next((i for i, (a, b) in enumerate(self.offsets) if a <= char_index < b and not self.special_tokens_mask[i]), None)

    def token_to_chars(self, token: int) -> Optional[CharSpan]:
        """Returns the characters of a token; None for one that the tokenizer has added."""
        return None if self.sequence_ids[token] is None else CharSpan(*self.offsets[token])

    def word_to_tokens(self, word: int) -> Optional[TokenSpan]:
        """Returns the tokens of a word."""
        of = [i for i, w in enumerate(self.word_ids) if w == word]
        return TokenSpan(of[0], of[-1] + 1) if of else None

    def word_to_chars(self, word: int) -> Optional[CharSpan]:
        """Returns the characters of a word."""
        of = self.word_to_tokens(word)
        return None if of is None else CharSpan(self.offsets[of.start][0], self.offsets[of.end - 1][1])

    def char_to_word(self, char_index: int) -> Optional[int]:
        """Returns the word that has a character."""
        token = self.char_to_token(char_index)
        return None if token is None else self.word_ids[token]


def piece(handle: Any, id: int) -> Tuple[Optional[str], int]:
    """Returns a token as the vocabulary spells it, and its KVIK_PIECE_ bits; None for an id without a token."""
    n, kind = ctypes.c_size_t(), ctypes.c_uint32()
    found = _PIECE(handle, id, ctypes.byref(n), ctypes.byref(kind))
    return (ctypes.string_at(found, n.value).decode("utf-8", "replace"), kind.value) if found else (None, 0)


# The text may hold a NUL, so it must not become a Python string on the way.
_PIECE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
    ("kvik_tokenizer_piece", lib))


def encode_placed(handle: Any, text: str, add_special_tokens: bool, trim: Optional[bool],
                  token: Callable[[int], Any]) -> Encoding:
    """Encodes a text, with where its tokens come from.  trim: as of trimming()."""
    data = text.encode("utf-8", "replace")
    ids, places = ctypes.c_void_p(), ctypes.c_void_p()
    n = call("kvik_tokenizer_encode_placed", handle, data, len(data), add_special_tokens, ctypes.byref(ids), ctypes.byref(places))
    try:
        row = view(ids.value, (n,), np.int32).tolist()
        at = view(places.value, (n, 3), np.uint32).astype(np.int64)
    finally:
        lib.kvik_free(ids)
        lib.kvik_free(places)
    raw = np.frombuffer(data, np.uint8)
    chars = np.concatenate([[0], np.cumsum((raw & 0xC0) != 0x80)])  # characters that begin before each byte
    tokens = [token(i) for i in row]
    offsets = [(int(chars[a]), int(chars[b])) for a, b, _ in at]
    if trim is not None:
        offsets = [_trimmed(i, o, t, trim) for i, (o, t) in enumerate(zip(offsets, tokens))]
    words = [None if w == _NO_WORD else int(w) for w in at[:, 2]]
    return Encoding(row, tokens, offsets, words, [int(w is None) for w in words])


def _trimmed(i: int, span: Tuple[int, int], token: str, prefix: bool) -> Tuple[int, int]:
    """Leaves white space out of the characters of a token, as the post-processor of some tokenizers does."""
    blank = "\u0120 \t\n\r"
    lead = len(token) - len(token.lstrip(blank))
    trail = len(token) - len(token.rstrip(blank))
    begin, end = span
    if lead:
        if prefix and (i == 0 or begin == 0):
            lead -= 1
        begin = min(begin + lead, end)
    if trail and end >= trail:
        end = max(end - trail, begin)
    return begin, end


def _part(path: str, name: str) -> Dict[str, Any]:
    """Returns a part of tokenizer.json; an empty one where it has none, and of a .gguf file."""
    try:
        with open(os.path.join(path, "tokenizer.json"), encoding="utf-8") as f:
            found = json.load(f).get(name)
    except (OSError, ValueError, AttributeError):  # the library has read what it needs, or has said what is wrong
        return {}
    return found if isinstance(found, dict) else {}


def is_bpe(path: str) -> bool:
    """Returns False for a tokenizer.json of another kind (Unigram), else True."""
    model = _part(path, "model")
    return model.get("type", "Unigram" if "unk_id" in model else "BPE") == "BPE"


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


MODEL, ADDED, SPECIAL = _abi.KVIK_PIECE_MODEL, _abi.KVIK_PIECE_ADDED, _abi.KVIK_PIECE_SPECIAL
