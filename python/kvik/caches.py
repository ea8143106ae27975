"""What all caches have in common.

A cache begins without a model.  The first forward or generate() that gets it binds it to the model.  What it holds, and so what
its operations do, is in one object, its state (`cache_states`).
"""
import json
import os
import threading
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from . import display, legacy
from ._arrays import integers, is_torch, like, row_indices, to_numpy
from ._lib import encode, text_of
from .busy import LEAVING, has_left
from .cache_files import note_of, save_session
from .cache_layers import STATIC, Layers, adopt_transformers
from .cache_edits import held_with
from .cache_states import Bound, Fresh, Held, Saved, State
from .cache_texts import splice, sync
from .devices import accept_device, dtype_name
from .errors import ArgumentError, BusyError, IndexLimitError, LimitError, MissingError
from .layer_views import Edits
from .linear_states import LinearStates
from .states_beside import Recurrent, restored
from .pickles import Check, checked, is_passed, is_rows, is_session, of
from .memory import Memory
from .store import Batch, ModelHandle, Settings, settings_of

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._options import CacheSettings
    from .model import PreTrainedModel

_C = TypeVar("_C", bound="Cache")

_LIVE = ("_guard", "_state", "_row_dtype", "_edits")  # attributes that a pickle leaves out
_KEPT = ("_held", "_passed", "_of_model", "_session", "_linear", "_mask")  # entries of a pickle that are the state: State.pickled()
_OLDER: Dict[str, Any] = {**dict.fromkeys(_KEPT), "_passed": {}, "_removes": False, "_early": {}}  # what older pickles do not have


