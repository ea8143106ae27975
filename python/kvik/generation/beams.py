"""Beams with a cache whose update() a program has written: a loop over forward() that chooses as the library's beams do."""
from typing import Any, Dict, List, Tuple

import numpy as np

from .._arrays import like
from .loop import Loop, log_softmax
from .result import class_of_result
from .stopping_criteria import rows_that_end

_NEVER = np.float32(-1e9)  # added to scores of what may not be chosen


def _best(values: np.ndarray, n: int) -> np.ndarray:
    """Returns the places of the n largest values of each row, the largest first; of equal ones the first."""
    some = np.argpartition(-values, min(n, values.shape[1] - 1), 1)[:, :n] if n < values.shape[1] else \
        np.tile(np.arange(values.shape[1]), (len(values), 1))
    some.sort(1)
    order = np.argsort(-np.take_along_axis(values, some, 1), 1, kind="stable")
    return np.take_along_axis(some, order, 1)


class Finished:
    """The best finished beams of each text: their scores, and where each is in ``texts``."""

    def __init__(self, texts: int, beams: int, prompt: List[List[int]]) -> None:
        self.scores = np.full((texts, beams), _NEVER, np.float32)
        self.done = np.zeros((texts, beams), bool)
        self.found: List[List[Tuple[List[int], List[int], str]]] = [[(prompt[t], [], "length")] * beams for t in range(texts)]

    def merge(self, scores: np.ndarray, done: np.ndarray, found: List[List[Tuple[List[int], List[int], str]]]) -> None:
        """Takes candidates [texts, n] in; done: those that have ended."""
        merged = np.concatenate([self.scores, scores], 1)
        place = _best(merged, self.scores.shape[1])
        self.scores = np.take_along_axis(merged, place, 1)
        self.done = np.take_along_axis(np.concatenate([self.done, done], 1), place, 1)
        self.found = [[(*self.found[t], *found[t])[i] for i in row] for t, row in enumerate(place)]


