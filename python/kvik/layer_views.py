"""The layers of a cache as programs for Transformers see them: keys and values that can be read and set.

A change is kept until the cache is used next, and the cache then takes the rows as they are.  Tensors that were changed in place are
found by their version.
"""
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from ._arrays import frozen, is_torch, like, torch_module
from .errors import ArgumentError, UnsupportedError
from .linear_states import copied
from .states_beside import Linear

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

    def taken(self) -> None:
        """Notes that the cache has taken all changes.  A tensor that was set, or read and not set since, is now what the cache holds."""
        shown = {place: tensor for place, (tensor, _) in self.shown.items() if place not in self.set}
        shown.update({place: value for place, value in self.set.items() if is_torch(value)})
        self.set, self.shown = {}, {place: (tensor, tensor._version) for place, tensor in shown.items()}
        self.epoch += 1

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


class CacheLayerMixin:
    """What a layer that a program writes from nothing begins with: ``keys`` and ``values`` are its own attributes.

    It needs update(), get_seq_length(), get_mask_sizes(query_length) and get_max_length(); Cache(layers=[...]) calls them.
    """

    is_compileable = is_sliding = False
    is_croppable = True
    keys: Any = None
    values: Any = None
    is_initialized: Any = False

    def __init__(self) -> None:
        self.keys = self.values = None
        self.is_initialized = False

    def offload(self) -> None:
        """Does nothing."""

    prefetch = offload

    def reset(self) -> None:
        """Makes zeros of the rows."""
        if self.is_initialized:
            self.keys, self.values = self.keys * 0, self.values * 0

    def reorder_cache(self, beam_idx: Any) -> None:
        """Gives row i the contents of row beam_idx[i]."""
        if self.get_seq_length() > 0:
            self.keys, self.values = self.keys[beam_idx], self.values[beam_idx]

    def get_seq_length(self) -> int:
        """Returns the number of columns."""
        raise NotImplementedError(f"{type(self).__name__} needs get_seq_length()")

    def __repr__(self) -> str:
        return type(self).__name__


class CacheLayer(CacheLayerMixin):
    """The rows of a layer: ``keys`` and ``values``, [batch, heads, columns, width]; None of a layer that holds nothing yet.

    They can be set: the cache then holds these rows, and attention reads them.  numpy arrays that are read are read-only; a tensor may
    be changed in place.
    """

    _forgets = False  # update() drops rows that a crop() would need
    supports_early_init = True
    alone: Callable[..., Any]  # makes the cache of a layer that belongs to none: cache_utils sets it

    _made: Optional[Tuple[Any, Any]] = None  # the arguments of a layer that belongs to no cache
    _recorded: Optional[Tuple[Any, Any]] = None  # its rows that its cache does not have: see activate_past_recording()
    _since = 0  # tokens among these that came after the cache's

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cache = self.alone(*args, **kwargs)
        self._made = args, kwargs
        self._place(Snapshot(cache), 0)

    def _place(self, rows: Snapshot, index: int) -> None:
        self._rows, self._index, self.record_past = rows, index, False

    def _row(self, which: int) -> Any:
        return self._rows.row(self._index, which) if self._recorded is None else frozen(self._recorded[which])

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
        return self._row(0)

    @keys.setter
    def keys(self, value: Any) -> None:
        self._cache._set_rows(self._index, 0, value)

    @property
    def values(self) -> Any:
        """The values, or None."""
        return self._row(1)

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
        return int(self._cache.get_seq_length(self._index)) + self._since

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        """Appends rows, as update() of the cache does."""
        if self.record_past and self._forgets:
            before = (self.keys, self.values) if self.keys is not None else (key_states[:, :, :0], value_states[:, :, :0])
            self._since += key_states.shape[2]
            self._recorded = joined(before[0], key_states, 2), joined(before[1], value_states, 2)
            return self._recorded
        self._recorded = None
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
        """Keeps what a crop() would need, until it comes; of a layer that belongs to no cache."""
        self.record_past = self._made is not None
        self._alone().activate_past_recording()

    def _shrink(self, n: int) -> None:
        """Makes a cache anew of the recorded rows without the last -n."""
        keys, values = self._recorded or (self.keys, self.values)
        passed, keep = self.cumulative_length - keys.shape[2], max(keys.shape[2] + n, 0)
        self._recorded = kept = keys[:, :, :keep], values[:, :, :keep]
        assert self._made is not None
        fresh, cache = self.alone(*self._made[0], **self._made[1]), self._cache
        if keep and passed:  # what its window has passed
            gone = [np.zeros((*r.shape[:2], passed, r.shape[3]), np.float32) for r in kept]
            fresh.update(*(like(z, True).to(r) if is_torch(r) else z.astype(r.dtype) for z, r in zip(gone, kept)), 0)
        if keep:
            fresh.update(*kept, 0)
            self._recorded = None
        cache._state = cache._state.with_rows(fresh._state)
        cache._torch, cache._row_dtype, self._since = is_torch(keys), keys.dtype, 0
        cache._edits.forget()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes so many tokens, a number of 0 or below, or all if there are fewer; of a layer that belongs to no cache."""
        if tokens_to_remove > 0:
            raise ArgumentError(f"crop({tokens_to_remove}) of a layer: expected 0, or below 0 the number of tokens to remove")
        cache, rows = self._alone(), self.keys
        states = cache._state.linear
        if self._made is not None and (self._recorded is not None or (rows is not None and -tokens_to_remove >= self.cumulative_length)):
            self._shrink(tokens_to_remove)
        elif tokens_to_remove and (rows is not None or states):
            cache.crop(tokens_to_remove)
            return
        if states:
            cache._state = Linear(states.cropped(tokens_to_remove), cache._state.under)

    def reset(self) -> None:
        """Removes all columns; of a layer that belongs to no cache."""
        self._recorded, self._since = None, 0
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


class DynamicLayer(CacheLayer):
    """A layer that grows."""


class DynamicSlidingWindowLayer(DynamicLayer):
    """A layer that keeps what the next token sees of its window."""

    is_sliding = _forgets = True

    @property
    def sliding_window(self) -> int:
        """The window, or the chunk."""
        return int(self._cache.layer_limit(self._index))


class DynamicIndexedLayer(DynamicLayer):
    """A layer with the keys of an indexer beside its rows, [batch, tokens, width], as models with sparse attention ask for: alone, since
    no model of kvik has one."""

    indexer_keys: Any = None

    @property
    def is_indexer_initialized(self) -> bool:
        """True if update_indexer() was called."""
        return self.indexer_keys is not None

    def update_indexer(self, indexer_key_states: Any) -> Any:
        """Appends keys of the indexer, and returns all."""
        self.indexer_keys = indexer_key_states if self.indexer_keys is None else joined(self.indexer_keys, indexer_key_states, 1)
        return self.indexer_keys

    def crop(self, tokens_to_remove: int) -> None:
        """Removes so many tokens of both, a number of 0 or below."""
        super().crop(tokens_to_remove)
        if self.indexer_keys is not None:
            self.indexer_keys = self.indexer_keys[:, :max(self.indexer_keys.shape[1] + tokens_to_remove, 0)]

    def reset(self) -> None:
        """Removes all columns of both."""
        super().reset()
        self.indexer_keys = None

    def batch_select_indices(self, indices: Any) -> None:
        """Makes the batch these rows."""
        super().batch_select_indices(indices)
        self.indexer_keys = None if self.indexer_keys is None else self.indexer_keys[indices]

    def reorder_cache(self, beam_idx: Any) -> None:
        """Gives row i the contents of row beam_idx[i]."""
        super().reorder_cache(beam_idx)
        self.indexer_keys = None if self.indexer_keys is None else self.indexer_keys[beam_idx]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row."""
        super().batch_repeat_interleave(repeats)
        if self.indexer_keys is not None:
            self.indexer_keys = self.indexer_keys[np.repeat(np.arange(len(self.indexer_keys)), repeats)]


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


