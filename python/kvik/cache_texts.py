"""Makes the batch of a cache hold given texts: by what it has of them, or by chunks of other texts."""
import ctypes
from typing import Any, Dict, List, Tuple

import numpy as np

from . import _abi
from ._lib import address, call, field_kinds, lib, sized
from .store import Batch, Store


def splice(store: Store, batch: Batch, parts: List[np.ndarray], recompute: int, fraction: float) -> Tuple[Batch, Dict[str, int]]:
    """Appends the chunks to a fork of the row, so that a failure leaves the batch as it was."""
    list_of = (_abi.kvik_chunk * max(len(parts), 1))()
    for i, ids in enumerate(parts):
        list_of[i] = sized(_abi.kvik_chunk, ids=address(ids), n=ids.size)
    how = sized(_abi.kvik_splice, recompute=recompute, fraction=fraction)
    seqs = (ctypes.c_uint32 * 1)()
    call("kvik_cache_fork", store.pointer, lib.kvik_batch_seq(batch.pointer, 0), ctypes.byref(seqs))
    try:
        call("kvik_cache_splice", store.pointer, seqs[0], list_of, len(parts), ctypes.byref(how))
    except BaseException:
        lib.kvik_cache_drop(store.pointer, seqs[0])
        raise
    return Batch.of(store, seqs, 1, None), {name: getattr(how, name) for name in ("reused", "moved", "computed", "chunks")}


def sync(store: Store, batch: Batch, rows: List[np.ndarray]) -> Tuple[Batch, List[Dict[str, Any]]]:
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
