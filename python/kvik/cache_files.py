"""Sessions of caches: the file of a batch, with what Python adds to the library's: the padding, in the note of the file."""
import ctypes
import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Dict, Iterator, Optional

import numpy as np

from ._lib import address, call, encode, lib
from .errors import ArgumentError
from .store import Batch, ModelHandle, Settings, Store, open_models


def save_session(batch: Batch, path: str, note: str) -> None:
    """Saves a batch."""
    mask = np.zeros((batch.rows, batch.length), np.uint8)
    call("kvik_batch_mask", batch.pointer, address(mask))
    ours = json.dumps({"rows": batch.rows, "length": batch.length, "layers": batch.store.model.layers,
                       "mask": np.packbits(mask).tobytes().hex(), "note": note})
    call("kvik_cache_save", batch.store.pointer, encode(path), batch.sequences(), batch.rows, encode(ours))


def session_bytes(batch: Batch) -> Dict[str, Any]:
    """Returns a batch as a session that is no file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cache.session")
        save_session(batch, path, "")
        with open(path, "rb") as f:
            return {"bytes": f.read(), "length": batch.length, "rows": batch.rows, "layers": batch.store.model.layers,
                    "encoder": encoder_length(batch)}


def encoder_length(batch: Batch) -> int:
    """Returns the encoder's rows: those of the row of the batch with the most."""
    return max(int(lib.kvik_cache_encoder_length(batch.store.pointer, s)) for s in batch.sequences())


def note_of(described: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the rows, the length, the layers (0: not known) and the caller's note of a session that the library has described."""
    try:
        values = json.loads(described.get("note") or "")
        return {"rows": int(values["rows"]), "length": int(values["length"]), "layers": int(values.get("layers", 0)),
                "note": values.get("note", "")}
    except (ValueError, KeyError, TypeError, RecursionError):  # a session of the command: one row for each sequence
        lengths = [int(s["tokens"]) for s in described.get("sequences", [])]
        return {"rows": len(lengths), "length": max(lengths, default=0), "note": described.get("note") or ""}


def load_session(model: ModelHandle, settings: Settings, session: Dict[str, Any]) -> Batch:
    """Loads a session, whose ``path`` or ``bytes`` are known, into a store of its model."""
    with model.using(settings, session["rows"]) as store:
        return _load(store, session)


def _load(store: Store, session: Dict[str, Any]) -> Batch:
    if "bytes" in session:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache.session")
            with open(path, "wb") as f:
                f.write(session["bytes"])
            return _load(store, {"path": path})
    seqs = (ctypes.c_uint32 * 1024)()
    note = ctypes.c_char_p()
    n = call("kvik_cache_load", store.pointer, encode(session["path"]), 1024, seqs, ctypes.byref(note))
    text = (note.value or b"").decode("utf-8", "replace")
    lib.kvik_free(note)
    return Batch.of(store, seqs, n, _mask_of(text, n))


def waiting() -> ArgumentError:
    """Returns the error of a call that needs the rows of a session whose model has not been seen."""
    return ArgumentError("the cache was loaded and waits for its model, which alone can read its rows; call the model with it first")


@contextmanager
def session_read(settings: Settings, session: Dict[str, Any]) -> Iterator[Batch]:
    """The batch of a session for the time of a `with`, in an open model of the same weights.  The session stays as it is.

    The rows of a session are as the cache keeps them, quantized for example, and its model knows their shapes.  They come into
    a store of their own, which goes with them: those that the model has open are in use.
    """
    settings = replace(settings, threads=settings.threads or 1, max_sequences=max(settings.max_sequences or 0, session["rows"], 1))
    for model in open_models():
        try:
            batch = _load(Store(model, settings), session)
        except ArgumentError:  # of other weights
            continue
        with batch.store.locked():
            yield batch
        return
    raise waiting()


def _mask_of(note: str, rows: int) -> Optional[np.ndarray]:
    try:
        values = json.loads(note)
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(values["mask"]), np.uint8))
        return bits[: rows * values["length"]].reshape(rows, values["length"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
