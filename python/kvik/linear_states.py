"""The recurrent states of a model that is written elsewhere, such as Transformers' Mamba: what its layers keep in place of rows.

The arrays are those of the model, numpy or torch, and not the library's: a step of such a model writes into the arrays
that get() has returned.
"""
from typing import Any, Callable, Dict, Iterator, Optional, Set, Tuple

import numpy as np

from ._arrays import is_torch, torch_module
from .errors import ArgumentError, UnsupportedError

Place = Tuple[int, int]
"""A layer, and which of its states: most layers have one of each kind."""


def _joined(parts: Tuple[Any, ...]) -> Any:
    return torch_module().cat(parts, -1) if is_torch(parts[0]) else np.concatenate(parts, -1)


def copied(array: Any) -> Any:
    """Returns an array of the same kind in memory of its own."""
    return array.clone() if is_torch(array) else array.copy()


def _rows(array: Any, index: np.ndarray) -> Any:
    return array[torch_module().from_numpy(index.astype(np.int64)).to(array.device) if is_torch(array) else index]


class LinearStates:
    """For each place, the last inputs of a convolution, [batch, channels, taps], and a recurrent state, [batch, ...]."""

    def __init__(self, recording: bool = False) -> None:
        self.conv: Dict[Place, Any] = {}
        self.recurrent: Dict[Place, Any] = {}
        self.recording = recording  # all inputs of a convolution are kept until cropped()
        self._taps: Dict[Place, int] = {}

    def __bool__(self) -> bool:
        """True if there is a state."""
        return bool(self.conv or self.recurrent)

    def update_conv(self, place: Place, inputs: Any, taps: Optional[int]) -> Any:
        """Appends inputs [batch, channels, n]; returns those before them, of which taps are kept, and them.

        Fewer inputs than taps (default: as many as come first) have zeros in front.
        """
        before, taps = self.conv.get(place), self._taps.setdefault(place, int(taps or inputs.shape[-1]))
        missing = taps - inputs.shape[-1]
        if before is not None:
            self._check(place, before.shape[:-1], inputs.shape[:-1])
            inputs = _joined((before, inputs))
        elif missing > 0 and not self.recording:
            inputs = _joined((inputs[..., :1].repeat(*[1] * (inputs.ndim - 1), missing) * 0 if is_torch(inputs) else
                              np.zeros((*inputs.shape[:-1], missing), inputs.dtype), inputs))
        self.conv[place] = inputs if self.recording else copied(inputs[..., inputs.shape[-1] - taps:])
        return inputs

    def update_recurrent(self, place: Place, state: Any) -> Any:
        """Keeps a state in place of the one before it, and returns it."""
        before = self.recurrent.get(place)
        if before is None:
            self.recurrent[place] = copied(state)
            return self.recurrent[place]
        self._check(place, before.shape, state.shape)
        before[...] = state  # where the model may have it
        return before

    @staticmethod
    def _check(place: Place, before: Any, new: Any) -> None:
        """Raises if shapes differ, of which the batch comes first."""
        if new[:1] != before[:1]:
            raise ArgumentError(f"layer {place[0]}: a batch of {new[0]}, the cache holds {before[0]} rows")
        if new != before:
            raise ArgumentError(f"layer {place[0]}: a state of shape {list(new)}, the cache holds {list(before)}")

    def cropped(self, n: int) -> "LinearStates":
        """Returns the states without the last -n inputs of convolutions, all of which are recorded; no more remain than are needed."""
        if n > 0 or (n and (self.recurrent or not self.recording)):
            raise UnsupportedError("a recurrent state cannot take tokens back; crop a deepcopy that was made before them")
        out = self.copy()
        for place, inputs in out.conv.items():
            end = max(inputs.shape[-1] + n, 0)
            out.conv[place] = copied(inputs[..., max(end - self._taps[place], 0):end])
        return out

    @property
    def batch(self) -> int:
        """The number of rows; 0 if there are no states."""
        return next((int(a.shape[0]) for a in self._arrays()), 0)

    @property
    def nbytes(self) -> int:
        """The bytes of all states."""
        return sum(int(a.nbytes) for a in self._arrays())

    def _arrays(self) -> Iterator[Any]:
        yield from self.conv.values()
        yield from self.recurrent.values()

    def _mapped(self, function: Callable[[Any], Any]) -> "LinearStates":
        out = LinearStates()
        out.conv = {k: function(a) for k, a in self.conv.items()}
        out.recurrent = {k: function(a) for k, a in self.recurrent.items()}
        out.recording, out._taps = self.recording, dict(self._taps)
        return out

    def copy(self) -> "LinearStates":
        """Returns the same states in memory of their own."""
        return self._mapped(copied)

    def select(self, index: np.ndarray) -> "LinearStates":
        """Returns the rows index[0], index[1], ... of all states."""
        if index.size and index.max() >= self.batch:
            raise ArgumentError(f"row {int(index.max())}: the cache holds {self.batch} rows")
        return self._mapped(lambda a: _rows(a, index))

    def layers(self) -> Set[int]:
        """Returns the layers that have a state."""
        return {layer for layer, _ in (*self.conv, *self.recurrent)}
