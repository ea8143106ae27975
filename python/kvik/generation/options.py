"""The options of one call of generate(), as the library takes them."""
import ctypes
import json
from typing import Any, Dict, Optional

import numpy as np

from .. import _abi
from .._arrays import is_torch, to_numpy
from .._lib import call, encode, owned
from ..errors import ArgumentError
from ..store import CACHE_NAMES, ModelHandle

# Options that the package has and the library does not, and what each is there: a file of the model may set them.
_OF_THE_PACKAGE = {"token_healing": False, "watermarking_config": None, "assistant_early_exit": None}


class Options:
    """A kvik_generation with the options of one call."""

    def __init__(self, model: Optional[ModelHandle], values: Dict[str, Any]) -> None:
        self.struct = owned("kvik_generation_done", _abi.kvik_generation)
        call("kvik_generation_init_sized", ctypes.byref(self.struct), ctypes.sizeof(self.struct),
             model.pointer if model else None)
        given = {k: _plain(k, v) for k, v in values.items() if v is not None}
        given.update({k: neutral for k, neutral in _OF_THE_PACKAGE.items() if k in values and values[k] is None})
        if values.get("eos_token_id", given) is None:  # nothing ends a text; an option that is left out has the model's value
            given["eos_token_id"] = []
        if given:
            call("kvik_generation_set", ctypes.byref(self.struct), encode(json.dumps(given)))

    def pad(self) -> int:
        """Returns the id that fills rows which have ended."""
        g = self.struct
        return g.pad_token_id if g.pad_token_id >= 0 else g.eos_token_id[0] if g.n_eos else 0

    def new_tokens(self, prompt: int) -> int:
        """Returns the most new tokens after so long a prompt."""
        g = self.struct
        return g.max_new_tokens or max(int(g.max_length) - prompt, 0) if g.max_new_tokens or g.max_length else 20

    def sequences(self, rows: int) -> int:
        """Returns the sequences of a cache that rows of prompts need."""
        g = self.struct
        each = g.num_beams if g.num_beams > 1 else max(g.num_return_sequences, 1)
        width = each
        if g.num_beams <= 1 and not g.do_sample and g.penalty_alpha > 0:
            width = max(each, g.top_k)
        return int(rows * (width + (each if g.guidance_scale != 1 else 0)))


def _prompt(value: Any) -> Any:
    """Returns the ids of a negative prompt: a list, or one row [1][n]."""
    if isinstance(value, (str, bytes, int)) or not hasattr(value, "__getitem__") or hasattr(value, "keys"):
        raise ArgumentError(f"negative_prompt_ids is {str(value)[:60]!r} of type {type(value).__name__}; expected token ids, [n] or [1, n]"
                            + (": give its input_ids" if hasattr(value, "keys") else ""))
    if not len(value) or not isinstance(value[0], (list, tuple)):
        return value
    if any(row != value[0] for row in value):
        raise ArgumentError(f"negative_prompt_ids has {len(value)} rows that differ; expected one row, for all prompts")
    return value[0]


def _plain(name: str, value: Any) -> Any:
    """Returns the value of an option as JSON has it."""
    if is_torch(value) or isinstance(value, (np.ndarray, np.generic)):
        value = to_numpy(value).tolist()
    if name == "negative_prompt_ids":
        value = _prompt(value)
    if name == "max_time" and value == 0:
        return 1e-9  # ends after a token, as in Transformers; the library's 0 is no limit
    if name == "sequence_bias" and isinstance(value, dict):
        return [[list(k), float(v)] for k, v in value.items()]
    if name in ("cache_implementation", "cross_cache_implementation"):
        return CACHE_NAMES.get(value, value)
    if hasattr(value, "to_dict"):
        value = {k: v for k, v in value.to_dict().items() if v is not None}
    if isinstance(value, tuple):
        value = list(value)
    return value
