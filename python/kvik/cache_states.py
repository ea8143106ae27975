"""What a cache holds: an object of a small family, which does for it what depends on that.

Fresh: nothing.  Held: arrays of legacy tuples or of a pickle, which wait for their model.  Saved: a session, which waits as well.
Unbound: rows that update() has appended for a model that is written elsewhere.  Bound: sequences in a store of a model of kvik.
Beside one of them may be recurrent states (`states_beside`).

An operation returns the state after it, the same object or another.  One that fails leaves the cache as it was.
"""
import ctypes
import json
from contextlib import contextmanager
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Tuple

import numpy as np

from . import _abi, legacy
from ._lib import address, call, sized, text_of, usage_fields
from .cache_files import load_session, session_bytes, session_read, waiting
from .cache_outline import Outline, Shapes
from .errors import ArgumentError
from .layer_store import LayerStore
from .linear_states import LinearStates
from .store import Batch, ModelHandle, Settings

Passed = Dict[int, Tuple[int, int]]
"""For layers whose window has passed rows: LayerStore.passed()."""


class State:
    """The state of a cache: here of one that holds nothing, which the classes below change."""

    batch: Optional[Batch] = None
    store: Optional[LayerStore] = None
    session: Optional[Dict[str, Any]] = None
    linear: Optional[LinearStates] = None
    mask: Optional[np.ndarray] = None
    is_used = False
    is_loose = False  # rows that come from a model which is written elsewhere
    is_of_model = False  # rows of a model of kvik
    unsaved = "the cache is empty; call a model with it first"  # why there is nothing to save

    def __init__(self, shapes: Shapes = None) -> None:
        self._shapes = shapes  # of the model that computed the rows, where update() has gone on from them

    # -- what there is

    def shapes(self) -> Shapes:
        """Returns the kinds of the layers, and their window, of the model of kvik that computed the rows; or None."""
        return self._shapes

    def described(self) -> Optional[List[Dict[str, Any]]]:
        """Returns what the library says of the layers of the model; None without a model."""
        return None

    def layer_count(self) -> int:
        """Returns the number of layers up to the last that holds something."""
        return 0

    def rows(self) -> int:
        """Returns the rows of the batch; 0 if they are not known."""
        return 0

    def columns(self) -> int:
        """Returns the columns of the rows of a model of kvik, padding included."""
        return 0

    def seen(self, layer: int) -> int:
        """Returns the tokens that a layer without a model has seen, with those that its window has passed."""
        return 0

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        """Returns the rows of all layers as f32 arrays, and what their windows have passed."""
        return [], {}

    def read(self) -> ContextManager[Batch]:
        """The batch of rows of a model of kvik, for reading."""
        raise AssertionError

    def read_states(self) -> ContextManager[Batch]:
        """The batch of recurrent states of a model of kvik, for reading."""
        return self.read()

    def columns_mask(self) -> Optional[np.ndarray]:
        """Returns the mask of the columns, [rows, columns]; None if all are tokens."""
        return self.mask

    def usage(self) -> Dict[str, int]:
        """Returns the fields of kvik_usage by name."""
        return {}

    def maps(self) -> List[Dict[str, Any]]:
        """Returns where the blocks of each row in a store of a model are."""
        return []

    def beside(self) -> Optional[Batch]:
        """Returns the batch of a model of kvik that has recurrent states beside these rows; or None."""
        return None

    def pickled(self) -> Dict[str, Any]:
        """Returns what a pickle keeps, which restored() takes."""
        held, passed = self.parts() if self.is_loose else (None, {})
        return {"_held": held, "_passed": passed, "_of_model": self._shapes, "_session": self.session, "_linear": None,
                "_mask": self.columns_mask() if self.is_loose else None}

    # -- from one to another

    def rows_alone(self) -> "State":
        """Returns the state without what is beside the rows."""
        return self

    def with_rows(self, other: "State") -> "State":
        """Returns the state that has the rows of another; recurrent states stay."""
        return other

    def ready(self, model: ModelHandle, rows: int) -> "State":
        """Returns the state before rows of a model are appended to it.  Raises ArgumentError if the model cannot continue it."""
        return self

    def to_batch(self, model: ModelHandle, settings: Settings, rows: int) -> Batch:
        """Makes the batch of a model that has the contents of this state."""
        layers, passed = self.parts()
        if not layers:
            return Batch.open(model, settings, rows)
        if layers[0][0].shape[0] != rows:
            raise ArgumentError(f"the input has {rows} rows, the cache has {layers[0][0].shape[0]}")
        known = self.store is not None or passed  # rows of a legacy cache do not tell how long the text was
        length = max(map(self.seen, range(len(layers)))) if known else 0
        with model.using(settings, rows) as store:
            return legacy.to_batch(store, layers, length, self.mask)

    def updatable(self, outline: Outline, batch: int, layer: int) -> "State":
        """Returns the state in which update() can append rows of a batch to a layer."""
        layers, passed = self.parts()
        store = outline.open(batch, max(layer, len(layers) - 1))
        for i, (keys, values) in enumerate(layers):
            store.fill(i, keys, values, passed.get(i, (0, 0)))
        return Unbound(store, self.shapes())

    def masking(self, outline: Outline, layer: int, length: int) -> LayerStore:
        """Returns a store in which the layer has what update() would see.  length: of the cache."""
        layers, passed = self.parts()
        store = outline.open(self.rows() or 1, max(layer, len(layers) - 1))
        if layer < len(layers):
            store.fill(layer, *layers[layer], passed.get(layer, (0, 0)))
        return store

    # -- operations on all rows

    def crop(self, n: int, outline: Outline) -> "State":
        """Keeps the first n columns if n is 0 or more; a negative number removes that many."""
        return self

    def taken_back(self, n: int, outline: Outline) -> "State":
        """Keeps the first n columns of rows that update() has appended."""
        return self.crop(n, outline)

    def settled(self) -> "State":
        """Takes nothing back: what was recorded for a crop is no longer needed."""
        return self

    def reset(self) -> "State":
        """Removes all columns."""
        return self

    def reorder(self, index: np.ndarray) -> "State":
        """Gives row i the contents of row index[i]."""
        return self

    def repeat(self, times: int) -> "State":
        """Repeats every row: 0, 0, .., 1, 1, .."""
        return self

    def select(self, index: np.ndarray) -> "State":
        """Makes the batch the rows index[0], index[1], ..."""
        return self

    def fork(self) -> "State":
        """Returns a state with the same contents, which neither changes for the other."""
        return self


