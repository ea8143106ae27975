"""The shared library: where it is, how it is called, and how its errors become exceptions.

``call("kvik_x", ...)`` calls a function that returns an error code and raises the exception of that code, with the
library's sentence.  Functions that return anything else are called as ``lib.kvik_x(...)``.  ctypes releases the GIL
during every call.
"""
import ctypes
import math
import operator
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from . import _abi, errors


def _library_path() -> str:
    """Returns libkvik.so: $KVIK_LIBRARY, the one in the wheel, or the one of a source tree."""
    given = os.environ.get("KVIK_LIBRARY")
    if given:
        return given
    here = Path(__file__).resolve().parent
    for place in (here / "libkvik.so", here.parent.parent / "libkvik.so"):
        if place.exists():
            return str(place)
    return "libkvik.so.0"  # of the system


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_library_path())
    except OSError as e:
        raise ImportError(
            f"libkvik.so cannot be loaded ({e}). Install the wheel, run `make` in the source tree, or name the library in "
            "the environment variable KVIK_LIBRARY.") from e
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:  # an older library: the call will say so
            continue
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def last_error() -> str:
    """Returns the sentence of this thread's last error."""
    return (lib.kvik_last_error() or b"").decode("utf-8", "replace")


def check(code: int) -> int:
    """Returns a code that is no error; raises the exception of one that is."""
    if code < 0:
        raise errors.of_code(code, last_error())
    return code


_WHOLE = {kind for kind in (getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))}


def fits(value: Any, kind: Any, what: str) -> Any:
    """Returns the value of a parameter.  Raises for a whole number that its type cannot hold, which ctypes would cut."""
    if kind is ctypes.c_char_p and hasattr(value, "__index__"):  # ctypes would take it for an address
        raise errors.ArgumentError(f"{what} is {value!r}; expected a text")
    if kind in _WHOLE and hasattr(value, "__index__"):
        value = operator.index(value)
        if kind(value).value != value:
            raise errors.ArgumentError(f"{what} is {value}, which is out of range")
    return value


def field_kinds(struct: Any) -> Dict[str, Any]:
    """Returns the types of the fields of a structure by their names."""
    return {field[0]: field[1] for field in struct._fields_}


def usage_fields(usage: Any) -> Dict[str, Any]:
    """Returns the fields of a kvik_usage by their names: numbers, a bool as one."""
    values = {name: getattr(usage, name) for name in field_kinds(type(usage)) if name != "size"}
    return {name: value if isinstance(value, float) else int(value) for name, value in values.items()}


def call(name: str, *args: Any) -> int:
    """Calls a function that returns an error code or a count; raises on an error."""
    if name not in _abi.FUNCTIONS:  # without a declaration, ctypes would cut addresses to 32 bits
        raise AttributeError(f"{name} is not declared; run scripts/make-abi.py")
    kinds: Sequence[Any] = _abi.FUNCTIONS[name][1]  # type: ignore[assignment]
    return check(getattr(lib, name)(*(fits(a, kind, f"a number for {name}()") for a, kind in zip(args, kinds))))


def text_of(name: str, *args: Any) -> str:
    """Calls a function whose last parameter receives a text, and frees the text."""
    out = owned("kvik_free")
    call(name, *args, ctypes.byref(out))
    return (ctypes.cast(out, ctypes.c_char_p).value or b"").decode("utf-8", "replace")


_method = ctypes.pythonapi.PyInstanceMethod_New
_method.restype, _method.argtypes = ctypes.py_object, [ctypes.py_object]


@lru_cache(None)
def _owner(free: str, kind: Any) -> Any:
    return type(kind.__name__, (kind,), {"__del__": _method(getattr(lib, free)), "_as_parameter_": property(ctypes.byref)})


def owned(free: str, kind: Any = ctypes.c_void_p) -> Any:
    """Returns an empty pointer (or structure) whose contents a function of the library frees with the object.

    Make it before the call that fills it.  Its __del__ is the function of the library and runs no Python: Python would run
    the handlers of signals there, drop what they raise, and leave the memory.
    """
    return _owner(free, kind)()


def encode(value: Optional[str]) -> Optional[bytes]:
    """Returns a text as UTF-8 for a parameter that may be NULL.  A lone surrogate becomes U+FFFD, as in files."""
    if value is not None and "\0" in value:
        raise errors.ArgumentError(f"{value[:60]!r} holds a NUL, at which the library would cut it")
    return None if value is None else value.encode("utf-8", "replace")


def sized(kind: Any, **fields: Any) -> Any:
    """Makes a struct with its size set."""
    kinds = dict(kind._fields_)
    return kind(size=ctypes.sizeof(kind), **{name: fits(value, kinds.get(name), name) for name, value in fields.items()})


def address(array: Optional[np.ndarray]) -> Optional[int]:
    """Returns the address of an array for a call; None for none.  The caller keeps the array alive."""
    return None if array is None else array.ctypes.data


def view(pointer: Optional[int], shape: Tuple[int, ...], dtype: Any, owner: Any = None) -> np.ndarray:
    """Returns an array over memory of the library, without a copy.  `owner` lives as long as the array."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    if not pointer or not count:
        return np.zeros(shape, dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer)
    buffer._owner = owner
    return np.frombuffer(buffer, dtype, count).reshape(shape)