class Beams(Loop):
    """One generation with beams.  ids: [texts * beams, columns], the lanes of a text side by side."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        g = self.options.struct
        self.beams, self.returned = int(g.num_beams), max(int(g.num_return_sequences), 1)
        self.texts = self.rows // self.beams
        self.ends = [int(g.eos_token_id[i]) for i in range(g.n_eos)]
        self.keep = max(2, 1 + len(self.ends)) * self.beams
        self.draws = np.random.default_rng(int(g.seed)) if g.do_sample else None
        self.lanes = np.zeros((self.rows, 0), np.int64)  # which lane each token came from
        self.finished = Finished(self.texts, self.beams, [self.ids[t * self.beams].tolist() for t in range(self.texts)])

    def _candidates(self, totals: np.ndarray) -> np.ndarray:
        """Returns the places of the best continuations of each text in totals [texts, beams * vocab], or of drawn ones."""
        keys = totals if self.draws is None else totals + self.draws.gumbel(size=totals.shape)
        return _best(keys, self.keep)

    def _ended(self, texts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns which candidates [texts, n] end, by tokens or by criteria.  texts: [texts * n, columns]."""
        ends = np.isin(tokens, self.ends)
        scores = tuple(like(s, self.torch) for s in self.scores) or None
        for criterion in self.callbacks.criteria:
            ends |= rows_that_end(criterion(like(texts, self.torch), scores), len(texts)).reshape(ends.shape)
        return ends

    def _hope(self, running: np.ndarray, most: int, made: int) -> np.ndarray:
        """Returns for each text whether a running beam may become better than the worst finished one."""
        g = self.options.struct
        never = (g.early_stopping or 0) == 2
        length = most if never and g.length_penalty > 0 else made
        best = running[:, :1] / np.float32(length ** g.length_penalty)
        worst = np.where(self.finished.done, self.finished.scores.min(1, keepdims=True), _NEVER)
        return (best > worst).any(1)

    def run(self) -> None:
        """Generates until no running beam can be better than the finished ones."""
        have, most = self._begin()
        g, width = self.options.struct, self._vocab()
        early = (g.early_stopping or 0) == 1
        running = np.zeros((self.texts, self.beams), np.float32)
        running[:, 1:] = _NEVER
        hope = np.ones(self.texts, bool)
        for made in range(1, most + 1):
            logits = self._forward(have)
            have = self.ids.shape[1]
            totals = self._processed(logits).reshape(self.texts, self.beams, width) + running[:, :, None]
            totals = totals.reshape(self.texts, -1)
            place = self._candidates(totals)
            values = np.take_along_axis(totals, place, 1)
            from_lane = place // width + np.arange(self.texts)[:, None] * self.beams
            tokens = place % width
            texts = np.concatenate([self.ids[from_lane.ravel()], tokens.reshape(-1, 1)], 1)
            ends = self._ended(texts, tokens) | (made == most)
            self._keep(values, ends, hope, early, made, texts, from_lane)
            going = _best(values + ends * _NEVER, self.beams)
            running = np.take_along_axis(values + ends * _NEVER, going, 1)
            lane = np.take_along_axis(from_lane, going, 1).ravel()
            self.ids = np.concatenate([self.ids[lane], np.take_along_axis(tokens, going, 1).reshape(-1, 1)], 1)
            self.lanes = np.concatenate([self.lanes[lane], lane[:, None]], 1)
            if self.mask is not None:
                self.mask = np.concatenate([self.mask, np.ones((self.rows, 1), self.mask.dtype)], 1)
            self.cache.reorder_cache(like(lane, self.torch))
            hope &= self._hope(running, most, made)
            if not hope.any() or (early and self.finished.done.all()) or ends.all():
                return

    def _keep(self, values: np.ndarray, ends: np.ndarray, hope: np.ndarray, early: bool, made: int, texts: np.ndarray,
              from_lane: np.ndarray) -> None:
        """Takes candidates that have ended among the best into the finished ones."""
        done = ends & (np.arange(self.keep) < self.beams)
        full = self.finished.done.all(1, keepdims=True) & early
        scores = values / np.float32(made ** self.options.struct.length_penalty)
        scores = (scores + full * _NEVER + ~hope[:, None] * _NEVER + ~done * _NEVER).astype(np.float32)
        rows = texts.reshape(self.texts, self.keep, -1)
        found = [[(rows[t, k].tolist(), [*self.lanes[from_lane[t, k]].tolist(), int(from_lane[t, k])], self._why(rows[t, k, -1], made))
                  if done[t, k] else ([], [], "") for k in range(self.keep)] for t in range(self.texts)]
        self.finished.merge(scores, done, found)

    def _why(self, token: int, made: int) -> str:
        return "eos" if token in self.ends else "length" if made >= self.options.new_tokens(self.prompt) else "criteria"

    def output(self, want_dict: bool) -> Any:
        """Returns the ids, or a GenerateOutput."""
        rows = [row for found in self.finished.found for row in found[:self.returned]]
        self.rows, self.finish = len(rows), [why for _, _, why in rows]
        made = max(len(lanes) for _, lanes, _ in rows)
        self.ids = np.full((self.rows, self.prompt + made), self.options.pad(), np.int64)
        indices = np.full((self.rows, made), -1, np.int32)
        for i, (ids, lanes, _) in enumerate(rows):
            self.ids[i, :len(ids)], indices[i, :len(lanes)] = ids, lanes
        sequences = like(self.ids, self.torch)
        if not want_dict:
            return sequences
        kept: Dict[str, Any] = {name: tuple(like(s, self.torch) for s in steps) or None
                                for name, steps in (("scores", self.scores), ("logits", self.logits))}
        best = np.ascontiguousarray(self.finished.scores[:, :self.returned]).ravel()
        return class_of_result(self.seq2seq, True)(
            sequences=sequences, sequences_scores=like(best, self.torch), **kept, beam_indices=like(indices, self.torch),
            past_key_values=self.cache, texts=self._texts(), finish_reasons=self.finish,
            stats={"prompt_tokens": self.texts * self.prompt, "new_tokens": self.rows * made})

    def _processed(self, logits: np.ndarray) -> np.ndarray:
        """Returns the log probabilities of the next tokens [lanes, vocab] after the processors."""
        chances = log_softmax(logits).astype(np.float32, copy=False)
        out = np.zeros_like(chances)
        for i in range(self.rows):
            self._sample(i, np.ascontiguousarray(chances[i]), out[i], len(self.ends) + 1)
        if self.options.struct.output_scores:
            self.scores.append(out)
        if self.options.struct.output_logits:
            self.logits.append(logits)
        return out
