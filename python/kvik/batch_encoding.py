"""What a tokenizer returns: a mapping whose entries are attributes, too."""
from collections import UserDict
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ._arrays import is_torch, tensors
from .devices import accept_device
from .pickles import checked, of
from .tokenizer_parts import CharSpan, Encoding, TokenSpan

if TYPE_CHECKING:
    from typing import KeysView
    from ._typing import Key


class BatchEncoding(UserDict[str, Any]):
    """Token ids and masks by name: ``e["input_ids"]``, ``e.input_ids``, ``model(**e)``.

    The values are lists, numpy arrays or torch tensors of shape [batch, tokens], as ``return_tensors`` asked.  What a
    tokenizer returns of a text also tells where each token comes from: tokens(), word_ids(), char_to_token() and the others;
    ``e[0]`` and ``e.encodings`` have all of it.  A word is what the tokenizer cuts before it makes tokens.
    """

    _place: Any = None  # makes the encodings

    def __init__(self, data: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        super().__init__(data or {})

    if TYPE_CHECKING:  # what a tokenizer or a feature extractor returns: lists, arrays or tensors
        def keys(self) -> "KeysView[Key]":  # names, so that pyright knows which arguments **inputs gives
            ...

        input_ids: Any
        attention_mask: Any
        token_type_ids: Any
        special_tokens_mask: Any
        offset_mapping: Any
        overflow_to_sample_mapping: Any
        assistant_masks: Any
        length: Any
        labels: Any
        input_features: Any
    else:
        def __getattr__(self, name: str) -> Any:
            data = self.__dict__.get("data")
            if data is not None and name in data:
                return data[name]
            hint = "; its input_ids do, and return_dict=False of apply_chat_template() gives these alone" if name == "shape" else ""
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(data or {}) or 'nothing'}{hint}")

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return self.data[item]
        if isinstance(item, slice):
            return {key: value[item] for key, value in self.data.items()}
        return self._row(item)

    # -- where tokens come from

    @property
    def is_fast(self) -> bool:
        """True if the encodings are known."""
        return self._place is not None

    @property
    def encodings(self) -> List[Encoding]:
        """The rows with all that is known of their tokens."""
        if "_encodings" not in self.__dict__:
            if self._place is None:
                raise ValueError("where tokens come from is known of what the tokenizer returns for a text, and of nothing else")
            self.__dict__["_encodings"] = self._place()
        return list(self.__dict__["_encodings"])

    def _row(self, index: int) -> Encoding:
        rows = self.encodings
        if not -len(rows) <= index < len(rows):
            raise IndexError(f"row {index}: there are {len(rows)}")
        return rows[index]

    def _pair(self, first: int, second: Optional[int]) -> Any:
        """Returns the row and the number in it: both may be given, or the number alone for row 0."""
        return (self._row(0), first) if second is None else (self._row(first), second)

    def _of_token(self, first: int, second: Optional[int]) -> Any:
        row, token = self._pair(first, second)
        return row, token + len(row) if token < 0 else token

    @property
    def n_sequences(self) -> Optional[int]:
        """The number of texts in a row: 1, or 2 of pairs."""
        return self._row(0).n_sequences if self._place is not None and self.encodings else None

    def tokens(self, batch_index: int = 0) -> List[str]:
        """Returns the tokens of a row as the vocabulary spells them."""
        return self._row(batch_index).tokens

    def word_ids(self, batch_index: int = 0) -> List[Optional[int]]:
        """Returns the number of the word of each token; None for tokens that are not of the text."""
        return self._row(batch_index).word_ids

    words = word_ids

    def sequence_ids(self, batch_index: int = 0) -> List[Optional[int]]:
        """Returns 0 for each token of the text, 1 for those of the second text of a pair, and None for the others."""
        return self._row(batch_index).sequence_ids

    def char_to_token(self, batch_or_char_index: int, char_index: Optional[int] = None, sequence_index: int = 0) -> Optional[int]:
        """Returns the token that has a character, or None."""
        row, char = self._pair(batch_or_char_index, char_index)
        return row.char_to_token(char, sequence_index)  # type: ignore[no-any-return]

    def token_to_chars(self, batch_or_token_index: int, token_index: Optional[int] = None) -> Optional[CharSpan]:
        """Returns the characters of a token, or None."""
        row, token = self._of_token(batch_or_token_index, token_index)
        return row.token_to_chars(token)  # type: ignore[no-any-return]

    def token_to_word(self, batch_or_token_index: int, token_index: Optional[int] = None) -> Optional[int]:
        """Returns the word of a token, or None."""
        row, token = self._of_token(batch_or_token_index, token_index)
        return row.word_ids[token]  # type: ignore[no-any-return]

    def token_to_sequence(self, batch_or_token_index: int, token_index: Optional[int] = None) -> Optional[int]:
        """Returns 0 for a token of the text, 1 for one of the second text of a pair, else None."""
        row, token = self._of_token(batch_or_token_index, token_index)
        return row.sequence_ids[token]  # type: ignore[no-any-return]

    def word_to_tokens(self, batch_or_word_index: int, word_index: Optional[int] = None, sequence_index: int = 0) -> Optional[TokenSpan]:
        """Returns the tokens of a word, or None."""
        row, word = self._pair(batch_or_word_index, word_index)
        return row.word_to_tokens(word, sequence_index)  # type: ignore[no-any-return]

    def word_to_chars(self, batch_or_word_index: int, word_index: Optional[int] = None, sequence_index: int = 0) -> Optional[CharSpan]:
        """Returns the characters of a word, or None."""
        row, word = self._pair(batch_or_word_index, word_index)
        return row.word_to_chars(word, sequence_index)  # type: ignore[no-any-return]

    def char_to_word(self, batch_or_char_index: int, char_index: Optional[int] = None, sequence_index: int = 0) -> Optional[int]:
        """Returns the word that has a character, or None."""
        row, char = self._pair(batch_or_char_index, char_index)
        return row.char_to_word(char, sequence_index)  # type: ignore[no-any-return]

    def __getstate__(self) -> Dict[str, Any]:
        return {"data": self.data} if self._place is None else {"data": self.data, "_encodings": self.encodings}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(checked(self, state, {"data": of(dict)}))
        if "_encodings" in state:
            self._place = list  # marks them as known; nothing calls it

    def to(self, device: Any = None, *, non_blocking: bool = False, **_: Any) -> "BatchEncoding":
        """Returns itself.  Tensors live in the machine's memory, where kvik computes; see `devices`."""
        accept_device(device)
        for key, value in self.data.items():
            if is_torch(value) and value.device.type != "cpu":
                self.data[key] = value.cpu()
        return self

    def convert_to_tensors(self, tensor_type: Any = None, **_: Any) -> "BatchEncoding":
        """Makes tensors ("pt", "np") of lists of equal length, in place."""
        for key, value in self.data.items():
            if isinstance(value, list):
                rows: List[Any] = value if value and isinstance(value[0], list) else [value]
                self.data[key] = tensors(rows, tensor_type)
        return self
