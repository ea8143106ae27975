"""A forward of a model of kvik whose rows a cache keeps that a program has written: its update() is called for every layer.

The library computes the keys and values of a layer, update() appends them and returns what attention sees, and the library goes on
with that.  Nothing stays in a store of the model.
"""
import ctypes
import inspect
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Tuple

import numpy as np

from . import _abi
from ._arrays import like, to_numpy
from ._lib import address, call, view
from .errors import ArgumentError, LimitError
from .generation.callbacks import Interruptible
from .store import Batch, ModelHandle, Settings

_STEP = 512  # tokens of the smallest step
_MOST = 1 << 15  # tokens of the largest


class Keeper(Interruptible):
    """The callback of one forward.  past: columns that the cache holds before it."""

    def __init__(self, cache: Any, torch: bool, n: int) -> None:
        self.cache, self.torch, self.n = cache, torch, n
        self.past = int(cache.get_seq_length())
        self.on_layer = _abi.kvik_on_layer(self._layer)
        self._alive: Tuple[Any, ...] = ()  # what attention reads
        try:
            names = inspect.signature(cache.update).parameters
        except (TypeError, ValueError):
            names = {}  # type: ignore[assignment]
        self._more: Dict[str, Any] = {}
        if "cache_kwargs" in names:
            place = np.arange(self.past, self.past + n)
            self._more["cache_kwargs"] = {"cache_position": like(place, torch)}

    def _layer(self, ctx: Any, given: int) -> int:
        try:
            seen = ctypes.cast(given, ctypes.POINTER(_abi.kvik_seen)).contents
            self._see(seen)
            return 0
        except BaseException as e:  # noqa: BLE001 - raised again after the call
            self.error = self.error or e
            return -1

    def _see(self, seen: Any) -> None:
        shape = (seen.rows, seen.heads, seen.n)
        keys = view(seen.new_keys, (*shape, seen.dim_k), np.float32).copy()
        values = view(seen.new_values, (*shape, seen.dim_v), np.float32).copy()
        length, offset = self.cache.get_mask_sizes(self.n, int(seen.layer))
        out = self.cache.update(like(keys, self.torch), like(values, self.torch), int(seen.layer), **self._more)
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise TypeError(f"{type(self.cache).__name__}.update() returned {type(out).__name__}; expected keys and values")
        keys, values = to_numpy(out[0], np.float32), to_numpy(out[1], np.float32)
        columns = keys.shape[2] if keys.ndim == 4 else 0
        if keys.shape != (seen.rows, seen.heads, columns, seen.dim_k) or values.shape != (seen.rows, seen.heads, columns, seen.dim_v):
            raise ValueError(f"{type(self.cache).__name__}.update() returned keys {list(keys.shape)} and values {list(values.shape)} for "
                             f"layer {seen.layer}; expected [{seen.rows}, {seen.heads}, columns, {seen.dim_k}] and [{seen.rows}, "
                             f"{seen.heads}, columns, {seen.dim_v}]")
        if not columns:
            raise ValueError(f"{type(self.cache).__name__}.update() returned no columns for layer {seen.layer}; a token sees at least its own")
        all_columns = self.past + self.n
        first = int(offset) if columns == int(length) else all_columns - columns
        place = np.arange(first, first + columns, dtype=np.int32)
        if first < 0:  # more than the text has: the latest ones are the last
            raise ValueError(f"{type(self.cache).__name__}.update() returned {columns} columns for a text of {all_columns}, and its "
                             f"get_mask_sizes() tells of {length}")
        place[place >= all_columns] = -1  # of a static cache, which are not filled yet
        self._alive = (keys, values, place)
        seen.columns, seen.keys, seen.values, seen.position = columns, address(keys), address(values), address(place)


@contextmanager
def kept_batch(model: ModelHandle, defaults: Settings, rows: int, n: int) -> Iterator[Batch]:
    """An empty batch for one step of so many rows and columns; it ends with the `with`."""
    batch = Batch.open(model, kept_settings(defaults, rows, n), rows)
    with batch.store.locked():
        yield batch


@contextmanager
def locked(batch: Batch) -> Iterator[Batch]:
    """A batch that has more than the rows which update() keeps, for one step."""
    with batch.store.locked():
        yield batch


def kept_settings(defaults: Settings, rows: int, n: int) -> Settings:
    """Returns the settings of a store for steps of so many rows and columns.  No other text may find the rows that lie there."""
    if rows * n > _MOST:
        raise LimitError(f"{rows} rows of {n} columns: a forward with a cache whose update() is called is one step, of at most {_MOST} "
                         "tokens; give the prompt in parts")
    step = _STEP
    while step < rows * n:
        step *= 2
    return Settings(no_prefix_cache=True, step_tokens=step, max_sequences=max(rows, 8), compute=defaults.compute,
                    threads=defaults.threads, isa=defaults.isa)


def check_inputs(cache: Any, attentions: bool, mask: Optional[np.ndarray], past: int, n: int) -> None:
    """Checks what a forward with such a cache cannot do."""
    if attentions:
        raise ArgumentError(f"output_attentions are not computed with a cache whose update() is called ({type(cache).__name__})")
    if mask is not None and mask.shape[1] != past + n:
        raise ArgumentError(f"the attention mask has {mask.shape[1]} columns; {past} are cached and {n} come now, so it needs {past + n}")


def run(pointer: Any, inputs: Any, outputs: Any, keeper: Keeper) -> None:
    """Computes a forward.  Raises what update() has raised."""
    keeper.interruptibly(lambda: call("kvik_batch_forward", pointer, ctypes.byref(inputs), ctypes.byref(outputs)))
