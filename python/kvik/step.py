"""One forward of a model: its arguments as the library takes them, and the arrays that it fills."""
import ctypes
from typing import Any, Dict, Optional

import numpy as np

from . import _abi
from ._arrays import flat_mask, ids_2d, integers, is_torch, like, mask_2d, to_numpy
from ._lib import address, call, lib, sized
from .errors import ArgumentError
from .kept_rows import Keeper, check_inputs, kept_batch, kept_settings, locked, run
from .store import Batch


class Step:
    """The arrays of one forward."""

    def __init__(self, model: Any, ids: Any, embeds: Any, mask: Any, positions: Any, cache_position: Any,
                 keep: Any) -> None:
        self.model = model
        self.torch = is_torch(ids if embeds is None else embeds)
        self.ids = None if ids is None else ids_2d(ids)
        self.embeds: Optional[np.ndarray] = None
        if embeds is not None:
            self.embeds = to_numpy(embeds, np.float32)
            width = lib.kvik_model_hidden(model._handle.pointer)
            if self.embeds.ndim != 3 or self.embeds.shape[2] != width:
                raise ArgumentError(f"inputs_embeds has the shape {list(self.embeds.shape)}; expected [batch, n, {width}]")
        given: Any = self.ids if self.ids is not None else self.embeds
        self.rows, self.n = given.shape[0], given.shape[1]
        if not self.rows or not self.n:
            raise ArgumentError("forward() needs at least one token")
        self.mask = mask_2d(flat_mask(mask))
        if self.mask is not None and self.mask.shape[0] != self.rows:
            raise ArgumentError(f"attention_mask has {self.mask.shape[0]} rows for {self.rows} rows of input")
        self.positions = None if positions is None else np.atleast_2d(integers(positions, "position_ids"))
        if self.positions is not None and (self.positions.shape[1] != self.n or self.positions.shape[0] not in (1, self.rows)):
            raise ArgumentError(f"position_ids has the shape {list(self.positions.shape)}; expected [1 or {self.rows}, {self.n}]")
        self.cache_position = None if cache_position is None else integers(cache_position, "cache_position", np.int64).ravel()
        self.columns = None
        self.keep = 0
        if np.ndim(keep if not is_torch(keep) else to_numpy(keep)):
            columns = integers(keep, "logits_to_keep", np.int64).ravel()
            if columns.size and not -self.n <= columns.min() <= columns.max() < self.n:
                raise ArgumentError(f"logits_to_keep names columns beyond the {self.n} of the input")
            self.columns = np.ascontiguousarray(columns % self.n, np.uint32)
        else:
            self.keep = min(int(keep or 0), self.n)
            if self.keep < 0:
                raise ArgumentError(f"logits_to_keep is {self.keep}; expected 0 for all columns, or a number of the last ones")

    def _check_position(self, length: int) -> Optional[np.ndarray]:
        if self.cache_position is None:
            return None
        given = self.cache_position
        if self.model._state_name:
            return None  # 4.x: Mamba tells a prompt from a token by numbers that are no positions
        if given.size != self.n:
            expected = f"[{length}]" if self.n == 1 else f"[{length}, ..., {length + self.n - 1}]"
            raise ArgumentError(f"cache_position has {given.size} entries for {self.n} token{'s' * (self.n > 1)}; "
                                f"expected {expected}")
        if given.size and given.min() < 0:
            raise ArgumentError(f"cache_position holds {int(given.min())}; positions begin at 0")
        return integers(given, "cache_position", np.uint32)

    def run_kept(self, cache: Any, hidden: bool, attentions: bool, heard: Optional[Batch] = None) -> Dict[str, Any]:
        """Appends by update() of the cache; returns arrays.  heard: a batch with the rows of an encoder, and no text."""
        keeper = Keeper(cache, self.torch, self.n)
        if self.mask is not None and self.mask.shape[1] > keeper.past + self.n:  # the cache has dropped rows: as in Transformers
            self.mask = np.ascontiguousarray(self.mask[:, :keeper.past + self.n])
        check_inputs(cache, attentions, self.mask, keeper.past, self.n)
        handle, defaults = self.model._handle, self.model._defaults
        with cache._use():
            if handle.has_states:
                heard = cache._states_beside(handle, kept_settings(defaults, self.rows, self.n), self.rows)
            with locked(heard) if heard is not None else kept_batch(handle, defaults, self.rows, self.n) as batch:
                try:
                    return self.run(batch, hidden, False, keeper)
                except BaseException:
                    cache._take_back(keeper.past)
                    raise

    def run(self, batch: Batch, hidden: bool, attentions: bool, keeper: Optional[Keeper] = None) -> Dict[str, Any]:
        """Appends to the batch; returns arrays.  keeper: appends in its place."""
        model = self.model._handle.pointer
        length = batch.length if keeper is None else keeper.past
        position = self._check_position(length)
        kept = self.columns.size if self.columns is not None else self.keep or self.n
        layers, width = lib.kvik_model_layers(model), lib.kvik_model_hidden(model)
        logits = np.empty((self.rows, kept, lib.kvik_model_vocab(model)), np.float32) if self.model._head else None
        states = np.empty((layers + 1, self.rows, self.n, width), np.float32) if hidden else None
        weights = np.empty((layers, self.rows, lib.kvik_model_heads(model), self.n, length + self.n), np.float32) \
            if attentions else None
        cross = None
        if attentions and getattr(self.model, "_seq2seq", False):
            heard = max(int(lib.kvik_cache_encoder_length(batch.store.pointer, s)) for s in batch.sequences())
            cross = np.empty((layers, self.rows, lib.kvik_model_heads(model), self.n, heard), np.float32)
        inputs = sized(_abi.kvik_inputs, ids=address(self.ids), embeds=address(self.embeds), n=self.n,
                       width=0 if self.mask is None else self.mask.shape[1], attention_mask=address(self.mask),
                       cache_position=address(position), position_ids=address(self.positions),
                       position_rows=0 if self.positions is None else self.positions.shape[0], logits_to_keep=self.keep,
                       n_columns=0 if self.columns is None else self.columns.size, columns=address(self.columns))
        outputs = sized(_abi.kvik_outputs, logits=address(logits), hidden_states=address(states), attentions=address(weights),
                        cross_attentions=address(cross))
        if keeper is None:
            call("kvik_batch_forward", batch.pointer, ctypes.byref(inputs), ctypes.byref(outputs))
        else:
            inputs.past, inputs.on_layer = keeper.past, keeper.on_layer
            run(batch.pointer, inputs, outputs, keeper)
        return {"logits": None if logits is None else like(logits, self.torch),
                "hidden_states": None if states is None else tuple(like(s, self.torch) for s in states),
                "attentions": None if weights is None else tuple(like(w, self.torch) for w in weights),
                "cross_attentions": None if cross is None else tuple(like(w, self.torch) for w in cross)}
