"""Handles of models and of cache stores.

A store (`kvik_cache`) holds the sequences of many caches of one model under one configuration and one budget.  Caches that
are made one after another share a store, and so share threads, scratch memory and common prefixes.  A store runs one call
at a time; a second thread waits for it, or takes a store of its own where it begins a new cache.
"""
import ctypes
import json
import os
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Dict, FrozenSet, Iterator, List, Optional

import numpy as np

from . import _abi
from ._lib import address, call, encode, field_kinds, fits, lib, owned, sized, text_of, usage_fields
from .config_changes import Changes
from .errors import BusyError, KvikError, LimitError, OutOfMemoryError, UnsupportedError, adopt_torch
from .utils.logging import notice

_KEEP = 4  # stores of a model that stay open without a cache in them
_SEQUENCES = 64

WINDOWED = ("sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked")
"""Strategies whose layers have windows."""
CACHE_NAMES = {"mamba": "dynamic", "dynamic_full": "dynamic", "offloaded_dynamic": "offloaded"}
"""Names of Transformers that mean a strategy of another name."""


@dataclass(frozen=True)
class Settings:
    """The configuration of a store: kvik_cache_config, as values that compare and hash.  None: the library's default."""

    cache_implementation: Optional[str] = None
    cache_config: Optional[str] = None
    max_cache_len: Optional[int] = None
    cache_memory: Optional[int] = None
    max_sequences: Optional[int] = None
    step_tokens: Optional[int] = None
    snapshots: Optional[int] = None
    threads: Optional[int] = None
    compute: Optional[str] = None
    isa: Optional[str] = None
    on_full: Optional[str] = None
    spill_dir: Optional[str] = None
    no_prefix_cache: Optional[bool] = None
    cross_cache_implementation: Optional[str] = None
    cross_cache_config: Optional[str] = None
    max_encoder_len: Optional[int] = None

    def struct(self) -> Any:
        """Returns the configuration as the library takes it."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        given = {k: encode(v) if isinstance(v, str) else v for k, v in given.items()}
        return sized(_abi.kvik_cache_config, **given)

    def over(self, other: "Settings") -> "Settings":
        """Returns these settings, with those of the other where these have none."""
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.max_cache_len is None and "max_cache_len" in (self.cache_config or ""):
            other = replace(other, max_cache_len=None)  # in both it would have to be the same
        return replace(other, **{k: v for k, v in mine.items() if v is not None})


def settings_of(values: Dict[str, Any]) -> Settings:
    """Takes the settings of a store out of a dictionary of arguments."""
    known = {f.name for f in fields(Settings)}
    found = {k: values.pop(k) for k in list(values) if k in known}
    name = found.get("cache_implementation")
    if name is not None:
        found["cache_implementation"] = CACHE_NAMES.get(name, name)
    if found.get("cache_config") is not None:
        found["cache_config"] = config_json(found["cache_config"])
    if found.get("cache_memory") is not None:
        found["cache_memory"] = parse_bytes(found["cache_memory"])
    kinds = field_kinds(_abi.kvik_cache_config)
    return Settings(**{name: fits(value, kinds[name], name) for name, value in found.items()})


def config_json(value: Any) -> Optional[str]:
    """Returns a cache_config (a dictionary, JSON, or an object with to_dict) as JSON without keys that are None."""
    if isinstance(value, str):
        return value
    values = value if isinstance(value, dict) else value.to_dict()
    values = {str(k): v for k, v in values.items() if v is not None}
    return json.dumps(values, sort_keys=True) if values else None


def parse_bytes(value: Any) -> int:
    """Returns a number of bytes: 64 * 2**20, "64M", "1.5 GiB"."""
    if not isinstance(value, str):
        return int(value)
    text = value.strip().upper().rstrip("B").rstrip("I").strip()
    scale = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except ValueError:
        raise ValueError(f"cache_memory={value!r}: expected bytes, or a text such as '64M'") from None


@contextmanager
def budgeted() -> Iterator[None]:
    """Raises OutOfMemoryError where the library says that cache_memory is too small to open a cache at all.

    Programs that fall back to another cache on this exception then do so.
    """
    try:
        yield
    except LimitError as e:
        if "raise cache_memory" in str(e):
            raise adopt_torch()(str(e)) from None
        raise


_open: "weakref.WeakSet[ModelHandle]" = weakref.WeakSet()
_open_lock = threading.RLock()


def open_models() -> List["ModelHandle"]:
    """Returns the models that this process has open."""
    with _open_lock:
        return [model for model in _open if model.pid == os.getpid()]


class ModelHandle:
    """An open model and its stores."""

    def __init__(self, path: str, quantize: Optional[str] = None, changes: Optional[Changes] = None,
                 device: Optional[str] = None) -> None:
        self.path, self.quantize, self.changes, self.device = path, quantize, changes, device
        folder = changes.folder if changes else path
        if folder != path and quantize:
            raise UnsupportedError(f"quantize={quantize!r} keeps the weights of the model's own configuration; leave it out where the "
                                   "configuration is another")
        self.pid = os.getpid()
        self.pointer = owned("kvik_model_close")
        said: List[str] = []
        tell = _abi.kvik_on_notice(lambda ctx, text: said.append((text or b"").decode("utf-8", "replace")))
        options = sized(_abi.kvik_model_options, quantize=encode(quantize), on_notice=tell, device=encode(device))
        try:
            call("kvik_model_open_with", encode(folder), ctypes.byref(options), ctypes.byref(self.pointer))
        except KvikError as e:  # with the path that the program knows
            raise (e if folder not in str(e) or folder == path else type(e)(str(e).replace(folder, path))) from None
        for text in said:
            notice(text)
        # A `with` that a signal ends between two instructions can leave a lock held: its own thread then still goes on.
        self._lock = threading.RLock()
        self._idle: List["Store"] = []  # the newest last
        with _open_lock:
            _open.add(self)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(lib.kvik_model_layers(self.pointer))

    def fitting(self, settings: "Settings") -> "Settings":
        """Returns settings for this model: names of caches with windows mean full caches where no layer has one, as in Transformers."""
        name = settings.cache_implementation
        if name not in WINDOWED or "sliding_window" in (settings.cache_config or ""):
            return settings
        layers = json.loads(text_of("kvik_model_describe", self.pointer))["layers"]
        if any(layer["kind"] in ("sliding_attention", "chunked_attention") for layer in layers):
            return settings
        plain = "offloaded_static" if name.startswith("offloaded") else "static"
        notice(f"cache_implementation={name!r}: no layer of the model has a window, so the cache keeps all of the text, as {plain!r} does")
        return replace(settings, cache_implementation=plain)

    def _kinds(self) -> FrozenSet[str]:
        if not hasattr(self, "_kinds_of_layers"):
            self._kinds_of_layers = frozenset(
                layer["kind"] for layer in json.loads(text_of("kvik_model_describe", self.pointer))["layers"])
        return self._kinds_of_layers

    @property
    def attends(self) -> bool:
        """True if a layer has attention."""
        return bool(self._kinds() - {"recurrent_state"})

    @property
    def has_states(self) -> bool:
        """True if a layer has a recurrent state."""
        return "recurrent_state" in self._kinds()

    @property
    def hears(self) -> bool:
        """True if the model has an encoder."""
        return bool(lib.kvik_model_encoder(self.pointer, ctypes.byref(sized(_abi.kvik_encoder))))

    def store(self, settings: Settings, sequences: int = 0) -> "Store":
        """Returns a store with these settings that no other thread seems to use."""
        if os.getpid() != self.pid:
            raise BusyError("the model was opened by the process that forked this one; open it again in this process")
        if settings.cache_memory and not settings.max_sequences:  # a small budget has no room for blocks of 64 sequences
            if sequences < 16:
                try:
                    return self._store(replace(settings, max_sequences=16))
                except (LimitError, OutOfMemoryError):  # nor for those of 16: as many as are needed
                    sequences = max(sequences, 1)
            settings = replace(settings, max_sequences=sequences)
        if sequences > (settings.max_sequences or _SEQUENCES):
            settings = replace(settings, max_sequences=sequences)
        return self._store(settings)

    def own_store(self, settings: Settings) -> "Store":
        """Returns a store of one sequence that no other call finds: for a model that assists itself."""
        return Store(self, replace(settings, max_sequences=1))

    def _store(self, settings: Settings) -> "Store":
        """Returns a store that is open and that no other thread seems to use, or a new one."""
        with self._lock:
            for store in reversed(self._idle):
                if store.settings == settings and store.user in (None, threading.get_ident()):
                    self._idle.remove(store)
                    self._idle.append(store)
                    return store
        store = Store(self, settings)
        with self._lock:
            self._idle.append(store)
            del self._idle[:-_KEEP]
        return store

    def forget(self, store: "Store") -> None:
        """Takes a store out of those that new caches begin in.  Caches in it keep it open."""
        with self._lock:
            if store in self._idle:
                self._idle.remove(store)

    @contextmanager
    def using(self, settings: Settings, sequences: int = 0) -> Iterator["Store"]:
        """A store for the time of a `with`."""
        with self.store(settings, sequences).locked() as store:
            yield store


class Store:
    """A cache of the library (`kvik_cache`) with the lock that lets one thread at a time call it."""

    def __init__(self, model: ModelHandle, settings: Settings) -> None:
        self.model, self.settings, self.pid = model, settings, os.getpid()
        # Only a `with` takes it: a handler of a signal that raises between two instructions then leaves nothing locked.
        self.lock = threading.RLock()
        self.user: Optional[int] = None  # the thread that has the lock; a hint for who looks for a free store
        self.pointer = owned("kvik_cache_close")
        with budgeted():
            call("kvik_cache_open", model.pointer, ctypes.byref(settings.struct()), ctypes.byref(self.pointer))

    @contextmanager
    def locked(self) -> Iterator["Store"]:
        """Waits until no other thread calls the store."""
        if os.getpid() != self.pid:  # the lock may be held by a thread that this process does not have
            raise BusyError("the cache belongs to the process that forked this one; open the model again in this process")
        with self.lock:
            before, self.user = self.user, threading.get_ident()
            try:
                yield self
            finally:
                self.user = before

    def usage(self) -> Dict[str, int]:
        """Returns what the store holds, in bytes: the fields of kvik_usage."""
        out = sized(_abi.kvik_usage)
        call("kvik_cache_usage", self.pointer, ctypes.byref(out))
        return usage_fields(out)


class Batch:
    """A padded batch of sequences (`kvik_batch`) in a store.  Its columns are what get_seq_length counts."""

    def __init__(self, store: Store) -> None:
        self.store, self.pointer = store, owned("kvik_batch_close")

    @classmethod
    def open(cls, model: ModelHandle, settings: Settings, rows: int) -> "Batch":
        """Opens a batch of empty rows in a store that has room for them."""
        wanted = rows
        for _ in range(_KEEP + 2):
            with model.using(settings, wanted) as store:
                batch = cls(store)
                try:
                    call("kvik_batch_open", store.pointer, rows, ctypes.byref(batch.pointer))
                    return batch
                except LimitError:  # full of other caches: a new store has room
                    model.forget(store)
                    if not settings.cache_memory:
                        wanted = max(rows * 2, _SEQUENCES)
        raise LimitError(f"no store of {wanted} sequences has room for {rows} rows; raise max_sequences")

    @classmethod
    def of(cls, store: Store, seqs: Any, n: int, mask: Optional[np.ndarray]) -> "Batch":
        """Makes a batch of sequences, which it then owns; drops them if that fails."""
        batch = cls(store)
        mask = None if mask is None else np.ascontiguousarray(mask, np.uint8)
        try:
            call("kvik_batch_of", store.pointer, seqs, n, address(mask), 0 if mask is None else mask.shape[1],
                 ctypes.byref(batch.pointer))
        except BaseException:
            if not batch.pointer:  # else a handler of a signal has raised after the call
                for i in range(n):
                    lib.kvik_cache_drop(store.pointer, seqs[i])
            raise
        return batch

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(lib.kvik_batch_rows(self.pointer))

    @property
    def length(self) -> int:
        """The number of columns, padding included."""
        return int(lib.kvik_batch_length(self.pointer))

    def sequences(self) -> Any:
        """Returns the sequences of the rows, as an array for calls that read them."""
        n = self.rows
        return (ctypes.c_uint32 * n)(*(lib.kvik_batch_seq(self.pointer, i) for i in range(n)))
