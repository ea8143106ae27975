"""Options of generation as an object."""
import ctypes
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from .. import _abi, files, hub
from .._lib import encode, lib
from ..errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from .._options import GenerationOptions, OptionAttributes
else:
    OptionAttributes = object


def option_names() -> List[str]:
    """Returns the names of all options."""
    names: List[str] = []
    while True:
        row = lib.kvik_option_at(len(names))
        if not row:
            return names
        option = ctypes.cast(row, ctypes.POINTER(_abi.kvik_option)).contents if isinstance(row, int) else row.contents
        names.append(option.name.decode())


# Options of Transformers that kvik does not have: reading them gives None, as there.
_OTHERS = {
    "assistant_early_exit", "assistant_lookbehind", "begin_suppress_tokens", "cache_config", "continuous_batching_config",
    "constraints", "dola_layers", "exponential_decay_length_penalty", "force_words_ids", "forced_decoder_ids", "is_assistant",
    "low_memory", "output_attentions", "output_hidden_states", "remove_invalid_values", "renormalize_logits",
    "target_lookbehind", "token_healing", "transformers_version", "watermarking_config"}


class GenerationConfig(OptionAttributes):
    """Options of generate() by name: ``GenerationConfig(max_new_tokens=20, do_sample=True)``.

    docs/OPTIONS.md explains each option.  An option that was not given is None here and has its default.
    """

    def __init__(self, **kwargs: "Unpack[GenerationOptions]") -> None:
        self.__dict__.update(kwargs)

    if not TYPE_CHECKING:  # to a type checker, a name that is no option is a mistake
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            if name in _OTHERS or name in option_names():
                return None
            near = lib.kvik_option_nearest(encode(name))
            raise AttributeError(f"GenerationConfig has no {name!r}" + (f"; did you mean {near.decode()!r}?" if near else ""))

    @classmethod
    def from_pretrained(cls, name: Union[str, "os.PathLike[str]"], config_file_name: str = "generation_config.json",
                        **kwargs: Any) -> "GenerationConfig":
        """Reads the options of a model's directory, or of one of save_pretrained().  Raises MissingError if it has none."""
        path = Path(hub.resolve(name))
        path = path / config_file_name if os.path.isdir(path) else path.parent / config_file_name
        return cls(**{**files.read_object(path), **kwargs})

    @classmethod
    def from_model_config(cls, config: Any) -> "GenerationConfig":
        """Makes options of the special tokens of a configuration."""
        return cls(**{k: v for k, v in config.to_dict().items() if k.endswith("_token_id")})

    @classmethod
    def from_dict(cls, values: Dict[str, Any], **kwargs: Any) -> "GenerationConfig":
        """Makes options of a dictionary."""
        return cls(**{**values, **kwargs})

    def to_dict(self) -> Dict[str, Any]:
        """Returns the options that were given."""
        return dict(self.__dict__)

    def to_json_string(self) -> str:
        """Returns the options as JSON."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, default=str) + "\n"

    def save_pretrained(self, directory: Union[str, "os.PathLike[str]"],
                        config_file_name: str = "generation_config.json") -> None:
        """Writes the options to a file in a directory."""
        os.makedirs(directory, exist_ok=True)
        Path(directory, config_file_name).write_text(self.to_json_string(), encoding="utf-8")

    def update(self, **kwargs: Any) -> Dict[str, Any]:
        """Sets options that exist, or that this object has; returns the others."""
        known = {*option_names(), *self.__dict__}
        unknown = {k: v for k, v in kwargs.items() if k not in known}
        self.__dict__.update({k: v for k, v in kwargs.items() if k in known})
        return unknown

    def validate(self) -> None:
        """Raises ArgumentError for an unknown option, with the nearest name."""
        known = set(option_names())
        for name in self.__dict__:
            if name not in known and not name.startswith("_") and name != "transformers_version":
                near = lib.kvik_option_nearest(encode(name))
                raise ArgumentError(f"unknown option {name!r}" + (f"; did you mean {near.decode()!r}?" if near else ""))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenerationConfig) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        return f"GenerationConfig {self.to_json_string()}"


def merged(model: Optional[GenerationConfig], given: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options of a call: the model's, over them those of a given object, over them keyword arguments."""
    values: Dict[str, Any] = dict(model.__dict__) if model is not None else {}
    if given is not None:
        if not isinstance(given, dict) and not hasattr(given, "to_dict"):
            raise TypeError(f"generation_config is a GenerationConfig or a dictionary, not {type(given).__name__}")
        theirs = given if isinstance(given, dict) else given.to_dict()
        values.update({k: v for k, v in theirs.items() if v is not None})
    values.update(kwargs)
    return {k: v for k, v in values.items() if not k.startswith("_") and k != "transformers_version"}
