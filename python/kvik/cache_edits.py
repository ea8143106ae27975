"""Rows that a program has set, or changed in an array that it was shown, put in place of those of a cache."""
from typing import AbstractSet, Any, Dict, Tuple

import numpy as np

from ._arrays import to_numpy
from .cache_states import Held, State
from .errors import ArgumentError


def _edited(old: np.ndarray, value: Any, what: str) -> np.ndarray:
    """Returns rows that a program has set, as the cache keeps them.  old: the rows before; of a static layer without its padding."""
    new = np.ascontiguousarray(to_numpy(value, np.float32))
    if new.ndim != 4 or (old.size and (new.shape[0] != old.shape[0] or new.shape[1] != old.shape[1] or new.shape[3] != old.shape[3])):
        raise ArgumentError(f"{what} were set to {list(new.shape)}; expected {[*old.shape[:2], 'columns', old.shape[3]]}")
    return new


def held_with(state: State, changed: Dict[Tuple[int, int], Any], touched: AbstractSet[Tuple[int, int]], full: Dict[int, int]) -> State:
    """Returns the state that has the rows of another with changes, {(layer, 0 for keys or 1 for values): rows}, and waits for its model.

    touched: which of them are changes of rows that the cache gave.  full: for static layers the columns that they have reserved; rows of so many are cut to those that there were.
    """
    layers, passed = state.parts()
    before = [k.shape[2] for k, _ in layers]
    for (layer, which), value in sorted(changed.items()):
        if not 0 <= layer < len(layers):
            raise ArgumentError(f"rows were set in layer {layer}; the cache has {len(layers)} layers")
        pair = list(layers[layer])
        new = _edited(pair[which], value, f"the {'values' if which else 'keys'} of layer {layer}")
        limit = full.get(layer)
        if new.shape[2] == limit:  # without the zeros behind the rows, or before those of a full window: CacheLayer.keys
            first = limit - before[layer] if before[layer] + passed.get(layer, (0, 0))[0] >= limit else 0
            new = new[:, :, first:first + before[layer]]
        elif (layer, which) in touched:  # what update() returned of a window has rows that the window has passed since
            new = new[:, :, max(new.shape[2] - before[layer], 0):]
        pair[which] = np.ascontiguousarray(new)
        layers[layer] = pair[0], pair[1]
    for i, (k, v) in enumerate(layers):
        if k.shape[:3] != v.shape[:3]:
            raise ArgumentError(f"layer {i} has keys {list(k.shape)} and values {list(v.shape)}: set both before the cache is used")
    mask = state.columns_mask()
    if mask is not None and any(k.shape[2] != n for (k, _), n in zip(layers, before)):
        raise ArgumentError("rows were removed from a batch with padding, whose columns then no longer fit its attention mask; crop() "
                            "removes the last ones")
    return Held(layers, passed, state.shapes(), mask)
