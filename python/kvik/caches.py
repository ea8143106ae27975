"""What all caches have in common.

A cache begins without a model.  The first forward or generate() that gets it binds it to the model: from then on its rows
are sequences in a store of that model (`Batch`).  A cache that update() fills stays without a model (`Unbound`).  A cache
made of legacy tuples, of a pickle or of a session waits for its model.
"""
import json
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Type, TypeVar, Union

import ctypes
import numpy as np

from . import _abi, display, legacy
from ._arrays import integers, is_torch, like, to_numpy
from ._lib import address, call, encode, field_kinds, lib, sized, text_of
from .cache_files import load_session, note_of, save_session, session_bytes, session_read, waiting
from .cache_layers import Layers, adopt_transformers
from .devices import accept_device, dtype_name
from .errors import ArgumentError, BusyError, MissingError
from .linear_states import LinearStates
from .pickles import Check, checked, is_passed, is_rows, is_session, of
from .memory import Memory
from .store import Batch, ModelHandle, Settings, Store, settings_of
from .unbound import Unbound, settings_for, with_window

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._options import CacheSettings
    from .model import PreTrainedModel

_C = TypeVar("_C", bound="Cache")

_GUESS = 64  # layers of a cache without a model whose number is not known; it grows


class Cache(Layers):
    """The rows that a model has computed for a text, and how they are kept.

    Every cache takes ``cache_memory`` (bytes, or "64M"), ``on_full`` ("error" or "offload"), ``max_sequences``,
    ``snapshots`` and ``spill_dir`` besides its own arguments.  ``copy.deepcopy`` makes a fork that shares every row
    until one of the two appends.
    """

    _implementation: Optional[str] = None
    is_compileable = False

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
        self._batch: Optional[Batch] = None
        self._unbound: Optional[Unbound] = None
        self._held: Optional[legacy.Layers] = None
        self._passed: Dict[int, Tuple[int, int]] = {}  # Unbound.passed() of layers that are held, of an update()d cache
        self._of_model: Optional[Tuple[List[str], Optional[int]]] = None  # kinds of the layers and window, of update()d rows of a model
        self._session: Optional[Dict[str, Any]] = None
        self._linear: Optional[LinearStates] = None
        self._torch, self._row_dtype = False, None
        self._removes = False
        self._guard: Dict[str, int] = {}

    @classmethod
    def _of(cls, settings: Settings, batch: Optional[Batch], torch: bool = False, config: Any = None) -> Any:
        """Makes a cache of a batch."""
        cache = cls.__new__(cls)
        cache._setup(settings, config)
        cache._batch, cache._torch = batch, torch
        return cache

    # -- use

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Refuses a second thread while a call with this cache runs."""
        if self._batch is not None and os.getpid() != self._batch.store.pid:
            raise BusyError("the cache belongs to the process that forked this one; open the model again in this process")
        me, guard = threading.get_ident(), self._guard
        if guard == {"thread": me}:  # within another call of this thread
            yield
            return
        try:  # a lock that is taken before the `try` stays taken where a signal's handler raises between the two
            user = guard.setdefault("thread", me)
            if user == me:
                yield
        finally:
            if guard == {"thread": me}:
                guard.clear()
        if user != me:
            raise BusyError("the cache is in use by a call that has not returned; use a deepcopy of it in each thread")

    @contextmanager
    def _bound(self) -> Iterator[Batch]:
        """The batch of a cache that has one, with its store locked."""
        assert self._batch is not None
        with self._use(), self._batch.store.locked():
            yield self._batch

    @contextmanager
    def _read(self) -> Iterator[Batch]:
        """The batch of a cache that has one, or of a session that has not met its model, for reading."""
        if self._batch is not None:
            with self._bound() as batch:
                yield batch
        else:
            assert self._session is not None
            with self._use(), session_read(self._settings, self._session) as batch:
                yield batch

    def _bind(self, model: ModelHandle, defaults: Settings, rows: int) -> Batch:
        """Returns the batch of this cache in a store of the model.  rows: of the first input."""
        batch = self._batch
        if self._linear:
            raise ArgumentError("the cache holds recurrent states of a model that is no model of kvik; give each a cache of its own")
        if batch is not None:
            if batch.store.model is not model:
                raise ArgumentError("the cache holds rows of another model; every model needs a cache of its own")
            if batch.rows != rows and not batch.length:
                batch = self._batch = None
            elif batch.rows != rows:
                raise ArgumentError(f"the input has {rows} rows, the cache has {batch.rows}")
        if batch is None:
            settings = self._settings.over(defaults)
            held = self._unbound_layers() if self._unbound is not None else self._held
            if self._session is not None:
                self._batch = load_session(model, settings, self._session)
            elif held:
                if held[0][0].shape[0] != rows:
                    raise ArgumentError(f"the input has {rows} rows, the cache has {held[0][0].shape[0]}")
                known = self._unbound is not None or self._passed  # rows of a legacy cache do not tell how long the text was
                length = max(map(self._seen, range(len(held)))) if known else 0
                with model.using(settings, rows) as store:
                    self._batch = legacy.to_batch(store, held, length)
            else:
                self._batch = Batch.open(model, settings, rows)
            self._held = self._unbound = self._session = self._of_model = None
            self._passed = {}
            batch = self._batch
        return batch

    # -- lengths

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the number of columns, padding included."""
        adopt_transformers()
        if self._batch is not None:
            return self._batch.length
        if self._session is not None:
            return int(self._session["length"])
        return self._seen(self._counting(layer_idx))

    def _seen(self, layer: int) -> int:
        """Returns the tokens that a layer of a cache without a model has seen, with those that its window has passed."""
        if self._unbound is not None:
            return self._unbound.length(layer)
        if not 0 <= layer < len(self._held or ()):
            return 0
        return int(self._held[layer][0].shape[2]) + self._passed.get(layer, (0, 0))[0]  # type: ignore[index]

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
        if self._batch is not None:
            return self._batch.rows
        if self._unbound is not None and self._unbound.used():
            return self._unbound.batch()
        if self._session is not None:
            return int(self._session["rows"])
        held = max((int(k.shape[0]) for k, _ in self._held or ()), default=0) or (self._linear.batch if self._linear else 0)
        return held or int(getattr(self, "_max_batch_size", None) or -1)

    @property
    def max_batch_size(self) -> int:
        """The same as batch_size: a batch of any size works."""
        return self.batch_size

    @property
    def is_initialized(self) -> bool:
        """True if the cache has been used."""
        return bool(self._linear) or any(x is not None for x in (self._batch, self._unbound, self._held, self._session))

    def has_previous_state(self, layer_idx: Optional[int] = None, state_idx: Optional[int] = None) -> bool:
        """True if the cache holds tokens; of a layer whose model is written elsewhere, if it holds a state."""
        if self._batch is None and self._session is None and (self._linear or layer_idx is not None):
            places = [*self._linear.conv, *self._linear.recurrent] if self._linear else []
            return any(layer_idx in (None, i) and state_idx in (None, k) for i, k in places)
        return self.get_seq_length() > 0

    # -- rows

    def update(self, key_states: Any, value_states: Any, layer_idx: int,
               cache_kwargs: Optional[Dict[str, Any]] = None, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        """Appends keys and values [batch, heads, n, dim] to a layer; returns those that attention must see.

        For models that are written elsewhere.  Takes numpy arrays or torch tensors and returns the same, in the dtype that
        was given.  Positions follow from the order; ``cache_position`` in cache_kwargs is not needed.
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
            store = self._for_updates(keys.shape[0], layer_idx)
            self._torch, self._row_dtype = torch, key_states.dtype
            out_keys, out_values = store.update(layer_idx, keys, values, dtype)
        if not torch:
            return out_keys.astype(key_states.dtype, copy=False), out_values.astype(value_states.dtype, copy=False)
        return like(out_keys, True).to(key_states), like(out_values, True).to(value_states)

    def _for_updates(self, batch: int, layer: int) -> Unbound:
        if self._unbound is not None and self._unbound.is_full(batch) and not self._unbound.used():
            self._unbound = None  # reset, and made for fewer rows
        if self._session is not None:
            raise waiting()
        if self._unbound is None:
            held, passed = self._held or [], self._passed
            if self._batch is not None:
                held = legacy.of_batch(self._batch)
                passed = {i: (self._batch.length - k.shape[2], 0) for i, (k, _) in enumerate(held)}
                self._of_model = self._shapes()
            rows = self._empty_unbound(batch, max(layer, len(held) - 1))
            for i, (k, v) in enumerate(held):
                rows.fill(i, k, v, passed.get(i, (0, 0)))
            self._unbound, self._held, self._batch, self._passed = rows, None, None, {}
        elif layer >= self._unbound.n_layers:
            self._unbound = self._unbound.copy(2 * layer)
        return self._unbound

    def _empty_unbound(self, batch: int, layer: int) -> Unbound:
        """Makes a cache without a model that has this layer, and room for a batch."""
        kinds = self._kinds()
        n = max(len(kinds or ()) or self._expected() or _GUESS, self._expected(), layer + 1)
        settings = with_window(self._settings, self._window(kinds))
        if kinds and len(kinds) < n:
            kinds = kinds + [kinds[-1]] * (n - len(kinds))
        return Unbound(settings_for(settings, batch), n, kinds or None)

    def _unbound_layers(self) -> legacy.Layers:
        assert self._unbound is not None
        return [self._unbound.layer(i) for i in range(self._unbound.used())]

    def _layers(self) -> legacy.Layers:
        """Returns the rows of all layers as f32 arrays."""
        if self._unbound is not None:
            with self._use():
                return self._unbound_layers()
        if self._batch is None and self._session is None:
            return self._held or []
        with self._read() as batch:
            return legacy.of_batch(batch)

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
            cache._held, cache._torch = legacy.to_layers(past_key_values)
        return cache

    def __getitem__(self, layer_idx: int) -> Tuple[Any, Any]:
        layers = self._layers()
        if not -len(layers) <= layer_idx < len(layers):
            raise KeyError(f"the cache has {len(layers)} layers; layer {layer_idx} was asked for")
        return legacy.as_tuples([layers[layer_idx]], self._as_torch)[0]

    def __iter__(self) -> Iterator[Tuple[Any, Any]]:
        return iter(self.to_legacy_cache())

    def __bool__(self) -> bool:
        return True

    # -- operations on all rows

    def crop(self, max_length: int) -> None:
        """Keeps the first max_length columns if it is 0 or more; a negative number removes that many.

        After activate_past_recording() 0 removes nothing, as in release 5 of Transformers.
        """
        n, states = int(max_length), self._linear
        if n or self._removes:
            states = states.cropped(n) if states else states
        elif states is not None:
            states = LinearStates(states.recording)
        if n or not self._removes:
            self._crop_rows(n)
        self._linear = states

    def _crop_rows(self, n: int) -> None:
        if self._batch is not None:
            with self._bound() as batch:
                call("kvik_batch_crop", batch.pointer, n)
        elif self._unbound is not None or self._passed:
            with self._use():
                if self._unbound is None:
                    self._for_updates(self.batch_size, 0)
                assert self._unbound is not None
                self._unbound.crop(n)
        elif self._held is not None:
            self._held = [(np.ascontiguousarray(k[:, :, :n]), np.ascontiguousarray(v[:, :, :n])) for k, v in self._held]
        elif self._session is not None:
            raise waiting()

    def reset(self) -> None:
        """Removes all columns."""
        if self._batch is not None:
            with self._bound() as batch:
                call("kvik_batch_reset", batch.pointer)
        elif self._unbound is not None:
            with self._use():
                self._unbound.reset()
        self._held, self._passed, self._session = None, {}, None
        self._linear = LinearStates(self._linear.recording) if self._linear is not None else None

    def reorder_cache(self, beam_idx: Any) -> None:
        """Gives row i the contents of row beam_idx[i]."""
        index = _indices(beam_idx)
        states = self._linear and self._linear.select(index)
        if self._batch is not None:
            with self._bound() as batch:
                if len(index) != batch.rows:
                    raise ArgumentError(f"beam_idx has {len(index)} entries for {batch.rows} rows")
                call("kvik_batch_reorder", batch.pointer, address(index))
        elif self._unbound is not None:
            with self._use():
                call("kvik_layers_reorder", self._unbound.pointer, address(index), len(index))
        elif self._held is not None:
            self._held = [(k[index], v[index]) if k.size else (k, v) for k, v in self._held]
        elif self._session is not None:
            raise waiting()
        self._linear = states

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row: 0, 0, .., 1, 1, .."""
        states = self._linear and self._linear.select(np.repeat(np.arange(self._linear.batch), repeats))
        if self._batch is not None:
            with self._bound() as batch:
                call("kvik_batch_repeat", batch.pointer, repeats)
        elif self._unbound is not None:
            with self._use():
                self._unbound.rows(self._unbound.batch() * repeats)
                call("kvik_layers_repeat", self._unbound.pointer, repeats)
        elif self._held is not None:
            self._held = [(k.repeat(repeats, 0), v.repeat(repeats, 0)) for k, v in self._held]
        elif self._session is not None:
            raise waiting()
        self._linear = states

    def batch_select_indices(self, indices: Any) -> None:
        """Makes the cache the rows indices[0], indices[1], ..."""
        index = _indices(indices)
        states = self._linear and self._linear.select(index)
        if self._batch is not None:
            with self._bound() as batch:
                call("kvik_batch_select", batch.pointer, address(index), len(index))
        elif self._unbound is not None:
            with self._use():
                self._unbound.rows(len(index))
                call("kvik_layers_select", self._unbound.pointer, address(index), len(index))
        elif self._held is not None:
            self._held = [(k[index], v[index]) if k.size else (k, v) for k, v in self._held]
        elif self._session is not None:
            raise waiting()
        self._linear = states

    # -- forks and files

    def fork(self: _C) -> _C:
        """Returns a cache with the same contents.  The two share every row until one of them appends; nothing is copied.

        Caches that update() fills are copied.
        """
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._guard = {}
        if self._linear is not None:
            copy._linear = self._linear.copy()
        if self._batch is not None:
            with self._bound() as batch:
                copy._batch = Batch(batch.store)
                call("kvik_batch_copy", batch.pointer, ctypes.byref(copy._batch.pointer))
        elif self._unbound is not None:
            with self._use():
                copy._unbound = self._unbound.copy()
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
        if self._unbound is not None:
            raise ArgumentError("the rows come from update(), and a session belongs to a model; use pickle for this cache")
        if self._batch is None:
            raise ArgumentError("the cache waits for its model; call the model with it first" if self.is_initialized else
                                "the cache is empty; call a model with it first")
        with self._bound() as batch:
            save_session(batch, path, note)

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
        cache._session = {"path": os.path.abspath(path), **note_of(described)}
        if model is not None:
            cache._bind(model._handle, model._defaults, cache._session["rows"])
        return cache

    _pickled: Dict[str, Check] = {"_settings": of(Settings), "_held": is_rows, "_session": is_session,
                                  "config": lambda value: value is None or hasattr(value, "to_dict")}

    def __getstate__(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {k: v for k, v in self.__dict__.items()
                                 if k not in ("_guard", "_batch", "_unbound", "_held", "_session", "_row_dtype")}
        session, held = self._session, self._held
        if self._batch is not None:
            with self._bound() as batch:
                session = session_bytes(batch)
        elif self._unbound is not None:
            with self._use():
                held = self._unbound_layers()
                state["_passed"] = {i: self._unbound.passed(i) for i in range(len(held))}
        state["_held"], state["_session"] = held, session
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        adopt_transformers()
        self._batch = self._unbound = self._row_dtype = self._of_model = None
        self._passed, self._linear, self._removes = {}, None, False  # older pickles have none
        self.__dict__.update(checked(self, state, self._pickled))
        checked(self, self.__dict__, {"_passed": is_passed, "_linear": of(LinearStates, type(None)), "_torch": of(bool),
                                       "_removes": of(bool)})
        self._guard = {}

    def sync(self, model: "PreTrainedModel", input_ids: Any) -> List[Dict[str, Any]]:
        """Makes the cache hold exactly these texts: reuses the prefix that agrees and computes the rest.

        input_ids: a list of ids, or one list for each row.  Returns a report for each row: ``reused``, ``recomputed``,
        ``computed``, ``divergence`` (-1: none), ``cached`` and ``given`` (the text there), ``reason``.
        """
        rows = [to_numpy(r).ravel() for r in (input_ids if np.ndim(input_ids[0]) else [input_ids])]
        with self._use():
            batch = self._bind(model._handle, model._defaults, len(rows))
            with batch.store.locked() as store:
                fresh, reports = _sync(store, batch, [integers(r, "input_ids") for r in rows])
                self._batch = fresh
        return reports

    def memory(self) -> Memory:
        """Returns what the store of this cache holds, in bytes: the fields of kvik_usage, by name.

        ``bytes`` in memory now and ``peak_bytes`` since the store was opened; of them ``live`` rows, ``shared`` rows, ``states``
        and ``staging``; ``spilled`` on disk; ``index`` kept for reuse alone; ``reserved`` and ``metadata`` besides;
        ``budget`` the limit, and ``free`` what is left of it.  Counts:
        ``tokens``, ``forks``, ``rows_copied``, ``seals``, ``evictions``.

        Caches of one model and one configuration share a store; ``own_bytes`` is what this cache's rows take, with rows that
        it shares and snapshots.  A cache that has not been used returns an empty dictionary.  Printed, and in a notebook, it is a
        report.
        """
        if self._batch is not None:
            with self._bound() as batch:
                out = Memory(batch.store.usage())
                out["own_bytes"] = sum(_map_bytes(one) for one in _maps(batch))
            return out
        if self._unbound is not None:
            usage = sized(_abi.kvik_usage)
            call("kvik_layers_usage", self._unbound.pointer, ctypes.byref(usage))
            seen = {n: int(getattr(usage, n)) for n in field_kinds(_abi.kvik_usage) if n != "size"}
            states = self._linear.nbytes if self._linear else 0
            return Memory({**seen, "bytes": seen["bytes"] + states, "states": seen["states"] + states})
        return Memory({"bytes": self._linear.nbytes, "states": self._linear.nbytes} if self._linear else {})

    def _maps(self) -> List[Dict[str, Any]]:
        """Returns where the blocks of each row of a cache with a batch are."""
        with self._bound() as batch:
            return _maps(batch)

    def _repr_html_(self) -> str:
        return display.cache_html(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.get_seq_length()})"


def _indices(value: Any) -> np.ndarray:
    index = to_numpy(value).ravel()
    if index.dtype == bool:
        index = np.flatnonzero(index)
    index = integers(index, "an index of rows", np.int64)
    if index.size and index.min() < 0:
        raise ArgumentError(f"row {int(index.min())}: rows are counted from 0")
    return integers(index, "an index of rows", np.uint32)


def _maps(batch: Batch) -> List[Dict[str, Any]]:
    return [json.loads(text_of("kvik_cache_map", batch.store.pointer, seq)) for seq in batch.sequences()]


def _map_bytes(described: Dict[str, Any]) -> int:
    return sum(g[part].get("bytes", 0) for g in described["groups"] for part in ("blocks", "tiles") if part in g)


def _sync(store: Store, batch: Batch, rows: List[np.ndarray]) -> Tuple[Batch, List[Dict[str, Any]]]:
    """Syncs a fork of each row, so that a failure leaves the batch as it was."""
    seqs = (ctypes.c_uint32 * len(rows))()
    reports: List[Dict[str, Any]] = []
    made = 0
    try:
        for i, ids in enumerate(rows):
            out = ctypes.c_uint32()
            call("kvik_cache_fork", store.pointer, lib.kvik_batch_seq(batch.pointer, i), ctypes.byref(out))
            seqs[i], made = out.value, made + 1
            report = sized(_abi.kvik_sync)
            call("kvik_cache_sync", store.pointer, seqs[i], address(ids), ids.size, None, ctypes.byref(report))
            reports.append({name: (lambda v: v.decode("utf-8", "replace") if isinstance(v, bytes) else v)(
                getattr(report, name)) for name in field_kinds(_abi.kvik_sync) if name != "size"})
            lib.kvik_sync_done(ctypes.byref(report))
    except BaseException:
        for i in range(made):
            lib.kvik_cache_drop(store.pointer, seqs[i])
        raise
    return Batch.of(store, seqs, len(rows), None), reports