class Cache(Layers):
    """The rows that a model has computed for a text, and how they are kept.

    Every cache takes ``cache_memory`` (bytes, or "64M"), ``on_full`` ("error", "encode" or "offload"), ``max_sequences``,
    ``snapshots`` and ``spill_dir`` besides its own arguments.  ``copy.deepcopy`` makes a fork that shares every row
    until one of the two appends.
    """

    _implementation: Optional[str] = None
    is_compileable = False
    of_layers: Any = None  # the class of a cache whose layers a program has written: layered_cache sets it

    def __new__(cls: Type[_C], *args: Any, **kwargs: Any) -> _C:
        """Cache(layers=[...]) and Cache(layer_class_to_replicate=...) make a cache of a program's own layers."""
        own = cls is Cache and (kwargs.keys() & {"layers", "layer_class_to_replicate"})
        return object.__new__(cls.of_layers if own else cls)  # type: ignore[no-any-return]

    def __init__(self, config: Any = None, device: Any = None, dtype: Any = None, **kwargs: "Unpack[CacheSettings]") -> None:
        if self._implementation is not None:
            kwargs.setdefault("cache_implementation", self._implementation)
        unknown: Dict[str, Any] = {**kwargs}
        settings = settings_of(unknown)
        if unknown:
            raise TypeError(f"{type(self).__name__} takes no argument {next(iter(unknown))!r}")
        accept_device(device)
        self._setup(settings, config, dtype_name(dtype))

    def _setup(self, settings: Settings, config: Any = None, dtype: Optional[str] = None) -> None:
        adopt_transformers()
        self._settings, self.config, self.dtype = settings, config, dtype
        self._state: State = Fresh()
        self._torch, self._row_dtype = False, None
        self._removes = False
        self._guard: Dict[str, int] = {}
        self._edits = Edits()
        self._early: Dict[int, np.ndarray] = {}  # zeros that layers show which hold nothing

    @classmethod
    def _of(cls, settings: Settings, batch: Optional[Batch], torch: bool = False, config: Any = None) -> Any:
        """Makes a cache of a batch."""
        cache = cls.__new__(cls)
        cache._setup(settings, config)
        if batch is not None:
            cache._take(batch, torch)
        cache._torch = torch
        return cache

    def _take(self, batch: Batch, torch: bool) -> None:
        """Makes the cache hold a batch in place of its rows."""
        self._state, self._torch = self._state.with_rows(Bound(batch)), torch

    def _hold(self, layers: Any) -> None:
        """Makes the cache hold a legacy cache until it meets its model."""
        held, self._torch = legacy.to_layers(layers)
        self._state = Held(held)

    @property
    def _batch(self) -> Optional[Batch]:
        """The batch of a cache that a model of kvik has filled."""
        return self._state.batch

    # -- use

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Refuses a second thread while a call with this cache runs."""
        batch = self._batch
        if batch is not None and os.getpid() != batch.store.pid:
            raise BusyError("the cache belongs to the process that forked this one; open the model again in this process")
        me, guard = threading.get_ident(), self._guard
        if guard == {"thread": me}:  # within another call of this thread
            yield
            return
        try:  # a lock that is taken before the `try` stays taken where a signal's handler raises between the two
            user = guard.setdefault("thread", me)
            if user != me and has_left(user):
                with LEAVING:
                    if guard.get("thread") == user:
                        guard["thread"] = user = me
            if user == me:
                yield
        finally:
            if guard == {"thread": me}:
                guard.clear()
        if user != me:
            raise BusyError("the cache is in use by a call that has not returned; use a deepcopy of it in each thread")

    @contextmanager
    def _holding(self, changes: bool = False, settled: bool = True) -> Iterator[State]:
        """The state, with the store of a model locked, for one thread.  changes: what was read of the rows is then old."""
        with self._use():
            if settled:
                self.settle()
            batch = self._batch
            with batch.store.locked() if batch is not None else nullcontext():
                yield self._state
            if changes:
                self._edits.forget()

    def settle(self, layer: Optional[int] = None) -> None:
        """Takes the rows that a program has set, or changed in a tensor that it has read.  layer: only if one of these is of it."""
        changed = self._edits.changed()
        if not changed or (layer is not None and not any(place[0] == layer for place in changed)):
            return
        with self._use():
            static = self._settings.cache_implementation in STATIC
            if static and not self._state.is_used:  # columns that are reserved: a token writes its own over them
                self._edits.taken()
                return
            held = held_with(self._state, changed, changed.keys() - self._edits.set.keys(), {layer: self.layer_limit(layer) for layer, _ in changed} if static else {})
            self._state = self._state.with_rows(held)
            self._edits.taken()

    def _bind(self, model: ModelHandle, defaults: Settings, rows: int) -> Batch:
        """Returns the batch of this cache in a store of the model.  rows: of the first input."""
        self.settle()
        self._edits.forget()
        self._state = self._state.ready(model, rows)
        if self._batch is None:
            self._state = self._state.with_rows(Bound(self._state.to_batch(
                model, model.fitting(self._settings.over(defaults)), rows)))
        assert self._batch is not None
        return self._batch

    # -- lengths

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the number of columns, padding included."""
        adopt_transformers()
        if self._edits.set:
            self.settle()
        state = self._state
        return state.columns() if state.is_of_model else state.seen(self._counting(layer_idx))

    def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]:
        """Returns the most tokens that the cache holds; None if there is no limit."""
        return None

    def get_max_length(self, layer_idx: Optional[int] = 0) -> int:
        """Returns what get_max_cache_shape does, with -1 for no limit."""
        most = self.get_max_cache_shape()
        return -1 if most is None else most

    def get_usable_length(self, new_seq_length: int, layer_idx: int = 0) -> int:
        """Returns the cached tokens that remain when so many are added."""
        most, have = self.get_max_cache_shape(), self.get_seq_length(layer_idx)
        return most - new_seq_length if most is not None and have + new_seq_length > most else have

    @property
    def seen_tokens(self) -> int:
        """The number of columns."""
        return self.get_seq_length()

    @property
    def max_cache_len(self) -> Optional[int]:
        """The limit of a row in tokens, or None."""
        return self._settings.max_cache_len

    @property
    def batch_size(self) -> int:
        """The number of rows.  -1, or the max_batch_size that the cache was given, if it holds nothing yet."""
        return self._state.rows() or int(getattr(self, "_max_batch_size", None) or -1)

    @property
    def max_batch_size(self) -> int:
        """The same as batch_size: a batch of any size works."""
        return self.batch_size

    @property
    def is_initialized(self) -> bool:
        """True if the cache has been used, or early_initialization() has given it shapes."""
        return self._state.is_used or bool(self._early)

    def has_previous_state(self, layer_idx: Optional[int] = None, state_idx: Optional[int] = None) -> bool:
        """True if the cache holds tokens; of a layer whose model is written elsewhere, if it holds a state."""
        states = self._state.linear
        if not self._state.is_of_model and (states or layer_idx is not None):
            places = [*states.conv, *states.recurrent] if states else []
            return any(layer_idx in (None, i) and state_idx in (None, k) for i, k in places)
        return self.get_seq_length() > 0

    # -- rows

    @property
    def is_written(self) -> bool:
        """True if update() is a program's, which models of kvik then call for every layer."""
        return not str(getattr(self.update, "__module__", "")).startswith(f"{__package__}.")

    def update(self, key_states: Any, value_states: Any, layer_idx: int,
               cache_kwargs: Optional[Dict[str, Any]] = None, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        """Appends keys and values [batch, heads, n, dim] to a layer; returns those that attention must see.

        For models that are written elsewhere, and for subclasses: a model of kvik calls an update() that a program has written, for
        every layer in every forward, with float32 arrays, or tensors where ids are tensors.  Takes numpy arrays or torch tensors and
        returns the same, in the dtype that was given.  Positions follow from the order; ``cache_position`` in cache_kwargs is not
        needed.
        """
        if not hasattr(layer_idx, "__index__"):
            raise ArgumentError(f"layer_idx is {layer_idx!r}; expected the whole number of a layer, from 0")
        torch = is_torch(key_states)
        dtype = dtype_name(key_states.dtype) or "float32"
        keys, values = to_numpy(key_states, np.float32), to_numpy(value_states, np.float32)
        if keys.ndim != 4 or values.ndim != 4 or keys.shape[:3] != values.shape[:3]:
            raise ValueError(f"update() got keys {list(keys.shape)} and values {list(values.shape)}; expected "
                             "[batch, heads, tokens, dim] with equal batch, heads and tokens")
        with self._use():
            self.settle(layer_idx)
            state = self._state.updatable(self._outline(), keys.shape[0], layer_idx)
            assert state.store is not None
            try:
                out_keys, out_values = state.store.update(layer_idx, keys, values, dtype)
            except LimitError as e:
                raise (IndexLimitError(str(e)) if self._settings.cache_implementation in STATIC else e) from None
            self._state, self._torch, self._row_dtype = state, torch, key_states.dtype
            self._edits.forget(layer_idx)
            if self._settings.cache_implementation in STATIC:
                self._edits.keep_window(layer_idx, self.layer_limit(layer_idx), out_keys, out_values)
        if not torch:
            seen = [out_keys.astype(key_states.dtype, copy=False), out_values.astype(value_states.dtype, copy=False)]
        else:
            seen = [like(out_keys, True).to(key_states), like(out_values, True).to(value_states)]
        if self.is_written:  # a change of what is returned changes the cache, as in Transformers, or is refused
            seen = [self._edits.show((layer_idx, which), rows) for which, rows in enumerate(seen)]
        return seen[0], seen[1]

    def _states_beside(self, model: ModelHandle, settings: Settings, rows: int) -> Batch:
        """Returns the batch with the recurrent states of a model of kvik whose rows update() keeps."""
        batch = self._state.beside()
        if batch is not None and not batch.length and batch.rows != rows:  # after reset()
            self._state, batch = self._state.rows_alone(), None
        if batch is None:
            if self._state.layer_count():
                raise ArgumentError("the cache holds rows, and no recurrent states of this model; give it an empty cache")
            batch = Batch.open(model, settings, rows)
            self._state = Recurrent(Bound(batch), self._state)
        elif batch.store.model is not model:
            raise ArgumentError("the cache holds states of another model; every model needs a cache of its own")
        elif batch.rows != rows:
            raise ArgumentError(f"the input has {rows} rows, the cache has {batch.rows}")
        return batch

    def _take_back(self, length: int) -> None:
        """Leaves in each layer the columns that it had before a forward that has failed, where its rows are in the library."""
        with suppress(Exception):  # of what a window has passed nothing comes back, and the error that stopped the forward counts
            self._edits.forget()
            self._state = self._state.taken_back(length, self._outline())

    def _layers(self, settled: bool = True) -> legacy.Layers:
        """Returns the rows of all layers as f32 arrays.  settled: False leaves out what a program has set since."""
        with self._holding(settled=settled) as state:
            return state.parts()[0]

    def to_legacy_cache(self) -> Tuple[Tuple[Any, Any], ...]:
        """Returns the rows as a tuple of (keys, values) per layer, f32 [batch, heads, tokens, dim], copied.

        A layer with a window gives the rows that its next token sees.  Columns of padding are zeros.
        """
        return legacy.as_tuples(self._layers(), self._as_torch)

    @classmethod
    def from_legacy_cache(cls: Type[_C], past_key_values: Any = None, **kwargs: Any) -> _C:
        """Makes a cache of such a tuple.  None makes an empty one."""
        cache = cls(**kwargs)
        if past_key_values is not None:
            cache._hold(past_key_values)
        return cache

    def __getitem__(self, layer_idx: int) -> Tuple[Any, Any]:
        layers = self.layers if self.is_initialized else []
        if not -len(layers) <= layer_idx < len(layers):
            raise KeyError(f"the cache has {len(layers)} layers; layer {layer_idx} was asked for")
        return layers[layer_idx].keys, layers[layer_idx].values

    def __iter__(self) -> Iterator[Tuple[Any, ...]]:
        """Yields the keys and values of each layer, and its window or None, as release 5 of Transformers does."""
        for layer in self.layers:
            yield layer.keys, layer.values, self._window_of(layer)

    def _window_of(self, layer: Any) -> Any:
        window = np.array(layer.get_max_length()) if layer.is_sliding else None
        return window if window is None else like(window, self._as_torch)

    def __bool__(self) -> bool:
        return True

    # -- operations on all rows

    def crop(self, max_length: int) -> None:
        """Keeps the first max_length columns if it is 0 or more; a negative number removes that many, or all if there are fewer.

        After activate_past_recording() 0 removes nothing, as in release 5 of Transformers.
        """
        n = int(max_length)
        if abs(n) >= 1 << 63:
            raise ArgumentError(f"crop to {n} columns: out of range")
        with self._holding(changes=True) as state:
            if n < 0:
                n = 0 if -n > self.get_seq_length() and state.linear is None else n
                self._state = state.crop(n, self._outline())
            else:
                self._state = state.crop(n, self._outline()) if n or not self._removes else state.settled()

    def reset(self) -> None:
        """Removes all columns."""
        with self._holding(changes=True) as state:
            if self._settings.cache_implementation in STATIC and state.is_used:  # what is reserved stays, as zeros
                with suppress(ArgumentError):  # of a pickle that waits for its model
                    self._early = {i: np.zeros((*k.shape[:2], self.layer_limit(i), k.shape[3]), np.float32)
                                   for i, (k, _) in enumerate(state.parts()[0]) if self.layer_limit(i) > 0}
            self._state = state.reset()

    def reorder_cache(self, beam_idx: Any) -> None:
        """Gives row i the contents of row beam_idx[i]."""
        index = row_indices(beam_idx)
        with self._holding(changes=True) as state:
            self._state = state.reorder(index)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row: 0, 0, .., 1, 1, .."""
        with self._holding(changes=True) as state:
            self._state = state.repeat(repeats)

    def batch_select_indices(self, indices: Any) -> None:
        """Makes the cache the rows indices[0], indices[1], ..."""
        index = row_indices(indices)
        with self._holding(changes=True) as state:
            self._state = state.select(index)

    # -- forks and files

    def fork(self: _C) -> _C:
        """Returns a cache with the same contents.  The two share every row until one of them appends; nothing is copied.

        Caches that update() fills are copied.
        """
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._guard, copy._edits = {}, Edits()
        with self._holding() as state:
            copy._state = state.fork()
        return copy

    def __deepcopy__(self: _C, memo: Dict[int, Any]) -> _C:
        return self.fork()

    __copy__ = fork

    def save(self, path: Union[str, "os.PathLike[str]"], note: str = "") -> None:
        """Saves the cache as a session file, with the rows as they are kept.  Its model must have computed it.

        A path may begin with ~.  note: a text that the file keeps.  A file of this cache is replaced when the new one is whole.  Raises MissingError for
        a directory that does not exist, ArgumentError for a cache that no model has filled, BusyError for a file that holds
        another session, FileError if writing fails.
        """
        path = os.path.expanduser(os.fspath(path))
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise MissingError(f"{path}: there is no directory {folder}")
        with self._holding() as state:
            if state.batch is None:
                raise ArgumentError(state.unsaved)
            save_session(state.batch, path, note)

    @classmethod
    def load(cls: Type[_C], path: Union[str, "os.PathLike[str]"], model: "Optional[PreTrainedModel]" = None,
             **kwargs: "Unpack[CacheSettings]") -> _C:
        """Loads a session file.  It continues with the bits that it would have had without the file.

        model: the model that the session belongs to; without it, the cache loads when it first meets a model.  Raises
        FormatError for a damaged file and ArgumentError for one of other weights, with the reason.
        """
        cache = cls(**kwargs)
        path = os.path.expanduser(os.fspath(path))
        with open(path, "rb") as f:
            head = f.read(1)
        if not head:
            raise ArgumentError(f"{path}: an empty file is no session")
        described = json.loads(text_of("kvik_session_describe", encode(path)))
        cache._state = Saved({"path": os.path.abspath(path), **note_of(described)}, cache._settings)
        if model is not None:
            cache._bind(model._handle, model._defaults, cache._state.rows())
        return cache

    _pickled: Dict[str, Check] = {"_settings": of(Settings), "_held": is_rows, "_session": is_session,
                                  "config": lambda value: value is None or hasattr(value, "to_dict")}

    def __getstate__(self) -> Dict[str, Any]:
        with self._holding() as state:
            return {**{k: v for k, v in self.__dict__.items() if k not in _LIVE}, **state.pickled()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        adopt_transformers()
        values = {**_OLDER, **checked(self, state, self._pickled)}
        checked(self, values, {"_passed": is_passed, "_linear": of(LinearStates, type(None)), "_mask": of(np.ndarray, type(None)), "_torch": of(bool), "_removes": of(bool)})
        kept = {name: values.pop(name) for name in _KEPT}
        self.__dict__.update(values)
        self._guard, self._row_dtype, self._edits = {}, None, Edits()
        self._state = restored(kept, self._settings)

    def sync(self, model: "PreTrainedModel", input_ids: Any) -> List[Dict[str, Any]]:
        """Makes the cache hold exactly these texts: reuses the prefix that agrees and computes the rest.

        input_ids: a list of ids, or one list for each row.  Returns a report for each row: ``reused``, ``recomputed``,
        ``computed``, ``divergence`` (-1: none), ``cached`` and ``given`` (the text there), ``reason``.
        """
        rows = [to_numpy(r).ravel() for r in (input_ids if np.ndim(input_ids[0]) else [input_ids])]
        with self._use():
            batch = self._bind(model._handle, model._defaults, len(rows))
            with batch.store.locked() as store:
                fresh, reports = sync(store, batch, [integers(r, "input_ids") for r in rows])
                self._take(fresh, self._torch)
        return reports

    def splice(self, model: "PreTrainedModel", chunks: Sequence[Any], recompute: int = 0, fraction: float = 0.0) -> Dict[str, int]:
        """Appends chunks of ids to a cache of one row; reads those that another cache has at another position where they are.

        chunks: lists of ids, as the documents of a prompt.  Caches of one model and one configuration share what they have
        computed; the configuration needs ``cache_config={"moved_chunks": N}``.  Rows that move are an approximation: of each such
        chunk the first ``recompute`` tokens, or this ``fraction`` of it if that is more, are computed again.

        Returns how many tokens were ``reused`` (exactly: the longest cached prefix), ``moved`` and ``computed``, and how many
        ``chunks`` moved.  Then ``model.generate(ids of all chunks, past_key_values=cache)`` goes on from them.
        """
        parts = [integers(to_numpy(c).ravel(), "a chunk") for c in chunks]
        with self._use():
            batch = self._bind(model._handle, model._defaults, 1)
            with batch.store.locked() as store:
                fresh, report = splice(store, batch, parts, recompute, fraction)
                self._take(fresh, self._torch)
        return report

    def memory(self) -> Memory:
        """Returns what the store of this cache holds, in bytes: the fields of kvik_usage, by name.

        ``bytes`` in memory now and ``peak_bytes`` since the store was opened; of them ``live`` rows, ``shared`` rows, ``states``
        and ``staging``; ``spilled`` on disk; ``index`` kept for reuse alone; ``reserved`` and ``metadata`` besides;
        ``budget`` the limit, and ``free`` what is left of it.  Counts:
        ``tokens``, ``forks``, ``rows_copied``, ``seals``, ``evictions``; ``encoded8`` and ``encoded4`` rows under ``on_full="encode"``.

        Caches of one model and one configuration share a store; ``own_bytes`` is what this cache's rows take, with rows that
        it shares and snapshots.  A cache that has not been used returns an empty dictionary.  Printed, and in a notebook, it is a
        report.
        """
        with self._holding() as state:
            return Memory(state.usage())

    def _maps(self) -> List[Dict[str, Any]]:
        """Returns where the blocks of each row of a cache with a batch are."""
        with self._holding() as state:
            return state.maps()

    def _repr_html_(self) -> str:
        return display.cache_html(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.get_seq_length()})"
