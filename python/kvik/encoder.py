"""The input of an encoder: token ids or features, as generate(), forward() and get_encoder() take it."""
import ctypes
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from . import _abi
from ._arrays import ids_2d, is_torch, like, mask_2d, to_numpy
from ._lib import address, call, lib, sized
from .errors import ArgumentError, UnsupportedError
from .outputs import Later
from .store import Batch, Settings

if TYPE_CHECKING:
    from ._typing import Array


def encoder_of(handle: Any) -> Any:
    """Returns the kvik_encoder of a model: ``bins``, ``rows``, ``stride``, ..."""
    out = sized(_abi.kvik_encoder)
    lib.kvik_model_encoder(handle.pointer, ctypes.byref(out))
    return out


class EncoderInput:
    """What an encoder reads, one row for each text or recording.  get_encoder() returns it, and ``encoder_outputs=`` takes it.

    The encoder runs when a decoder first needs its rows, and the rows of equal inputs are shared.  A cache keeps the keys and values
    that the decoder reads, so ``last_hidden_state`` [batch, tokens, hidden] is computed when it is first read; ``hidden_states`` of
    the embedding and each layer and ``attentions`` [batch, heads, tokens, tokens] as well, and they are None where they were not
    asked for.  Masked columns are zeros.
    """

    def __init__(self, handle: Any, ids: Any = None, mask: Any = None, features: Any = None, settings: Optional[Settings] = None,
                 hidden: bool = False, attentions: bool = False) -> None:
        if (ids is None) == (features is None):
            raise ArgumentError("an encoder needs either input_ids or input_features")
        self.torch = is_torch(ids if features is None else features)
        self.ids = self.mask = self.features = None
        bins = int(encoder_of(handle).bins)
        if features is not None:
            array = to_numpy(features, np.float32)
            if not bins:
                raise ArgumentError("the encoder of this model reads input_ids, not input_features")
            if array.ndim != 3 or array.shape[1] != bins or not array.shape[2]:
                raise ArgumentError(f"input_features has the shape {list(array.shape)}; expected [batch, {bins}, frames]")
            self.features = array
        else:
            if bins:
                raise ArgumentError("the encoder of this model reads input_features, not input_ids")
            self.ids, self.mask = ids_2d(ids), mask_2d(mask)
            if self.ids.shape[1] == 0:
                raise ArgumentError("input_ids has no tokens")
            if self.mask is not None and self.mask.shape != self.ids.shape:
                raise ArgumentError(f"attention_mask has the shape {list(self.mask.shape)}, input_ids {list(self.ids.shape)}")
        self.rows = len(self.ids if self.ids is not None else self.features)  # type: ignore[arg-type]  # one of them is given
        for name in ("ids", "mask", "features"):  # the encoder runs later, and reads what was given now
            if getattr(self, name) is not None:
                setattr(self, name, np.array(getattr(self, name)))
        self._handle, self.settings, self._asked = handle, settings or Settings(), (hidden, attentions)
        self._shown: Dict[bool, Tuple[Any, Any]] = {}  # by whether there are attentions

    @property
    def last_hidden_state(self) -> "Array":
        """What the decoder reads, [batch, tokens, hidden]."""
        return self._arrays(self.shown(False)[0][-1:])[0]

    @property
    def hidden_states(self) -> "Optional[Tuple[Array, ...]]":
        """Of the embedding and each layer, if they were asked for."""
        return self.states() if self._asked[0] else None

    @property
    def attentions(self) -> "Optional[Tuple[Array, ...]]":
        """Of each layer, if they were asked for."""
        return self.weights() if self._asked[1] else None

    def to_tuple(self) -> Tuple[Any, ...]:
        """Returns the entries that are not None."""
        return tuple(v for v in (self.last_hidden_state, self.hidden_states, self.attentions) if v is not None)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in ("last_hidden_state", "hidden_states", "attentions") or getattr(self, key) is None:
                raise KeyError(key)
            return getattr(self, key)
        return self.to_tuple()[key]

    def states(self) -> "Tuple[Array, ...]":
        """Returns the hidden states of the embedding and each layer."""
        return self._arrays(self.shown(False)[0])

    def weights(self) -> "Tuple[Array, ...]":
        """Returns the attentions of each layer."""
        return self._arrays(self.shown(True)[1])

    def _arrays(self, layers: np.ndarray) -> "Tuple[Array, ...]":
        return tuple(like(a.copy() if self.torch else a, self.torch) for a in layers)

    def shown(self, attentions: bool) -> Tuple[Any, Any]:
        """Returns the hidden states [layers + 1, batch, tokens, hidden] and the attentions [layers, batch, heads, tokens, tokens]."""
        kept = self._shown.get(True) or self._shown.get(attentions)
        if kept is None:
            own = self.settings  # a store of its own, so that neither a budget nor the rows of caches are touched
            with self._handle.using(Settings(max_encoder_len=own.max_encoder_len, threads=own.threads, compute=own.compute, isa=own.isa,
                                             max_sequences=1), 1) as store:
                rows = [self._encoded(store, i, attentions) for i in range(self.rows)]
            kept = self._shown[attentions] = _joined([states for states, _ in rows]), _joined([weights for _, weights in rows if weights is not None])
        return kept

    def _encoded(self, store: Any, i: int, attentions: bool) -> Tuple[np.ndarray, Optional[np.ndarray]]:
        """Runs the encoder for a row; returns [layers + 1, tokens, hidden] and [layers, heads, tokens, tokens], zeros in masked columns."""
        source, n = self.source(i), sized(_abi.kvik_encoded)
        call("kvik_encoder_forward", store.pointer, ctypes.byref(source), ctypes.byref(n))
        states = np.empty((n.layers + 1, n.rows, n.hidden), np.float32)
        weights = np.empty((n.layers, n.heads, n.rows, n.rows), np.float32) if attentions else None
        out = sized(_abi.kvik_encoded, hidden_states=address(states), attentions=address(weights))
        call("kvik_encoder_forward", store.pointer, ctypes.byref(source), ctypes.byref(out))
        if self.mask is None or self.mask[i].all():
            return states, weights
        place, width = np.flatnonzero(self.mask[i]), self.mask.shape[1]
        spread = np.zeros((len(states), width, n.hidden), np.float32)
        spread[:, place] = states
        if weights is None:
            return spread, None
        table = np.zeros((*weights.shape[:2], width, width), np.float32)
        table[:, :, place[:, None], place] = weights
        return spread, table

    def repeated(self, times: int) -> "EncoderInput":
        """Returns the same with every row several times."""
        if times == 1:
            return self
        copy = object.__new__(EncoderInput)
        copy.__dict__.update(self.__dict__)
        for name in ("ids", "mask", "features"):
            value = getattr(self, name)
            setattr(copy, name, None if value is None else np.repeat(value, times, 0))
        copy.rows, copy._shown = self.rows * times, {}
        return copy

    def source(self, row: int) -> Any:
        """Returns a kvik_source that points to a row of this object."""
        if self.features is not None:
            return sized(_abi.kvik_source, features=address(self.features[row]), n_frames=self.features.shape[2])
        assert self.ids is not None
        return sized(_abi.kvik_source, ids=address(self.ids[row]), n=self.ids.shape[1],
                     attention_mask=None if self.mask is None else address(self.mask[row]))

    def encode(self, batch: Batch) -> None:
        """Gives the empty rows of a batch the rows of the encoder."""
        with batch.store.locked():
            for i, seq in enumerate(batch.sequences()):
                call("kvik_cache_encode", batch.store.pointer, seq, ctypes.byref(self.source(i)))


