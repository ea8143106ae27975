"""The rows of a step as the arrays that processors and criteria of Transformers see: padded, all rows together."""
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np

from .._lib import view


class Texts:
    """The texts of one call of generate().

    begin: [prompts, columns], what the texts begin with.  each: rows of the result for each prompt.  pad: the id behind a text that
    has ended.  scored: criteria get the scores.
    """

    def __init__(self, begin: np.ndarray, each: int, pad: int, scored: bool) -> None:
        self._begin, self._each, self._pad, self._scored = begin, max(each, 1), pad, scored
        self._prompts: Dict[int, int] = {}  # tokens of each prompt in the library, which leaves padding out
        self._scores: List[np.ndarray] = []

    def prompts(self) -> np.ndarray:
        """Returns the ids that each row of the result begins with."""
        return np.repeat(self._begin, self._each, 0)

    def tokens(self) -> "Tokens":
        """Returns what gathers the tokens of a step."""
        return Tokens(len(self._begin) * self._each, self._pad)

    def ids(self, texts: Any, chosen: int) -> np.ndarray:
        """Returns the ids of a kvik_texts, [rows, tokens].  chosen: new tokens of the texts in the first step that is shown."""
        rows = int(texts.rows)
        row, lengths = view(texts.row, (rows,), np.uint32), view(texts.n, (rows,), np.uintp)
        places = view(texts.ids, (rows,), np.uintp)
        prompts = row // self._each
        for prompt, n in zip(prompts.tolist(), lengths.tolist()):
            self._prompts.setdefault(prompt, n - chosen)
        first = np.array([self._prompts[p] for p in prompts.tolist()], np.int64)
        new, columns = lengths.astype(np.int64) - first, self._begin.shape[1]
        out = np.full((rows, columns + int(new.max(initial=0))), self._pad, np.int64)
        for i in range(rows):
            out[i, :columns] = self._begin[int(prompts[i]) % len(self._begin)]
            out[i, columns:columns + new[i]] = view(int(places[i]), (int(lengths[i]),), np.int32)[first[i]:]
        return out

    def scores(self, texts: Any, vocab: int) -> Optional[Tuple[np.ndarray, ...]]:
        """Returns the scores of the steps so far, [rows, vocab] each, or None if the call does not return them."""
        if not self._scored or not texts.scores:
            return None
        table = view(texts.scores, (int(texts.steps), int(texts.score_rows), vocab), np.float32)
        self._scores.extend(step.copy() for step in table[len(self._scores):])
        return tuple(self._scores)


class Tokens:
    """The tokens of the rows of a step, which the library tells one by one and a streamer gets together."""

    def __init__(self, rows: int, pad: int) -> None:
        self._pad, self._live = pad, set(range(rows))
        self._step = np.full(rows, pad, np.int64)
        self._missing: Set[int] = set(self._live)

    def put(self, row: int, token: int) -> Optional[np.ndarray]:
        """Takes a token, or -1 at the end of a row.  Returns [rows] once the step is complete, with padding for rows that have ended."""
        self._missing.discard(row)
        if token < 0:
            self._live.discard(row)
            return None
        self._step[row] = token
        if self._missing:
            return None
        whole, self._missing = self._step, set(self._live)
        self._step = np.full_like(whole, self._pad)
        return whole
