"""What a cache shows of its layers: their rows and states, and what models that are written elsewhere ask of each.

Models of Transformers build their masks of is_sliding, get_query_offset() and get_mask_sizes().
"""
import ctypes
import json
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar

import numpy as np

from . import _abi
from ._arrays import frozen, like, torch_module
from ._lib import call, lib, view
from .cache_outline import WINDOWS, Outline
from .cache_states import State
from .configuration import layer_kinds
from .errors import ArgumentError, UnsupportedError
from .layer_views import (CacheLayer, Column, DynamicLayer, DynamicSlidingWindowLayer, Edits, Fp8QuantizedLayer, HQQQuantizedLayer, LinearAttentionLayer,
                          QuantoQuantizedLayer, Snapshot, StaticLayer, StaticSlidingWindowLayer)
from .legacy import as_tuples
from .linear_states import LinearStates, copied
from .states_beside import Linear
from .store import Batch, Settings

_LINEAR = ("linear_attention", "conv", "mamba", "recurrent_state")  # kinds of layers that have states and no rows
STATIC = ("static", "offloaded_static", "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked")
_DUMMY = ("moe", "mlp", "dummy")  # kinds of layers that have neither
_MOST = 4096  # layers of a cache without a model


class _Base:
    """Python changes the bases of a class only if they are not `object` alone."""


_HEIRS: List[Tuple[type, str]] = []
_adopting = threading.RLock()


_Kind = TypeVar("_Kind", bound=type)


def heir_of(name: str) -> Callable[[_Kind], _Kind]:
    """Marks a class that adopt_transformers() makes a subclass of Transformers' class of that name."""
    def mark(kind: _Kind) -> _Kind:
        _HEIRS.append((kind, name))
        return kind
    return mark


def adopt_transformers() -> None:
    """Makes caches subclasses of those of Transformers if the program has imported these, which may be after it made the cache.

    Its models look for the layers with windows, and for the two caches of a model with an encoder, in such objects alone.
    """
    module = sys.modules.get("transformers.cache_utils")
    for kind, name in _HEIRS if module is not None else ():
        theirs = getattr(module, name, None)
        if not isinstance(theirs, type) or theirs in kind.__bases__ or issubclass(theirs, kind):
            continue
        with _adopting:  # of two threads that have come so far, one
            if theirs not in kind.__bases__:
                kind.__bases__ += (theirs,)