class Fresh(State):
    """Nothing."""


class Held(State):
    """Arrays that wait for their model.  passed: of rows of an update()d cache, which know how long the text was."""

    is_used = is_loose = True
    unsaved = "the cache waits for its model; call the model with it first"

    def __init__(self, layers: legacy.Layers, passed: Optional[Passed] = None, shapes: Shapes = None,
                 mask: Optional[np.ndarray] = None) -> None:
        super().__init__(shapes)
        self._layers, self._passed = layers, passed or {}
        self.mask = mask  # of the columns; None: all are tokens

    def layer_count(self) -> int:
        return len(self._layers)

    def rows(self) -> int:
        return max((int(k.shape[0]) for k, _ in self._layers), default=0)

    def seen(self, layer: int) -> int:
        if not 0 <= layer < len(self._layers):
            return 0
        return int(self._layers[layer][0].shape[2]) + self._passed.get(layer, (0, 0))[0]

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        return self._layers, self._passed

    def crop(self, n: int, outline: Outline) -> State:
        if self._passed:
            return self.updatable(outline, self.rows(), 0).crop(n, outline)
        return self._of([(np.ascontiguousarray(k[:, :, :n]), np.ascontiguousarray(v[:, :, :n])) for k, v in self._layers],
                        None if self.mask is None else np.ascontiguousarray(self.mask[:, :n]))

    def reset(self) -> State:
        return Fresh(self._shapes)

    def reorder(self, index: np.ndarray) -> State:
        return self.select(index)

    def repeat(self, times: int) -> State:
        return self._of([(k.repeat(times, 0), v.repeat(times, 0)) for k, v in self._layers],
                        None if self.mask is None else self.mask.repeat(times, 0))

    def select(self, index: np.ndarray) -> State:
        return self._of([(k[index], v[index]) if k.size else (k, v) for k, v in self._layers],
                        None if self.mask is None else np.ascontiguousarray(self.mask[index]))

    def _of(self, layers: legacy.Layers, mask: Optional[np.ndarray]) -> State:
        return Held(layers, self._passed, self._shapes, mask)


