"""The configurations of watermarks: ``watermarking_config=`` of generate(), an object or its dictionary."""
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Type, TypeVar

from ..errors import ArgumentError

_C = TypeVar("_C", bound="BaseWatermarkingConfig")

MAKERS: Dict[str, Callable[..., Any]] = {}
"""For each kind, what makes its processor.  generation.watermarks registers them."""


class BaseWatermarkingConfig:
    """The arguments of a watermark by name."""

    _kind = ""

    @classmethod
    def from_dict(cls: Type[_C], config_dict: Dict[str, Any], **kwargs: Any) -> _C:
        """Makes one of a dictionary; arguments beside it count."""
        return cls(**{**config_dict, **kwargs})

    def to_dict(self) -> Dict[str, Any]:
        """Returns the arguments."""
        return dict(vars(self))

    def __iter__(self) -> Any:
        return iter(self.to_dict().items())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.to_json_string())

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.to_json_string()}"

    def to_json_string(self) -> str:
        """Returns the arguments as JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_json_file(self, json_file_path: Any) -> None:
        """Writes the arguments to a file."""
        Path(json_file_path).write_text(self.to_json_string(), encoding="utf-8")

    def update(self, **kwargs: Any) -> None:
        """Sets arguments; unknown names are ignored, as in Transformers."""
        vars(self).update({k: v for k, v in kwargs.items() if k in vars(self)})

    def validate(self) -> None:
        """Raises ArgumentError for a value that no watermark can have."""

    def construct_processor(self, vocab_size: int, device: Any = "cpu") -> Any:
        """Returns the processor of scores for a vocabulary."""
        self.validate()
        return MAKERS[self._kind](vocab_size=vocab_size, device=device, **self.to_dict())


class WatermarkingConfig(BaseWatermarkingConfig):
    """Favours a list of "green" tokens, drawn anew for each token from a key and the tokens before it.

    ``greenlist_ratio`` of the vocabulary gets ``bias`` added to its scores.  ``seeding_scheme``: "lefthash" draws from the token before,
    "selfhash" from the token itself too, which is slower.  ``context_width``: the tokens before it that count.
    """

    _kind = "green"

    def __init__(self, greenlist_ratio: float = 0.25, bias: float = 2.0, hashing_key: int = 15485863, seeding_scheme: str = "lefthash",
                 context_width: int = 1) -> None:
        self.greenlist_ratio, self.bias, self.hashing_key = greenlist_ratio, bias, hashing_key
        self.seeding_scheme, self.context_width = seeding_scheme, context_width

    def validate(self) -> None:
        """Raises ArgumentError for a value that no watermark can have."""
        if self.seeding_scheme not in ("selfhash", "lefthash"):
            raise ArgumentError(f"watermarking_config: seeding_scheme={self.seeding_scheme!r}: expected 'lefthash' or 'selfhash'")
        if not 0 <= self.greenlist_ratio <= 1:
            raise ArgumentError(f"watermarking_config: greenlist_ratio={self.greenlist_ratio!r}: expected a number from 0 to 1")
        if not self.context_width >= 1:
            raise ArgumentError(f"watermarking_config: context_width={self.context_width!r}: expected 1 or more")


class SynthIDTextWatermarkingConfig(BaseWatermarkingConfig):
    """Draws each token in a tournament, in a round for each of ``keys``, among the tokens that ``ngram_len`` - 1 before it choose.

    A context that is one of the last ``context_history_size`` has no watermark.  ``skip_first_ngram_calls``: nor have the first
    ``ngram_len`` - 1 tokens.  ``debug_mode`` makes all tokens equally likely before.
    """

    _kind = "synthid"

    def __init__(self, ngram_len: int, keys: List[int], context_history_size: int = 1024, sampling_table_seed: int = 0,
                 sampling_table_size: int = 2 ** 16, skip_first_ngram_calls: bool = False, debug_mode: bool = False) -> None:
        self.ngram_len, self.keys = ngram_len, keys
        self.sampling_table_size, self.sampling_table_seed = sampling_table_size, sampling_table_seed
        self.context_history_size = context_history_size
        self.skip_first_ngram_calls, self.debug_mode = skip_first_ngram_calls, debug_mode

    def validate(self) -> None:
        """Raises ArgumentError for a value that no watermark can have."""
        if not 1 <= self.sampling_table_size <= 2 ** 24:
            raise ArgumentError(f"watermarking_config: sampling_table_size={self.sampling_table_size!r}: expected 1 to 2**24")
        if not self.ngram_len >= 2 or not len(self.keys):
            raise ArgumentError(f"watermarking_config: ngram_len={self.ngram_len!r} and {len(self.keys)} keys: expected 2 or more, and a key")


def watermark_of(value: Any) -> Any:
    """Returns a configuration for one, or for its dictionary: that of SynthID has keys and an ngram_len."""
    if isinstance(value, BaseWatermarkingConfig) or value is None:
        return value
    if hasattr(value, "to_dict"):  # of Transformers
        value = value.to_dict()
    if not isinstance(value, dict):
        raise ArgumentError(f"watermarking_config is {value!r}; expected a WatermarkingConfig, a SynthIDTextWatermarkingConfig, or the "
                            "dictionary of one")
    kind = SynthIDTextWatermarkingConfig if "ngram_len" in value or "keys" in value else WatermarkingConfig
    try:
        return kind.from_dict(value)
    except TypeError as e:
        raise ArgumentError(f"watermarking_config: {str(e).split('() ')[-1]}") from None
