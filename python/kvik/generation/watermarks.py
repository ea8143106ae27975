"""Watermarks: processors of scores that leave a mark in a text which a key finds again.

The numbers are drawn as torch draws them on a CPU, so that a text that was made here is recognized by Transformers, and the other way
round, with torch or without it.
"""
from functools import lru_cache
from typing import Any, Dict, List, Optional

import numpy as np

from .._arrays import integers, is_torch, like, to_numpy
from ..errors import ArgumentError
from ..utils.logging import notice

from .logits_process import (EpsilonLogitsWarper, EtaLogitsWarper, LogitNormalization, LogitsProcessor, MinPLogitsWarper,
                             TemperatureLogitsWarper, TopHLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, TypicalLogitsWarper)
from .watermark_configs import MAKERS, watermark_of

_TABLE = 1_000_003  # the entries of the table that hashes a token
_TRIES = 40  # the best tokens that a text may choose with selfhash
_FACTOR = np.int64(6364136223846793005)  # of the generator of musl, which hashes what came before


def _draws(seed: int, n: int) -> np.ndarray:
    """Returns n numbers of 32 bits of the generator that torch seeds so: Matsumoto's, of which both take the low bits of a seed."""
    return np.random.RandomState(seed & 0xffffffff).randint(0, 1 << 32, n, dtype=np.uint32)


def _permutation(seed: int, n: int, first: int) -> np.ndarray:
    """Returns the first entries of torch.randperm(n) of a seed: each place is swapped with a later one, so these are final early."""
    out = list(range(n))
    swaps = min(first, n - 1)
    places = (_draws(seed, swaps).astype(np.int64) % (n - np.arange(swaps)) + np.arange(swaps)).tolist()
    for i, k in enumerate(places):
        out[i], out[k] = out[k], out[i]
    return np.array(out[:first], np.int64)


@lru_cache(maxsize=4)
def _table(key: int) -> np.ndarray:
    """Returns the table that hashes a token with a key."""
    return _permutation(key, _TABLE, _TABLE)


def _as(array: np.ndarray, given: Any) -> Any:
    """Returns an array as the caller's: a tensor of its type, or an array of its type."""
    return like(array, True).to(given) if is_torch(given) else array.astype(np.asarray(given).dtype, copy=False)


def _ints(array: np.ndarray, given: Any) -> Any:
    """Returns int64 numbers as a tensor where a tensor was given."""
    return like(array, is_torch(given))


def _numbers(scores: Any) -> np.ndarray:
    return to_numpy(scores, np.float64 if "float64" in str(getattr(scores, "dtype", "")) else np.float32)