class Saved(State):
    """A session, as a path or as bytes, that waits for its model."""

    is_used = is_of_model = True
    unsaved = Held.unsaved

    def __init__(self, session: Dict[str, Any], settings: Settings) -> None:
        super().__init__()
        self.session, self._settings = session, settings

    def layer_count(self) -> int:
        return int(self.session.get("layers", 0)) if self.session else 0

    def rows(self) -> int:
        return int(self.session["rows"]) if self.session else 0

    def columns(self) -> int:
        return int(self.session["length"]) if self.session else 0

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        with self.read() as batch:
            return _parts_of(batch)

    def columns_mask(self) -> Optional[np.ndarray]:
        with self.read() as batch:
            return _mask_of(batch)

    def read(self) -> ContextManager[Batch]:
        assert self.session is not None
        return session_read(self._settings, self.session)

    def to_batch(self, model: ModelHandle, settings: Settings, rows: int) -> Batch:
        assert self.session is not None
        return load_session(model, settings, self.session)

    def updatable(self, outline: Outline, batch: int, layer: int) -> State:
        raise waiting()

    def crop(self, n: int, outline: Outline) -> State:
        raise waiting()

    def reset(self) -> State:
        return Fresh()

    def reorder(self, index: np.ndarray) -> State:
        raise waiting()

    def repeat(self, times: int) -> State:
        raise waiting()

    def select(self, index: np.ndarray) -> State:
        raise waiting()


def _parts_of(batch: Batch) -> Tuple[legacy.Layers, Passed]:
    """Returns the rows of a batch, and what the windows of its layers have passed."""
    layers = legacy.of_batch(batch)
    return layers, {i: (batch.length - k.shape[2], 0) for i, (k, _) in enumerate(layers)}


def _mask_of(batch: Batch) -> Optional[np.ndarray]:
    """Returns the mask of the columns of a batch; None if all are tokens."""
    mask = np.empty((batch.rows, batch.length), np.uint8)
    call("kvik_batch_mask", batch.pointer, address(mask))
    return None if mask.all() else mask


class Unbound(State):
    """Rows that update() has appended.  They are not shared: a fork copies them."""

    is_used = is_loose = True
    unsaved = "the rows come from update(), and a session belongs to a model; use pickle for this cache"

    def __init__(self, store: LayerStore, shapes: Shapes = None) -> None:
        super().__init__(shapes)
        self.store: LayerStore = store  # pyright: ignore[reportIncompatibleVariableOverride]

    def layer_count(self) -> int:
        return self.store.used()

    def rows(self) -> int:
        return self.store.batch() if self.store.used() else 0

    def seen(self, layer: int) -> int:
        return self.store.length(layer)

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        used = range(self.store.used())
        return [self.store.layer(i) for i in used], {i: self.store.passed(i) for i in used}

    def usage(self) -> Dict[str, int]:
        usage = sized(_abi.kvik_usage)
        call("kvik_layers_usage", self.store.pointer, ctypes.byref(usage))
        return usage_fields(usage)

    def updatable(self, outline: Outline, batch: int, layer: int) -> State:
        if self.store.is_full(batch) and not self.store.used():  # reset, and made for fewer rows
            return Fresh(self._shapes).updatable(outline, batch, layer)
        return self if layer < self.store.n_layers else Unbound(self.store.copy(2 * layer), self._shapes)

    def masking(self, outline: Outline, layer: int, length: int) -> LayerStore:
        return self.store

    def crop(self, n: int, outline: Outline) -> State:
        self.store.crop(n)
        return self

    def reset(self) -> State:
        self.store.reset()
        return self

    def reorder(self, index: np.ndarray) -> State:
        call("kvik_layers_reorder", self.store.pointer, address(index), len(index))
        return self

    def repeat(self, times: int) -> State:
        self.store.rows(self.store.batch() * times)
        call("kvik_layers_repeat", self.store.pointer, times)
        return self

    def select(self, index: np.ndarray) -> State:
        self.store.rows(len(index))
        call("kvik_layers_select", self.store.pointer, address(index), len(index))
        return self

    def fork(self) -> State:
        return Unbound(self.store.copy(), self._shapes)


