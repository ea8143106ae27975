"""Rows of prompts that processes share, in a Redis or a directory."""
import ctypes
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Dict, Optional

import numpy as np

from . import _abi
from ._arrays import ids_2d
from ._lib import address, call, encode, field_kinds, lib, owned, sized
from .errors import ArgumentError, BusyError, LimitError
from .store import Batch, Store

if TYPE_CHECKING:
    from .caches import Cache
    from .model import PreTrainedModel

# A store is waited for no longer than computing would take, as the command does: so long for the first rows, and for each token.
_FIRST, _EACH = 0.1, 0.0002
_LEAST = 256  # tokens that are worth it: KVIK_SHARED_LEAST
_LOOK = 0.001  # seconds between two looks at what has come
_FLUSHES, _FLUSH_MS = 50, 100  # how often, and how long, a write waits for room


class PrefixStore:
    """Rows of prompts that processes share, on one machine or on many: what one has computed, another reads.

    Addresses are those of ``kvik serve --prefix-store``: ``redis://host``, ``rediss://host``, ``unix:///socket``, and
    ``file:///directory?size=8G`` for a directory of at most that size.  Rows from a store have the bits of computing.  A store that is
    slow, full or gone costs nothing but the reuse: errors are counted (``state()``) and not raised.

        with kvik.PrefixStore("redis://cache-host") as store:
            cache = kvik.DynamicCache()
            store.read(cache, model, ids)                       # 0 tokens where the store has nothing
            out = model.generate(ids, past_key_values=cache)    # computes the rest
            store.write(cache)                                  # another thread writes
    """

    def __init__(self, address: str) -> None:
        self.address, self._pid = os.fspath(address), os.getpid()
        self._open: "weakref.WeakKeyDictionary[Store, Any]" = weakref.WeakKeyDictionary()  # one for each store of caches

    def _of(self, store: Store) -> Any:
        """Returns the library's store for a store of caches."""
        if os.getpid() != self._pid:
            raise BusyError("the store was opened by the process that forked this one; open it again in this process")
        if store not in self._open:
            pointer = owned("kvik_shared_close")
            call("kvik_shared_open", store.pointer, encode(self.address), ctypes.byref(pointer))
            self._open[store] = pointer
        return self._open[store]

    def read(self, cache: "Cache", model: "PreTrainedModel", input_ids: Any, wait: Optional[float] = None, cache_salt: str = "") -> int:
        """Makes an empty cache hold the longest beginning of a prompt that the store has.  Returns its number of tokens.

        input_ids: the ids of one row.  wait: seconds; without it at most 0.1 s for the first rows, and 0.2 ms for each token of the
        prompt.  What comes later is not used.  Fewer than 256 tokens are not read.

        cache_salt: a text that says whose rows these are, as the field ``cache_salt`` of ``kvik serve``.  The cache then shares rows, in the store and
        in this process, with caches of the same text alone, also where nothing was read; its forks and ``write`` follow it.
        """
        salt = encode(cache_salt)
        rows = ids_2d(input_ids)
        if rows.shape[0] != 1:
            raise ArgumentError(f"input_ids has {rows.shape[0]} rows; a store is read for one row")
        ids = rows[0]
        with cache._use():
            if cache.get_seq_length():
                raise ArgumentError(f"the cache holds {cache.get_seq_length()} tokens; a store is read into an empty one")
            batch = cache._bind(model._handle, model._defaults, 1)
            with batch.store.locked() as store:
                got = self._fetch(store, ids, wait, salt)
                if got is None:
                    how = sized(_abi.kvik_splice, cache_salt=salt)
                    call("kvik_cache_splice", store.pointer, lib.kvik_batch_seq(batch.pointer, 0), None, 0, ctypes.byref(how))
                    return 0
                cache._take(got, cache._torch)
                return got.length

    def _fetch(self, store: Store, ids: np.ndarray, wait: Optional[float], salt: bytes) -> Optional[Batch]:
        shared = self._of(store)
        if ids.size < _LEAST:
            return None
        fetch, now, seqs = owned("kvik_fetch_free"), sized(_abi.kvik_fetched), (ctypes.c_uint32 * 1)()
        call("kvik_shared_seek", shared, address(ids), ids.size, salt, 0, ctypes.byref(fetch))
        begun = time.monotonic()
        while call("kvik_fetch_look", fetch, ctypes.byref(now)) >= 0 and not now.over:
            passed = time.monotonic() - begun
            if passed > (_FIRST + _EACH * ids.size if wait is None else wait) or (wait is None and passed > _FIRST and not now.bytes):
                break
            time.sleep(_LOOK)
        if now.tokens < _LEAST:
            return None
        try:
            tokens = call("kvik_fetch_take", fetch, ctypes.byref(seqs))
        except LimitError:  # no room: it is computed
            return None
        return Batch.of(store, seqs, 1, None) if tokens > 0 else None

    def write(self, cache: "Cache", wait: float = 0.0) -> bool:
        """Copies what a cache holds and the store does not seem to have, for a thread that writes it.

        wait: seconds.  Returns True if all is written by then, or need not be.  The last tokens, fewer than 128, and rows with padding
        are not written.
        """
        with cache._holding() as state:
            if state.batch is None:
                raise ArgumentError(state.unsaved)
            shared = self._of(state.batch.store)
            for seq in state.batch.sequences():
                for _ in range(_FLUSHES):
                    if call("kvik_shared_put", shared, seq) <= 0:
                        break
                    call("kvik_shared_flush", shared, _FLUSH_MS)
        return call("kvik_shared_flush", shared, int(min(max(wait, 0.0), 86400.0) * 1000)) == 1

    def state(self) -> Dict[str, Any]:
        """Returns what the store did in this process: values ``reads``, ``misses`` and ``writes``, ``bytes_read`` and ``bytes_written``,
        ``damaged`` values (removed, and not used), ``failures`` of calls, bytes that are ``waiting``, and the last ``error``."""
        names = [name for name in field_kinds(_abi.kvik_shared_state) if name not in ("size", "error", "token_seconds")]
        sums: Dict[str, Any] = {**dict.fromkeys(names, 0), "error": ""}
        for shared in list(self._open.values()):
            now = sized(_abi.kvik_shared_state)
            call("kvik_shared_look", shared, ctypes.byref(now))
            for name in names:
                sums[name] += int(getattr(now, name))
            sums["error"] = now.error.decode("utf-8", "replace") or sums["error"]
        return sums

    def close(self) -> None:
        """Writes what waits for at most 5 seconds, and closes.  The next call opens the store again."""
        self._open.clear()

    def __enter__(self) -> "PrefixStore":
        return self

    def __exit__(self, *what: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PrefixStore({self.address.partition('://')[0]}://...)"
