"""The vocabulary of a tokenizer: its tokens with their ids, the added ones, and those that have a role."""
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

import numpy as np

from ._lib import encode, lib
from .errors import UnsupportedError
from .tokenizer_files import AddedToken, added_tokens
from .tokenizer_parts import ADDED, MODEL, SPECIAL, piece

ROLES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


class Vocabulary:
    """What a tokenizer knows of its tokens."""

    _handle: Any
    name_or_path: str
    init_kwargs: Dict[str, Any]

    def decode(self, token_ids: Any, *_: Any, **__: Any) -> Any:
        """Returns the text of ids."""
        raise NotImplementedError

    def _open_backend(self) -> Any:
        """Returns the same tokenizer as an object of the package tokenizers, or raises AttributeError with the reason."""
        raise NotImplementedError

    # -- special tokens

    def _special(self, role: str) -> Optional[str]:
        text = lib.kvik_tokenizer_special(self._handle, role.encode())
        return text.decode("utf-8", "replace") if text else None

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_token_id") and name[:-3] in ROLES:
            token = self.__dict__.get(name[:-3])
            return None if token is None else self._id(token)
        if name in ("backend_tokenizer", "_tokenizer"):
            if "_backend" not in self.__dict__:
                self.__dict__["_backend"] = self._open_backend()
            return self.__dict__["_backend"]
        raise AttributeError(f"the tokenizer has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.endswith("_token_id") and name[:-3] in ROLES:
            name, value = name[:-3], None if value is None else self.decode([value])
        object.__setattr__(self, name, value)

    def _id(self, token: str) -> Optional[int]:
        found = -1 if "\0" in token else lib.kvik_tokenizer_find(self._handle, encode(token))
        return found if found >= 0 else None

    @property
    def special_tokens_map(self) -> Dict[str, str]:
        """The special tokens by role."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}

    @property
    def all_special_tokens(self) -> List[str]:
        """The special tokens, with a role or without, each once."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self.additional_special_tokens]))

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
    def added_tokens_decoder(self) -> Dict[int, AddedToken]:
        """The added tokens by their ids, with how they are found in a text."""
        if "_added" not in self.__dict__:
            listed = added_tokens(self.name_or_path)
            self.__dict__["_added"] = {i: listed.get(text, AddedToken(text, special=bool(kind & SPECIAL)))
                                       for i, (text, kind) in self._pieces().items() if kind & ADDED}
        return dict(self.__dict__["_added"])

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
            if role not in ROLES and not several:
                raise ValueError(f"{role!r} is not a role of special tokens; expected one of {', '.join(ROLES)}")
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
        out: List[str] = []
        ids: List[int] = []
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
