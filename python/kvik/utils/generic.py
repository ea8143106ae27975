"""Small things of Transformers' utils: names of kinds, and arrays of numpy and torch as one."""
from contextlib import ExitStack
from enum import Enum
from typing import Any, List, Optional

import numpy as np

from .._arrays import is_torch, to_numpy as to_numpy


class ExplicitEnum(str, Enum):
    """Names whose errors list them."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ValueError(f"{value!r} is not a valid {cls.__name__}, please select one of {[member.value for member in cls]}")


class PaddingStrategy(ExplicitEnum):
    """What `padding=` of a tokenizer may be."""

    LONGEST = "longest"
    MAX_LENGTH = "max_length"
    DO_NOT_PAD = "do_not_pad"


class TensorType(ExplicitEnum):
    """What `return_tensors=` may be."""

    PYTORCH = "pt"
    NUMPY = "np"


class ContextManagers:
    """Several `with` as one."""

    def __init__(self, context_managers: List[Any]) -> None:
        self.context_managers, self.stack = context_managers, ExitStack()

    def __enter__(self) -> None:
        for manager in self.context_managers:
            self.stack.enter_context(manager)

    def __exit__(self, *raised: Any) -> Optional[bool]:
        return self.stack.__exit__(*raised)


def is_torch_tensor(x: Any) -> bool:
    """True for a tensor of torch."""
    return is_torch(x)


def is_numpy_array(x: Any) -> bool:
    """True for an array of numpy."""
    return isinstance(x, np.ndarray)


def is_tensor(x: Any) -> bool:
    """True for an array of numpy and a tensor of torch."""
    return is_numpy_array(x) or is_torch_tensor(x)


def to_py_obj(obj: Any) -> Any:
    """Returns arrays as lists of numbers, also inside of dictionaries and lists."""
    if hasattr(obj, "keys"):
        return {k: to_py_obj(v) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [to_py_obj(v) for v in obj]
    return to_numpy(obj).tolist() if is_torch_tensor(obj) else obj.tolist() if isinstance(obj, (np.ndarray, np.number)) else obj


def strtobool(val: str) -> int:
    """Returns 1 for y, yes, t, true, on and 1, and 0 for their opposites; raises ValueError for others."""
    said = val.lower()
    if said in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if said in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"invalid truth value {val!r}")


__all__ = ["ContextManagers", "ExplicitEnum", "PaddingStrategy", "TensorType", "is_numpy_array", "is_tensor", "is_torch_tensor",
           "strtobool", "to_numpy", "to_py_obj"]
