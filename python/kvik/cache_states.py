"""What a cache holds: an object of a small family, which does for it what depends on that.

Fresh: nothing.  Held: arrays of legacy tuples or of a pickle, which wait for their model.  Saved: a session, which waits as well.
Unbound: rows that update() has appended for a model that is written elsewhere.  Bound: sequences in a store of a model of kvik.
Linear: recurrent states of a model that is written elsewhere, beside one of the others.

An operation returns the state after it, the same object or another.  One that fails leaves the cache as it was.
"""
import ctypes
import json
from contextlib import contextmanager
from typing import AbstractSet, Any, ContextManager, Dict, Iterator, List, Optional, Tuple

import numpy as np

from . import _abi, legacy
from ._arrays import to_numpy
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

    def columns_mask(self) -> Optional[np.ndarray]:
        """Returns the mask of the columns, [rows, columns]; None if all are tokens."""
        return self.mask

    def usage(self) -> Dict[str, int]:
        """Returns the fields of kvik_usage by name."""
        return {}

    def maps(self) -> List[Dict[str, Any]]:
        """Returns where the blocks of each row in a store of a model are."""
        return []

    def pickled(self) -> Dict[str, Any]:
        """Returns what a pickle keeps, which restored() takes."""
        held, passed = self.parts() if self.is_loose else (None, {})
        return {"_held": held, "_passed": passed, "_of_model": self._shapes, "_session": self.session, "_linear": None,
                "_mask": self.columns_mask() if self.is_loose else None}

    # -- from one to another

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
        self.store: LayerStore = store

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
        self.batch: Batch = batch

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
        copy = Batch(self.batch.store)
        call("kvik_batch_copy", self.batch.pointer, ctypes.byref(copy.pointer))
        return Bound(copy)


class Linear(State):
    """Recurrent states, and `under` them the rows of layers that have attention."""

    def __init__(self, linear: LinearStates, under: State) -> None:
        super().__init__()
        self.linear: LinearStates = linear
        self.under = under
        self.batch, self.store, self.session = under.batch, under.store, under.session
        self.is_loose, self.is_of_model = under.is_loose, under.is_of_model

    @property
    def is_used(self) -> bool:  # type: ignore[override]
        """True if there are states, or rows."""
        return bool(self.linear) or self.under.is_used

    @property
    def unsaved(self) -> str:  # type: ignore[override]
        """Why there is nothing to save."""
        return Held.unsaved if self.linear and not self.under.is_used else self.under.unsaved

    def shapes(self) -> Shapes:
        return self.under.shapes()

    def described(self) -> Optional[List[Dict[str, Any]]]:
        return self.under.described()

    def layer_count(self) -> int:
        return max(self.under.layer_count(), *(i + 1 for i in self.linear.layers()), 0)

    def rows(self) -> int:
        return self.under.rows() or self.linear.batch

    def columns(self) -> int:
        return self.under.columns()

    def seen(self, layer: int) -> int:
        return self.under.seen(layer)

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        return self.under.parts()

    def read(self) -> ContextManager[Batch]:
        return self.under.read()

    def usage(self) -> Dict[str, int]:
        out, states = self.under.usage(), self.linear.nbytes
        if self.batch is not None or not self.linear:
            return out
        return {**out, "bytes": out.get("bytes", 0) + states, "states": out.get("states", 0) + states}

    def columns_mask(self) -> Optional[np.ndarray]:
        return self.under.columns_mask()

    def maps(self) -> List[Dict[str, Any]]:
        return self.under.maps()

    def pickled(self) -> Dict[str, Any]:
        return {**self.under.pickled(), "_linear": self.linear}

    def with_rows(self, other: State) -> State:
        return self if other is self.under else Linear(self.linear, other)

    def ready(self, model: ModelHandle, rows: int) -> State:
        if self.linear:
            raise ArgumentError("the cache holds recurrent states of a model that is no model of kvik; give each a cache of its own")
        return self.with_rows(self.under.ready(model, rows))

    def to_batch(self, model: ModelHandle, settings: Settings, rows: int) -> Batch:
        return self.under.to_batch(model, settings, rows)

    def updatable(self, outline: Outline, batch: int, layer: int) -> State:
        return self.with_rows(self.under.updatable(outline, batch, layer))

    def masking(self, outline: Outline, layer: int, length: int) -> LayerStore:
        return self.under.masking(outline, layer, length)

    def crop(self, n: int, outline: Outline) -> State:
        states = LinearStates(self.linear.recording) if not n else self.linear.cropped(n) if self.linear else self.linear
        return Linear(states, self.under.crop(n, outline))

    def settled(self) -> State:
        return Linear(self.linear.cropped(0), self.under) if self.linear else self

    def reset(self) -> State:
        return Linear(LinearStates(self.linear.recording), self.under.reset())

    def reorder(self, index: np.ndarray) -> State:
        return Linear(self._selected(index), self.under.reorder(index))

    def repeat(self, times: int) -> State:
        return Linear(self._selected(np.repeat(np.arange(self.linear.batch), times)), self.under.repeat(times))

    def select(self, index: np.ndarray) -> State:
        return Linear(self._selected(index), self.under.select(index))

    def _selected(self, index: np.ndarray) -> LinearStates:
        return self.linear.select(index) if self.linear else self.linear

    def fork(self) -> State:
        return Linear(self.linear.copy(), self.under.fork())


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


def restored(kept: Dict[str, Any], settings: Settings) -> State:
    """Returns the state of a pickle, from what pickled() has returned."""
    state: State = Fresh(kept["_of_model"])
    if kept["_session"] is not None:
        state = Saved(kept["_session"], settings)
    elif kept["_held"] is not None:
        state = Held(kept["_held"], kept["_passed"], kept["_of_model"], kept["_mask"])
    return state if kept["_linear"] is None else Linear(kept["_linear"], state)
