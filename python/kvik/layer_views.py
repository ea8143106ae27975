"""The layers of a cache as programs for Transformers see them: keys and values that can be read and set.

A change is kept until the cache is used next, and the cache then takes the rows as they are.  Tensors that were changed in place are
found by their version.
"""
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._arrays import frozen, is_torch
from .errors import ArgumentError, UnsupportedError

Place = Tuple[int, int]
"""A layer, and 0 for its keys, 1 for its values."""


class Edits:
    """What a program has read of the rows of a cache, and what it has set."""

    def __init__(self) -> None:
        self.set: Dict[Place, Any] = {}
        self.shown: Dict[Place, Tuple[Any, int]] = {}  # tensors, with the versions that they had
        self.epoch = 0  # counts changes of the cache, after which what was read is old
        self.oldest: Dict[int, Tuple[Any, Any]] = {}  # of static layers with a window, its first row, which no later token sees

    def show(self, place: Place, value: Any) -> Any:
        """Returns an array as a program may have it."""
        if not is_torch(value):
            return frozen(value)
        self.shown[place] = value, value._version
        return value

    def found(self, place: Place) -> Any:
        """Returns what was set, or is in a program's hands; or None."""
        return self.set[place] if place in self.set else self.shown[place][0] if place in self.shown else None

    def changed(self) -> Dict[Place, Any]:
        """Returns all changes."""
        touched = {place: tensor for place, (tensor, version) in self.shown.items() if tensor._version != version}
        return {**touched, **self.set}

    def forget(self, layer: Optional[int] = None) -> None:
        """Drops what was read, of one layer or of all: the cache has changed."""
        self.epoch += 1
        self.oldest = {} if layer is None else self.oldest
        self.shown = {} if layer is None else {place: kept for place, kept in self.shown.items() if place[0] != layer}


    def keep_window(self, layer: int, window: int, keys: Any, values: Any) -> None:
        """Keeps the first row of the window of a layer.  keys and values: what update() has returned."""
        rows = keys.shape[2]
        self.oldest.pop(layer, None)
        if 0 < window <= rows:
            self.oldest[layer] = keys[:, :, rows - window:rows - window + 1].copy(), values[:, :, rows - window:rows - window + 1].copy()


