"""The rows of a step as the arrays that processors and criteria of Transformers see: padded, all rows together."""
from typing import Any, Dict, List, Optional, Tuple

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
