"""generate() with a cache whose update() a program has written: a loop over forward(), with the library's sampler.

The tokens are those of the library's own generation where update() keeps the rows as they are.
"""
import ctypes
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from .. import _abi
from .._arrays import like, to_numpy
from .._lib import address, call, lib, owned, sized
from ..errors import UnsupportedError
from ..tokenization import AutoTokenizer
from ..utils.logging import notice
from .callbacks import Callbacks
from .options import Options
from .result import class_of_result
from .stopping_criteria import MaxTimeCriteria, StopStringCriteria, rows_that_end

_NOT_HERE = (("num_beam_groups", 1), ("guidance_scale", 1), ("penalty_alpha", 0))
_OF_AN_ENCODER = (("encoder_repetition_penalty", 1), ("encoder_no_repeat_ngram_size", 0))  # a sampler sees no ids of an encoder


def log_softmax(values: np.ndarray) -> np.ndarray:
    """Returns the logarithms of the probabilities over the last axis."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = values - values.max(-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def check_options(model: Any, options: Options, cache: Any, assistant: bool) -> List[Any]:
    """Raises UnsupportedError for ways to generate that need the library's own caches.  Returns criteria for options that the loop lacks."""
    g = options.struct
    seq2seq = getattr(model, "_seq2seq", False)
    wrong = next((name for name, usual in _NOT_HERE + _OF_AN_ENCODER * seq2seq if getattr(g, name) not in (0, usual)), None)
    if wrong:
        raise UnsupportedError(f"{wrong}: with a cache whose update() is called ({type(cache).__name__}) generate() decodes greedily, "
                               "samples or searches with beams; use a cache of kvik, or leave it out")
    if assistant or g.prompt_lookup_num_tokens:
        notice(f"drafts are not used with a cache whose update() is called ({type(cache).__name__}): the tokens are those of a run without "
               "them, one in each step; leave the assistant or prompt_lookup_num_tokens out")
    more: List[Any] = [MaxTimeCriteria(g.max_time)] if g.max_time > 0 else []
    if g.n_stop_strings:
        more.append(StopStringCriteria(AutoTokenizer.from_pretrained(model.name_or_path),
                                       [g.stop_strings[i].decode("utf-8", "replace") for i in range(g.n_stop_strings)]))
    return more


