"""The library's cache without a model (`kvik_layers`): the caller computes keys and values, update() returns what attention must see."""
import ctypes
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _abi
from ._lib import address, call, owned, sized, view
from .errors import LostError
from .store import Settings, budgeted

_NAMES = {"float16": b"f16", "bfloat16": b"bf16"}
_FIRST = 2048  # tokens that a row has room for at first; a longer one moves to a larger cache


class LayerStore:
    """The rows of n_layers; layers that no update has touched cost nothing."""

    def __init__(self, settings: Settings, n_layers: int, kinds: Optional[List[str]] = None) -> None:
        self.grows = settings.cache_implementation in (None, "dynamic") and (
            settings.max_cache_len is None or settings.max_cache_len % _FIRST == 0)
        self.grows &= "max_cache_len" not in (settings.cache_config or "")
        if self.grows and settings.max_cache_len is None:
            settings = replace(settings, max_cache_len=_FIRST)
        self.settings, self.n_layers, self.kinds = settings, n_layers, kinds
        self.blank: Dict[int, int] = {}  # tokens of layers that had zeros from fill(): a crop below would show them
        names = (ctypes.c_char_p * n_layers)(*(k.encode() for k in kinds)) if kinds else None
        self.pointer = owned("kvik_layers_close")
        call("kvik_layers_open", ctypes.byref(settings.struct()), n_layers,
             ctypes.cast(names, ctypes.c_void_p) if names else None, ctypes.byref(self.pointer))

    def update(self, layer: int, keys: np.ndarray, values: np.ndarray, dtype: str) -> Tuple[np.ndarray, np.ndarray]:
        """Appends rows [batch][heads][n][dim] to a layer; returns copies of the keys and values to attend to."""
        batch, heads, n, dim = keys.shape
        self._room(layer, n)
        shape = sized(_abi.kvik_shape, batch=batch, heads=heads, n=n, dim_k=dim, dim_v=values.shape[3],
                      dtype=_NAMES.get(dtype))
        out = sized(_abi.kvik_rows)
        with budgeted():  # the first update of a layer opens its memory
            call("kvik_layers_update", self.pointer, layer, address(keys), address(values), ctypes.byref(shape),
                 ctypes.byref(out))
        return self._arrays(out)

    def _room(self, layer: int, n: int) -> None:
        """Moves to a larger cache if so many more rows need one.  Limits that the caller has set stay."""
        limit = self.settings.max_cache_len
        if self.grows and limit and self.length(layer) + n > limit:
            self.become(replace(self.settings, max_cache_len=2 * max(limit, self.length(layer) + n)))

    def rows(self, wanted: int) -> None:
        """Makes room for a batch of so many rows."""
        if self.is_full(wanted):
            self.become(replace(self.settings, max_sequences=wanted))

    def is_full(self, batch: int) -> bool:
        """True if there is no room for a batch of so many rows."""
        return batch > (self.settings.max_sequences or 16)

    def become(self, settings: Settings) -> None:
        """Moves to a cache with other limits."""
        other = self.copy(settings=settings)
        self.pointer, other.pointer = other.pointer, self.pointer
        self.settings, self.blank = settings, other.blank

    @staticmethod
    def _arrays(out: Any) -> Tuple[np.ndarray, np.ndarray]:
        shape = (out.batch, out.heads, out.rows)
        return (view(out.keys, (*shape, out.dim_k), np.float32).copy(),
                view(out.values, (*shape, out.dim_v), np.float32).copy())

    def layer(self, layer: int) -> Tuple[np.ndarray, np.ndarray]:
        """Returns the rows of a layer that the next update will see."""
        out = sized(_abi.kvik_rows)
        call("kvik_layers_rows", self.pointer, layer, ctypes.byref(out))
        return self._arrays(out)

    def passed(self, layer: int) -> Tuple[int, int]:
        """Returns how many tokens the window of a layer has passed, and how many of its rows come before them: sinks."""
        out = sized(_abi.kvik_rows)
        call("kvik_layers_rows", self.pointer, layer, ctypes.byref(out))
        rows = int(out.rows)
        moved = np.flatnonzero(view(out.position, (rows,), np.int32) != np.arange(rows))
        return self.length(layer) - rows, int(moved[0]) if moved.size else rows

    def fill(self, layer: int, keys: np.ndarray, values: np.ndarray, passed: Tuple[int, int] = (0, 0)) -> None:
        """Gives a layer without rows those of another cache, and zeros for the tokens that the window there has passed."""
        gone, sinks = passed
        parts = [(keys, values)]
        if gone:
            parts = [(keys[:, :, :sinks], values[:, :, :sinks]),
                     (np.zeros((*keys.shape[:2], gone, keys.shape[3]), np.float32),
                      np.zeros((*values.shape[:2], gone, values.shape[3]), np.float32)),
                     (keys[:, :, sinks:], values[:, :, sinks:])]
        for k, v in parts:
            if k.shape[2]:
                self.update(layer, np.ascontiguousarray(k), np.ascontiguousarray(v), "float32")
        if gone:
            self.blank[layer] = self.length(layer)

    def crop(self, n: int) -> None:
        """Keeps the first n tokens if n is 0 or more; a negative number removes that many."""
        for layer, least in self.blank.items():
            want = n if n >= 0 else self.length(layer) + n
            if 0 < want < least:
                raise LostError(f"crop to {want} rows: layer {layer} no longer has the rows that its window would need, and "
                                "without a model they cannot be recomputed")
        call("kvik_layers_crop", self.pointer, n)
        self.blank = {layer: least for layer, least in self.blank.items() if self.length(layer)}

    def reset(self) -> None:
        """Removes all rows."""
        call("kvik_layers_reset", self.pointer)
        self.blank.clear()

    def length(self, layer: int = 0) -> int:
        """Returns the number of tokens that a layer has seen; 0 for one that does not exist yet."""
        if layer >= self.n_layers:
            return 0
        return call("kvik_layers_length", self.pointer, layer)

    def batch(self) -> int:
        """Returns the rows of the batch; 1 if no layer has any."""
        return next((self.layer(i)[0].shape[0] for i in range(self.n_layers) if self.length(i)), 1)

    def used(self) -> int:
        """Returns the number of layers up to the last that has rows."""
        return max((i + 1 for i in range(self.n_layers) if self.length(i)), default=0)

    def copy(self, n_layers: Optional[int] = None, settings: Optional[Settings] = None) -> "LayerStore":
        """Returns a cache with the same rows in memory of its own; rows of quantized layers are quantized again."""
        kinds = self.kinds
        if kinds and n_layers and n_layers > len(kinds):
            kinds = kinds + [kinds[-1]] * (n_layers - len(kinds))
        out = LayerStore(settings or self.settings, n_layers or self.n_layers, kinds)
        out.grows = self.grows
        for i in range(self.n_layers):
            if self.length(i):
                out.fill(i, *self.layer(i), passed=self.passed(i))
        return out
