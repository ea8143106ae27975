"""Processors of scores: callables (input_ids, scores) -> scores.

Those of the library are its own processors, one at a time: each makes a sampler with one option of generate() and takes the
scores that come out.  They work on numpy arrays and torch tensors, [rows, tokens] and [rows, vocab], in loops of a program
and as ``logits_processor`` of generate(), where the option does the same without a call of Python for each token.
"""
import ctypes
import inspect
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import numpy as np

from .. import _abi
from .._arrays import integers, is_torch, like, to_numpy
from .._lib import address, call, owned, sized
from ..pickles import checked, of
from ..utils.logging import notice
from .options import Options

# Everything that would act if nothing were said.
_NEUTRAL = {"do_sample": True, "top_k": 0}


class LogitsProcessor:
    """A base class for processors of scores: implement __call__(input_ids, scores) -> scores."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Returns the scores [rows, vocab] of the next token after input_ids [rows, tokens]."""
        raise NotImplementedError(f"{type(self).__name__} needs a method __call__(input_ids, scores)")


LogitsWarper = LogitsProcessor


class LogitsProcessorList(List[Any]):
    """A list of callables (input_ids, scores) -> scores, called one after the other.

    A keyword argument goes to the processors that have a parameter of its name.
    """

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        for processor in self:
            scores = processor(input_ids, scores, **_extra(processor, kwargs))
        return scores


