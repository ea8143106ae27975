"""Tokenizers, called as those of Transformers: texts to ids and back."""
import ctypes
import os
import tempfile
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union, cast, overload

import numpy as np

from . import download
from ._arrays import integers, is_torch, like, tensors, to_numpy, want_torch
from ._lib import address, call, encode, lib, owned, view
from .batch_encoding import BatchEncoding
from .errors import KvikError, UnsupportedError
from .pickles import checked, of
from .tokenizer_chats import Chats
from .tokenizer_files import copy_files, is_bpe, read_object, trimming, write_layouts
from .tokenizer_parts import Encoding, encode_placed, piece, trimmed
from .tokenizer_rows import FIRST, SECOND, Columns, Fit, Part, Row, inputs_of, one_side
from .tokenizer_vocabulary import ROLES, Vocabulary
from .utils.logging import notice

# Classes of Transformers that pad on the left where a tokenizer's files do not say.
_LEFT = {name + fast for name in ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer") for fast in ("", "Fast")}
# Arguments of a call that are not by name in its signature; the last two change nothing.
if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import Array, EncodeArguments

_TAKES = ("split_special_tokens", "max_target_length", "clean_up_tokenization_spaces", "verbose")
_INTS = ctypes.POINTER(ctypes.c_int32)

TOKENIZERS: Dict[str, Any] = {}
"""Classes of tokenizers by a token that their vocabulary alone has.  The module of a class registers it here."""


class Wanted(NamedTuple):
    """What a call of a tokenizer returns besides input_ids, and in which tensors.  plain: without special tokens in texts."""

    tensors: Any
    types: bool
    mask: bool
    special: bool
    offsets: bool
    length: bool
    overflow: bool
    plain: bool


class PreTrainedTokenizer(Vocabulary, Chats):
    """A tokenizer of a model's directory or .gguf file.

    Attributes: ``bos_token``, ``eos_token``, ``pad_token``, ``unk_token`` with their ids (``eos_token_id``), which may be
    set; ``padding_side`` and ``truncation_side`` ("left" or "right"); ``model_max_length``; ``chat_template``.
    """

    is_fast = True
    pad_token_type_id = 0
    _framed = False  # add_bos_token or add_eos_token was set
    _kept: Tuple[str, ...] = (*ROLES, "padding_side", "truncation_side", "model_max_length", "model_input_names", "chat_template",
                              "split_special_tokens")  # what a copy opens its files with

    def __init__(self, path: str, **kwargs: Any) -> None:
        self._handle = owned("kvik_tokenizer_close")
        call("kvik_tokenizer_open", encode(path), ctypes.byref(self._handle))
        self.name_or_path = path
        self.init_kwargs = read_object(path, "tokenizer_config.json")
        usual = {"padding_side": "left" if self.init_kwargs.get("tokenizer_class") in _LEFT else "right", "truncation_side": "right"}
        for name, side in usual.items():
            setattr(self, name, one_side(name, kwargs.get(name) or self.init_kwargs.get(name) or side))
        self.model_max_length = int(kwargs.get("model_max_length") or self.init_kwargs.get("model_max_length") or 10**30)
        self.model_input_names = list(kwargs.get("model_input_names") or self.init_kwargs.get("model_input_names") or
                                      ("input_ids", "attention_mask"))
        self.clean_up_tokenization_spaces = False
        self.split_special_tokens = bool(kwargs.get("split_special_tokens", self.init_kwargs.get("split_special_tokens", False)))
        for role in ROLES:
            given = kwargs.get(role)
            setattr(self, role, str(given) if given is not None else self._special(role))
        for name in ("add_bos_token", "add_eos_token"):  # of the call: what the files say is in their post-processor
            if kwargs.get(name) is not None:
                setattr(self, name, kwargs[name])
        text = lib.kvik_tokenizer_template(self._handle)
        self._own_template = text.decode("utf-8", "replace") if text else None
        self.chat_template = kwargs.get("chat_template") or self._own_template

    @classmethod
    def from_pretrained(cls, name: Any, *_: Any, **kwargs: Any) -> "PreTrainedTokenizer":
        """Opens the tokenizer of a directory, a .gguf file, or a hub id in the local cache."""
        path = download.take(name, kwargs)
        found = cls(path, **kwargs)
        kind = next((kind for token, kind in TOKENIZERS.items() if found._id(token) is not None), None)
        return kind(path, **kwargs) if kind is not None and cls is PreTrainedTokenizer else found

    def __reduce__(self) -> Any:
        kept = (*self._kept, *(("add_bos_token", "add_eos_token") if self._framed else ()))
        return _reopen, (type(self), self.name_or_path, {name: getattr(self, name) for name in kept})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name_or_path!r}, {len(self)} tokens)"

    def save_pretrained(self, save_directory: Union[str, "os.PathLike[str]"], legacy_format: Optional[bool] = None,
                        filename_prefix: Optional[str] = None, push_to_hub: bool = False, **_: Any) -> Tuple[str, ...]:
        """Copies the files of the tokenizer into a directory, which it makes, and returns their paths.

        The copies have the roles, sides, length and chat template that the tokenizer has now.  Raises UnsupportedError for a .gguf
        file, which holds its tokenizer.
        """
        if push_to_hub or filename_prefix:
            raise UnsupportedError(f"save_pretrained() does not take {'push_to_hub' if push_to_hub else 'filename_prefix'}")
        settings: Dict[str, Any] = {role: getattr(self, role) for role in ROLES}
        for name, usual in (("padding_side", None), ("truncation_side", "right"), ("model_max_length", 10**30)):
            if getattr(self, name) != self.init_kwargs.get(name, usual):
                settings[name] = getattr(self, name)
        settings.update(self._saved())
        made = copy_files(self.name_or_path, save_directory, settings, self.chat_template, self.chat_template != self._own_template)
        if self._framed:
            write_layouts(save_directory, self._layout(False), self._layout(True), self.convert_ids_to_tokens)
        return made

    def _open_backend(self) -> Any:
        """Returns the same tokenizer as an object of the package tokenizers, which a program may ask for as backend_tokenizer."""
        if not os.path.isfile(os.path.join(self.name_or_path, "tokenizer.json")):
            raise AttributeError(f"backend_tokenizer: {self.name_or_path} has no tokenizer.json; the library reads a .gguf file itself")
        if find_spec("tokenizers") is None:
            raise AttributeError("backend_tokenizer is an object of the package tokenizers, which is not installed; kvik does not need it")
        from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]
        with tempfile.TemporaryDirectory() as folder:  # with what add_bos_token and add_eos_token changed
            self.save_pretrained(folder)
            return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))

    def _saved(self) -> Dict[str, Any]:
        """Returns the entries that a subclass adds to tokenizer_config.json."""
        return {}

    # -- encoding

    def _ids(self, text: Any, plain: bool = False) -> List[int]:
        """Returns the ids of a text, or of words that are encoded one by one, without those that the tokenizer adds.

        plain: what spells a special token is plain text.
        """
        if not isinstance(text, str):
            return [i for word in text for i in self._ids(word, plain)]
        data = text.encode("utf-8", "replace")
        ids, n = ctypes.c_void_p(), ctypes.c_size_t()
        if plain:
            n.value = call("kvik_tokenizer_encode_plain", self._handle, data, len(data), ctypes.byref(ids), None)
        else:
            call("kvik_tokenizer_encode", self._handle, data, len(data), False, ctypes.byref(ids), ctypes.byref(n))
        try:
            return ctypes.cast(ids, _INTS)[:n.value]
        finally:
            lib.kvik_free(ids)

    def _layout(self, pair: bool, special: bool = True) -> List[Part]:
        """Returns the parts of a row with one text, or with two; special: with the tokens that the tokenizer adds."""
        layouts = self.__dict__.setdefault("_layouts", {})
        if pair not in layouts:
            out = ctypes.c_void_p()
            n = call("kvik_tokenizer_layout", self._handle, pair, ctypes.byref(out))
            try:
                layouts[pair] = [Part(*row) for row in view(out.value, (n, 2), np.int32).tolist()]
            finally:
                lib.kvik_free(out)
        return [part for part in layouts[pair] if special or part.id < 0]

    @property
    def add_bos_token(self) -> bool:
        """True if a text begins with bos_token.  Setting it replaces what the files say: each text of a pair then gets bos_token in
        front, and eos_token behind it if add_eos_token is set, as in Transformers."""
        return bool(self._layout(False)[0].id == self.bos_token_id)

    @add_bos_token.setter
    def add_bos_token(self, value: bool) -> None:
        self._frame(value, self.add_eos_token)

    @property
    def add_eos_token(self) -> bool:
        """True if a text ends with eos_token.  As add_bos_token."""
        return bool(self._layout(False)[-1].id == self.eos_token_id)

    @add_eos_token.setter
    def add_eos_token(self, value: bool) -> None:
        self._frame(self.add_bos_token, value)

    def _frame(self, bos: bool, eos: bool) -> None:
        """Puts tokens in front of each text and behind it, in place of what the files say."""
        for name, wanted in (("bos_token", bos), ("eos_token", eos)):
            if wanted and getattr(self, name + "_id") is None:
                raise ValueError(f"add_{name}=True, and this tokenizer has no {name}")

        def one(text: int, kind: int) -> List[Part]:
            return [Part(i, kind) for i, wanted in ((self.bos_token_id, bos), (text, True), (self.eos_token_id, eos)) if wanted]
        self.__dict__["_layouts"] = {False: one(FIRST, 0), True: one(FIRST, 0) + one(SECOND, 1)}
        self._framed = True

    @overload
    def encode(self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, padding: Union[bool, str] = False,
               truncation: Union[bool, str, None] = None, max_length: Optional[int] = None, stride: int = 0,
               padding_side: Optional[str] = None, return_tensors: None = None, **kwargs: Any) -> List[int]: ...

    @overload
    def encode(self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, padding: Union[bool, str] = False,
               truncation: Union[bool, str, None] = None, max_length: Optional[int] = None, stride: int = 0,
               padding_side: Optional[str] = None, *, return_tensors: str, **kwargs: Any) -> "Array": ...

    def encode(self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, padding: Union[bool, str] = False,
               truncation: Union[bool, str, None] = None, max_length: Optional[int] = None, stride: int = 0,
               padding_side: Optional[str] = None, return_tensors: Optional[str] = None, **kwargs: Any) -> Any:
        """Returns the ids of a text: a list, or with return_tensors a tensor [1, tokens]."""
        out = self(text, text_pair, add_special_tokens=add_special_tokens, padding=padding, truncation=truncation,
                   max_length=max_length, stride=stride, padding_side=padding_side, return_tensors=return_tensors, **kwargs)
        return out["input_ids"]

    def __call__(self, text: Any = None, text_pair: Any = None, text_target: Any = None, text_pair_target: Any = None,
                 add_special_tokens: bool = True, padding: Union[bool, str] = False, truncation: Union[bool, str, None] = None,
                 max_length: Optional[int] = None, stride: int = 0, is_split_into_words: bool = False,
                 pad_to_multiple_of: Optional[int] = None, padding_side: Optional[str] = None,
                 return_tensors: Optional[str] = None, return_token_type_ids: Optional[bool] = None,
                 return_attention_mask: Optional[bool] = None, return_overflowing_tokens: bool = False,
                 return_special_tokens_mask: bool = False, return_offsets_mapping: bool = False, return_length: bool = False,
                 **kwargs: "Unpack[EncodeArguments]") -> BatchEncoding:
        """Encodes a text, or a list of them; with text_pair, pairs that the tokenizer joins as its files say.

        is_split_into_words: each text is a list of words, which are encoded one by one, and whose numbers are word_ids().
        padding: True or "longest", "max_length", or False.  truncation: True or "longest_first" cuts so that max_length tokens
        (default: model_max_length) remain, with those that add_special_tokens adds; "only_first" and "only_second" cut one text of
        a pair.  return_tensors: "pt", "np", or None for lists.

        Returns ``input_ids`` and ``attention_mask``, [batch, tokens], or plain lists for one text without return_tensors.
        return_token_type_ids adds ``token_type_ids``, mostly 0 for the first text and 1 for the second, return_offsets_mapping
        ``offset_mapping``, the characters [begin, end) of each token in its text or word, return_special_tokens_mask
        ``special_tokens_mask``, 1 for tokens that are not of a text, and return_length ``length``.  return_overflowing_tokens: what is
        cut comes in further rows, with ``overflow_to_sample_mapping``; neighbours have stride tokens in common.
        split_special_tokens: what spells a special token is plain text, as it should be in the words of a user.  With
        text_target, ``labels`` are its ids.  The result also tells which token has which characters and words: see BatchEncoding.
        """
        if text is None and text_target is None:
            raise ValueError("text is a str or a list of them, and there is none")
        unknown = [k for k in kwargs if k not in _TAKES]
        if unknown:
            notice(f"a tokenizer ignores {', '.join(unknown)}: it has no such argument")
        fit = Fit(self, padding, truncation, max_length, padding_side, pad_to_multiple_of, stride)
        wanted = Wanted(return_tensors, self._wants("token_type_ids", return_token_type_ids),
                        self._wants("attention_mask", return_attention_mask), return_special_tokens_mask, return_offsets_mapping,
                        return_length, return_overflowing_tokens, bool(kwargs.get("split_special_tokens", self.split_special_tokens)))
        out = BatchEncoding() if text is None else self._encoded(text, text_pair, is_split_into_words, add_special_tokens, fit, wanted)
        if text_target is None:
            return out
        most = kwargs.get("max_target_length")
        if most is not None:
            fit = Fit(self, padding, truncation, most, padding_side, pad_to_multiple_of, stride)
        target = self._encoded(text_target, text_pair_target, is_split_into_words, add_special_tokens, fit, wanted)
        if text is None:
            return target
        out["labels"] = target["input_ids"]
        return out

    def _wants(self, name: str, asked: Optional[bool]) -> bool:
        return bool(name in self.model_input_names if asked is None else asked)

    def _encoded(self, text: Any, pair: Any, words: bool, special: bool, fit: Fit, wanted: Wanted) -> BatchEncoding:
        inputs, single = inputs_of(text, pair, words)
        rows: List[Row] = []
        sources: List[int] = []
        columns: Columns = {"input_ids": []}
        layouts = {n: self._layout(n == 2, special) for n in set(map(len, inputs))}
        for i, texts in enumerate(inputs):
            ids, parts = [self._ids(t, wanted.plain) for t in texts], layouts[len(texts)]
            for kept in fit.kept([len(t) for t in ids], len(parts) - len(texts))[:None if wanted.overflow else 1]:
                rows.append(Row(texts, kept, parts))
                columns["input_ids"].append(rows[-1].join(ids, lambda part: part.id))
                sources.append(i)
        if wanted.types:
            columns["token_type_ids"] = [row.types() for row in rows]
        if wanted.mask:
            columns["attention_mask"] = [[1] * len(row) for row in columns["input_ids"]]
        if wanted.special:
            columns["special_tokens_mask"] = [row.added() for row in rows]
        lengths = [len(row) for row in columns["input_ids"]]
        fit.advise(lengths)
        width = fit.width(columns["input_ids"])
        encodings = [self._placed(row, wanted.plain) for row in rows] if wanted.offsets else None
        if encodings is not None:
            columns["offset_mapping"] = [e.offsets for e in encodings]
        out = self._finish(columns, fit, single and not wanted.overflow, wanted.tensors)
        if wanted.length:
            out["length"] = tensors([[width or n for n in lengths]], wanted.tensors)[0]
        if wanted.overflow:
            out["overflow_to_sample_mapping"] = tensors([sources], wanted.tensors)[0]
        out._place = lambda: [self._padded(e, fit, width) for e in encodings or [self._placed(row, wanted.plain) for row in rows]]
        return out

    def _placed(self, row: Row, plain: bool) -> Encoding:
        """Returns a row with where its tokens come from."""
        if "_trim" not in self.__dict__:
            self.__dict__["_trim"] = trimming(self.name_or_path)

        def place(text: Any, sequence: int) -> Encoding:
            if isinstance(text, str):
                return encode_placed(self._handle, text, sequence, plain)
            return Encoding.of_words([place(word, sequence) for word in text])
        texts = [place(t, i).entries() for i, t in enumerate(row.texts)]
        trim = self._trim
        for entries, kept in zip(texts, row.kept if trim is not None else ()):
            for i in kept:
                entries[i] = trimmed(entries[i], i == kept[0], bool(trim))
        own = row.join(texts, lambda part: (part.id, piece(self._handle, part.id)[0], (0, 0), None, None))
        return Encoding(own, row.types())

    def _padded(self, encoding: Encoding, fit: Fit, width: Optional[int]) -> Encoding:
        if width is not None and len(encoding) < width:
            encoding.pad(lambda row, fill: fit.widen(row, width, fill), *fit.pad_token())
        return encoding

    def _finish(self, columns: Columns, fit: Fit, single: bool, kind: Any) -> BatchEncoding:
        """Pads rows, and makes the tensors that were asked for; of a single row without them, plain lists."""
        fit.pad(columns)
        if kind is not None and len({len(row) for row in columns["input_ids"]}) > 1:
            raise ValueError("the texts have different numbers of tokens, so they make no tensor; pass padding=True, and "
                             "truncation=True with max_length if they may be cut")
        return BatchEncoding({name: rows[0] if single and kind is None else tensors(rows, kind) for name, rows in columns.items()})

    def batch_encode_plus(self, texts: Sequence[Any], **kwargs: Any) -> BatchEncoding:
        """As calling the tokenizer with a list."""
        return self(list(texts), **kwargs)

    def encode_plus(self, text: Any, text_pair: Any = None, **kwargs: Any) -> BatchEncoding:
        """As calling the tokenizer with a text, or with two."""
        return self(text, text_pair, **kwargs)

    def tokenize(self, text: str, pair: Optional[str] = None, add_special_tokens: bool = False, **kwargs: Any) -> List[str]:
        """Returns the tokens of a text as the vocabulary spells them."""
        return list(self.convert_ids_to_tokens(self.encode(text, pair, add_special_tokens, **kwargs)))

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Returns the number of tokens that add_special_tokens adds to a text, or to a pair."""
        return sum(part.id >= 0 for part in self._layout(pair))

    @property
    def max_len_single_sentence(self) -> int:
        """model_max_length without the tokens that add_special_tokens adds."""
        return self.model_max_length - self.num_special_tokens_to_add()

    @property
    def max_len_sentences_pair(self) -> int:
        """model_max_length without the tokens that add_special_tokens adds to a pair."""
        return self.model_max_length - self.num_special_tokens_to_add(True)

    def _row(self, first: Any, second: Any) -> Tuple[Row, List[List[int]]]:
        """Returns the row of ids that have no special tokens yet."""
        ids = [[int(i) for i in to_numpy(t).ravel()] for t in (first, second) if t is not None]
        return Row((), tuple(range(len(t)) for t in ids), self._layout(len(ids) == 2)), ids

    def build_inputs_with_special_tokens(self, token_ids_0: Any, token_ids_1: Any = None) -> List[int]:
        """Returns the ids of a text, or of two, with those that the tokenizer adds."""
        row, ids = self._row(token_ids_0, token_ids_1)
        return row.join(ids, lambda part: part.id)

    def create_token_type_ids_from_sequences(self, token_ids_0: Any, token_ids_1: Any = None) -> List[int]:
        """Returns the token_type_ids of what build_inputs_with_special_tokens() returns."""
        return self._row(token_ids_0, token_ids_1)[0].types()

    def get_special_tokens_mask(self, token_ids_0: Any, token_ids_1: Any = None,
                                already_has_special_tokens: bool = False) -> List[int]:
        """Returns 1 for each id that is a special token, else 0.

        Of ids without special tokens, the mask is that of what build_inputs_with_special_tokens() returns.
        """
        if not already_has_special_tokens:
            return self._row(token_ids_0, token_ids_1)[0].added()
        if token_ids_1 is not None:
            raise ValueError("with already_has_special_tokens=True, get_special_tokens_mask() takes one whole row")
        special = set(self.all_special_ids)
        return [int(int(i) in special) for i in token_ids_0]

    def pad(self, encoded: Any, padding: Union[bool, str] = True, max_length: Optional[int] = None,
            return_tensors: Optional[str] = None, padding_side: Optional[str] = None,
            pad_to_multiple_of: Optional[int] = None, **_: Any) -> BatchEncoding:
        """Pads encoded texts: {"input_ids": [[...], ...]} or a list of such mappings of one text each.

        attention_mask, token_type_ids and special_tokens_mask are padded as well; other entries stay as they are.
        """
        table = dict(encoded) if hasattr(encoded, "keys") else {k: [e[k] for e in encoded] for k in encoded[0]}
        if "input_ids" not in table:
            raise ValueError(f"pad() needs input_ids; there are {', '.join(table) or 'no keys'}")
        ids, kind = table["input_ids"], return_tensors
        single = bool(len(ids)) and np.ndim(ids[0]) == 0
        if kind is None and len(ids) and not isinstance(ids[0], (int, list, tuple)):
            kind = "pt" if is_torch(ids) or is_torch(ids[0]) else "np"  # arrays stay arrays
        columns: Columns = {}
        for name in ("input_ids", "token_type_ids", "attention_mask", "special_tokens_mask"):
            given = table.pop(name, None)
            if given is not None:
                columns[name] = [to_numpy(row).ravel().tolist() for row in ([given] if single else given)]
                if [len(row) for row in columns[name]] != [len(row) for row in columns["input_ids"]]:
                    raise ValueError(f"pad(): {name} and input_ids have different lengths")
        columns.setdefault("attention_mask", [[1] * len(row) for row in columns["input_ids"]])
        out = self._finish(columns, Fit(self, padding, False, max_length, padding_side, pad_to_multiple_of), single, kind)
        for name, value in table.items():  # other keys are not padded
            out[name] = value if kind is None else like(np.array([value] if single else value),
                                                        getattr(kind, "value", kind) == "pt" and want_torch() is not None)
        return out

    # -- decoding

    def decode(self, token_ids: Any, skip_special_tokens: bool = False,
               clean_up_tokenization_spaces: Optional[bool] = None, **_: Any) -> Any:
        """Returns the text of ids: an id, a list, an array or a tensor of one dimension.  Two dimensions give a list.

        Ids behind the vocabulary have no text, as in Transformers; negative ids are an error.
        clean_up_tokenization_spaces removes the spaces before punctuation.  It has no effect on the text of BPE tokens, whose
        spaces are those of the text.
        """
        ids = np.atleast_1d(to_numpy(token_ids)) if not isinstance(token_ids, list) else token_ids
        if getattr(ids, "ndim", 1) > 1 or (isinstance(ids, list) and ids and not np.isscalar(ids[0])
                                           and not (is_torch(ids[0]) and ids[0].ndim == 0)):
            return self.batch_decode(ids, skip_special_tokens, clean_up_tokenization_spaces)
        if isinstance(ids, list):
            ids = [i if isinstance(i, float) else int(i) for i in ids]
        array = integers(ids, "token_ids")
        text, n = ctypes.c_void_p(), ctypes.c_size_t()
        call("kvik_tokenizer_decode", self._handle, address(array), array.size, skip_special_tokens, ctypes.byref(text),
             ctypes.byref(n))
        try:
            out = ctypes.string_at(text, n.value).decode("utf-8", "replace")  # which may hold a NUL
        finally:
            lib.kvik_free(text)
        clean = self.clean_up_tokenization_spaces if clean_up_tokenization_spaces is None else clean_up_tokenization_spaces
        return self._cleaned(out) if clean else out

    def _cleaned(self, text: str) -> str:
        if "_bpe" not in self.__dict__:
            self.__dict__["_bpe"] = is_bpe(self.name_or_path)
            if self.__dict__["_bpe"]:
                notice("clean_up_tokenization_spaces=True has no effect: the spaces of BPE tokens are those of the text")
        return text if self.__dict__["_bpe"] else _clean(text)

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False,
                     clean_up_tokenization_spaces: Optional[bool] = None, **kwargs: Any) -> List[str]:
        """Returns the text of each row; of the ids of one text, a list with that text."""
        if len(sequences) and np.ndim(sequences[0]) == 0:
            return [self.decode(sequences, skip_special_tokens, clean_up_tokenization_spaces, **kwargs)]
        return [self.decode(row, skip_special_tokens, clean_up_tokenization_spaces, **kwargs) for row in sequences]


def _reopen(kind: Any, path: str, settings: Dict[str, Any]) -> PreTrainedTokenizer:
    checked(kind, {"path": path, "settings": settings}, {"path": of(str), "settings": of(dict)})
    return cast(PreTrainedTokenizer, kind(path, **settings))


def _clean(text: str) -> str:
    for spaced, joined in ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"),
                           (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")):
        text = text.replace(spaced, joined)
    return text


class AutoTokenizer:
    """Opens the tokenizer of any model: ``AutoTokenizer.from_pretrained(name)``."""

    def __init__(self) -> None:
        raise KvikError("AutoTokenizer is not made directly; call AutoTokenizer.from_pretrained(name)")

    from_pretrained = PreTrainedTokenizer.from_pretrained


PreTrainedTokenizerFast = PreTrainedTokenizer
PreTrainedTokenizerBase = PreTrainedTokenizer
