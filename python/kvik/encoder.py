"""The input of an encoder: token ids or features, as generate(), forward() and get_encoder() take it."""
import ctypes
from typing import Any, Optional, Tuple

import numpy as np

from . import _abi
from ._arrays import ids_2d, is_torch, mask_2d, to_numpy
from ._lib import address, call, lib, sized
from .errors import ArgumentError, UnsupportedError
from .store import Batch


def encoder_of(handle: Any) -> Any:
    """Returns the kvik_encoder of a model: ``bins``, ``rows``, ``stride``, ..."""
    out = sized(_abi.kvik_encoder)
    lib.kvik_model_encoder(handle.pointer, ctypes.byref(out))
    return out


class EncoderInput:
    """What an encoder reads, one row for each text or recording.  get_encoder() returns it, and ``encoder_outputs=`` takes it.

    The encoder runs when a decoder first needs its rows, and the rows of equal inputs are shared.  kvik keeps the keys and
    values that the decoder reads, not the encoder's hidden states: ``last_hidden_state`` raises UnsupportedError.
    """

    def __init__(self, handle: Any, ids: Any = None, mask: Any = None, features: Any = None) -> None:
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

    @property
    def last_hidden_state(self) -> Any:
        """Raises: the hidden states of an encoder are not kept."""
        raise UnsupportedError("kvik keeps what the decoder reads of an encoder, not the encoder's hidden states; pass this "
                               "object as encoder_outputs")

    def repeated(self, times: int) -> "EncoderInput":
        """Returns the same with every row several times."""
        if times == 1:
            return self
        copy = object.__new__(EncoderInput)
        copy.__dict__.update(self.__dict__)
        for name in ("ids", "mask", "features"):
            value = getattr(self, name)
            setattr(copy, name, None if value is None else np.repeat(value, times, 0))
        copy.rows = self.rows * times
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


class Encoder:
    """The encoder of a model: ``model.get_encoder()(input_ids, attention_mask=...)`` or ``(input_features)``."""

    def __init__(self, model: Any) -> None:
        self._handle, self._features = model._handle, model.main_input_name == "input_features"

    def __call__(self, inputs: Any = None, attention_mask: Any = None, input_ids: Any = None, input_features: Any = None,
                 **_: Any) -> EncoderInput:
        """Returns an EncoderInput, for ``encoder_outputs=`` of generate() and forward()."""
        if inputs is not None and self._features:
            input_features = inputs
        elif inputs is not None:
            input_ids = inputs
        return EncoderInput(self._handle, input_ids, None if self._features else attention_mask, input_features)


def take_input(handle: Any, outputs: Any, ids: Any, mask: Any, features: Any) -> Optional[EncoderInput]:
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
    return EncoderInput(handle, ids, mask, features) if given else None