class WatermarkLogitsProcessor(LogitsProcessor):
    """Adds ``bias`` to the scores of the green tokens: see WatermarkingConfig."""

    def __init__(self, vocab_size: int, device: Any = "cpu", greenlist_ratio: float = 0.25, bias: float = 2.0,
                 hashing_key: int = 15485863, seeding_scheme: str = "lefthash", context_width: int = 1) -> None:
        if seeding_scheme not in ("selfhash", "lefthash"):
            raise ArgumentError(f"seeding_scheme={seeding_scheme!r}: expected 'lefthash' or 'selfhash'")
        if not 0 < greenlist_ratio < 1:
            raise ArgumentError(f"greenlist_ratio={greenlist_ratio!r}: expected a number above 0 and below 1")
        self.vocab_size, self.bias, self.seeding_scheme = int(vocab_size), bias, seeding_scheme
        self.hash_key, self.context_width = int(hashing_key), int(context_width)
        self.greenlist_size = int(self.vocab_size * greenlist_ratio)

    def _seed(self, text: np.ndarray) -> int:
        last = int(text[-1])
        if self.seeding_scheme == "lefthash":
            return self.hash_key * last % (2 ** 64 - 1)
        table = _table(self.hash_key)
        with np.errstate(over="ignore"):  # the products wrap, as int64 of torch do
            each = np.int64(self.hash_key) * (table[text[-self.context_width:] % _TABLE] + 1)
            return int((each * (table[last % _TABLE] + 1)).min()) % (2 ** 64 - 1)

    def green(self, text: np.ndarray) -> np.ndarray:
        """Returns the green tokens behind a text [tokens], of which the last is the token itself with "selfhash"."""
        return _permutation(self._seed(text), self.vocab_size, self.greenlist_size)

    def _green_of(self, text: np.ndarray, scores: np.ndarray) -> np.ndarray:
        if self.seeding_scheme == "lefthash":
            return self.green(text)
        best = np.argsort(-scores, kind="stable")[:_TRIES]
        return np.array([token for token in best if token in self.green(np.append(text, token))], np.int64)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Returns the scores [rows, vocab] with the bias."""
        ids, out = integers(input_ids, "input_ids", np.int64), _numbers(scores).copy()
        if ids.shape[-1] < self.context_width:
            notice(f"a watermark looks at {self.context_width} tokens and the text has {ids.shape[-1]}, so the next token gets none")
            return scores
        for i, text in enumerate(ids):
            out[i, self._green_of(text, out[i])] += self.bias
        return _as(out, scores)


class _History:
    """The hashes of the last `size` contexts of each row.  At first all are 0."""

    def __init__(self, size: int, rows: int) -> None:
        self._seen, self._n = np.zeros((size, rows), np.int64), 0

    def had(self, hashes: np.ndarray) -> np.ndarray:
        """Returns for each row whether its context was there before, and remembers it."""
        size = len(self._seen)
        again: np.ndarray = (self._seen[:min(self._n + 1, size)] == hashes).any(0)  # one that is still 0 stands for all of these
        self._seen[self._n % size] = hashes
        self._n += 1
        return again


class SynthIDTextWatermarkLogitsProcessor(LogitsProcessor):
    """Draws a token in a tournament: see SynthIDTextWatermarkingConfig.  One object is for one generation: it counts its calls."""

    def __init__(self, ngram_len: int, keys: Any, sampling_table_size: int, sampling_table_seed: int, context_history_size: int,
                 device: Any = "cpu", skip_first_ngram_calls: bool = False, debug_mode: bool = False, vocab_size: Any = None) -> None:
        self.ngram_len, self.keys = int(ngram_len), integers(np.atleast_1d(to_numpy(keys)), "keys", np.int64)
        self.sampling_table = (_draws(int(sampling_table_seed), int(sampling_table_size)) % 2).astype(np.int64)
        self.context_history_size, self.device = int(context_history_size), device
        self.skip_first_ngram_calls, self.debug_mode = skip_first_ngram_calls, debug_mode
        self.context: Optional[np.ndarray] = None  # [rows, ngram_len - 1], zeros before the first token
        self._history: Optional[_History] = None
        self._calls = 0

    # -- hashes

    @staticmethod
    def accumulate_hash(current_hash: Any, data: Any, multiplier: int = int(_FACTOR), increment: int = 1) -> Any:
        """Returns a hash with the entries of the last axis of data taken in, one after the other."""
        out, given = to_numpy(current_hash, np.int64), to_numpy(data, np.int64)
        with np.errstate(over="ignore"):
            for i in range(given.shape[-1]):
                out = (out + given[..., i]) * np.int64(multiplier) + np.int64(increment)
        return _ints(np.ascontiguousarray(out), data)

    def _keyed(self, hashes: np.ndarray) -> np.ndarray:
        """Returns hashes [...] with each key taken in, [..., keys]."""
        return np.asarray(self.accumulate_hash(hashes[..., None], self.keys[:, None]))

    def compute_ngram_keys(self, ngrams: Any) -> Any:
        """Returns a number for each of ngrams [rows, n, ngram_len] and key, [rows, n, keys]."""
        given = integers(ngrams, "ngrams", np.int64)
        if given.ndim != 3 or given.shape[2] != self.ngram_len:
            raise ArgumentError(f"ngrams have the shape {list(given.shape)}; expected [rows, n, {self.ngram_len}]")
        return _ints(self._keyed(self.accumulate_hash(np.ones(given.shape[:2], np.int64), given)), ngrams)

    def _compute_keys(self, n_minus_1_grams: Any, indices: Any) -> Any:
        """Returns the numbers of contexts [rows, ngram_len - 1] with each of the tokens [rows, n], and the hashes of the contexts."""
        before, tokens = integers(n_minus_1_grams, "contexts", np.int64), integers(indices, "indices", np.int64)
        hashes = self.accumulate_hash(np.ones(len(before), np.int64), before)
        keyed = self._keyed(self.accumulate_hash(hashes[:, None], tokens[..., None]))
        return _ints(keyed, indices), _ints(hashes, indices)

    def sample_g_values(self, ngram_keys: Any) -> Any:
        """Returns 0 or 1 for each number."""
        return _ints(self.sampling_table[to_numpy(ngram_keys, np.int64) % len(self.sampling_table)], ngram_keys)

    # -- scores

    def update_scores(self, scores: Any, g_values: Any) -> Any:
        """Returns the scores [rows, vocab] after a round for each of g_values [rows, vocab, keys]."""
        given, won = _numbers(scores), to_numpy(g_values)
        chances = np.exp(given - given.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        for i in range(won.shape[2]):
            share = (won[:, :, i] * chances).sum(1, keepdims=True)
            chances = (chances * (1 + won[:, :, i] - share)).astype(given.dtype, copy=False)
        with np.errstate(divide="ignore"):
            out = np.log(chances)
        return _as(np.where(np.isfinite(out), out, np.finfo(out.dtype).min).astype(out.dtype), scores)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Returns the scores [rows, vocab] of the next token."""
        ids, given = self._ids(input_ids), _numbers(scores)
        if self.debug_mode:
            given = np.ones_like(given)
        rows, vocab = given.shape
        if self.context is None:
            self.context = np.zeros((rows, self.ngram_len - 1), np.int64)
            self._history = _History(self.context_history_size, rows)
        elif ids.shape[1]:
            self.context = np.concatenate([self.context, ids[:, -1:]], 1)[:, 1:]
        self._calls += 1
        if self.skip_first_ngram_calls and self._calls < self.ngram_len:
            return _as(given, scores)
        keyed, hashes = self._compute_keys(self.context, np.broadcast_to(np.arange(vocab), (rows, vocab)))
        won = self.update_scores(given, self.sample_g_values(keyed))
        assert self._history is not None
        return _as(np.where(self._history.had(hashes)[:, None], given, won), scores)

    # -- for detectors

    @staticmethod
    def _ids(input_ids: Any) -> np.ndarray:
        ids = integers(input_ids, "input_ids", np.int64)
        if ids.ndim != 2:
            raise ArgumentError(f"input_ids has the shape {list(ids.shape)}; expected [rows, tokens]")
        return ids

    def compute_g_values(self, input_ids: Any) -> Any:
        """Returns 0 or 1 for each ngram of ids [rows, tokens] and each key, [rows, tokens - ngram_len + 1, keys]."""
        windows = np.lib.stride_tricks.sliding_window_view(self._ids(input_ids), self.ngram_len, 1)
        return _ints(self.sample_g_values(self.compute_ngram_keys(windows)), input_ids)

    def compute_context_repetition_mask(self, input_ids: Any) -> Any:
        """Returns True for each ngram whose context was not there before, [rows, tokens - ngram_len + 1]."""
        contexts = np.lib.stride_tricks.sliding_window_view(self._ids(input_ids)[:, :-1], self.ngram_len - 1, 1)
        hashes = self.accumulate_hash(np.ones(contexts.shape[:2], np.int64), contexts)
        history = _History(self.context_history_size, len(contexts))
        return _ints(np.stack([~history.had(hashes[:, i]) for i in range(hashes.shape[1])], 1), input_ids)

    def compute_eos_token_mask(self, input_ids: Any, eos_token_id: int) -> Any:
        """Returns 1 for each token before the first end-of-sequence token, [rows, tokens]."""
        return _ints((np.cumsum(self._ids(input_ids) == eos_token_id, 1) == 0).astype(np.int64), input_ids)

    def expected_mean_g_value(self, vocab_size: int, coinflip_prob: float = 0.5) -> float:
        """Returns the mean of the values of a text with a watermark of one key, if all tokens are equally likely."""
        return coinflip_prob + coinflip_prob * (1 - coinflip_prob) * (1 - 1 / vocab_size)


