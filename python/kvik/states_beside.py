"""Recurrent states of a cache, beside one of the states of `cache_states`, which has the rows of layers with attention.

Linear: of a model that is written elsewhere.  Recurrent: of a model of kvik that calls an update() which a program has written.
"""
from typing import Any, ContextManager, Dict, List, Optional, Tuple

import numpy as np

from . import legacy
from .cache_outline import Outline, Shapes
from .cache_states import Bound, Fresh, Held, Passed, Saved, State
from .errors import ArgumentError, UnsupportedError
from .layer_store import LayerStore
from .linear_states import LinearStates
from .store import Batch, ModelHandle, Settings


class Over(State):
    """Something beside the state `under` it."""

    def __init__(self, under: State) -> None:
        super().__init__()
        self.under = under
        self.batch, self.store, self.session = under.batch, under.store, under.session
        self.is_loose, self.is_of_model = under.is_loose, under.is_of_model

    def rows_alone(self) -> State:
        return self.under

    def shapes(self) -> Shapes:
        return self.under.shapes()

    def described(self) -> Optional[List[Dict[str, Any]]]:
        return self.under.described()

    def seen(self, layer: int) -> int:
        return self.under.seen(layer)

    def columns(self) -> int:
        return self.under.columns()

    def parts(self) -> Tuple[legacy.Layers, Passed]:
        return self.under.parts()

    def read(self) -> ContextManager[Batch]:
        return self.under.read()

    def columns_mask(self) -> Optional[np.ndarray]:
        return self.under.columns_mask()

    def maps(self) -> List[Dict[str, Any]]:
        return self.under.maps()

    def to_batch(self, model: ModelHandle, settings: Settings, rows: int) -> Batch:
        return self.under.to_batch(model, settings, rows)

    def updatable(self, outline: Outline, batch: int, layer: int) -> State:
        return self.with_rows(self.under.updatable(outline, batch, layer))

    def masking(self, outline: Outline, layer: int, length: int) -> LayerStore:
        return self.under.masking(outline, layer, length)


class Linear(Over):
    """The recurrent states of a model that is written elsewhere."""

    def __init__(self, linear: LinearStates, under: State) -> None:
        super().__init__(under)
        self.linear: LinearStates = linear  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def is_used(self) -> bool:  # type: ignore[override]
        """True if there are states, or rows."""
        return bool(self.linear) or self.under.is_used

    @property
    def unsaved(self) -> str:  # type: ignore[override]
        """Why there is nothing to save."""
        return Held.unsaved if self.linear and not self.under.is_used else self.under.unsaved

    def layer_count(self) -> int:
        return max(self.under.layer_count(), *(i + 1 for i in self.linear.layers()), 0)

    def rows(self) -> int:
        return self.under.rows() or self.linear.batch

    def usage(self) -> Dict[str, int]:
        out, states = self.under.usage(), self.linear.nbytes
        if self.batch is not None or not self.linear:
            return out
        return {**out, "bytes": out.get("bytes", 0) + states, "states": out.get("states", 0) + states}

    def pickled(self) -> Dict[str, Any]:
        return {**self.under.pickled(), "_linear": self.linear}

    def with_rows(self, other: State) -> State:
        return self if other is self.under else Linear(self.linear, other)

    def ready(self, model: ModelHandle, rows: int) -> State:
        if self.linear:
            raise ArgumentError("the cache holds recurrent states of a model that is no model of kvik; give each a cache of its own")
        return self.with_rows(self.under.ready(model, rows))

    def crop(self, n: int, outline: Outline) -> State:
        states = LinearStates(self.linear.recording) if not n else self.linear.cropped(n) if self.linear else self.linear
        return Linear(states, self.under.crop(n, outline))

    def settled(self) -> State:
        return Linear(self.linear.cropped(0), self.under) if self.linear else self

    def reset(self) -> State:
        return Linear(LinearStates(self.linear.recording), self.under.reset())

    def reorder(self, index: np.ndarray) -> State:
        return Linear(self._selected(index), self.under.reorder(index))

    def repeat(self, times: int) -> State:
        return Linear(self._selected(np.repeat(np.arange(self.linear.batch), times)), self.under.repeat(times))

    def select(self, index: np.ndarray) -> State:
        return Linear(self._selected(index), self.under.select(index))

    def _selected(self, index: np.ndarray) -> LinearStates:
        return self.linear.select(index) if self.linear else self.linear

    def fork(self) -> State:
        return Linear(self.linear.copy(), self.under.fork())


class Recurrent(Over):
    """The recurrent states of a model of kvik, in sequences of a store, beside rows that an update() of a program keeps.

    The sequences have the tokens of the text; the rows of attention that they have too are read by nobody.
    """

    unsaved = "the rows come from update(), and a session file keeps what the library has computed"

    def __init__(self, states: Bound, under: State) -> None:
        super().__init__(under)
        self.states = states

    @property
    def is_used(self) -> bool:  # type: ignore[override]
        """True if there is a text, or rows."""
        return self.states.columns() > 0 or self.under.is_used

    def described(self) -> Optional[List[Dict[str, Any]]]:
        return self.states.described()

    def layer_count(self) -> int:
        return self.states.layer_count()

    def rows(self) -> int:
        return self.states.rows()

    def usage(self) -> Dict[str, int]:
        return self.states.usage()

    def pickled(self) -> Dict[str, Any]:
        raise UnsupportedError("recurrent states beside rows of a written update() are not pickled; pickle a cache of kvik, or the text")

    def with_rows(self, other: State) -> State:
        return self if other is self.under else Recurrent(self.states, other)

    def read_states(self) -> ContextManager[Batch]:
        return self.states.read()

    def beside(self) -> Optional[Batch]:
        return self.states.batch

    def ready(self, model: ModelHandle, rows: int) -> State:
        raise UnsupportedError("the cache has rows of a written update(), which this call cannot go on from; use a cache of kvik")

    def crop(self, n: int, outline: Outline) -> State:
        if n:
            raise UnsupportedError("recurrent states have no tokens that crop() could take back; fork() the cache before the text, or reset() it")
        return self.reset()

    def taken_back(self, n: int, outline: Outline) -> State:
        return self.with_rows(self.under.taken_back(n, outline))

    def reset(self) -> State:
        self.states.reset()
        return self.with_rows(self.under.reset())

    def reorder(self, index: np.ndarray) -> State:
        self.states.reorder(index)
        return self.with_rows(self.under.reorder(index))

    def repeat(self, times: int) -> State:
        self.states.repeat(times)
        return self.with_rows(self.under.repeat(times))

    def select(self, index: np.ndarray) -> State:
        self.states.select(index)
        return self.with_rows(self.under.select(index))

    def fork(self) -> State:
        return Recurrent(self.states.copy(), self.under.fork())


def restored(kept: Dict[str, Any], settings: Settings) -> State:
    """Returns the state of a pickle, from what pickled() has returned."""
    state: State = Fresh(kept["_of_model"])
    if kept["_session"] is not None:
        state = Saved(kept["_session"], settings)
    elif kept["_held"] is not None:
        state = Held(kept["_held"], kept["_passed"], kept["_of_model"], kept["_mask"])
    return state if kept["_linear"] is None else Linear(kept["_linear"], state)