class Snapshot:
    """The rows of a cache, read once for all layers until the cache changes."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self._rows: Dict[int, Tuple[Any, Any]] = {}
        self._epoch = -1

    def row(self, layer: int, which: int) -> Any:
        """Returns the keys (0) or values (1) of a layer, or None."""
        cache, place = self.cache, (layer, which)
        known = cache._edits.found(place)
        if known is not None:
            return frozen(known)
        if self._epoch != cache._edits.epoch:
            self._rows, self._epoch = {}, cache._edits.epoch
        if layer not in self._rows:
            self._rows.update(cache._read_rows(layer))
        value = self._rows.get(layer, (None, None))[which]
        return None if value is None else cache._edits.show(place, value)


class Column(List[Any]):
    """The keys, or the values, of all layers: key_cache and value_cache.  Setting an entry sets the rows of the layer."""

    def __init__(self, cache: Any, which: int, values: List[Any]) -> None:
        super().__init__(values)
        self._cache, self._which = cache, which

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        for i in range(*index.indices(len(self))) if isinstance(index, slice) else (range(len(self))[index],):
            self._cache._set_rows(i, self._which, self[i])


class CacheLayer:
    """The rows of a layer: ``keys`` and ``values``, [batch, heads, columns, width]; None of a layer that holds nothing yet.

    They can be set: the cache then holds these rows, and attention reads them.  numpy arrays that are read are read-only; a tensor may
    be changed in place.
    """

    is_sliding = False
    is_compileable = False
    is_croppable = True
    supports_early_init = True
    alone: Callable[..., Any]  # makes the cache of a layer that belongs to none: cache_utils sets it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cache = self.alone(*args, **kwargs)
        self._place(Snapshot(cache), 0)

    def _place(self, rows: Snapshot, index: int) -> None:
        self._rows, self._index, self.record_past = rows, index, False

    @classmethod
    def of(cls, rows: Snapshot, index: int, is_sliding: bool) -> Any:
        """Makes the layer of a cache."""
        layer = cls.__new__(cls)
        layer._place(rows, index)
        layer.is_sliding = is_sliding
        return layer

    @property
    def _cache(self) -> Any:
        return self._rows.cache

    @property
    def keys(self) -> Any:
        """The keys, or None."""
        return self._rows.row(self._index, 0)

    @keys.setter
    def keys(self, value: Any) -> None:
        self._cache._set_rows(self._index, 0, value)

    @property
    def values(self) -> Any:
        """The values, or None."""
        return self._rows.row(self._index, 1)

    @values.setter
    def values(self, value: Any) -> None:
        self._cache._set_rows(self._index, 1, value)

    @property
    def is_initialized(self) -> bool:
        """True if the layer holds rows."""
        return self.keys is not None

    @property
    def dtype(self) -> Any:
        """The dtype of the rows, or None."""
        return getattr(self.keys, "dtype", None)

    @property
    def device(self) -> Any:
        """The device of the rows: of a numpy array "cpu".  None if there are none."""
        keys = self.keys
        return None if keys is None else getattr(keys, "device", "cpu")

    @property
    def batch_size(self) -> int:
        """The rows of the batch; -1 if the layer holds nothing."""
        keys = self.keys
        return -1 if keys is None else int(keys.shape[0])

    @property
    def cumulative_length(self) -> int:
        """The tokens that the layer has seen."""
        return int(self._cache.get_seq_length(self._index))

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        """Appends rows, as update() of the cache does."""
        return self._cache.update(key_states, value_states, self._index)  # type: ignore[no-any-return]

    def get_seq_length(self) -> int:
        """Returns the number of columns; of a layer with a window the tokens that it has seen."""
        keys = self.keys
        if keys is None:
            return 0
        return int(self._cache.get_seq_length(self._index)) if self.is_sliding or self.is_compileable else int(keys.shape[2])

    def get_mask_sizes(self, query_length: Any) -> Tuple[int, int]:
        """Returns those of the cache for this layer."""
        return self._cache.get_mask_sizes(query_length, self._index)  # type: ignore[no-any-return]

    def get_max_length(self) -> int:
        """Returns the most columns; -1 for no limit."""
        return int(self._cache.layer_limit(self._index))

    get_max_cache_shape = get_max_length

    def _alone(self) -> Any:
        if len(self._cache) > 1:
            raise UnsupportedError("the layers of a cache change together; call this of the cache")
        return self._cache

    def activate_past_recording(self) -> None:
        """Keeps what a crop() would need; of a layer that belongs to no cache."""
        self.record_past = True
        self._alone().activate_past_recording()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes so many tokens, a number of 0 or below; of a layer that belongs to no cache."""
        if tokens_to_remove > 0:
            raise ArgumentError(f"crop({tokens_to_remove}) of a layer: expected 0, or below 0 the number of tokens to remove")
        if tokens_to_remove and self.is_initialized:
            self._alone().crop(tokens_to_remove)

    def reset(self) -> None:
        """Removes all columns; of a layer that belongs to no cache."""
        self._alone().reset()

    def reorder_cache(self, beam_idx: Any) -> None:
        """Gives row i the contents of row beam_idx[i]; of a layer that belongs to no cache."""
        self._alone().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row; of a layer that belongs to no cache."""
        self._alone().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Any) -> None:
        """Makes the batch these rows; of a layer that belongs to no cache."""
        self._alone().batch_select_indices(indices)

    def offload(self) -> None:
        """Does nothing: an offloaded cache moves full pages itself."""

    prefetch = offload

    def __repr__(self) -> str:
        return type(self).__name__


CacheLayerMixin = CacheLayer


class DynamicLayer(CacheLayer):
    """A layer that grows."""


class DynamicSlidingWindowLayer(DynamicLayer):
    """A layer that keeps what the next token sees of its window."""

    is_sliding = True

    @property
    def sliding_window(self) -> int:
        """The window, or the chunk."""
        return int(self._cache.layer_limit(self._index))


class StaticLayer(CacheLayer):
    """A layer with max_cache_len reserved columns."""

    is_compileable = True

    @property
    def max_cache_len(self) -> int:
        """The columns."""
        return int(self._cache.layer_limit(self._index))


class StaticSlidingWindowLayer(StaticLayer):
    """A layer with the columns of its window."""

    is_sliding = True


class QuantizedLayer(DynamicLayer):
    """A layer whose older rows are in few bits; they are read as attention reads them."""


class QuantoQuantizedLayer(QuantizedLayer):
    """One of the backend quanto."""


class HQQQuantizedLayer(QuantizedLayer):
    """One of the backend hqq."""


class LinearAttentionLayer(CacheLayer):
    """A layer with recurrent states."""

    supports_early_init = False

    @property
    def conv_states(self) -> Any:
        """The last inputs of the convolution, or None."""
        return _state(self._cache.conv_states, self._index)

    @property
    def recurrent_states(self) -> Any:
        """The recurrent state, or None."""
        found = _state(self._cache.recurrent_states, self._index)
        return found if found is not None else _state(self._cache.ssm_states, self._index)

    def update_conv_state(self, conv_states: Any, state_idx: int = 0, **kwargs: Any) -> Any:
        """As that of the cache."""
        return self._cache.update_conv_state(conv_states, self._index, state_idx, **kwargs)

    def update_recurrent_state(self, recurrent_states: Any, state_idx: int = 0, **kwargs: Any) -> Any:
        """As that of the cache."""
        return self._cache.update_recurrent_state(recurrent_states, self._index, state_idx, **kwargs)


class LinearAttentionAndFullAttentionLayer(LinearAttentionLayer, DynamicLayer):
    """A layer with states and rows."""

    supports_early_init = True


class DummyLayer(CacheLayer):
    """A layer that keeps nothing."""


def _state(states: List[Any], layer: int) -> Any:
    return states[layer] if layer < len(states) else None
