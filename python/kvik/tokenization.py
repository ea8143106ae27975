"""Tokenizers and chat templates, called as those of Transformers."""
import ctypes
import json
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import hub
from ._arrays import integers, is_torch, like, tensors, to_numpy, want_torch
from ._lib import address, call, encode, lib, text_of, view
from .batch_encoding import BatchEncoding
from .errors import KvikError, UnsupportedError
from .tokenizer_parts import ADDED, MODEL, SPECIAL, Encoding, encode_placed, is_bpe, piece, trimming
from .tool_schema import tool_json
from .utils.logging import notice

# What the tokenizers of Transformers take and these do not.
_UNKNOWN = {"text_pair", "text_target", "text_pair_target", "return_overflowing_tokens", "return_token_type_ids",
            "is_split_into_words"}
# Classes of Transformers that pad on the left where a tokenizer's files do not say.
_LEFT = {name + fast for name in ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer") for fast in ("", "Fast")}
_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_TRUNCATIONS = (True, False, None, "longest_first", "only_first", "only_second", "do_not_truncate")
_ENDLESS = 10**20  # from here on model_max_length means that no length is known, as in Transformers
_STRATEGIES = {True: "longest", "longest": "longest", "max_length": "max_length", False: None, "do_not_pad": None, None: None}


def _config(path: str) -> Dict[str, Any]:
    file = os.path.join(path, "tokenizer_config.json")
    try:
        with open(file, encoding="utf-8") as f:
            values = json.load(f)
    except (OSError, ValueError):  # the library has read what it needs, or has said what is wrong
        return {}
    return values if isinstance(values, dict) else {}


class PreTrainedTokenizer:
    """A tokenizer of a model's directory or .gguf file.

    Attributes: ``bos_token``, ``eos_token``, ``pad_token``, ``unk_token`` with their ids (``eos_token_id``), which may be
    set; ``padding_side`` and ``truncation_side`` ("left" or "right"); ``model_max_length``; ``chat_template``.
    """

    is_fast = True
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, path: str, **kwargs: Any) -> None:
        handle = ctypes.c_void_p()
        call("kvik_tokenizer_open", encode(path), ctypes.byref(handle))
        self._handle = handle
        self.name_or_path = path
        self.init_kwargs = _config(path)
        usual = {"padding_side": "left" if self.init_kwargs.get("tokenizer_class") in _LEFT else "right", "truncation_side": "right"}
        for name, side in usual.items():
            setattr(self, name, _side(name, kwargs.get(name) or self.init_kwargs.get(name) or side))
        self.model_max_length = int(kwargs.get("model_max_length") or self.init_kwargs.get("model_max_length") or 10**30)
        self.clean_up_tokenization_spaces = False
        for role in _ROLES:
            given = kwargs.get(role)
            setattr(self, role, str(given) if given is not None else self._special(role))
        text = lib.kvik_tokenizer_template(self._handle)
        self._own_template = text.decode("utf-8", "replace") if text else None
        self.chat_template = kwargs.get("chat_template") or self._own_template

    @classmethod
    def from_pretrained(cls, name: Any, *_: Any, **kwargs: Any) -> "PreTrainedTokenizer":
        """Opens the tokenizer of a directory, a .gguf file, or a hub id in the local cache."""
        where = {k: kwargs.pop(k) for k in ("revision", "gguf_file") if k in kwargs}
        path = hub.resolve(name, cache=kwargs.pop("cache_dir", None), **where)
        found = cls(path, **kwargs)
        if cls is PreTrainedTokenizer and found._id("<|startoftranscript|>") is not None:
            from .processing import WhisperTokenizer
            return WhisperTokenizer(path, **kwargs)
        return found

    def __del__(self) -> None:
        handle = self.__dict__.pop("_handle", None)
        if handle and lib is not None:
            lib.kvik_tokenizer_close(handle)

    def __reduce__(self) -> Any:
        roles = {role: getattr(self, role) for role in _ROLES}
        return _reopen, (type(self), self.name_or_path, {**roles, "padding_side": self.padding_side,
                                             "truncation_side": self.truncation_side,
                                             "model_max_length": self.model_max_length,
                                             "chat_template": self.chat_template})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name_or_path!r}, {len(self)} tokens)"

    # -- special tokens

    def _special(self, role: str) -> Optional[str]:
        text = lib.kvik_tokenizer_special(self._handle, role.encode())
        return text.decode("utf-8", "replace") if text else None

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_token_id") and name[:-3] in _ROLES:
            token = self.__dict__.get(name[:-3])
            return None if token is None else self._id(token)
        raise AttributeError(f"the tokenizer has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.endswith("_token_id") and name[:-3] in _ROLES:
            name, value = name[:-3], None if value is None else self.decode([value])
        object.__setattr__(self, name, value)

    def _id(self, token: str) -> Optional[int]:
        found = -1 if "\0" in token else lib.kvik_tokenizer_find(self._handle, encode(token))
        return found if found >= 0 else None

    @property
    def special_tokens_map(self) -> Dict[str, str]:
        """The special tokens by role."""
        return {role: getattr(self, role) for role in _ROLES if getattr(self, role) is not None}

    @property
    def all_special_tokens(self) -> List[str]:
        """The special tokens, each once."""
        return list(dict.fromkeys(self.special_tokens_map.values()))

    @property
    def all_special_ids(self) -> List[int]:
        """The ids of the special tokens, each once."""
        return [i for i in map(self._id, self.all_special_tokens) if i is not None]

    # -- the vocabulary

    def _pieces(self) -> Dict[int, Any]:
        """Returns the text and the KVIK_PIECE_ bits of every id, read once."""
        found = self.__dict__.get("_all_pieces")
        if found is None:
            rows = ((i, piece(self._handle, i)) for i in range(int(lib.kvik_tokenizer_vocab(self._handle))))
            found = self.__dict__["_all_pieces"] = {i: row for i, row in rows if row[0] is not None}
        return found

    def get_vocab(self) -> Dict[str, int]:
        """Returns the id of each token, added tokens included, by its spelling in the vocabulary."""
        return {text: i for i, (text, _) in self._pieces().items()}

    @property
    def vocab(self) -> Dict[str, int]:
        """As get_vocab()."""
        return self.get_vocab()

    @property
    def vocab_size(self) -> int:
        """The number of tokens without those that were added to the vocabulary; of a .gguf file, of all tokens."""
        if self.name_or_path.endswith(".gguf"):
            return len(self)
        return sum(bool(kind & MODEL) for _, kind in self._pieces().values())

    def __len__(self) -> int:
        return len(self._pieces())

    def __bool__(self) -> bool:
        return True

    @property
    def added_tokens_encoder(self) -> Dict[str, int]:
        """The ids of added tokens, which are found in a text before anything else."""
        return {text: i for i, (text, kind) in self._pieces().items() if kind & ADDED}

    @property
    def additional_special_tokens(self) -> List[str]:
        """The special tokens without a role that tokenizer_config.json lists."""
        given = self.init_kwargs.get("extra_special_tokens") or self.init_kwargs.get("additional_special_tokens") or []
        listed = given.values() if isinstance(given, dict) else given
        return [str(t.get("content", "")) if isinstance(t, dict) else str(t) for t in listed]

    extra_special_tokens = additional_special_tokens

    def add_special_tokens(self, special_tokens_dict: Dict[str, Any], *_: Any, **__: Any) -> int:
        """Gives roles to tokens: {"pad_token": "<|im_end|>"}.  Returns 0, the number of new tokens.

        Raises UnsupportedError for a token that the vocabulary lacks: the model has no weights for it.
        """
        for role, token in special_tokens_dict.items():
            several = isinstance(token, (list, tuple))
            if role not in _ROLES and not several:
                raise ValueError(f"{role!r} is not a role of special tokens; expected one of {', '.join(_ROLES)}")
            self.add_tokens(token if several else [token])
            if not several:
                setattr(self, role, str(token))
        return 0

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Returns 0 for tokens that the vocabulary has.  Raises UnsupportedError for others: the model has no weights for them."""
        for token in [new_tokens] if isinstance(new_tokens, str) else new_tokens:
            if self._id(str(token)) is None:
                raise UnsupportedError(f"the vocabulary has no token {str(token)!r}, and the model no weights for a new one; take a token "
                                       "that it has, as in tokenizer.pad_token = tokenizer.eos_token")
        return 0

    def get_added_vocab(self) -> Dict[str, int]:
        """As added_tokens_encoder."""
        return self.added_tokens_encoder

    def convert_tokens_to_ids(self, tokens: Union[str, Iterable[str]]) -> Any:
        """Returns the id of a token, or of each; the id of the unknown token where the vocabulary lacks it."""
        if isinstance(tokens, str):
            found = self._id(tokens)
            return self.unk_token_id if found is None else found
        return [self.convert_tokens_to_ids(t) for t in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Returns an id as the vocabulary spells it, or each: "\u0120sea" where the text is " sea"; None for no token."""
        if np.ndim(ids) == 0:
            return piece(self._handle, int(ids))[0]
        found = [piece(self._handle, int(i)) for i in ids]
        return [text for text, kind in found if not (skip_special_tokens and kind & SPECIAL)]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Returns the text of tokens as convert_ids_to_tokens() spells them.  What is no token stays as it is."""
        out, ids = [], []  # type: List[str], List[int]
        for token in [*tokens, None]:
            found = None if token is None else self._id(token)
            if found is not None:
                ids.append(found)
                continue
            if ids:
                out.append(self.decode(ids))
            out.append(token or "")
            ids = []
        return "".join(out)

    def tokenize(self, text: str, pair: Optional[str] = None, add_special_tokens: bool = False, **_: Any) -> List[str]:
        """Returns the tokens of a text as the vocabulary spells them."""
        if pair is not None:
            raise UnsupportedError("the tokenizer does not take pairs of texts")
        return list(self.convert_ids_to_tokens(self._encode(text, add_special_tokens)))

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Returns the number of tokens that add_special_tokens adds to a text."""
        if pair:
            raise UnsupportedError("the tokenizer does not take pairs of texts")
        return len(self._encode("", True))

    @property
    def max_len_single_sentence(self) -> int:
        """model_max_length without the tokens that add_special_tokens adds."""
        return self.model_max_length - self.num_special_tokens_to_add()

    def get_special_tokens_mask(self, token_ids_0: Any, token_ids_1: Any = None,
                                already_has_special_tokens: bool = False) -> List[int]:
        """Returns 1 for each id that is a special token, else 0."""
        if token_ids_1 is not None or not already_has_special_tokens:
            raise ValueError("get_special_tokens_mask() takes the ids of one whole text, with already_has_special_tokens=True; "
                             "the tokenizer returns the mask with return_special_tokens_mask=True")
        special = set(self.all_special_ids)
        return [int(int(i) in special) for i in token_ids_0]

    # -- encoding

    def _encode(self, text: str, add_special_tokens: bool) -> List[int]:
        if not isinstance(text, str):
            raise TypeError(f"text input must be a str or a list of them, not {type(text).__name__}")
        data = text.encode("utf-8", "replace")
        ids, n = ctypes.c_void_p(), ctypes.c_size_t()
        call("kvik_tokenizer_encode", self._handle, data, len(data), add_special_tokens, ctypes.byref(ids),
             ctypes.byref(n))
        try:
            return view(ids.value, (n.value,), np.int32).tolist()
        finally:
            lib.kvik_free(ids)

    def encode(self, text: str, add_special_tokens: bool = True, return_tensors: Optional[str] = None,
               **kwargs: Any) -> Any:
        """Returns the ids of a text: a list, or with return_tensors a tensor [1, tokens]."""
        out = self(text, add_special_tokens=add_special_tokens, return_tensors=return_tensors, **kwargs)
        return out["input_ids"]

    def __call__(self, text: Union[str, Sequence[str]], text_pair: Any = None, add_special_tokens: bool = True,
                 padding: Union[bool, str] = False, truncation: Union[bool, str, None] = None,
                 max_length: Optional[int] = None, return_tensors: Optional[str] = None,
                 return_attention_mask: Optional[bool] = None, padding_side: Optional[str] = None,
                 pad_to_multiple_of: Optional[int] = None, return_length: bool = False,
                 return_offsets_mapping: bool = False, return_special_tokens_mask: bool = False,
                 **kwargs: Any) -> BatchEncoding:
        """Encodes a text, or several.

        padding: True or "longest", "max_length", or False.  truncation: True cuts the text so that max_length tokens (default:
        model_max_length) remain, with those that add_special_tokens adds.  return_tensors: "pt", "np", or None for lists.

        Returns ``input_ids`` and ``attention_mask``, [batch, tokens], or plain lists for one text without return_tensors.
        return_offsets_mapping adds ``offset_mapping``, the characters [begin, end) of each token, and
        return_special_tokens_mask ``special_tokens_mask``, 1 for tokens that are not of the text.  The result also tells which
        token has which characters and words: see BatchEncoding.
        """
        for name, value in {"text_pair": text_pair, **kwargs}.items():
            if name in _UNKNOWN and value is not None and value is not False:
                raise UnsupportedError(f"the tokenizer does not take {name}; it returns input_ids and attention_mask of single texts")
        single = isinstance(text, str)
        if not single and not isinstance(text, (list, tuple)):
            raise ValueError(f"text is a str or a list of them, not {type(text).__name__}")
        if max_length is not None and truncation is None and padding is False:
            truncation = True  # as in Transformers: a length alone cuts
        texts: List[str] = [text] if single else list(text)  # type: ignore[list-item]
        rows = [self._encode(t, add_special_tokens) for t in texts]
        out = self._finish(rows, single, padding, truncation, max_length, return_tensors, return_attention_mask,
                           padding_side, pad_to_multiple_of, return_length, special=add_special_tokens)
        limit, width, side = out._layout
        out._place = lambda: [self._placed(t, add_special_tokens, limit, width, side) for t in texts]
        for name, asked, source in (("offset_mapping", return_offsets_mapping, "offsets"),
                                    ("special_tokens_mask", return_special_tokens_mask, "special_tokens_mask")):
            if asked:
                values = [getattr(e, source) for e in out.encodings]
                out[name] = values[0] if single and return_tensors is None else values if return_tensors is None else \
                    like(np.array(values, np.int64), getattr(return_tensors, "value", return_tensors) == "pt" and want_torch() is not None)
        return out

    def _placed(self, text: str, add_special_tokens: bool, limit: Optional[int], width: int, side: str) -> Encoding:
        if "_trim" not in self.__dict__:
            self.__dict__["_trim"] = trimming(self.name_or_path)
        out = encode_placed(self._handle, text, add_special_tokens, self._trim, lambda i: piece(self._handle, i)[0])
        if limit is not None:
            out = out.take(self._kept(len(out), limit, add_special_tokens))
        if len(out) < width:
            out.pad(width - len(out), side == "left", self.pad_token_id, self.pad_token)
        return out

    def batch_encode_plus(self, texts: Sequence[str], **kwargs: Any) -> BatchEncoding:
        """As calling the tokenizer with a list."""
        return self(list(texts), **kwargs)

    def encode_plus(self, text: str, **kwargs: Any) -> BatchEncoding:
        """As calling the tokenizer with a text."""
        return self(text, **kwargs)

    def pad(self, encoded: Any, padding: Union[bool, str] = True, max_length: Optional[int] = None,
            return_tensors: Optional[str] = None, padding_side: Optional[str] = None,
            pad_to_multiple_of: Optional[int] = None, **_: Any) -> BatchEncoding:
        """Pads encoded texts: {"input_ids": [[...], ...]} or a list of such mappings of one text each."""
        table = dict(encoded) if hasattr(encoded, "keys") else {k: [e[k] for e in encoded] for k in encoded[0]}
        if "input_ids" not in table:
            raise ValueError(f"pad() needs input_ids; there are {', '.join(table) or 'no keys'}")
        ids, kind = table.pop("input_ids"), return_tensors
        single = bool(len(ids)) and np.ndim(ids[0]) == 0
        if kind is None and len(ids) and not isinstance(ids[0], (int, list, tuple)):
            kind = "pt" if is_torch(ids) or is_torch(ids[0]) else "np"  # arrays stay arrays
        rows = [to_numpy(row).ravel().tolist() for row in ([ids] if single else ids)]
        given = table.pop("attention_mask", None)
        if given is not None:
            given = [to_numpy(row).ravel().tolist() for row in ([given] if single else given)]
            if [len(mask) for mask in given] != [len(row) for row in rows]:
                raise ValueError("pad(): attention_mask and input_ids have different lengths")
        out = self._finish(rows, single, padding, None, max_length, kind, None, padding_side, pad_to_multiple_of, False,
                           masks=given)
        for name, value in table.items():  # other keys are not padded
            out[name] = value if kind is None else like(np.array([value] if single else value),
                                                        getattr(kind, "value", kind) == "pt" and want_torch() is not None)
        return out

    def _finish(self, rows: List[List[int]], single: bool, padding: Any, truncation: Any, max_length: Optional[int],
                kind: Optional[str], with_mask: Optional[bool], side: Optional[str], multiple: Optional[int],
                with_length: bool, marked: Optional[List[List[int]]] = None,
                masks: Optional[List[List[int]]] = None, special: bool = False) -> BatchEncoding:
        padding, truncation = getattr(padding, "value", padding), getattr(truncation, "value", truncation)
        if truncation not in _TRUNCATIONS:
            raise ValueError(f"truncation={truncation!r}: expected True, False, 'longest_first', 'only_first' or 'do_not_truncate'")
        if padding not in _STRATEGIES:
            raise ValueError(f"padding={padding!r}: expected True, False, 'longest', 'max_length' or 'do_not_pad'")
        if max_length is not None and max_length < 0:
            raise ValueError(f"max_length is {max_length}; expected 0 or more")
        strategy = _STRATEGIES[padding]
        if max_length is None and self.model_max_length < _ENDLESS:
            max_length = self.model_max_length if truncation or strategy == "max_length" else None
        if max_length is None and strategy == "max_length":
            strategy = None  # as in Transformers: no length is known
        limit = max_length if truncation and truncation != "do_not_truncate" else None
        if limit is not None:
            if strategy and multiple and limit % multiple:
                raise ValueError(f"truncation to {limit} tokens, and padding to a multiple of {multiple}, exclude each other")
            rows = [self._cut(row, limit, special) for row in rows]
            marked = marked and [self._cut(row, limit, False) for row in marked]
        masks = masks or [[1] * len(row) for row in rows]
        if strategy:
            side = _side("padding_side", side or self.padding_side)
            rows, masks = self._pad(rows, masks, strategy, max_length, side, multiple)
            if marked is not None:
                width = len(rows[0]) if rows else 0
                marked = [[0] * (width - len(m)) + m if side == "left" else m + [0] * (width - len(m)) for m in marked]
        if kind is not None and len({len(row) for row in rows}) > 1:
            raise ValueError("the texts have different numbers of tokens, so they make no tensor; pass padding=True, and "
                             "truncation=True with max_length if they may be cut")
        flat = single and kind is None
        out = {"input_ids": rows[0] if flat else tensors(rows, kind)}
        if with_mask is not False:
            out["attention_mask"] = masks[0] if flat else tensors(masks, kind)
        if marked is not None:
            out["assistant_masks"] = marked[0] if flat else tensors(marked, kind)
        if with_length:
            out["length"] = [len(row) for row in rows]
        done = BatchEncoding(out)
        done._layout = (limit, len(rows[0]) if strategy and rows else 0, side or self.padding_side)
        return done

    def _cut(self, row: List[int], limit: int, special: bool) -> List[int]:
        """Cuts a row to limit tokens.  special: tokens that every text begins and ends with stay."""
        return [row[i] for i in self._kept(len(row), limit, special)]

    def _kept(self, n: int, limit: int, special: bool) -> Sequence[int]:
        """Returns which of n tokens remain."""
        if n <= limit:
            return range(n)
        head, tail = self._frame() if special else (0, 0)
        if head + tail > limit:
            raise ValueError(f"max_length is {limit}, and every text has {head + tail} special tokens")
        room = limit - head - tail
        begin = n - tail - room if self.truncation_side == "left" else head
        return [*range(head), *range(begin, begin + room), *range(n - tail, n)]

    def _frame(self) -> Tuple[int, int]:
        """Returns how many special tokens stand before a text and behind it."""
        plain, whole = self._encode("a", False), self._encode("a", True)
        more = len(whole) - len(plain)
        head = next((i for i in range(more + 1) if whole[i:i + len(plain)] == plain), 0)
        return head, more - head

    def _pad(self, rows: List[List[int]], masks: List[List[int]], strategy: str, limit: Optional[int], side: str,
             multiple: Optional[int]) -> Any:
        width = max(map(len, rows), default=0)
        if strategy == "max_length":
            width = max(width, limit or 0)
        if multiple:
            width = -(-width // multiple) * multiple
        if all(len(row) == width for row in rows):
            return rows, masks
        pad = self.pad_token_id
        if pad is None:
            raise ValueError("padding needs a pad token, and this tokenizer has none; set one, for example "
                             "tokenizer.pad_token = tokenizer.eos_token")
        fills = [width - len(row) for row in rows]
        if side == "left":
            return ([[pad] * n + row for n, row in zip(fills, rows)], [[0] * n + mask for n, mask in zip(fills, masks)])
        return ([row + [pad] * n for n, row in zip(fills, rows)], [mask + [0] * n for n, mask in zip(fills, masks)])

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
                notice("clean_up_tokenization_spaces=True has no effect: the spaces of BPE tokens are those of the text", stacklevel=4)
        return text if self.__dict__["_bpe"] else _clean(text)

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False,
                     clean_up_tokenization_spaces: Optional[bool] = None, **kwargs: Any) -> List[str]:
        """Returns the text of each row; of the ids of one text, a list with that text."""
        if len(sequences) and np.ndim(sequences[0]) == 0:
            return [self.decode(sequences, skip_special_tokens, clean_up_tokenization_spaces, **kwargs)]
        return [self.decode(row, skip_special_tokens, clean_up_tokenization_spaces, **kwargs) for row in sequences]

    # -- chats

    def get_chat_template(self, chat_template: Optional[str] = None, tools: Any = None) -> str:
        """Returns the template that apply_chat_template() uses.  Raises ValueError if there is none."""
        found = chat_template or self.chat_template
        if not found:
            raise ValueError("this tokenizer has no chat template; pass chat_template=, or give the model a text in place of messages")
        return str(found)

    def apply_chat_template(self, conversation: Any, tools: Optional[Sequence[Any]] = None,
                            documents: Optional[Sequence[Dict[str, str]]] = None, chat_template: Optional[str] = None,
                            add_generation_prompt: bool = False, continue_final_message: bool = False,
                            tokenize: bool = True, padding: Union[bool, str] = False,
                            truncation: Union[bool, str] = False, max_length: Optional[int] = None,
                            return_tensors: Optional[str] = None, return_dict: Optional[bool] = None,
                            return_assistant_tokens_mask: bool = False,
                            tokenizer_kwargs: Optional[Dict[str, Any]] = None, **kwargs: Any) -> Any:
        """Renders messages with the chat template and encodes them.

        conversation: a list of {"role", "content"}, or a list of such lists; what a message without one of them looks like
        is the template's affair.  tools: JSON schemas or functions with type
        hints.  tokenize=False returns the text.  return_dict: True returns ``input_ids`` and ``attention_mask`` (the
        default with return_tensors None and False: the ids alone).  Further arguments are variables of the template.

        return_assistant_tokens_mask: True adds ``assistant_masks``, 1 for the tokens of {% generation %} blocks, which is where
        templates put the words of the model.

        Special tokens that are spelled inside a message are encoded as plain text; pass allow_special_tokens=True for
        what Transformers does.
        """
        template = self.get_chat_template(chat_template, tools)
        if return_assistant_tokens_mask:
            if return_dict is False or not tokenize:
                raise ValueError("return_assistant_tokens_mask=True needs return_dict=True and tokenize=True")
            if continue_final_message:
                raise ValueError("return_assistant_tokens_mask=True and continue_final_message=True exclude each other")
            if template is not None and not re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", template):
                notice("the chat template has no {% generation %}, so assistant_masks holds only zeros", stacklevel=2)
            return_dict = True
        batched = bool(conversation) and (isinstance(conversation[0], (list, tuple)) or hasattr(conversation[0], "messages"))
        chats = [getattr(c, "messages", c) for c in (conversation if batched else [conversation])]
        if not all(chats):
            raise ValueError("a chat without messages has no text; give at least one message")
        # as in Transformers: many templates take a key without a value for a text
        chats = [[{k: v for k, v in m.items() if v is not None} if hasattr(m, "items") else m for m in chat] for chat in chats]
        options = dict(kwargs)
        if add_generation_prompt:
            options["add_generation_prompt"] = True
        if continue_final_message:
            options["continue_final_message"] = True
        if tools:
            options["tools"] = [tool_json(t) for t in tools]
        if documents:
            options["documents"] = list(documents)
        if not tokenize:
            texts = [self._render(chat, options, template) for chat in chats]
            return texts if batched else texts[0]
        pairs = [self._encode_chat(chat, options, template, return_assistant_tokens_mask) for chat in chats]
        out = self._finish([ids for ids, _ in pairs], not batched, padding, truncation, max_length, return_tensors, None,
                           (tokenizer_kwargs or {}).get("padding_side"), None, False,
                           [m for _, m in pairs] if return_assistant_tokens_mask else None)
        return out if return_dict else out["input_ids"]

    def _request(self, chat: Any, options: Dict[str, Any]) -> Optional[bytes]:
        return encode(json.dumps({"messages": list(chat), "kwargs": options, "special_tokens": self.special_tokens_map}))

    def _render(self, chat: Any, options: Dict[str, Any], template: Optional[str]) -> str:
        if template is not None and template != self._own_template:
            return text_of("kvik_template_render", encode(template), self._request(chat, options))
        return text_of("kvik_chat_render", self._handle, encode(json.dumps(list(chat))), encode(json.dumps(options)))

    def _encode_chat(self, chat: Any, options: Dict[str, Any], template: Optional[str], marked: bool) -> Any:
        """Returns the ids of a chat, and with marked a flag for each."""
        ids, flags, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        call("kvik_chat_encode_request", self._handle, encode(template), self._request(chat, options), ctypes.byref(ids),
             ctypes.byref(flags) if marked else None, ctypes.byref(n))
        try:
            return (view(ids.value, (n.value,), np.int32).tolist(),
                    view(flags.value, (n.value,), np.uint8).tolist() if marked else None)
        finally:
            lib.kvik_free(ids)
            lib.kvik_free(flags)


def _reopen(kind: Any, path: str, settings: Dict[str, Any]) -> PreTrainedTokenizer:
    return kind(path, **settings)


def _side(name: str, value: Any) -> str:
    if value not in ("left", "right"):
        raise ValueError(f"{name}={value!r}: expected 'left' or 'right'")
    return str(value)


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