@heir_of("Cache")
class Layers(_Base):
    """The part of a cache that shows its layers."""

    if TYPE_CHECKING:  # of Cache
        config: Any
        _state: State
        _settings: Settings
        _torch: bool
        _row_dtype: Any
        _edits: Edits
        _early: Dict[int, np.ndarray]

        @property
        def is_initialized(self) -> bool: ...
        @property
        def _batch(self) -> Optional[Batch]: ...
        def _use(self) -> Any: ...
        def get_seq_length(self, layer_idx: int = 0) -> int: ...
        def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]: ...
        def to_legacy_cache(self) -> Tuple[Tuple[Any, Any], ...]: ...
        def _layers(self, settled: bool = True) -> Any: ...
        def settle(self, layer: Optional[int] = None) -> None: ...

    # -- which layers there are

    def _outline(self) -> Outline:
        """Returns what is known of the layers without a model."""
        return Outline(self.config, self._settings, self._state.shapes)

    def _own_kinds(self) -> Optional[List[str]]:
        """Returns the kinds of all layers by the configuration, in its words, or None."""
        return layer_kinds(self._outline().config)

    def __len__(self) -> int:
        used = self._state.layer_count()
        return used if self._batch is not None else max(used, self._outline().count())

    # -- what masks need

    @property
    def is_sliding(self) -> List[bool]:
        """For each layer, True if it forgets: it has a window, a chunk, or sinks."""
        adopt_transformers()
        given = json.loads(self._settings.cache_config or "{}")
        if self._settings.cache_implementation == "sliding_window" or "sliding_window" in given or "window_length" in given:
            return [True] * len(self)
        described = self._state.described()
        if described is not None:
            return [layer["kind"] in WINDOWS for layer in described]
        kinds = self._outline().kinds() or []
        return [i < len(kinds) and kinds[i] in WINDOWS for i in range(len(self))]

    @property
    def is_linear(self) -> List[bool]:
        """For each layer, True if it keeps a recurrent state instead of rows."""
        state, described = self._state, self._state.described()
        if described is not None:
            return [layer["kind"] == "recurrent_state" for layer in described]
        kinds, states = self._own_kinds() or [], state.linear.layers() if state.linear else set()
        return [kinds[i] in _LINEAR if i < len(kinds) else i in states and not state.seen(i) for i in range(len(self))]

    def _counting(self, layer: Optional[int]) -> int:
        """Returns the layer that tells the length: for layer 0, which is asked for by default, the first that keeps rows."""
        if layer or self._state.seen(0):
            return layer or 0
        rows = [i for i, without in enumerate(zip(self.is_linear, self.is_dummy)) if not any(without)]
        return next(iter(rows or filter(self._state.seen, range(len(self)))), 0)  # a layer may have states and rows

    @property
    def is_dummy(self) -> List[bool]:
        """For each layer, True if it keeps nothing, as a layer that has experts and no attention."""
        state, kinds = self._state, self._own_kinds() if self._batch is None else None
        if kinds:
            return [i < len(kinds) and kinds[i] in _DUMMY for i in range(len(self))]
        states = state.linear.layers() if state.linear and state.batch is None else set()  # of a model that has both
        return [bool(states) and i not in states and not state.seen(i) for i in range(len(self))]

    @property
    def is_croppable(self) -> bool:
        """True if crop() can take back any token: a model of kvik recomputes what a window has dropped."""
        return self._batch is not None or not (self._state.linear or any(self.is_sliding) or any(self.is_linear))

    def activate_past_recording(self) -> None:
        """From now on crop(0) removes nothing, as in release 5 of Transformers, which calls this before it takes tokens back."""
        self._removes = True
        if not self._state.is_of_model and (self._state.linear or any(self.is_linear)):
            self._states_of().recording = True

    def is_recording_past(self, layer_idx: int) -> bool:
        """True if a layer keeps all inputs of its convolution until crop()."""
        return self._state.linear is not None and self._state.linear.recording

    # -- recurrent states of a model that is written elsewhere

    def _states_of(self, layer: int = 0) -> LinearStates:
        """Returns the states that a model which is written elsewhere keeps here.  layer: one that it has."""
        if not 0 <= layer < _MOST:
            raise ArgumentError(f"layer {layer}: 0 to {_MOST - 1}")
        if self._state.is_of_model:
            raise UnsupportedError("the cache holds the states of a model of kvik, which another model cannot continue; conv_states, "
                                   "ssm_states and recurrent_states show them")
        if self._state.linear is None:
            self._state = Linear(LinearStates(), self._state)
        assert self._state.linear is not None
        return self._state.linear

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Any:
        """Returns the last inputs of a layer's convolution, [batch, channels, taps], which the model may write into; or None."""
        return self._states_of().conv.get((layer_idx, state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Any:
        """Returns the recurrent state of a layer, [batch, ...], which the model may write into; or None."""
        return self._states_of().recurrent.get((layer_idx, state_idx))

    def update_conv_state(self, conv_states: Any, layer_idx: int, state_idx: int = 0, conv_kernel_size: Optional[int] = None,
                          **kwargs: Any) -> Any:
        """Appends inputs of a layer's convolution, [batch, channels, n]; returns the cached ones with them.

        For models that are written elsewhere, as update() is.  The last conv_kernel_size are kept.
        """
        with self._use():
            return self._states_of(layer_idx).update_conv((layer_idx, state_idx), conv_states, conv_kernel_size)

    def update_recurrent_state(self, recurrent_states: Any, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> Any:
        """Keeps the recurrent state of a layer, [batch, ...], and returns it.  For models that are written elsewhere."""
        with self._use():
            return self._states_of(layer_idx).update_recurrent((layer_idx, state_idx), recurrent_states)

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Returns the position of the next token: the tokens that a layer has seen."""
        return self._state.seen(self._counting(layer_idx)) if self._state.is_loose else self.get_seq_length(layer_idx)

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> Tuple[int, int]:
        """Returns the columns that an update of so many rows returns, and the position of the first."""
        n = len(query_length) if np.ndim(query_length) else int(query_length)  # older releases give the positions of the rows
        if self._state.session is not None:
            return self.get_seq_length(layer_idx) + n, 0
        layer_idx = self._counting(layer_idx)
        if self._batch is not None and layer_idx >= len(self):
            return n, 0
        adopt_transformers()
        rows = self._state.masking(self._outline(), layer_idx, self.get_seq_length())
        if layer_idx >= rows.n_layers:
            return n, 0
        length, offset = ctypes.c_uint32(), ctypes.c_uint32()
        call("kvik_layers_mask_sizes", rows.pointer, layer_idx, n, ctypes.byref(length), ctypes.byref(offset))
        return length.value, offset.value

    # -- what they hold

    @property
    def layers(self) -> List[CacheLayer]:
        """The layers with their ``keys`` and ``values``, which can be read and set."""
        rows, slides, linear = Snapshot(self), self.is_sliding, self.is_linear
        n = max(len(self), 1 + max((layer for layer, _ in self._edits.set), default=-1))
        slides, linear = (given + [False] * (n - len(given)) for given in (slides, linear))
        return [self._kind_of(slides[i], linear[i]).of(rows, i, slides[i]) for i in range(n)]

    @layers.setter
    def layers(self, value: Any) -> None:
        raise ArgumentError(f"the layers of a {type(self).__name__} are the library's; Cache(layers=[...]) is a cache of a program's own")

    @property
    def layer_class_to_replicate(self) -> Any:
        """None: the layers are the library's."""
        return None

    @layer_class_to_replicate.setter
    def layer_class_to_replicate(self, value: Any) -> None:
        raise ArgumentError(f"the layers of a {type(self).__name__} are the library's; Cache(layer_class_to_replicate=...) is a cache of a "
                            "program's own")

    def _kind_of(self, slides: bool, linear: bool) -> Type[CacheLayer]:
        """Returns the class of a layer."""
        name = self._settings.cache_implementation or "dynamic"
        if linear:
            return LinearAttentionLayer
        if name == "quantized":
            config = (self._settings.cache_config or "").lower()
            return HQQQuantizedLayer if '"hqq"' in config else Fp8QuantizedLayer if '"fp8"' in config else QuantoQuantizedLayer
        if name in ("dynamic", "offloaded", "sink"):
            return DynamicSlidingWindowLayer if slides else DynamicLayer
        return StaticSlidingWindowLayer if slides else StaticLayer

    def layer_limit(self, layer: int) -> int:
        """Returns the most columns of a layer; -1 for no limit."""
        limits = [self.get_max_cache_shape()]
        slides = self.is_sliding
        if layer < len(slides) and slides[layer]:
            outline = self._outline()
            limits.append(outline.window(outline.kinds()) or json.loads(self._settings.cache_config or "{}").get("sliding_window"))
        known = [int(n) for n in limits if n]
        return min(known) if known else -1

    def _read_rows(self, layer: int) -> Dict[int, Tuple[Any, Any]]:
        """Returns the rows of a layer, or of all where they are read together, by their numbers."""
        if not self._state.is_used:
            return {i: (like(zeros, self._as_torch), like(zeros, self._as_torch)) for i, zeros in self._early.items()}
        if self._state.store is not None:
            found = {layer: self._rows_of(layer)}
        else:
            found = dict(enumerate(as_tuples(self._layers(settled=False), self._as_torch) if self.is_initialized else ()))
        return {i: (self._padded(i, k, 0), self._padded(i, v, 1)) for i, (k, v) in found.items() if k is not None}

    def _padded(self, layer: int, rows: Any, which: int) -> Any:
        """Returns the rows of a static layer with the columns that it has reserved, which are zeros.

        A full window begins with a row that no later token sees; of a model of kvik that is zeros as well.
        """
        limit = self.layer_limit(layer) if self._settings.cache_implementation in STATIC else -1
        gap = limit - rows.shape[2]
        if gap <= 0:
            return rows
        more = np.zeros((*rows.shape[:2], gap, rows.shape[3]), np.float32)
        full = gap == 1 and self.get_seq_length(layer) >= limit
        if full and layer in self._edits.oldest:
            more = self._edits.oldest[layer][which]
        torch = torch_module() if self._as_torch else None
        if torch is None:
            parts = [rows, more.astype(rows.dtype)]
            return np.concatenate(parts[::-1] if full else parts, 2)
        parts = [rows, like(more, True).to(rows.dtype)]
        return torch.cat(parts[::-1] if full else parts, 2)

    def early_initialization(self, batch_size: int, num_heads: Any, head_dim: Any, dtype: Any = None, device: Any = None) -> None:
        """Lets layers that hold nothing show zeros of these shapes.  num_heads, head_dim: numbers, or one for each layer."""
        n = len(self)
        heads, width = ([int(v) for v in (value if hasattr(value, "__len__") else [value] * n)] for value in (num_heads, head_dim))
        if len(heads) != n or len(width) != n:
            raise ValueError(f"num_heads has {len(heads)} entries and head_dim {len(width)}; the cache has {n} layers")
        self._torch = self._torch or type(dtype).__module__.split(".")[0] == "torch"
        self._early = {i: np.zeros((int(batch_size), heads[i], max(self.layer_limit(i), 0), width[i]), np.float32) for i in range(n)}

    def _set_rows(self, layer: int, which: int, value: Any) -> None:
        """Sets the keys (0) or the values (1) of a layer, from the next use of the cache on."""
        if np.ndim(value) != 4:
            raise ValueError(f"the rows of a layer are [batch, heads, columns, width], not {list(getattr(value, 'shape', ()))}; reset() and "
                             "crop() remove rows")
        self._edits.set[layer, which] = value

    def _rows_of(self, layer: int) -> Tuple[Any, Any]:
        """Returns the rows of a layer that update() has filled, in the dtype that update() was given."""
        with self._use():  # the next update may move the rows
            store = self._state.store
            if store is None or not store.length(layer):
                return None, None
            arrays = store.layer(layer)
        rows = [like(a, self._as_torch) for a in arrays]
        if self._row_dtype is None:  # of a pickle
            return rows[0], rows[1]
        keys, values = (a.to(self._row_dtype) if self._as_torch else a.astype(self._row_dtype, copy=False) for a in rows)
        return keys, values

    @property
    def _as_torch(self) -> bool:
        """True if rows are shown as tensors: the cache was given tensors, here or before it was pickled, and torch is here."""
        return self._torch and torch_module() is not None

    @property
    def key_cache(self) -> List[Any]:
        """The keys of every layer."""
        return Column(self, 0, [layer.keys for layer in self.layers])

    @property
    def value_cache(self) -> List[Any]:
        """The values of every layer."""
        return Column(self, 1, [layer.values for layer in self.layers])

    def _states(self, name: str) -> List[Any]:
        """Returns a plane of each layer with the batch in front; None for layers without it."""
        states = self._state.linear
        if states:
            given = states.conv if name == "conv" else states.recurrent
            return [frozen(copied(given[i, 0])) if (i, 0) in given else None for i in range(len(self))] if given else []
        if not self._state.is_of_model and self._state.beside() is None:
            return []
        rows = []
        with self._use(), self._state.read_states() as batch:
            for seq in batch.sequences():
                out = ctypes.POINTER(_abi.kvik_export)()
                call("kvik_cache_export", batch.store.pointer, seq, ctypes.byref(out))
                try:
                    layers = ctypes.cast(out.contents.layer, ctypes.POINTER(_abi.kvik_layer_rows))
                    rows.append([_plane(layers[i], name) for i in range(out.contents.n_layers)])
                finally:
                    lib.kvik_export_free(out)
        return [None if parts[0] is None else frozen(like(np.stack(parts), self._as_torch)) for parts in zip(*rows)]

    @property
    def conv_states(self) -> List[Any]:
        """Of recurrent layers, the last inputs of the convolution: f32 [batch, channels, taps] per layer, copied; None for
        other layers.  [] before the first use."""
        return self._states("conv")

    @property
    def ssm_states(self) -> List[Any]:
        """Of recurrent layers, the states of the scan: f32 [batch, channels, states] per layer, in heads [batch, heads,
        channels, states], copied; None for other layers.  [] before the first use."""
        return self._states("ssm")

    @property
    def recurrent_states(self) -> List[Any]:
        """Of layers with a gated delta rule, f32 [batch, heads, key, value] per layer, copied; None for other layers."""
        return self._states("delta")


def _plane(layer: Any, name: str) -> Optional[np.ndarray]:
    found = lib.kvik_layer_plane(ctypes.byref(layer), name.encode())
    if not found:
        return None
    plane = found.contents if hasattr(found, "contents") else ctypes.cast(found, ctypes.POINTER(_abi.kvik_plane)).contents
    return view(plane.data, tuple(plane.dim[: plane.n_dims]), np.float32).copy()
