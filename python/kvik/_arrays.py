"""Arrays in and out: numpy everywhere, torch tensors where the caller uses torch.

Torch is never imported here unless a caller asks for it by name (return_tensors="pt"); a tensor can only come from a
program that has imported torch already.
"""
import sys
from importlib.util import find_spec
from typing import Any, Optional, Sequence

import numpy as np

from .errors import ArgumentError, UnsupportedError


def torch_module() -> Any:
    """Returns torch if the program has imported it, else None."""
    return sys.modules.get("torch")


def want_torch() -> Any:
    """Imports torch where it is installed; returns it or None."""
    if torch_module() is None and find_spec("torch") is not None:
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    return torch_module()


def is_torch(value: Any) -> bool:
    """True if the value is a torch tensor."""
    torch = torch_module()
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def to_numpy(value: Any, dtype: Any = None) -> np.ndarray:
    """Returns the value as a contiguous array of the dtype, without a copy where it is one already.

    Takes numpy arrays, torch tensors (bfloat16 included), nested lists and anything with __array__ or __dlpack__.
    """
    if is_torch(value):
        value = value.detach()
        if value.dtype == torch_module().bfloat16:
            value = value.float()
        value = value.cpu().numpy()
    elif not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    if dtype is not None and np.iscomplexobj(value) and not np.issubdtype(dtype, np.complexfloating):
        raise TypeError("numbers are complex; expected real ones")  # numpy would drop a part of each
    return np.ascontiguousarray(value, dtype)


def samples_of(value: Any) -> np.ndarray:
    """Returns a recording as f32 samples of full scale 1: [n], or [channels, n] as it came.

    Integers of a sound file, int16 or int32, are divided by their full scale.  Other integers have none that could be known.
    """
    samples = to_numpy(value)
    if samples.ndim == 2 and samples.shape[0] > samples.shape[1]:
        raise ValueError(f"samples have the shape {list(samples.shape)}; expected [channels, samples], so transpose an array of "
                         "[samples, channels]")
    if samples.dtype in (np.int16, np.int32):
        return samples.astype(np.float32) / np.float32(np.iinfo(samples.dtype).max + 1)
    if samples.dtype.kind != "f":
        raise ValueError(f"samples of the type {samples.dtype}; expected floats of full scale 1, or int16 or int32 of a sound file")
    return np.ascontiguousarray(samples, np.float32)


def integers(value: Any, what: str, dtype: Any = np.int32) -> np.ndarray:
    """Returns whole numbers as an array of the dtype.  numpy would round a fraction and cut a large number."""
    array = to_numpy(value)
    if array.dtype.kind in "US":
        raise TypeError(f"{what} is text; a tokenizer makes ids of it: tokenizer(text, return_tensors=\"np\")")
    if array.size and array.dtype.kind not in "iub":
        raise TypeError(f"{what} holds {array.dtype}; expected integers")
    info = np.iinfo(dtype)
    if array.size and (array.max() > info.max or array.min() < info.min):
        raise ValueError(f"{what} holds {array.max() if array.max() > info.max else array.min()}; expected numbers from "
                         f"{info.min} to {info.max}")
    return np.ascontiguousarray(array, dtype)


def _even(value: Any, what: str) -> np.ndarray:
    """Returns rows as an array; raises ValueError for rows of different lengths."""
    if isinstance(value, (list, tuple)):
        lengths = {len(row) for row in value if hasattr(row, "__len__")}
        if len(lengths) > 1:
            raise ValueError(f"{what} has rows of {min(lengths)} to {max(lengths)} entries; pad them to one length, with an "
                             "attention_mask: tokenizer(texts, padding=True, return_tensors=\"np\") returns both")
    return to_numpy(value)


def ids_2d(value: Any, what: str = "input_ids") -> np.ndarray:
    """Returns token ids as int32 [rows][n].  One row may come without its dimension."""
    if hasattr(value, "keys"):
        raise TypeError(f"{what} is a mapping with {', '.join(map(str, value))}; unpack it with two stars: model(**inputs)")
    ids = _even(value, what)
    if ids.ndim == 1:
        ids = ids[None]
    if ids.ndim != 2 and ids.dtype.kind not in "US":
        raise ValueError(f"{what} has the shape {list(ids.shape)}; expected [batch, tokens]")
    return integers(ids, what)


def mask_2d(value: Any) -> Optional[np.ndarray]:
    """Returns an attention mask as uint8 [rows][columns]; None for none."""
    if value is None:
        return None
    mask = _even(value, "attention_mask")
    if mask.ndim == 1:
        mask = mask[None]
    if mask.ndim != 2:
        raise ValueError(f"attention_mask has the shape {list(mask.shape)}; expected [batch, columns]")
    return np.ascontiguousarray(mask != 0, np.uint8)


def flat_mask(value: Any) -> Any:
    """Returns a mask [batch, 1, n, columns], bool or added to scores, as the mask [batch, columns] that it is made of.

    Raises UnsupportedError for one that hides more than padding and what comes later.
    """
    if value is None or np.ndim(value) != 4:
        return value
    given = to_numpy(value)
    seen = (given > -1 if given.dtype.kind == "f" and given.min(initial=0) < -1 else given != 0)[:, 0]
    n, columns = seen.shape[1:]
    padding = seen[:, -1:]
    own = np.arange(columns - n, columns)[:, None]
    wanted = padding & (np.arange(columns)[None] <= own)
    real = padding[:, 0, columns - n:, None]  # what a masked token sees does not matter
    if given.shape[1] != 1 or ((seen != wanted) & real).any():
        raise UnsupportedError("an attention_mask of four dimensions may hide padding, and tokens that come later; for another one, or one "
                               "for each head, use a model of Transformers with a cache of kvik")
    return padding[:, 0]


def frozen(value: Any) -> Any:
    """Returns an array of numpy as a read-only view: a change of it would be lost.  A tensor cannot be read-only."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def like(array: np.ndarray, torch: bool) -> Any:
    """Returns an array as what the caller uses: a torch tensor over the same memory, or the array."""
    if not torch:
        return array
    module = torch_module()
    if not array.flags.writeable:
        array = array.copy()
    return module.from_numpy(array)


def tensors(rows: Sequence[Sequence[int]], kind: Optional[str]) -> Any:
    """Returns rows of equal length as the tensors that were asked for: "pt", "np", or lists (None).

    "pt" gives numpy arrays where torch is not installed.
    """
    if kind is None:
        return [list(row) for row in rows]
    name = getattr(kind, "value", kind)
    if name not in ("pt", "np"):
        raise ValueError(f"return_tensors={kind!r}: expected 'pt' or 'np'")
    array = np.array(rows, np.int64)
    if array.size == 0:
        array = array.reshape(len(rows), 0)
    return like(array, name == "pt" and want_torch() is not None)


def row_indices(value: Any) -> np.ndarray:
    """Returns the rows of a batch that indices, or a mask of all rows, name."""
    index = to_numpy(value).ravel()
    if index.dtype == bool:
        index = np.flatnonzero(index)
    index = integers(index, "an index of rows", np.int64)
    if index.size and index.min() < 0:
        raise ArgumentError(f"row {int(index.min())}: rows are counted from 0")
    return integers(index, "an index of rows", np.uint32)