class Fp8QuantizedLayer(QuantizedLayer):
    """One of the backend fp8."""


class LinearAttentionLayer(CacheLayer):
    """A layer with recurrent states."""

    supports_early_init = False

    def _places(self, name: str, *columns: str) -> Dict[int, Any]:
        states = self._cache._state.linear
        if states:
            return {k: frozen(copied(a)) for (i, k), a in getattr(states, name).items() if i == self._index} or {0: None}
        return {0: next((s for s in (_state(getattr(self._cache, c), self._index) for c in columns) if s is not None), None)}

    @property
    def conv_states(self) -> Dict[int, Any]:
        """The last inputs of each of its convolutions by their numbers from 0, copied; None of one without any."""
        return self._places("conv", "conv_states")

    @property
    def recurrent_states(self) -> Dict[int, Any]:
        """The recurrent states by their numbers from 0, copied; None for none."""
        return self._places("recurrent", "recurrent_states", "ssm_states")

    def activate_past_recording(self) -> None:
        """Keeps what a crop() would need, until it comes; of a layer that belongs to no cache."""
        super().activate_past_recording()
        self._cache._states_of().recording = True

    def update_conv_state(self, conv_states: Any, state_idx: int = 0, **kwargs: Any) -> Any:
        """As that of the cache."""
        return self._cache.update_conv_state(conv_states, self._index, state_idx, **kwargs)

    def update_recurrent_state(self, recurrent_states: Any, state_idx: int = 0, **kwargs: Any) -> Any:
        """As that of the cache."""
        return self._cache.update_recurrent_state(recurrent_states, self._index, state_idx, **kwargs)


class LinearAttentionAndFullAttentionLayer(LinearAttentionLayer, DynamicLayer):
    """A layer with states and rows."""

    supports_early_init = True


class LinearAttentionAndSlidingWindowAttentionLayer(LinearAttentionLayer, DynamicSlidingWindowLayer):
    """A layer with states, and with rows of which it keeps a window."""

    supports_early_init = True


class DummyLayer(CacheLayer):
    """A layer that keeps nothing."""


def joined(first: Any, second: Any, axis: int) -> Any:
    """Returns two arrays, or two tensors, one behind the other."""
    return torch_module().cat((first, second), axis) if is_torch(second) else np.concatenate((first, second), axis)


def _state(states: List[Any], layer: int) -> Any:
    return states[layer] if layer < len(states) else None
