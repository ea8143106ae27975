"""What a pickle of a class holds, checked where it is read: a damaged file is an error there, and not a surprise in a later call."""
from typing import Any, Callable, Dict

import numpy as np

from .errors import ArgumentError

Check = Callable[[Any], bool]


def checked(owner: Any, state: Any, checks: Dict[str, Check]) -> Dict[str, Any]:
    """Returns the state of a pickle.  Raises ArgumentError if an entry lacks or is none that the class can have written."""
    name = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    if not isinstance(state, dict):
        raise ArgumentError(f"the pickle of this {name} is damaged: its state is of type {type(state).__name__}; expected a dictionary")
    for key, good in checks.items():
        if key not in state:
            raise ArgumentError(f"the pickle of this {name} is damaged: it has no {key}; make it again")
        if not good(state[key]):
            raise ArgumentError(f"the pickle of this {name} is damaged: {key} is of type {type(state[key]).__name__}, or holds what "
                                f"no {name} has; make it again")
    return state


def of(*kinds: Any) -> Check:
    """Returns a check that a value has one of these types."""
    return lambda value: isinstance(value, kinds)


def is_rows(value: Any) -> bool:
    """True for None, or a list of a layer's keys and values, [batch, heads, n, dim] each."""
    return value is None or isinstance(value, (list, tuple)) and all(
        isinstance(layer, (list, tuple)) and len(layer) == 2 and all(isinstance(a, np.ndarray) and a.ndim == 4 and a.dtype.kind == "f"
                                                                     for a in layer)
        and layer[0].shape[:3] == layer[1].shape[:3] for layer in value)


def is_session(value: Any) -> bool:
    """True for None, or the bytes or path of a session with its counts."""
    return value is None or isinstance(value, dict) and isinstance(value.get("bytes", value.get("path")), (bytes, str)) and all(
        isinstance(value.get(key, least), int) and least <= value.get(key, least) < 2**31
        for key, least in (("rows", 0), ("length", 0), ("layers", 0), ("encoder", 0))) and {"rows", "length"} <= value.keys()


def is_passed(value: Any) -> bool:
    """True for the columns, and the rows of a window, that each layer has passed."""
    return isinstance(value, dict) and all(isinstance(k, int) and isinstance(v, tuple) and len(v) == 2 and all(map(of(int), v))
                                           for k, v in value.items())
