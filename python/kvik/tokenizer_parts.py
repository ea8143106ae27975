"""Where tokens come from: pieces of the vocabulary, offsets in the text, and words."""
import ctypes
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _abi
from ._lib import call, lib, view

_NO_WORD = 2**32 - 1
MODEL, ADDED, SPECIAL = _abi.KVIK_PIECE_MODEL, _abi.KVIK_PIECE_ADDED, _abi.KVIK_PIECE_SPECIAL

Entry = Tuple[int, Optional[str], Tuple[int, int], Optional[int], Optional[int]]
"""What is known of a token: its id, its spelling, its characters, its word, and its text (0 or 1; None: the tokenizer added it)."""


class CharSpan(NamedTuple):
    """Characters [start, end) of a text."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Tokens [start, end) of an encoded text."""

    start: int
    end: int


class Encoding:
    """A row of encoded text: ``ids``, ``tokens``, ``offsets`` (characters), ``word_ids``, ``sequence_ids`` (0 or 1 for tokens of
    the first or the second text, None for those that the tokenizer has added), ``type_ids``, ``special_tokens_mask`` and
    ``attention_mask``, one entry for each token."""

    def __init__(self, entries: Sequence[Entry], types: Sequence[int]) -> None:
        columns = zip(*entries) if entries else [()] * 5  # type: Any
        self.ids, self.tokens, self.offsets, self.word_ids, self.sequence_ids = map(list, columns)
        self.type_ids, self.attention_mask = list(types), [1] * len(self.ids)

    @classmethod
    def of_words(cls, words: Sequence["Encoding"]) -> "Encoding":
        """Joins words that were encoded one by one; their numbers become those of the tokens."""
        return cls([(*e[:3], i, e[4]) for i, word in enumerate(words) for e in word.entries()],
                   [t for word in words for t in word.type_ids])

    def entries(self) -> List[Entry]:
        """Returns what is known of each token."""
        return list(zip(self.ids, self.tokens, self.offsets, self.word_ids, self.sequence_ids))

    @property
    def special_tokens_mask(self) -> List[int]:
        """1 for tokens that are not of a text."""
        return [int(s is None) for s in self.sequence_ids]

    @property
    def n_sequences(self) -> int:
        """The number of texts."""
        return 1 + max((s for s in self.sequence_ids if s is not None), default=0)

    @property
    def words(self) -> List[Optional[int]]:
        """The numbers of the words."""
        return self.word_ids

    def __len__(self) -> int:
        return len(self.ids)

    def pad(self, widen: Callable[[List[Any], Any], List[Any]], pad: int, token: str) -> None:
        """Adds tokens of padding.  widen: adds a value to a list, as often as it takes."""
        for name, fill in (("ids", pad), ("tokens", token), ("offsets", (0, 0)), ("word_ids", None), ("sequence_ids", None),
                           ("type_ids", 0), ("attention_mask", 0)):
            setattr(self, name, widen(getattr(self, name), fill))

    # -- between characters, tokens and words

    def char_to_token(self, char_index: int, sequence_index: int = 0) -> Optional[int]:
        """Returns the token that has a character of a text."""
        return next((i for i, (a, b) in enumerate(self.offsets) if a <= char_index < b and self.sequence_ids[i] == sequence_index), None)

    def token_to_chars(self, token: int) -> Optional[CharSpan]:
        """Returns the characters of a token; None for one that the tokenizer has added."""
        return None if self.sequence_ids[token] is None else CharSpan(*self.offsets[token])

    def word_to_tokens(self, word: int, sequence_index: int = 0) -> Optional[TokenSpan]:
        """Returns the tokens of a word of a text."""
        of = [i for i, w in enumerate(self.word_ids) if w == word and self.sequence_ids[i] == sequence_index]
        return TokenSpan(of[0], of[-1] + 1) if of else None

    def word_to_chars(self, word: int, sequence_index: int = 0) -> Optional[CharSpan]:
        """Returns the characters of a word of a text."""
        of = self.word_to_tokens(word, sequence_index)
        return None if of is None else CharSpan(self.offsets[of.start][0], self.offsets[of.end - 1][1])

    def char_to_word(self, char_index: int, sequence_index: int = 0) -> Optional[int]:
        """Returns the word that has a character of a text."""
        token = self.char_to_token(char_index, sequence_index)
        return None if token is None else self.word_ids[token]


def piece(handle: Any, id: int) -> Tuple[Optional[str], int]:
    """Returns a token as the vocabulary spells it, and its KVIK_PIECE_ bits; None for an id without a token."""
    n, kind = ctypes.c_size_t(), ctypes.c_uint32()
    found = _PIECE(handle, id, ctypes.byref(n), ctypes.byref(kind))
    return (ctypes.string_at(found, n.value).decode("utf-8", "replace"), kind.value) if found else (None, 0)


# The text may hold a NUL, so it must not become a Python string on the way.
_PIECE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
    ("kvik_tokenizer_piece", lib))


def encode_placed(handle: Any, text: str, sequence: int, plain: bool) -> Encoding:
    """Encodes a text, with where its tokens come from; adds none.  sequence: its number.  plain: it has no special tokens."""
    data = text.encode("utf-8", "replace")
    ids, places = ctypes.c_void_p(), ctypes.c_void_p()
    if plain:
        n = call("kvik_tokenizer_encode_plain", handle, data, len(data), ctypes.byref(ids), ctypes.byref(places))
    else:
        n = call("kvik_tokenizer_encode_placed", handle, data, len(data), False, ctypes.byref(ids), ctypes.byref(places))
    try:
        row = view(ids.value, (n,), np.int32).tolist()
        at = view(places.value, (n, 3), np.uint32).astype(np.int64)
    finally:
        lib.kvik_free(ids)
        lib.kvik_free(places)
    raw = np.frombuffer(data, np.uint8)
    chars = np.concatenate([[0], np.cumsum((raw & 0xC0) != 0x80)])  # characters that begin before each byte
    entries: List[Entry] = []
    for id, (a, b, word) in zip(row, at):
        begin, end = int(chars[a]), int(chars[b])
        spelled, kind = piece(handle, id)
        if kind & ADDED and spelled is not None and text[begin:end].strip() == spelled.strip():
            spelled = text[begin:end]  # with the white space that it takes, as in Transformers
        entries.append((id, spelled, (begin, end), None if word == _NO_WORD else int(word), sequence))
    return Encoding(entries, [0] * n)


def trimmed(entry: Entry, first: bool, prefix: bool) -> Entry:
    """Leaves white space out of the characters of a token, as the post-processor of some tokenizers does.

    first: of the tokens that remain of a text.  prefix: the tokenizer adds a space in front of a text.
    """
    token, span = entry[1] or "", entry[2]
    blank = "\u0120 \t\n\r"
    lead = len(token) - len(token.lstrip(blank))
    trail = len(token) - len(token.rstrip(blank))
    begin, end = span
    if lead:
        if prefix and (first or begin == 0):
            lead -= 1
        begin = min(begin + lead, end)
    if trail and end >= trail:
        end = max(end - trail, begin)
    return (*entry[:2], (begin, end), *entry[3:])