def switch_of(config: Any) -> int:
    """Returns the tokens after which rotary frequencies are others (longrope); 0: they stay."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, dict) or "long_factor" not in rope:
        return 0
    return int(rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", 0) or 0)


class Loop:
    """One generation.  ids: [rows, columns], mask: the same or None."""

    def __init__(self, model: Any, cache: Any, options: Options, callbacks: Callbacks, ids: np.ndarray, mask: Optional[np.ndarray],
                 torch: bool) -> None:
        self.model, self.cache, self.options, self.callbacks, self.torch = model, cache, options, callbacks, torch
        self.ids, self.mask, self.prompt = ids.astype(np.int64), mask, ids.shape[1]
        self.rows = ids.shape[0]
        self.switch = switch_of(model.config)
        self.source: Any = None  # what the encoder of a model reads in the first forward
        self.seq2seq = bool(getattr(model, "_seq2seq", False))
        self.finish: List[str] = ["length"] * self.rows
        self.over = np.zeros(self.rows, bool)
        self.logits: List[np.ndarray] = []
        self.scores: List[np.ndarray] = []
        self._sampler = owned("kvik_sampler_close")
        g = options.struct
        search = g.num_beams, g.num_return_sequences
        g.num_beams, g.num_return_sequences = 1, 1  # a sampler sees one row
        try:
            call("kvik_sampler_open", ctypes.byref(g), self._vocab(), ctypes.byref(callbacks.struct), ctypes.byref(self._sampler))
        finally:
            g.num_beams, g.num_return_sequences = search

    def _vocab(self) -> int:
        return int(lib.kvik_model_vocab(self.model._handle.pointer))

    def _positions(self) -> Optional[np.ndarray]:
        """Returns the positions of all columns; padding has none of its own."""
        return None if self.mask is None else np.maximum(np.cumsum(self.mask.astype(np.int64), 1) - 1, 0)

    def _forward(self, begin: int) -> np.ndarray:
        """Computes the columns from `begin` on; returns the logits of the last one."""
        begin = self._recomputed(begin)
        part = like(np.ascontiguousarray(self.ids[:, begin:]), self.torch)
        more = {"past_key_values": self.cache, "use_cache": True, "return_dict": True, "output_hidden_states": False, "output_attentions": False}
        if self.seq2seq:
            out = self.model.forward(decoder_input_ids=part, encoder_outputs=self.source, **more)
            return np.ascontiguousarray(to_numpy(out.logits, np.float32)[:, -1])
        positions = self._positions()
        if positions is None and int(self.cache.get_seq_length()) != begin:  # it has dropped rows: tokens keep the places of the text
            positions = np.arange(self.ids.shape[1])[None]
        out = self.model.forward(part, attention_mask=self.mask, position_ids=None if positions is None else positions[:, begin:],
                                 logits_to_keep=1, **more)
        return np.ascontiguousarray(to_numpy(out.logits, np.float32)[:, -1])

    def _recomputed(self, begin: int) -> int:
        """Returns the first column to compute.  The first of all where a text passes the length at which rotary frequencies change: all rows are
        then made with the new ones, as in a cache of the library."""
        limit = self.switch
        real = np.arange(1, self.ids.shape[1] + 1)[None] if self.mask is None else np.cumsum(self.mask.astype(np.int64), 1)
        if not limit or not begin or not ((real[:, begin - 1] <= limit) & (real[:, -1] > limit)).any():
            return begin
        self.cache.reset()
        return 0

    def _sample(self, i: int, logits: np.ndarray, scores: np.ndarray, least: int = 0) -> Tuple[int, bool]:
        """Returns the next token of row i and whether it ends the row; fills scores.  least: tokens that filters leave."""
        text = np.ascontiguousarray(self.ids[i] if self.mask is None else self.ids[i][self.mask[i] != 0], np.int32)
        masked, token = self.ids.shape[1] - text.size, ctypes.c_int32()
        choice = sized(_abi.kvik_choice, logits=address(logits), ids=address(text), n=text.size, n_prompt=self.prompt - masked,
                       masked=masked, row=int(i), scores=address(scores), min_tokens_to_keep=least)
        try:
            ended = call("kvik_sample", self._sampler, ctypes.byref(choice), ctypes.byref(token))
        except Exception:
            if self.callbacks.error is not None:
                raise self.callbacks.error from None
            raise
        return token.value, bool(ended)

    def _choose(self, logits: np.ndarray) -> np.ndarray:
        """Returns the next token of each row; rows that have ended are padded."""
        tokens = np.full(self.rows, self.options.pad(), np.int64)
        scores = np.zeros_like(logits)
        for i in np.flatnonzero(~self.over).tolist():
            tokens[i], ended = self._sample(i, logits[i], scores[i])
            if ended:
                self.over[i], self.finish[i] = True, "eos"
        if self.options.struct.output_scores:
            self.scores.append(scores)
        if self.options.struct.output_logits:
            self.logits.append(logits)
        return tokens

    def _criteria(self) -> None:
        shown = like(self.ids.copy(), self.torch)
        scores = tuple(like(s, self.torch) for s in self.scores) or None
        for criterion in self.callbacks.criteria:
            for i in np.flatnonzero(rows_that_end(criterion(shown, scores), self.rows) & ~self.over):
                self.over[i], self.finish[i] = True, "criteria"

    def _begin(self) -> Tuple[int, int]:
        """Returns the columns that the cache holds, of which the last of the prompt is none, and the most new tokens."""
        have = int(self.cache.get_seq_length())
        if have >= self.prompt:
            have = self.prompt - 1
            self.cache.crop(have)
        context = int(lib.kvik_model_context(self.model._handle.pointer))
        return have, min(self.options.new_tokens(self.prompt), max(context - self.prompt + 1, 1))

    def run(self) -> None:
        """Generates until every row has ended."""
        have, most = self._begin()
        for _ in range(most):
            logits = self._forward(have)
            have = self.ids.shape[1]
            tokens = self._choose(logits)
            self.ids = np.concatenate([self.ids, tokens[:, None]], 1)
            if self.mask is not None:
                self.mask = np.concatenate([self.mask, np.ones((self.rows, 1), self.mask.dtype)], 1)
            if self.callbacks.streamer is not None:
                self.callbacks.streamer.put(like(tokens, self.torch))
            if self.callbacks.criteria:
                self._criteria()
            if self.over.all():
                return
        if most < self.options.new_tokens(self.prompt):
            self.finish = [f if self.over[i] else "context" for i, f in enumerate(self.finish)]

    def _texts(self) -> List[str]:
        tokenizer = lib.kvik_model_tokenizer(self.model._handle.pointer)
        out = []
        for i in range(self.rows if tokenizer else 0):
            ids = np.ascontiguousarray(self.ids[i, self.prompt:], np.int32)
            text, n = owned("kvik_free"), ctypes.c_size_t()
            call("kvik_tokenizer_decode", tokenizer, address(ids), ids.size, True, ctypes.byref(text), ctypes.byref(n))
            out.append(ctypes.string_at(text.value, n.value).decode("utf-8", "replace") if text.value else "")
        return out

    def output(self, want_dict: bool) -> Any:
        """Returns the ids, or a GenerateOutput."""
        sequences = like(self.ids, self.torch)
        if not want_dict:
            return sequences
        kept: Dict[str, Any] = {name: tuple(like(s, self.torch) for s in steps) or None
                                for name, steps in (("scores", self.scores), ("logits", self.logits))}
        new = self.rows * (self.ids.shape[1] - self.prompt)
        return class_of_result(self.seq2seq, False)(sequences=sequences, **kept, past_key_values=self.cache, texts=self._texts(),
                                         finish_reasons=self.finish, stats={"prompt_tokens": self.rows * self.prompt, "new_tokens": new})