def _extra(processor: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the keyword arguments that a processor takes besides ids and scores; raises ValueError if one lacks."""
    more = list(inspect.signature(processor).parameters.values())[2:]
    missing = [p.name for p in more if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
               and p.name not in kwargs]
    if missing:
        raise ValueError(f"{type(processor).__name__} needs the argument{'s' * (len(missing) > 1)} {', '.join(missing)}")
    if any(p.kind == p.VAR_KEYWORD for p in more):
        return kwargs
    return {p.name: kwargs[p.name] for p in more if p.name in kwargs}


class _Sampler:
    """A kvik_sampler for one vocabulary.  One call at a time."""

    def __init__(self, values: Dict[str, Any], vocab: int) -> None:
        self.vocab, self.lock = vocab, threading.RLock()
        options = Options(None, values)
        self.pointer = owned("kvik_sampler_close")
        call("kvik_sampler_open", ctypes.byref(options.struct), vocab, None, ctypes.byref(self.pointer))

    def scores(self, ids: np.ndarray, n_prompt: int, scores: np.ndarray, keep: int) -> np.ndarray:
        """Returns the scores of a row after the processor."""
        out, chosen = np.empty_like(scores), ctypes.c_int32()
        choice = sized(_abi.kvik_choice, logits=address(scores), ids=address(ids) if ids.size else None, n=ids.size,
                       n_prompt=n_prompt, scores=address(out), min_tokens_to_keep=keep)
        with self.lock:
            call("kvik_sample", self.pointer, ctypes.byref(choice), ctypes.byref(chosen))
        return out


class _OfLibrary(LogitsProcessor):
    """A processor that the library has.  ``_values``: the options of generate() that make it."""

    _option: Optional[str] = None  # generate() leaves this option to a processor of this class
    _values: Dict[str, Any]
    _sampler: Optional[_Sampler] = None
    filter_value = -float("inf")
    min_tokens_to_keep = 1

    def _take(self, **values: Any) -> None:
        self._values = {**_NEUTRAL, **values}
        Options(None, self._values)  # says what is wrong with them now

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        """Returns what the processor looks at, and how much of it is the prompt; None: it changes nothing now."""
        return ids[:0], 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Returns scores [rows, vocab] in a new array, of the type that was given.  Where the text does not matter input_ids may be None."""
        given = to_numpy(scores, np.float32)
        blind = input_ids is None and type(self)._text is _OfLibrary._text and given.ndim == 2
        ids = np.zeros((len(given), 1), np.int32) if blind else to_numpy(input_ids)
        if ids.ndim != 2 or given.ndim != 2 or len(ids) != len(given):
            raise ValueError(f"{type(self).__name__} got input_ids {list(ids.shape)} and scores {list(given.shape)}; expected "
                             "[rows, tokens] and [rows, vocab]")
        ids = integers(ids, "input_ids")
        if self._sampler is None or self._sampler.vocab != given.shape[1]:
            self._sampler = _Sampler(self._values, given.shape[1])
        sampler, out = self._sampler, given.copy()
        for i in range(len(given)):
            text = self._text(ids[i], i, len(given))
            if text is not None:
                out[i] = sampler.scores(np.ascontiguousarray(text[0]), text[1], given[i], self.min_tokens_to_keep)
        if self.filter_value != -np.inf:
            out[np.isneginf(out)] = self.filter_value
        return like(out, True).to(scores) if is_torch(scores) else out.astype(np.asarray(scores).dtype, copy=False)

    def __getstate__(self) -> Dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_sampler"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(checked(self, state, {"_values": of(dict)}))


class _Filter(_OfLibrary):
    """A processor that removes tokens: gives them filter_value, and leaves at least min_tokens_to_keep."""

    def _spare(self, filter_value: float, min_tokens_to_keep: int) -> None:
        _need(int(min_tokens_to_keep) == min_tokens_to_keep and min_tokens_to_keep >= 1, "min_tokens_to_keep", min_tokens_to_keep,
              "1 or more")
        self.filter_value, self.min_tokens_to_keep = float(filter_value), int(min_tokens_to_keep)


def _need(good: bool, name: str, value: Any, what: str) -> None:
    if not good:
        raise ValueError(f"{name}={value!r}: expected {what}")


def _count(name: str, value: Any, least: int) -> int:
    _need(not isinstance(value, bool) and hasattr(value, "__index__") and value >= least, name, value,
          "a whole number above 0" if least else "a whole number, 0 or more")
    return int(value)


def _ids(name: str, value: Any) -> List[int]:
    out: List[int] = integers(np.atleast_1d(to_numpy(value)), name).tolist()
    _need(bool(out) and min(out) >= 0, name, value, "a token id, or several")
    return out


class TemperatureLogitsWarper(_OfLibrary):
    """Divides the scores by the temperature, a number above 0."""

    def __init__(self, temperature: float) -> None:
        _need(float(temperature) > 0, "temperature", temperature, "a number above 0; do_sample=False is greedy decoding")
        self.temperature = float(temperature)
        self._take(temperature=self.temperature)


class TopKLogitsWarper(_Filter):
    """Leaves the top_k best tokens."""

    def __init__(self, top_k: int, filter_value: float = -float("inf"), min_tokens_to_keep: int = 1) -> None:
        self._spare(filter_value, min_tokens_to_keep)
        self.top_k = max(_count("top_k", top_k, 1), self.min_tokens_to_keep)
        self._take(top_k=self.top_k)


class TopPLogitsWarper(_Filter):
    """Leaves the best tokens that together reach the probability top_p."""

    def __init__(self, top_p: float, filter_value: float = -float("inf"), min_tokens_to_keep: int = 1) -> None:
        self._spare(filter_value, min_tokens_to_keep)
        self.top_p = float(top_p)
        self._take(top_p=self.top_p)


class TopHLogitsWarper(_Filter):
    """Leaves as many of the 100 best tokens as hold the share top_h of their entropy."""

    def __init__(self, top_h: float, filter_value: float = -float("inf")) -> None:
        _need(0 < top_h <= 1, "top_h", top_h, "a number above 0, at most 1")
        self._spare(filter_value, 1)
        self.top_h = float(top_h)
        self._take(top_h=self.top_h)


class MinPLogitsWarper(_Filter):
    """Leaves the tokens with at least min_p times the probability of the best."""

    def __init__(self, min_p: float, filter_value: float = -float("inf"), min_tokens_to_keep: int = 1) -> None:
        self._spare(filter_value, min_tokens_to_keep)
        self.min_p = float(min_p)
        self._take(min_p=self.min_p)


class TypicalLogitsWarper(_Filter):
    """Leaves the tokens whose surprise is nearest to the expected one, as many as have the probability mass."""

    def __init__(self, mass: float = 0.9, filter_value: float = -float("inf"), min_tokens_to_keep: int = 1) -> None:
        _need(0 < mass < 1, "mass", mass, "a number above 0 and below 1")
        self._spare(filter_value, min_tokens_to_keep)
        self.mass = float(mass)
        self._take(typical_p=self.mass)


class EpsilonLogitsWarper(_Filter):
    """Leaves the tokens with at least the probability epsilon."""

    def __init__(self, epsilon: float, filter_value: float = -float("inf"), min_tokens_to_keep: int = 1) -> None:
        _need(0 < epsilon < 1, "epsilon", epsilon, "a number above 0 and below 1")
        self._spare(filter_value, min_tokens_to_keep)
        self.epsilon = float(epsilon)
        self._take(epsilon_cutoff=self.epsilon)


class EtaLogitsWarper(_Filter):
    """As EpsilonLogitsWarper, with a lower threshold where many tokens are plausible."""

    def __init__(self, epsilon: float, filter_value: float = -float("inf"), min_tokens_to_keep: int = 1, device: Any = "cpu") -> None:
        _need(0 < epsilon < 1, "epsilon", epsilon, "a number above 0 and below 1")
        self._spare(filter_value, min_tokens_to_keep)
        self.epsilon = float(epsilon)
        self._take(eta_cutoff=self.epsilon)


class RepetitionPenaltyLogitsProcessor(_OfLibrary):
    """Makes tokens of the text less likely: penalty above 1.  The first prompt_ignore_length tokens do not count."""

    _option = "repetition_penalty"

    def __init__(self, penalty: float, prompt_ignore_length: Any = None) -> None:
        _need(float(penalty) > 0, "penalty", penalty, "a number above 0")
        self.penalty, self.prompt_ignore_length = float(penalty), prompt_ignore_length
        self._ignored = None if prompt_ignore_length is None else integers(
            np.atleast_1d(to_numpy(prompt_ignore_length)), "prompt_ignore_length")
        _need(self._ignored is None or (self._ignored.ndim == 1 and self._ignored.min(initial=0) >= 0), "prompt_ignore_length",
              prompt_ignore_length, "a whole number, 0 or more, or one for each row")
        self._take(repetition_penalty=self.penalty)

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        if self._ignored is not None:
            _need(self._ignored.size in (1, rows), "prompt_ignore_length", self.prompt_ignore_length, f"1 or {rows} numbers")
            ids = ids[self._ignored[row if self._ignored.size > 1 else 0]:]
        return ids, 0


class _OfText(_OfLibrary):
    """A processor that looks at the text, of which the first _prompt tokens are the prompt."""

    _prompt = 0

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        return ids, min(self._prompt, ids.size)


class _OfEncoder(_OfLibrary):
    """A processor that looks at the ids of an encoder's input, or of a prompt: [batch, tokens]."""

    encoder_input_ids: Any

    def _hear(self, encoder_input_ids: Any) -> None:
        self.encoder_input_ids = encoder_input_ids
        self._heard = integers(np.atleast_2d(to_numpy(encoder_input_ids)), "encoder_input_ids")

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        if rows % len(self._heard):
            raise ValueError(f"encoder_input_ids has {len(self._heard)} rows, scores {rows}; generate() of several texts takes the "
                             f"option {self._option}")
        heard = self._heard[row // (rows // len(self._heard))]
        return np.concatenate([heard, ids]), heard.size


class EncoderRepetitionPenaltyLogitsProcessor(_OfEncoder):
    """Makes tokens of encoder_input_ids more likely: penalty above 1."""

    _option = "encoder_repetition_penalty"

    def __init__(self, penalty: float, encoder_input_ids: Any) -> None:
        _need(float(penalty) > 0, "penalty", penalty, "a number above 0")
        self.penalty = 1 / float(penalty)
        self._hear(encoder_input_ids)
        self._take(encoder_repetition_penalty=float(penalty))


class EncoderNoRepeatNGramLogitsProcessor(_OfEncoder):
    """Bans what would complete encoder_ngram_size tokens that encoder_input_ids has in a row."""

    _option = "encoder_no_repeat_ngram_size"

    def __init__(self, encoder_ngram_size: int, encoder_input_ids: Any) -> None:
        self.ngram_size = _count("encoder_ngram_size", encoder_ngram_size, 1)
        self._hear(encoder_input_ids)
        self._take(encoder_no_repeat_ngram_size=self.ngram_size)

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        return None if ids.size + 1 < self.ngram_size else super()._text(ids, row, rows)


class NoRepeatNGramLogitsProcessor(_OfText):
    """Bans what would complete ngram_size tokens that the text already has in a row."""

    _option = "no_repeat_ngram_size"

    def __init__(self, ngram_size: int) -> None:
        self.ngram_size = _count("ngram_size", ngram_size, 1)
        self._take(no_repeat_ngram_size=self.ngram_size)


class SequenceBiasLogitsProcessor(_OfText):
    """Adds a bias to the token that would complete a sequence: [[[5], -2.0], [[7, 8], 1.5]], or {(5,): -2.0}."""

    _option: Optional[str] = "sequence_bias"

    def __init__(self, sequence_bias: Any) -> None:
        _need(bool(sequence_bias), "sequence_bias", sequence_bias, "at least one sequence")
        pairs = isinstance(sequence_bias, (list, tuple)) and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in sequence_bias)
        self.sequence_bias = {tuple(ids): float(bias) for ids, bias in sequence_bias} if pairs and all(
            isinstance(p[0], (list, tuple)) for p in sequence_bias) else sequence_bias
        self._take(sequence_bias=sequence_bias)


class NoBadWordsLogitsProcessor(SequenceBiasLogitsProcessor):
    """Bans the token that would complete one of the sequences: [[5], [7, 8]].  One that is eos_token_id alone is ignored."""

    _option = "bad_words_ids"

    def __init__(self, bad_words_ids: List[List[int]], eos_token_id: Any = None) -> None:
        self.bad_word_ids = bad_words_ids
        _need(bool(bad_words_ids), "bad_words_ids", bad_words_ids, "at least one list of token ids")
        ends = [] if eos_token_id is None else _ids("eos_token_id", eos_token_id)
        self._take(bad_words_ids=bad_words_ids, eos_token_id=ends)


class SuppressTokensLogitsProcessor(_OfLibrary):
    """Bans tokens."""

    _option = "suppress_tokens"

    def __init__(self, suppress_tokens: Any, device: Any = "cpu") -> None:
        self.suppress_tokens = _ids("suppress_tokens", suppress_tokens)
        self._take(suppress_tokens=self.suppress_tokens)


class SuppressTokensAtBeginLogitsProcessor(_OfLibrary):
    """Bans tokens where the text has begin_index tokens."""

    _option = "begin_suppress_tokens"

    def __init__(self, begin_suppress_tokens: Any, begin_index: int, device: Any = "cpu") -> None:
        self.begin_suppress_tokens = _ids("begin_suppress_tokens", begin_suppress_tokens)
        self.begin_index = begin_index
        self._take(begin_suppress_tokens=self.begin_suppress_tokens)

    def set_begin_index(self, begin_index: int) -> None:
        """Sets where the tokens are banned."""
        self.begin_index = begin_index

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        return (ids, ids.size) if ids.size == self.begin_index else None


class MinLengthLogitsProcessor(_OfText):
    """Bans the end-of-sequence tokens until the text has min_length tokens."""

    _option = "min_length"

    def __init__(self, min_length: int, eos_token_id: Any, device: Any = "cpu") -> None:
        self.min_length, self.eos_token_id = _count("min_length", min_length, 0), np.array(_ids("eos_token_id", eos_token_id))
        self._take(min_length=self.min_length, eos_token_id=self.eos_token_id.tolist())


class MinNewTokensLengthLogitsProcessor(_OfLibrary):
    """Bans the end-of-sequence tokens until min_new_tokens follow the first prompt_length_to_skip."""

    _option = "min_new_tokens"

    def __init__(self, prompt_length_to_skip: int, min_new_tokens: int, eos_token_id: Any, device: Any = "cpu") -> None:
        self.prompt_length_to_skip = _count("prompt_length_to_skip", prompt_length_to_skip, 0)
        self.min_new_tokens, self.eos_token_id = _count("min_new_tokens", min_new_tokens, 0), np.array(_ids("eos_token_id", eos_token_id))
        self._take(min_new_tokens=self.min_new_tokens, eos_token_id=self.eos_token_id.tolist())

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        return ids, min(self.prompt_length_to_skip, ids.size)


class ForcedBOSTokenLogitsProcessor(_OfLibrary):
    """Makes bos_token_id the only choice after a text of one token."""

    _option = "forced_bos_token_id"

    def __init__(self, bos_token_id: int) -> None:
        self.bos_token_id = _count("bos_token_id", bos_token_id, 0)
        self._take(forced_bos_token_id=self.bos_token_id)

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        return (ids, 1) if ids.size == 1 else None


class ForcedEOSTokenLogitsProcessor(_OfLibrary):
    """Makes eos_token_id the only choice for the last of max_length tokens."""

    _option = "forced_eos_token_id"

    def __init__(self, max_length: int, eos_token_id: Any, device: Any = "cpu") -> None:
        self.max_length, self.eos_token_id = int(max_length), np.array(_ids("eos_token_id", eos_token_id))
        self._take(forced_eos_token_id=self.eos_token_id.tolist(), max_new_tokens=1)  # the next token is the last

    def _text(self, ids: np.ndarray, row: int, rows: int) -> Optional[Tuple[np.ndarray, int]]:
        return (ids, ids.size) if ids.size == self.max_length - 1 else None


class ExponentialDecayLengthPenalty(_OfText):
    """Makes the end likelier with every token: (start, factor), counted from input_ids_seq_length."""

    _option = "exponential_decay_length_penalty"

    def __init__(self, exponential_decay_length_penalty: Iterable[Any], eos_token_id: Any, input_ids_seq_length: int) -> None:
        start, factor = exponential_decay_length_penalty
        self.eos_token_id, self._prompt = _ids("eos_token_id", eos_token_id), _count("input_ids_seq_length", input_ids_seq_length, 0)
        self.regulation_start, self.regulation_factor = start + self._prompt, factor
        self._take(exponential_decay_length_penalty=[int(start), float(factor)], eos_token_id=self.eos_token_id)


class InfNanRemoveLogitsProcessor(_OfLibrary):
    """Replaces NaN by 0, and infinite scores by finite ones."""

    _option = "remove_invalid_values"

    def __init__(self) -> None:
        self._take(remove_invalid_values=True)


class LogitNormalization(_OfLibrary):
    """Makes log probabilities of the scores."""

    _option = "renormalize_logits"

    def __init__(self) -> None:
        self._take(renormalize_logits=True)


class PrefixConstrainedLogitsProcessor(LogitsProcessor):
    """Leaves the tokens that prefix_allowed_tokens_fn(text, input_ids) names.  num_beams: rows of each text."""

    _kvik_row = True

    def __init__(self, prefix_allowed_tokens_fn: Callable[[int, Any], Any], num_beams: int) -> None:
        self._prefix_allowed_tokens_fn, self._num_beams = prefix_allowed_tokens_fn, num_beams

    def __call__(self, input_ids: Any, scores: Any, row: int = 0) -> Any:
        """Returns scores [rows, vocab]; row is the number of the first row."""
        given = to_numpy(scores, np.float32)
        out, mask = np.full_like(given, -np.inf), np.full_like(given, -np.inf)
        for i in range(len(given)):
            allowed = np.atleast_1d(to_numpy(self._prefix_allowed_tokens_fn((row + i) // self._num_beams, input_ids[i]))).astype(np.int64)
            if not allowed.size:
                raise ValueError("prefix_allowed_tokens_fn allowed no token")
            mask[i, allowed] = 0
            out[i, allowed] = given[i, allowed]
        if len(given) % self._num_beams == 0:  # a text whose allowed tokens are all banned takes them anyway
            stuck = np.isneginf(out.max(-1).reshape(-1, self._num_beams)).all(-1).repeat(self._num_beams)
            out[stuck] = mask[stuck]
        return like(out, True).to(scores) if is_torch(scores) else out.astype(np.asarray(scores).dtype, copy=False)


def settle(processors: List[Any], values: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options of a call without those that one of its processors stands for.  Warns if it gives both."""
    for processor in processors:
        name = getattr(processor, "_option", None) if isinstance(processor, _OfLibrary) else None
        if name is None or values.get(name) is None:
            continue
        notice(f"generate() got a {type(processor).__name__}, so the option {name} has no effect")
        values = {k: v for k, v in values.items() if k != name}
    return values


__all__ = [n for n, v in list(globals().items()) if isinstance(v, type) and issubclass(v, (LogitsProcessor, LogitsProcessorList))
           and not n.startswith("_")]
