"""A cache of layers that a program has written: Cache(layers=[...]), or Cache(layer_class_to_replicate=MyLayer).

Models of kvik call update() of each layer, as they call that of a cache which a program has written.
"""
import copy
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from .caches import Cache
from .errors import UnsupportedError


class LayeredCache(Cache):
    """The layers of a program, one for each layer of the model."""

    def __init__(self, layers: Optional[List[Any]] = None, layer_class_to_replicate: Any = None, offloading: bool = False,
                 offload_only_non_sliding: bool = True) -> None:
        if (layers is None) == (layer_class_to_replicate is None):
            raise ValueError("give either layers, or layer_class_to_replicate, of which each layer of the model gets one")
        if offloading:
            raise UnsupportedError("offloading: layers of a program keep their rows where they want; DynamicCache(offloading=True) has layers "
                                   "of the library")
        super().__init__()
        self._own, self._kind = list(layers or ()), layer_class_to_replicate

    @property
    def is_written(self) -> bool:
        """True: update() of each layer is called."""
        return True

    @property  # type: ignore[misc]
    def layer_class_to_replicate(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class of which layers are made as the model needs them; None where all layers were given."""
        return self._kind

    @property  # type: ignore[misc]
    def layers(self) -> List[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The layers of the program."""
        return self._own

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        """Calls update() of a layer."""
        while self._kind is not None and len(self._own) <= layer_idx:
            self._own.append(self._kind())
        if layer_idx >= len(self._own):
            raise IndexError(f"the cache has {len(self._own)} layers, and the model asks for layer {layer_idx}")
        return self._own[layer_idx].update(key_states, value_states, *args, **kwargs)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._own)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns what the layer tells."""
        return int(self._own[layer_idx].get_seq_length()) if layer_idx < len(self._own) else 0

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> Tuple[int, int]:
        """Returns what the layer tells."""
        n = len(query_length) if np.ndim(query_length) else int(query_length)
        return self._own[layer_idx].get_mask_sizes(n) if layer_idx < len(self._own) else (n, 0)

    def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]:
        """Returns what the layer tells; None for no limit."""
        most = int(self._own[layer_idx or 0].get_max_length()) if len(self._own) > (layer_idx or 0) else -1
        return None if most < 0 else most

    @property
    def batch_size(self) -> int:
        """The number of rows; -1 if the cache holds nothing."""
        keys = self._own[0].keys if self._own else None
        return -1 if keys is None else int(keys.shape[0])

    @property
    def is_initialized(self) -> bool:
        """True if a layer holds rows."""
        return any(layer.is_initialized for layer in self._own)

    @property
    def is_sliding(self) -> List[bool]:
        """For each layer, True if it forgets."""
        return [bool(getattr(layer, "is_sliding", False)) for layer in self._own]

    def _every(self, name: str, *args: Any) -> None:
        for layer in self._own:
            getattr(layer, name)(*args)

    def crop(self, max_length: int) -> None:
        """Keeps the first max_length columns if it is 0 or more; a negative number removes that many."""
        n = int(max_length)
        more = n if n < 0 else min(n - self.get_seq_length(), 0)
        if more:
            self._every("crop", more)

    def _take_back(self, length: int) -> None:
        for layer in self._own:
            with suppress(Exception):  # a layer without crop() keeps what it has
                more = int(layer.get_seq_length()) - length
                if more > 0:
                    layer.crop(-more)

    def reset(self) -> None:
        """Calls reset() of every layer."""
        self._every("reset")

    def reorder_cache(self, beam_idx: Any) -> None:
        """Calls reorder_cache() of every layer."""
        self._every("reorder_cache", beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Calls batch_repeat_interleave() of every layer."""
        self._every("batch_repeat_interleave", repeats)

    def batch_select_indices(self, indices: Any) -> None:
        """Calls batch_select_indices() of every layer."""
        self._every("batch_select_indices", indices)

    def to_legacy_cache(self) -> Tuple[Tuple[Any, Any], ...]:
        """Returns the keys and values of every layer."""
        return tuple((layer.keys, layer.values) for layer in self._own)

    def fork(self) -> "LayeredCache":
        """Returns a cache with copies of the layers."""
        twin: LayeredCache = super().fork()
        twin._own = copy.deepcopy(self._own)
        return twin

    __copy__ = fork

    def __getstate__(self) -> Dict[str, Any]:
        raise UnsupportedError("a cache of a program's own layers is not pickled; pickle cache.to_legacy_cache()")


Cache.of_layers = LayeredCache