MAKERS.update(green=WatermarkLogitsProcessor, synthid=SynthIDTextWatermarkLogitsProcessor)

# The options of sampling in the order in which they act, and what has no effect.
_WARPERS = (("temperature", TemperatureLogitsWarper, 1.0), ("top_h", TopHLogitsWarper, 0.0), ("top_k", TopKLogitsWarper, 0),
            ("top_p", TopPLogitsWarper, 1.0), ("min_p", MinPLogitsWarper, 0.0), ("typical_p", TypicalLogitsWarper, 1.0),
            ("epsilon_cutoff", EpsilonLogitsWarper, 0.0), ("eta_cutoff", EtaLogitsWarper, 0.0))


def marked(values: Dict[str, Any], processors: List[Any], vocab: int) -> Dict[str, Any]:
    """Appends the processor of ``watermarking_config`` to those of a call; returns the options without it.

    A watermark comes behind all other processors, so the options of sampling become processors before it.
    """
    config = watermark_of(values.get("watermarking_config"))
    if "watermarking_config" not in values:
        return values
    values = {**values, "watermarking_config": None}
    if config is None:
        return values
    if values.get("do_sample"):
        beams = int(values.get("num_beams") or 1) > 1
        least = {"min_tokens_to_keep": len(np.atleast_1d(values.get("eos_token_id") or 0)) + 1} if beams else {}
        values["top_k"] = 50 if values.get("top_k") is None else values["top_k"]
        for name, kind, neutral in _WARPERS:
            value = values.get(name)
            if value is not None and value != neutral:
                processors.append(kind(value, **(least if name not in ("temperature", "top_h") else {})))
            values[name] = neutral
    processors.append(config.construct_processor(vocab))
    if values.pop("renormalize_logits", None):
        processors.append(LogitNormalization())
    return values


__all__ = ["SynthIDTextWatermarkLogitsProcessor", "WatermarkLogitsProcessor", "marked"]
