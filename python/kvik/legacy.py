"""The legacy form of a cache: a key and a value per layer, [batch, heads, tokens, dim], as tuples of arrays."""
import ctypes
from typing import Any, List, Optional, Tuple

import numpy as np

from . import _abi
from ._arrays import is_torch, like, to_numpy
from ._lib import address, call, lib, sized, view
from .errors import ArgumentError
from .store import Batch, Store

Layers = List[Tuple[np.ndarray, np.ndarray]]


def is_legacy(value: Any) -> bool:
    """True if the value is a tuple of layers rather than a cache."""
    return isinstance(value, (tuple, list))


def to_layers(value: Any) -> Tuple[Layers, bool]:
    """Checks a legacy cache.  Returns its layers as f32 arrays, and True if they came as torch tensors."""
    layers: Layers = []
    torch = False
    for i, layer in enumerate(value):
        if not hasattr(layer, "__len__"):
            raise ValueError(f"layer {i} of the legacy cache is of the type {type(layer).__name__}; expected keys and values")
        if len(layer) < 2:
            raise ValueError(f"layer {i} of the legacy cache has {len(layer)} arrays; expected keys and values")
        torch = torch or is_torch(layer[0])
        keys, values = to_numpy(layer[0], np.float32), to_numpy(layer[1], np.float32)
        if keys.ndim != 4 or values.ndim != 4 or keys.shape[:3] != values.shape[:3]:
            raise ValueError(f"layer {i} of the legacy cache has keys {list(keys.shape)} and values {list(values.shape)}; "
                             "expected [batch, heads, tokens, dim] with equal batch, heads and tokens")
        if keys.shape[0] != layers[0][0].shape[0] if layers else False:
            raise ValueError(f"layer {i} of the legacy cache has a batch of {keys.shape[0]}, layer 0 one of "
                             f"{layers[0][0].shape[0]}")
        layers.append((keys, values))
    if not layers:
        raise ValueError("the legacy cache has no layers")
    return layers, torch


def from_struct(legacy: Any, free: bool = True, cross: bool = False) -> Layers:
    """Copies a kvik_legacy, or the rows of the encoder in it, into arrays, and frees it."""
    try:
        out: Layers = []
        table = legacy.contents.cross if cross else legacy.contents.layer
        if not table:
            return out
        for i in range(legacy.contents.n_layers):
            layer = table[i]
            shape = (legacy.contents.batch, layer.heads, layer.tokens)
            out.append((view(layer.keys, (*shape, layer.dim_k), np.float32).copy(),
                        view(layer.values, (*shape, layer.dim_v), np.float32).copy()))
        return out
    finally:
        if free:
            lib.kvik_legacy_free(legacy)


def of_batch(batch: Batch) -> Layers:
    """Returns the rows of a batch; columns without a row are zeros."""
    out = ctypes.POINTER(_abi.kvik_legacy)()
    call("kvik_batch_to_legacy", batch.pointer, ctypes.byref(out))
    return from_struct(out)


def cross_of_batch(batch: Batch) -> Layers:
    """Returns the encoder's rows of a batch, [batch, heads, rows, dim] per layer."""
    out = ctypes.POINTER(_abi.kvik_legacy)()
    call("kvik_batch_to_legacy", batch.pointer, ctypes.byref(out))
    return from_struct(out, cross=True)


def to_batch(store: Store, layers: Layers, length: int = 0, mask: Optional[np.ndarray] = None,
             ids: Optional[np.ndarray] = None) -> Batch:
    """Makes a batch of arrays.  length: columns, where layers with a window hold fewer.  ids: unknown if None."""
    n = len(layers)
    table = (_abi.kvik_legacy_layer * n)()
    for i, (keys, values) in enumerate(layers):
        table[i] = _abi.kvik_legacy_layer(heads=keys.shape[1], tokens=keys.shape[2], dim_k=keys.shape[3],
                                          dim_v=values.shape[3], keys=address(keys), values=address(values))
    given = sized(_abi.kvik_legacy, n_layers=n, batch=layers[0][0].shape[0], length=length, attention_mask=address(mask),
                  ids=address(ids), layer=table)
    batch = Batch(store)
    try:
        call("kvik_batch_from_legacy", store.pointer, ctypes.byref(given), ctypes.byref(batch.pointer))
    except ArgumentError as e:
        if "sees the last" in str(e) and "(length)" not in str(e):
            raise ArgumentError(f"{e}: layers of a model of kvik have rows of the same text; a cache class with an update() of its own can "
                                "keep others in each") from None
        if "(length)" not in str(e):
            raise
        raise ArgumentError(str(e).split(";")[0] + "; such rows do not tell how long the text was. Give the model the DynamicCache "
                            "that they come from, or one that update() has filled") from None
    return batch


def as_tuples(layers: Layers, torch: bool) -> Tuple[Tuple[Any, Any], ...]:
    """Returns the layers as the caller uses arrays."""
    return tuple((like(k, torch), like(v, torch)) for k, v in layers)
