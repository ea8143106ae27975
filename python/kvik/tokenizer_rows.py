"""Rows of tokens: what a call gives, what is cut from it, what the tokenizer adds, and the padding."""
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .utils.logging import notice

_TRUNCATIONS = {True: "longest_first", False: None, None: None, "do_not_truncate": None, "longest_first": "longest_first",
                "only_first": "only_first", "only_second": "only_second"}
_ENDLESS = 10**20  # from here on model_max_length means that no length is known, as in Transformers
_STRATEGIES = {True: "longest", "longest": "longest", "max_length": "max_length", False: None, "do_not_pad": None, None: None}
_FILLS: Dict[str, Any] = {"attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1, "assistant_masks": 0,
                          "offset_mapping": (0, 0)}

FIRST, SECOND = -1, -2  # the ids of a Part that is a text

Columns = Dict[str, List[List[Any]]]
"""Rows by what they hold: input_ids, attention_mask and others, which have equal lengths."""


class Part(NamedTuple):
    """A part of an encoded row: a token that the tokenizer adds (its id), or a text (FIRST, SECOND), and its token_type_id."""

    id: int
    type: int


class Row(NamedTuple):
    """A row before padding: its texts, the tokens of each that remain, and the parts in their order."""

    texts: Tuple[Any, ...]
    kept: Tuple[range, ...]
    parts: List[Part]

    def join(self, texts: Sequence[Sequence[Any]], own: Any) -> List[Any]:
        """Returns one list: an entry for each token of the texts, with own(part) for each token that the tokenizer adds."""
        out: List[Any] = []
        for part in self.parts:
            if part.id >= 0:
                out.append(own(part))
            else:
                text = -1 - part.id
                out += texts[text][self.kept[text].start:self.kept[text].stop]
        return out

    def types(self) -> List[int]:
        """Returns the token_type_id of each token."""
        return [part.type for part in self.parts for _ in range(1 if part.id >= 0 else len(self.kept[-1 - part.id]))]

    def added(self) -> List[int]:
        """Returns 1 for each token that the tokenizer adds, and 0 for those of the texts."""
        return [int(part.id >= 0) for part in self.parts for _ in range(1 if part.id >= 0 else len(self.kept[-1 - part.id]))]


def inputs_of(text: Any, pair: Any, words: bool) -> Tuple[List[Tuple[Any, ...]], bool]:
    """Returns the texts of each row, one or two, and True if they are one row that came without a list.

    A text is a str, or with words a list of them.  A row of a list may be a tuple of two texts.
    """
    def plain(x: Any) -> bool:
        return isinstance(x, (list, tuple)) and all(isinstance(w, str) for w in x) if words else isinstance(x, str)
    what = "a list of words (is_split_into_words=True)" if words else "a str"
    if not (isinstance(text, (list, tuple)) or (isinstance(text, str) and not words)):
        raise ValueError(f"text is {what} or a list of them, not {type(text).__name__}")
    single = plain(text)
    if single:
        rows: List[Tuple[Any, ...]] = [(text, pair) if pair else (text,)]
    elif pair is not None:
        if isinstance(pair, str) or len(pair) != len(text):
            raise ValueError(f"text_pair is a list as text is, of {len(text)} texts" +
                             ("" if isinstance(pair, str) else f", and {len(pair)} were given"))
        rows = list(zip(text, pair))
    else:
        rows = [tuple(t) if isinstance(t, (list, tuple)) and len(t) == 2 and not plain(t) and all(map(plain, t)) else (t,)
                for t in text]
    for row in rows:
        for t in row:
            if not plain(t):
                raise TypeError(f"text input must be {what} or a list of them, not {type(t).__name__}")
    return rows, single


