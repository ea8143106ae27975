"""Criteria that end a text: callables (input_ids, scores) -> bool, or a bool for each row."""
import copy
import time
from typing import Any, List, Optional, Sequence, Union

import numpy as np

from .._arrays import integers, is_torch, like, to_numpy
from ..utils.logging import notice


class StoppingCriteria:
    """A base class for criteria: implement __call__(input_ids, scores) -> bool, or a bool for each row."""

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """Returns True for each row of input_ids [rows, tokens] that ends."""
        raise NotImplementedError(f"{type(self).__name__} needs a method __call__(input_ids, scores)")


def is_true(value: Any) -> bool:
    """Returns what a criterion has answered for all rows together."""
    return bool(np.asarray(to_numpy(value) if not isinstance(value, (bool, np.bool_)) else value).all())


def rows_that_end(value: Any, rows: int) -> np.ndarray:
    """Returns what a criterion has answered, one bool or one for each row, as a bool for each row."""
    answers = np.asarray(to_numpy(value), bool).reshape(-1)
    if answers.size not in (1, rows):
        raise ValueError(f"a stopping criterion returned {answers.size} answers for {rows} rows; expected one bool, or one for each row")
    return np.broadcast_to(answers, (rows,)).copy()


def _each(value: Any, input_ids: Any) -> Any:
    """Returns an answer as a bool for each row, in torch if the ids are."""
    return like(rows_that_end(value, len(input_ids)), is_torch(input_ids))


class MaxLengthCriteria(StoppingCriteria):
    """Ends a text that has max_length tokens, the prompt included."""

    def __init__(self, max_length: int, max_position_embeddings: Optional[int] = None) -> None:
        self.max_length, self.max_position_embeddings = max_length, max_position_embeddings

    def __call__(self, input_ids: Any, scores: Any = None, **kwargs: Any) -> Any:
        """Returns a bool for each row."""
        return _each(input_ids.shape[-1] >= self.max_length, input_ids)


class MaxTimeCriteria(StoppingCriteria):
    """Ends all texts max_time seconds after initial_timestamp, which is by default when this object is made."""

    def __init__(self, max_time: float, initial_timestamp: Optional[float] = None) -> None:
        self.max_time = max_time
        self.initial_timestamp = time.time() if initial_timestamp is None else initial_timestamp

    def __call__(self, input_ids: Any, scores: Any = None, **kwargs: Any) -> Any:
        """Returns a bool for each row."""
        return _each(time.time() - self.initial_timestamp > self.max_time, input_ids)


class EosTokenCriteria(StoppingCriteria):
    """Ends a text after one of the tokens of eos_token_id."""

    def __init__(self, eos_token_id: Any) -> None:
        self.eos_token_id = integers(np.atleast_1d(to_numpy(eos_token_id)), "eos_token_id")

    def __call__(self, input_ids: Any, scores: Any = None, new_token_length: int = 1, **kwargs: Any) -> Any:
        """Returns a bool for each row; looks at the last new_token_length tokens."""
        last = to_numpy(input_ids)[:, -new_token_length:]
        return _each(np.isin(last, self.eos_token_id).any(-1), input_ids)


class StopStringCriteria(StoppingCriteria):
    """Ends a text whose last token completes one of the stop_strings."""

    def __init__(self, tokenizer: Any, stop_strings: Union[str, Sequence[str]]) -> None:
        self.tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self.stop_strings = (stop_strings,) if isinstance(stop_strings, str) else tuple(stop_strings)
        if not self.stop_strings or not all(self.stop_strings):
            raise ValueError("stop_strings holds no text, or an empty one")
        # A token has at least a byte of a stop string, but for the last, and one in front keeps its space.
        self._tokens = max(len(s.encode("utf-8", "replace")) for s in self.stop_strings) + 2

    def _ends(self, ids: List[int]) -> bool:
        text, before = self.tokenizer.decode(ids), self.tokenizer.decode(ids[:-1])
        same = next((i for i, (a, b) in enumerate(zip(text, before)) if a != b), min(len(text), len(before)))
        return any(text.find(s, max(same - len(s) + 1, 0)) >= 0 for s in self.stop_strings)

    def __call__(self, input_ids: Any, scores: Any = None, **kwargs: Any) -> Any:
        """Returns a bool for each row."""
        return _each([self._ends(row[-self._tokens:].tolist()) for row in to_numpy(input_ids)], input_ids)


class ConfidenceCriteria(StoppingCriteria):
    """Ends a draft whose last token has a probability below assistant_confidence_threshold.  Needs the scores."""

    def __init__(self, assistant_confidence_threshold: float) -> None:
        self.assistant_confidence_threshold = assistant_confidence_threshold

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> bool:
        """Returns True or False for the first row."""
        values = to_numpy(scores[-1], np.float64)[0]
        weights = np.exp(values - values.max())
        return bool(weights[int(input_ids[0, -1])] / weights.sum() < self.assistant_confidence_threshold)


class StoppingCriteriaList(List[Any]):
    """A list of criteria; a row ends when one of them says so."""

    def __call__(self, input_ids: Any, scores: Any = None, **kwargs: Any) -> Any:
        done = np.zeros(len(input_ids), bool)
        for criterion in self:
            done |= to_numpy(_each(criterion(input_ids, scores, **kwargs), input_ids))
        return like(done, is_torch(input_ids))

    @property
    def max_length(self) -> Optional[int]:
        """The length of the first MaxLengthCriteria, or None."""
        return next((c.max_length for c in self if isinstance(c, MaxLengthCriteria)), None)


def validate_stopping_criteria(stopping_criteria: StoppingCriteriaList, max_length: int) -> StoppingCriteriaList:
    """Returns a copy with a MaxLengthCriteria.  Warns if there is one of another length."""
    out = copy.deepcopy(stopping_criteria)
    if out.max_length is None:
        out.append(MaxLengthCriteria(max_length))
    elif out.max_length != max_length:
        notice(f"the criteria end a text at {out.max_length} tokens, max_length is {max_length}")
    return out