def _joined(rows: List[np.ndarray]) -> Optional[np.ndarray]:
    """Returns what the rows of a batch have, [layers, batch, ...], read-only: a change would reach no decoder.  None of none."""
    if not rows:
        return None
    out = np.stack(rows, 1)
    out.flags.writeable = False
    return out


class Encoder:
    """The encoder of a model: ``model.get_encoder()(input_ids, attention_mask=...)`` or ``(input_features)``."""

    def __init__(self, model: Any) -> None:
        self._model, self._features = model, model.main_input_name == "input_features"

    def __call__(self, inputs: Any = None, attention_mask: Any = None, input_ids: Any = None, input_features: Any = None,
                 output_hidden_states: Optional[bool] = None, output_attentions: Optional[bool] = None, **_: Any) -> EncoderInput:
        """Returns an EncoderInput, for ``encoder_outputs=`` of generate() and forward()."""
        heeded: Callable[..., bool] = self._model._heeded
        if inputs is not None and self._features:
            input_features = inputs
        elif inputs is not None:
            input_ids = inputs
        return EncoderInput(self._model._handle, input_ids, None if self._features else attention_mask, input_features,
                            self._model._defaults, heeded("output_hidden_states", output_hidden_states, False),
                            heeded("output_attentions", output_attentions, False))


def shown_of(given: Optional[EncoderInput], settings: Settings, hidden: bool, attentions: bool) -> Dict[str, Any]:
    """Returns what a forward() tells of its encoder; each is computed when it is first read.  settings: of the cache."""
    if given is None:
        return {}
    given.settings = settings.over(given.settings)
    return {"encoder_last_hidden_state": Later(lambda: given.last_hidden_state),
            "encoder_hidden_states": Later(given.states) if hidden else None,
            "encoder_attentions": Later(given.weights) if attentions else None}


def take_input(model: Any, outputs: Any, ids: Any, mask: Any, features: Any) -> Optional[EncoderInput]:
    """Returns the input of a call, given in one of its forms; None if there is none."""
    given: Tuple[str, ...] = tuple(n for n, v in (("encoder_outputs", outputs), ("input_ids", ids), ("input_features", features))
                                   if v is not None)
    if len(given) > 1:
        raise ArgumentError(f"{' and '.join(given)} were given, and the encoder reads one of them")
    if outputs is not None:
        if not isinstance(outputs, EncoderInput):
            raise UnsupportedError("encoder_outputs is what model.get_encoder()(...) returned; hidden states of another "
                                   "program cannot be read")
        return outputs
    return EncoderInput(model._handle, ids, mask, features, model._defaults) if given else None