class Fit:
    """How rows are cut and padded: the arguments of a call, checked, with what the tokenizer says where they say nothing."""

    def __init__(self, tokenizer: Any, padding: Any = False, truncation: Any = None, max_length: Optional[int] = None,
                 padding_side: Optional[str] = None, pad_to_multiple_of: Optional[int] = None, stride: int = 0) -> None:
        padding, truncation = getattr(padding, "value", padding), getattr(truncation, "value", truncation)
        if truncation not in _TRUNCATIONS:
            raise ValueError(f"truncation={truncation!r}: expected True, False, 'longest_first', 'only_first', 'only_second' or "
                             "'do_not_truncate'")
        if padding not in _STRATEGIES:
            raise ValueError(f"padding={padding!r}: expected True, False, 'longest', 'max_length' or 'do_not_pad'")
        if max_length is not None and max_length < 0:
            raise ValueError(f"max_length is {max_length}; expected 0 or more")
        if stride < 0:
            raise ValueError(f"stride is {stride}; expected 0 or more")
        if max_length is not None and truncation is None and padding is False:
            truncation = True  # as in Transformers: a length alone cuts
        if max_length is not None and padding is True and not _TRUNCATIONS[truncation]:
            notice(f"max_length={max_length} has no effect with padding=True and without truncation; set truncation=True to cut, or "
                   "padding=\"max_length\" to pad to it")
        self._told = max_length is not None  # a length of the call: it knows what it does
        self._tokenizer, self._cut, self._pad = tokenizer, _TRUNCATIONS[truncation], _STRATEGIES[padding]
        if max_length is None and tokenizer.model_max_length < _ENDLESS and (self._cut or self._pad == "max_length"):
            max_length = tokenizer.model_max_length
        if max_length is None:  # no length is known: as in Transformers, nothing is cut, and nothing padded to it
            self._cut, self._pad = None, None if self._pad == "max_length" else self._pad
        self._limit, self._multiple, self._stride = max_length, pad_to_multiple_of, stride
        self._left = one_side("padding_side", padding_side or tokenizer.padding_side) == "left"
        self._cut_left = one_side("truncation_side", tokenizer.truncation_side) == "left"
        if self._cut and self._pad and pad_to_multiple_of and max_length is not None and max_length % pad_to_multiple_of:
            raise ValueError(f"truncation to {max_length} tokens, and padding to a multiple of {pad_to_multiple_of}, exclude each other")

    def advise(self, lengths: Sequence[int]) -> None:
        """Gives a notice for rows that are longer than the model's texts may be."""
        most = self._tokenizer.model_max_length
        if not self._told and max(lengths, default=0) > most > 0:
            notice(f"a text has {max(lengths)} tokens, the model's texts at most {most} (model_max_length); set truncation=True to cut it")

    # -- cutting

    def kept(self, lengths: Sequence[int], added: int = 0) -> List[Tuple[range, ...]]:
        """Returns which tokens of each text remain, and behind the first entry those of the overflowing rows.

        lengths: of the texts of a row, one or two, to which the tokenizer adds so many tokens.
        """
        whole = tuple(map(range, lengths))
        if self._cut is None or self._limit is None:
            return [whole]
        if added > self._limit:
            raise ValueError(f"max_length is {self._limit}, and every text has {added} special tokens")
        room = self._limit - added
        if sum(lengths) <= room:
            return [whole]
        windows = [self._windows(n, most) for n, most in zip(lengths, self._room(lengths, room))]
        if len(windows) == 1:
            return [(w,) for w in windows[0]]
        first, second = windows  # in the order of Transformers
        return [(first[0], second[0]), *((a, b) for a in first[1:] for b in second), *((first[0], b) for b in second[1:])]

    def _room(self, lengths: Sequence[int], room: int) -> List[int]:
        """Returns how many tokens of each text remain, so that together they are as many as there is room for."""
        if room == 0:
            return [0] * len(lengths)
        if self._cut == "longest_first":
            if len(lengths) == 1:
                return [room]
            short = min(min(lengths), room // 2)
            long = room - short
            return [short, long] if lengths[0] <= lengths[1] else [long, short]
        at = 0 if self._cut == "only_first" else 1
        if at >= len(lengths):
            raise ValueError("truncation='only_second' needs two texts, and there is one")
        out = list(lengths)
        out[at] -= sum(lengths) - room
        if out[at] <= 0:
            raise ValueError(f"truncation={self._cut!r} cannot cut {sum(lengths) - room} tokens from a text of {lengths[at]}; raise "
                             "max_length, or take truncation=True")
        return out

    def _windows(self, n: int, most: int) -> List[range]:
        """Cuts n tokens into windows of most tokens, of which neighbours have `stride` in common."""
        if n <= most:
            return [range(n)]
        if most == 0:
            return [range(0), range(n)]
        if self._stride >= most:
            raise ValueError(f"stride is {self._stride}; expected fewer than the {most} tokens that remain of a text")
        step, out = most - self._stride, []
        for begin in range(0, n, step):
            end = min(begin + most, n)
            out.append(range(n - end, n - begin) if self._cut_left else range(begin, end))
            if end == n:
                break
        return out

    # -- padding

    def width(self, rows: Sequence[Sequence[Any]]) -> Optional[int]:
        """Returns to which length rows are padded; None: they are not."""
        if self._pad is None:
            return None
        width = max(map(len, rows), default=0)
        if self._pad == "max_length":
            width = max(width, self._limit or 0)
        return -(-width // self._multiple) * self._multiple if self._multiple else width

    def pad(self, columns: Columns) -> None:
        """Pads what the columns hold."""
        width = self.width(columns["input_ids"])
        if width is None or all(len(row) == width for row in columns["input_ids"]):
            return
        for name, rows in columns.items():
            fill = self.pad_token()[0] if name == "input_ids" else _FILLS[name]
            columns[name] = [self.widen(row, width, fill) for row in rows]

    def widen(self, row: List[Any], width: int, fill: Any) -> List[Any]:
        """Returns a row of at least this width."""
        more = [fill] * (width - len(row))
        return more + row if self._left else row + more

    def pad_token(self) -> Tuple[int, str]:
        """Returns the token of the padding, or raises ValueError."""
        if self._tokenizer.pad_token_id is None:
            raise ValueError("padding needs a pad token, and this tokenizer has none; set one, for example "
                             "tokenizer.pad_token = tokenizer.eos_token")
        return self._tokenizer.pad_token_id, self._tokenizer.pad_token


def one_side(name: str, value: Any) -> str:
    """Returns "left" or "right"; raises ValueError for anything else."""
    if value not in ("left", "right"):
        raise ValueError(f"{name}={value!r}: expected 'left' or 'right'")
    return str(value)
