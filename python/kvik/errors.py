"""Exceptions.  Each carries the library's sentence: what failed, the cause with its numbers, and what to do.

The classes also derive from the built-in exception that a caller would expect: a wrong argument is a ValueError, a missing
file a FileNotFoundError, a limit of memory a MemoryError.
"""
import sys
from typing import Dict, Type

from . import _abi


class KvikError(Exception):
    """Base of all exceptions of the library.  ``code`` is the error code of kvik.h, such as "FULL"."""

    code = ""


class ArgumentError(KvikError, ValueError):
    """An argument or the value of an option is wrong."""

    code = "ARG"


class FormatError(KvikError, ValueError):
    """A file, a template or a text is malformed."""

    code = "FORMAT"


class LimitError(KvikError, ValueError):
    """A limit of the model, of the library, or max_cache_len is exceeded."""

    code = "LIMIT"


class UnsupportedError(KvikError, NotImplementedError):
    """The request is well-formed, but this build cannot do it."""

    code = "UNSUPPORTED"


class BusyError(KvikError, RuntimeError):
    """The object is in use by a call that has not returned, or belongs to the process that forked this one."""

    code = "BUSY"


class IndexLimitError(LimitError, IndexError):
    """A static cache is full: Transformers writes behind its end, which is an IndexError."""


class LostError(KvikError, RuntimeError):
    """Rows would have to be recomputed whose token ids are not known."""

    code = "LOST"


class StaleError(KvikError, RuntimeError):
    """The sequence was dropped."""

    code = "STALE"


class CancelledError(KvikError, RuntimeError):
    """A callback asked to stop."""

    code = "CANCELLED"


class FileError(KvikError, OSError):
    """A file cannot be read or written."""

    code = "IO"


class MissingError(KvikError, FileNotFoundError):
    """A file, a model or a tensor does not exist."""

    code = "NOTFOUND"


class HostMemoryError(KvikError, MemoryError):
    """The machine gave no memory."""

    code = "NOMEM"


class _OutOfMemoryBase(KvikError):
    code = "FULL"


class OutOfMemoryError(_OutOfMemoryBase, RuntimeError):
    """The cache would exceed its budget, ``cache_memory``.  Nothing is lost: the call had no effect.

    Where torch is imported, this is a subclass of ``torch.OutOfMemoryError`` (``torch.cuda.OutOfMemoryError``), so that
    code which catches those falls back as written.
    """


def adopt_torch() -> Type[OutOfMemoryError]:
    """Makes OutOfMemoryError a subclass of torch.OutOfMemoryError if torch is imported; returns it."""
    torch = sys.modules.get("torch")
    theirs = getattr(torch, "OutOfMemoryError", None) or getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    if isinstance(theirs, type) and theirs not in OutOfMemoryError.__bases__:
        OutOfMemoryError.__bases__ = (_OutOfMemoryBase, theirs)
    return OutOfMemoryError


_CLASSES: Dict[int, Type[KvikError]] = {
    getattr(_abi, f"KVIK_{c.code}"): c
    for c in (ArgumentError, FormatError, LimitError, UnsupportedError, BusyError, LostError, StaleError, CancelledError,
              FileError, MissingError, HostMemoryError)
}


def of_code(code: int, sentence: str) -> KvikError:
    """Returns the exception of an error code."""
    if code == _abi.KVIK_FULL:
        return adopt_torch()(sentence)
    return _CLASSES.get(code, KvikError)(sentence or f"error {code}")