class Bound(State):
    """Sequences in a store of a model of kvik.  The caller has locked the store."""

    is_used = is_of_model = True

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch: Batch = batch  # pyright: ignore[reportIncompatibleVariableOverride]

    def shapes(self) -> Shapes:
        layers = self.described()
        return [x["kind"] for x in layers], max((x["window"] for x in layers), default=0) or None

    def described(self) -> List[Dict[str, Any]]:
        return list(json.loads(text_of("kvik_model_describe", self.batch.store.model.pointer))["layers"])

    def layer_count(self) -> int:
        return self.batch.store.model.layers

    def rows(self) -> int:
        return self.batch.rows

    def columns(self) -> int:
        return self.batch.length

    def columns_mask(self) -> Optional[np.ndarray]:
        return _mask_of(self.batch)

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        return _parts_of(self.batch)

    @contextmanager
    def read(self) -> Iterator[Batch]:
        with self.batch.store.locked():
            yield self.batch

    def usage(self) -> Dict[str, int]:
        own = sum(g[part].get("bytes", 0) for one in self.maps() for g in one["groups"] for part in ("blocks", "tiles") if part in g)
        return {**self.batch.store.usage(), "own_bytes": own}

    def maps(self) -> List[Dict[str, Any]]:
        return [json.loads(text_of("kvik_cache_map", self.batch.store.pointer, seq)) for seq in self.batch.sequences()]

    def pickled(self) -> Dict[str, Any]:
        return {**super().pickled(), "_session": session_bytes(self.batch)}

    def ready(self, model: ModelHandle, rows: int) -> State:
        if self.batch.store.model is not model:
            raise ArgumentError("the cache holds rows of another model; every model needs a cache of its own")
        if self.batch.rows == rows:
            return self
        if self.batch.length:
            raise ArgumentError(f"the input has {rows} rows, the cache has {self.batch.rows}")
        return Fresh()

    def masking(self, outline: Outline, layer: int, length: int) -> LayerStore:
        store = outline.open(1, layer)
        zeros = np.zeros((1, 1, length, 1), np.float32)  # of what update() would make of the rows, the lengths alone matter
        store.fill(layer, zeros, zeros)
        return store

    def crop(self, n: int, outline: Outline) -> State:
        call("kvik_batch_crop", self.batch.pointer, n)
        return self

    def reset(self) -> State:
        call("kvik_batch_reset", self.batch.pointer)
        return self

    def reorder(self, index: np.ndarray) -> State:
        if len(index) != self.batch.rows:
            raise ArgumentError(f"beam_idx has {len(index)} entries for {self.batch.rows} rows")
        call("kvik_batch_reorder", self.batch.pointer, address(index))
        return self

    def repeat(self, times: int) -> State:
        call("kvik_batch_repeat", self.batch.pointer, times)
        return self

    def select(self, index: np.ndarray) -> State:
        call("kvik_batch_select", self.batch.pointer, address(index), len(index))
        return self

    def fork(self) -> State:
        return self.copy()

    def copy(self) -> "Bound":
        """Returns the same sequences in a batch of its own; they share every row until one of them appends."""
        copy = Batch(self.batch.store)
        call("kvik_batch_copy", self.batch.pointer, ctypes.byref(copy.pointer))
        return Bound(copy)
