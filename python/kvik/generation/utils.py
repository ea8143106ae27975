"""generate(): options, prompts and callbacks as the library takes them, and its result as Transformers returns it."""
import ctypes
import random
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from .. import _abi, legacy
from .._arrays import ids_2d, is_torch, like, mask_2d, to_numpy, torch_module
from .._lib import address, call, lib, sized, view
from ..cache_utils import DynamicCache, as_cache, class_of
from ..caches import Cache, _batch_of
from ..errors import ArgumentError, LimitError, UnsupportedError
from ..outputs import (GenerateBeamDecoderOnlyOutput, GenerateBeamEncoderDecoderOutput, GenerateDecoderOnlyOutput,
                       GenerateEncoderDecoderOutput)
from ..store import Settings, Store, settings_of
from .configuration_utils import GenerationConfig, merged
from .logits_process import PrefixConstrainedLogitsProcessor, settle
from .options import Options
from .stopping_criteria import is_true

_OPTIONS_OF_CACHE = ("cache_implementation", "cache_config", "max_cache_len", "cross_cache_implementation", "cross_cache_config")
_IGNORED = ("tokenizer", "position_ids", "token_type_ids", "return_dict", "trust_remote_code")
_RESERVING = ("static", "offloaded_static")


_next_seed: Optional[int] = None


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Sets the seed of the next generate() that samples and is given none; each later one takes the next number."""
    global _next_seed
    _next_seed = int(seed)


def _seeded(values: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options with a seed, if they sample and have none: the next one of set_seed(), else a random number.

    The random number comes from torch where the program uses torch, so that torch.manual_seed() decides, else from `random`.
    """
    global _next_seed
    if not values.get("do_sample") or values.get("seed") is not None:
        return values
    if _next_seed is not None:
        seed, _next_seed = _next_seed, (_next_seed + 1) % 2**63
    else:
        torch = torch_module()
        seed = int(torch.randint(2**62, ())) if torch is not None else random.getrandbits(62)
    return {**values, "seed": seed}


def log_softmax(values: np.ndarray) -> np.ndarray:
    """Returns the logarithms of the probabilities over the last axis."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = values - values.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class Interruptible:
    """The callbacks of a call: an exception in one of them is kept in ``error``, ends the call, and is raised after it."""

    error: Optional[BaseException] = None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Keeps what signal handlers raise in a callback for the time of a `with`, and raises it at the end.

        Python runs signal handlers where a callback is entered, before its first statement.  ctypes gives what is raised
        there to sys.unraisablehook, and the call would go on.  Ctrl-C is noted and not raised there.  A second Ctrl-C raises
        at once, for callbacks of the program that hang.
        """
        if threading.current_thread() is not threading.main_thread():  # the only one that runs handlers
            yield
            return
        before = sys.unraisablehook

        def keep(dropped: Any) -> None:
            place = dropped.exc_traceback
            if place is None or place.tb_frame.f_locals.get("self") is not self:
                before(dropped)
            elif self.error is None:
                self.error = dropped.exc_value

        def note(number: int, frame: Any) -> None:
            if isinstance(self.error, KeyboardInterrupt):
                signal.default_int_handler(number, frame)
            self.error = KeyboardInterrupt()

        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        sys.unraisablehook = keep
        if usual:
            signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            if usual:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if sys.unraisablehook is keep:  # the program may have set another one in a callback
                sys.unraisablehook = before
        if self.error is not None:
            raise self.error


class Callbacks(Interruptible):
    """The hooks of generate()."""

    def __init__(self, streamer: Any, processors: List[Callable[..., Any]], criteria: List[Callable[..., Any]],
                 torch: bool, beams: bool, assistant: Optional[Store], notices: Callable[[str], None]) -> None:
        self.streamer, self.processors, self.criteria, self.torch = streamer, processors, criteria, torch
        self.notices = notices
        self.last_scores: Any = None
        hooks = {"on_progress": _abi.kvik_on_progress(self._progress), "on_notice": _abi.kvik_on_notice(self._notice)}
        if streamer is not None and not beams:
            hooks["on_token"] = _abi.kvik_on_token(self._token)
        elif not beams:  # with beams, on_progress is called in every step
            hooks["on_pulse"] = _abi.kvik_on_pulse(self._pulse)
        if processors:
            hooks["logits_processor"] = _abi.kvik_logits_processor(self._scores)
        if criteria:
            hooks["stopping_criteria"] = _abi.kvik_stopping_criteria(self._stops)
        self.struct = sized(_abi.kvik_hooks, **hooks, assistant_model=assistant.pointer if assistant else None)

    def _token(self, ctx: Any, row: int, token: int, text: bytes) -> bool:
        try:
            if self.streamer is not None and token >= 0:
                self.streamer.put(like(np.array([token], np.int64), self.torch))
            return self.error is None
        except BaseException as e:  # noqa: BLE001 - raised again after the call
            self.error = self.error or e
            return False

    def _progress(self, ctx: Any, done: int, total: int) -> bool:
        try:
            return self.error is None
        except BaseException as e:  # noqa: BLE001
            self.error = e
            return False

    def _pulse(self, ctx: Any) -> bool:
        """Is called now and then: Python runs the handlers of signals where a callback begins."""
        try:
            return self.error is None
        except BaseException as e:  # noqa: BLE001
            self.error = e
            return False

    def _notice(self, ctx: Any, text: bytes) -> None:
        try:
            self.notices((text or b"").decode("utf-8", "replace"))
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e

    def _inputs(self, ids: int, n: int, scores: Optional[int], vocab: int) -> Tuple[Any, Any]:
        """Returns copies, which a callback may keep: the memory of the library is only valid for the time of the call."""
        tokens = view(ids, (1, n), np.int32).astype(np.int64)
        values = None if scores is None else view(scores, (1, vocab), np.float32).copy()
        return like(tokens, self.torch), None if values is None else like(values, self.torch)

    def _scores(self, ctx: Any, row: int, ids: int, n: int, scores: int, vocab: int) -> bool:
        try:
            tokens, given = self._inputs(ids, n, scores, vocab)
            out = given
            for processor in self.processors:
                out = processor(tokens, out, row) if getattr(processor, "_kvik_row", False) else processor(tokens, out)
            result = to_numpy(out, np.float32).reshape(-1)
            if result.size != vocab:
                raise ValueError(f"a logits processor returned {result.size} scores for {vocab} tokens")
            view(scores, (vocab,), np.float32)[:] = result
            return True
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return False

    def _stops(self, ctx: Any, row: int, ids: int, n: int) -> bool:
        try:
            tokens, _ = self._inputs(ids, n, None, 0)
            return any(is_true(criterion(tokens, None)) for criterion in self.criteria)
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return True


class Result:
    """Owns a kvik_result; arrays over its memory keep it alive."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.value = ctypes.cast(pointer, ctypes.POINTER(_abi.kvik_result)).contents

    def __del__(self) -> None:
        pointer = self.__dict__.pop("pointer", None)
        if pointer and lib is not None:
            lib.kvik_result_free(pointer)

    def rows(self) -> List[Any]:
        """Returns the rows."""
        return [self.value.row[i].contents for i in range(self.value.n_rows)]

    def sequences(self, pad: int) -> np.ndarray:
        """Returns the ids of all rows, filled with pad."""
        rows = self.rows()
        out = np.full((len(rows), max(r.n for r in rows)), pad, np.int64)
        for i, r in enumerate(rows):
            out[i, : r.n] = view(r.ids, (r.n,), np.int32)
        return out

    def steps(self, field: str, torch: bool) -> Any:
        """Returns logits or scores as a tuple of [rows, vocab] per step, or None."""
        r = self.value
        pointer = getattr(r, field)
        if not pointer:
            return None
        all_steps = view(pointer, (r.logit_steps, r.logit_rows, r.vocab), np.float32, self)
        return tuple(like(step, torch) for step in all_steps)

    def beam_indices(self) -> Optional[np.ndarray]:
        """Returns [rows][new tokens], -1 after the end of a row; None without beams."""
        rows = self.rows()
        if not rows or not rows[0].beam_indices:
            return None
        out = np.full((len(rows), max(r.n - r.n_prompt for r in rows)), -1, np.int32)
        for i, r in enumerate(rows):
            out[i, : r.n - r.n_prompt] = view(r.beam_indices, (r.n - r.n_prompt,), np.int32)
        return out


class Call:
    """One call of generate()."""

    def __init__(self, model: Any, inputs: Any, generation_config: Any, kwargs: Dict[str, Any],
                 processors: List[Any]) -> None:
        self.model = model
        if hasattr(inputs, "keys"):
            kwargs = {**dict(inputs), **kwargs}
            inputs = None
        given = kwargs.pop("input_ids", None)
        if given is not None and inputs is not None:
            raise ArgumentError("inputs and input_ids are one argument; give it once")
        ids = inputs if given is None else given
        self.seq2seq = bool(getattr(model, "_seq2seq", False))
        self.decoder: Any = kwargs.pop("decoder_input_ids", None) if self.seq2seq else None
        self.source: Any = None
        self.filled = False
        features, encoded = (kwargs.pop(n, None) if self.seq2seq else None for n in ("input_features", "encoder_outputs"))
        self.embeds: Any = None if self.seq2seq else kwargs.pop("inputs_embeds", None)
        for name in ("inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds", "pixel_values", "input_features",
                     "encoder_outputs"):
            if kwargs.pop(name, None) is not None:
                raise UnsupportedError(f"generate() of this model does not take {name}; give "
                                       f"{model.main_input_name if self.seq2seq else 'input_ids'}")
        mask = kwargs.pop("attention_mask", None)
        decoder_torch = is_torch(self.decoder)
        if self.decoder is not None:
            self.decoder = ids_2d(self.decoder)
        self.past, self.legacy_in = as_cache(_first(kwargs, "past_key_values", "cache_params"))
        for name in _IGNORED:
            kwargs.pop(name, None)
        kwargs.pop("cache_position", None)
        kwargs.pop("negative_prompt_attention_mask", None)
        explicit = kwargs.get("cache_implementation") or getattr(generation_config, "cache_implementation", None)
        if self.past is not None and explicit:
            raise ArgumentError(f"cache_implementation={explicit!r} and a cache object (past_key_values) were both given; "
                                "the object decides, so leave the name out")
        own = {k: kwargs.pop(k) for k in list(kwargs) if k in Settings.__dataclass_fields__ and k not in _OPTIONS_OF_CACHE}
        values = settle(processors, merged(model._own_options(), generation_config, kwargs))
        self.torch = is_torch(ids) or decoder_torch or is_torch(self.embeds)
        if self.seq2seq:
            self._take_encoder(encoded, ids, mask, features)
        elif self.embeds is not None:
            ids = self._take_embeds(ids)
            values = {**values, "use_cache": True}  # as in Transformers
        elif ids is None:
            bos = values.get("bos_token_id", getattr(model.config, "bos_token_id", None))
            if bos is None:
                raise ArgumentError("generate() without input_ids begins with bos_token_id, which is not defined")
            ids = np.array([[bos]])
        if not self.seq2seq:
            self.ids, self.mask = ids_2d(ids), mask_2d(mask)
            self.rows = self.ids.shape[0]
            if self.ids.shape[1] == 0 and self.embeds is None:
                raise ArgumentError("input_ids has no tokens")
            if self.mask is not None and self.mask.shape[0] != self.rows:
                raise ArgumentError(f"attention_mask has {self.mask.shape[0]} rows, input_ids {self.rows}")
        self.want_dict = bool(values.get("return_dict_in_generate"))
        self.shown = {n: bool(values.pop(n, None)) and self.want_dict for n in ("output_attentions", "output_hidden_states")}
        if self.seq2seq and self.past is not None:  # the rows then come back with their sequences
            values = {**values, "return_dict_in_generate": True}
        self.options = Options(model._handle, _seeded(values))
        if any(self.shown.values()) and self.embeds is not None:
            raise UnsupportedError("output_attentions and output_hidden_states of generate() need input_ids; forward() shows what "
                                   "inputs_embeds give")
        if any(self.shown.values()) and self.options.struct.num_beams > 1:
            raise UnsupportedError("output_attentions and output_hidden_states of beams: kvik does not keep what dropped beams "
                                   "saw; use them without num_beams, or call forward() with the sequences")
        self.settings = self._settings(own)

    def _take_embeds(self, ids: Any) -> Any:
        """Takes embeddings in place of a prompt's ids, and returns the ids beside them, which may be none."""
        self.embeds = to_numpy(self.embeds, np.float32)
        width = lib.kvik_model_hidden(self.model._handle.pointer)
        if self.embeds.ndim != 3 or self.embeds.shape[2] != width or not all(self.embeds.shape):
            raise ArgumentError(f"inputs_embeds has the shape {list(self.embeds.shape)}; expected [batch, n, {width}]")
        if ids is None or not to_numpy(ids).size:
            ids = np.zeros((self.embeds.shape[0], 0), np.int32)
        if ids_2d(ids).shape[0] != self.embeds.shape[0]:
            raise ArgumentError(f"inputs_embeds has {self.embeds.shape[0]} rows, input_ids {ids_2d(ids).shape[0]}")
        if self.past is not None and _length(self.past):
            raise UnsupportedError("inputs_embeds begin a text, and this cache holds one; append them with forward(), or give an "
                                   "empty cache")
        return ids

    def _take_encoder(self, outputs: Any, ids: Any, mask: Any, features: Any) -> None:
        from ..encoder import take_input
        self.source = take_input(self.model._handle, outputs, ids, mask, features)
        self.mask = None
        if self.past is not None and _length(self.past):  # its rows have read their input
            if self.decoder is None:
                raise ArgumentError("a cache that holds a text needs decoder_input_ids, the whole text with that of the cache")
            self.filled, self.ids, self.rows = True, self.decoder, self.decoder.shape[0]
            return
        if self.source is None:
            raise ArgumentError(f"generate() of this model needs {self.model.main_input_name}")
        self.torch, self.rows = self.source.torch, self.source.rows
        if self.decoder is not None and (self.decoder.shape[0] != self.rows or not self.decoder.shape[1]):
            raise ArgumentError(f"decoder_input_ids has the shape {list(self.decoder.shape)} for {self.rows} rows")

    def _settings(self, own: Dict[str, Any]) -> Settings:
        g = self.options.struct
        values: Dict[str, Any] = dict(own)
        if g.cache_implementation:
            values["cache_implementation"] = g.cache_implementation.decode()
        if g.cache_config:
            values["cache_config"] = g.cache_config.decode()
        if g.max_cache_len:
            values["max_cache_len"] = g.max_cache_len
        if g.cross_cache_implementation:
            values["cross_cache_implementation"] = g.cross_cache_implementation.decode()
        if g.cross_cache_config:
            values["cross_cache_config"] = g.cross_cache_config.decode()
        settings = settings_of(values)
        if self.seq2seq and self.past is not None:
            from ..seq2seq import settings_of_pair
            settings = settings_of_pair(self.past).over(settings)
        settings = settings.over(self.model._defaults)
        if settings.cache_implementation in _RESERVING and not settings.max_cache_len and \
                "max_cache_len" not in (settings.cache_config or ""):
            prompt = self.columns()
            need = prompt + self.options.new_tokens(prompt)
            settings = replace(settings, max_cache_len=min(need, lib.kvik_model_context(self.model._handle.pointer)))
        return settings

    def begin(self) -> np.ndarray:
        """Returns the ids that the text begins with: of a model with an encoder, the decoder's."""
        if not self.seq2seq:
            return self.ids
        if self.decoder is not None:
            return self.decoder
        return np.full((self.rows, 1), max(self.options.struct.decoder_start_token_id, 0), np.int32)

    def columns(self) -> int:
        """Returns the columns of the cache that the prompt takes."""
        return max(self.begin().shape[1], 0 if self.embeds is None else self.embeds.shape[1])

    # -- running

    def run(self, callbacks: "Callbacks") -> Any:
        """Generates, and returns sequences or a GenerateOutput."""
        if self.past is not None and (self.filled or not self.seq2seq) and self.embeds is None:
            return self._with_cache(callbacks, self.past)
        rows = self.rows
        need = self.options.sequences(rows)
        handle = self.model._handle
        settings = self.settings
        if self.past is not None and self.embeds is not None:  # an empty cache, which then holds the text
            settings = self.past._settings.over(settings)
            self.options.struct.return_dict_in_generate = True
        for attempt in range(2):
            with handle.using(settings, need) as store:
                try:
                    result = self._generate(store, callbacks)
                except LimitError as e:  # the store is full of caches: another one has room
                    if attempt or "max_sequences" not in str(e):
                        raise
                    handle.forget(store)
                    continue
                cache = self._cache_of(store, result) if self.want_dict or self.past is not None else None
                if self.past is not None and self.embeds is not None and cache is not None:
                    self.past._batch, self.past._torch, cache = cache._batch, self.torch, self.past
                return self._output(result, cache)
        raise AssertionError

    def _finish(self, code: Callable[[Any], Any], callbacks: "Callbacks") -> Result:
        out = ctypes.c_void_p()
        try:
            code(ctypes.byref(out))
        except Exception:
            if callbacks.error is not None:
                raise callbacks.error from None
            raise
        result = Result(out)
        if callbacks.error is not None:
            for row in result.rows():
                row.seq = 0 if self.past is not None else row.seq
            raise callbacks.error
        if any(r.finish == _abi.KVIK_FINISH_CANCELLED for r in result.rows()):
            raise KeyboardInterrupt  # a signal came while a callback was entered
        return result

    def _generate(self, store: Store, callbacks: "Callbacks") -> Result:
        rows = self.rows
        if self.mask is not None and self.embeds is not None and self.mask.shape[1] != self.embeds.shape[1]:
            raise ArgumentError(f"the attention mask has {self.mask.shape[1]} columns for {self.embeds.shape[1]} embeddings")
        if self.mask is not None and self.embeds is None and self.mask.shape[1] != self.ids.shape[1]:
            raise ArgumentError(f"the attention mask has {self.mask.shape[1]} columns for {self.ids.shape[1]} ids")
        prompts = (_abi.kvik_prompt * rows)()
        for i in range(rows):
            prompts[i].size = ctypes.sizeof(_abi.kvik_prompt)
            if self.decoder is not None:
                prompts[i].decoder_ids = self.decoder[i].ctypes.data
                prompts[i].n_decoder = self.decoder.shape[1]
            if self.source is not None:
                self.source.fill(prompts[i], i)
                continue
            if self.embeds is not None:
                prompts[i].embeds = self.embeds[i].ctypes.data
                prompts[i].n_embeds = self.embeds.shape[1]
            prompts[i].ids = self.ids[i].ctypes.data if self.ids.size else None
            prompts[i].n = self.ids.shape[1]
            prompts[i].attention_mask = None if self.mask is None else self.mask[i].ctypes.data

        def generate(out: Any) -> None:
            call("kvik_generate", store.pointer, ctypes.byref(self.options.struct), ctypes.byref(prompts), rows,
                 ctypes.byref(callbacks.struct), out)
        try:
            return self._finish(generate, callbacks)
        finally:
            del prompts

    def _with_cache(self, callbacks: "Callbacks", cache: Cache) -> Any:
        g = self.options.struct
        rows = self.ids.shape[0]
        pair, cache = cache, cache.self_attention_cache if self.seq2seq else cache
        if g.num_beams > 1 and g.num_return_sequences > 1:
            return self._several_beams(callbacks, cache)
        before = cache.fork() if any(self.shown.values()) and cache.is_initialized else None
        repeat = g.num_return_sequences if g.num_return_sequences > 1 and g.num_beams <= 1 else 1
        with cache._use():
            batch = cache._bind(self.model._handle, self.model._defaults, rows)
            with batch.store.locked():
                ids, mask = self.ids, self.mask
                if repeat > 1:
                    call("kvik_batch_repeat", batch.pointer, repeat)
                    ids = np.repeat(ids, repeat, 0)
                    mask = None if mask is None else np.repeat(mask, repeat, 0)
                    g.num_return_sequences = 1
                inputs = sized(_abi.kvik_inputs, ids=address(ids), n=ids.shape[1], attention_mask=address(mask),
                               width=0 if mask is None else mask.shape[1])
                result = self._finish(lambda out: call(
                    "kvik_batch_generate", batch.pointer, ctypes.byref(g), ctypes.byref(inputs),
                    ctypes.byref(callbacks.struct), out), callbacks)
                del ids, mask
            cache._torch = self.torch
        return self._output(result, pair, before)

    def _several_beams(self, callbacks: "Callbacks", cache: Cache) -> Any:
        """Several beams of each prompt: the cache then holds all of them.  Rows that it holds now are reused."""
        if self.filled:
            raise UnsupportedError("num_return_sequences with num_beams continues no text of a model with an encoder; give an "
                                   "empty cache")
        with cache._use():
            batch = cache._bind(self.model._handle, self.model._defaults, self.rows)
            if batch.length > self.ids.shape[1] or (self.mask is not None and self.mask.shape[1] != self.ids.shape[1]):
                raise ArgumentError(f"num_return_sequences with num_beams needs the whole text in input_ids: there are "
                                    f"{self.ids.shape[1]} columns, and {batch.length} are cached")
            self.options.struct.return_dict_in_generate = True
            with batch.store.locked() as store:
                result = self._generate(store, callbacks)
                made = self._cache_of(store, result)
            if made is not None:
                cache._batch, cache._torch = made._batch, self.torch
        return self._output(result, cache)

    # -- results

    def _cache_of(self, store: Store, result: Result) -> Optional[Cache]:
        """Makes a cache of the sequences that the rows of a result came with."""
        rows = result.rows()
        if not rows or not all(r.seq for r in rows):
            for r in rows:
                if r.seq:
                    lib.kvik_cache_drop(store.pointer, r.seq)
            return None
        seqs = (ctypes.c_uint32 * len(rows))(*(r.seq for r in rows))
        if self.seq2seq:
            from ..seq2seq import pair_of
            return pair_of(self.settings, _batch_of(store, seqs, len(rows), None), self.torch, self.model.config, self.past)
        mask = self.mask
        if mask is not None:
            mask = np.repeat(mask, len(rows) // mask.shape[0], 0)
        elif any(r.n_prompt != self.ids.shape[1] for r in rows):
            mask = None
        batch = _batch_of(store, seqs, len(rows), mask)
        return class_of(self.settings)._of(self.settings, batch, self.torch, self.model.config)

    def _output(self, result: Result, cache: Optional[Cache], before: Optional[Cache] = None) -> Any:
        ids = result.sequences(self.options.pad())
        sequences = like(ids, self.torch)
        if not self.want_dict:
            return sequences
        r, g = result.value, self.options.struct
        past: Any = cache
        if g.return_legacy_cache or (self.legacy_in and cache is not None):
            past = legacy.as_tuples(legacy.from_struct(r.past_key_values, free=False), self.torch) \
                if r.past_key_values else cache.to_legacy_cache() if cache is not None else None
        rows = result.rows()
        beams = result.beam_indices()
        scores = None
        if g.num_beams > 1:
            scores = like(np.array([row.score for row in rows], np.float32), self.torch)
        names = {getattr(_abi, n): n[len("KVIK_FINISH_"):].lower() for n in dir(_abi) if n.startswith("KVIK_FINISH_")}
        shown = self._show(ids, before) if any(self.shown.values()) else {}
        state = "cache_params" if getattr(self.model, "_state_name", None) else "past_key_values"
        return _result_class(self.seq2seq, g.num_beams > 1)(
            sequences=sequences, scores=result.steps("scores", self.torch), logits=result.steps("logits", self.torch),
            sequences_scores=scores, beam_indices=None if beams is None else like(beams, self.torch),
            **shown, past_key_values=past, **({state: past} if state != "past_key_values" else {}),
            texts=[(row.text or b"").decode("utf-8", "replace") for row in rows],
            finish_reasons=[names.get(row.finish, str(row.finish)) for row in rows],
            stats={"prefill_seconds": r.prefill_seconds, "decode_seconds": r.decode_seconds,
                   "prompt_tokens": r.prompt_tokens, "new_tokens": r.new_tokens, "computed_tokens": r.computed_tokens,
                   "steps": r.steps, "drafted": r.drafted, "accepted": r.accepted})


    def _show(self, ids: np.ndarray, before: Optional[Cache]) -> Dict[str, Any]:
        """Computes the text again in the steps of the generation, for what forward() shows of each.

        The bits are those of the generation, whose length of a prompt and whose cache this has.
        """
        model, prompt = self.model, self.begin().shape[1]
        each = ids.shape[0] // self.begin().shape[0]
        cache: Any = before if before is not None else DynamicCache._of(self.settings, None, self.torch, model.config)
        if before is not None and before.max_batch_size != ids.shape[0]:
            before.batch_repeat_interleave(ids.shape[0] // before.max_batch_size)
        have = cache.get_seq_length()
        appends = not self.seq2seq and self.mask is not None and self.mask.shape[1] == have + prompt and have
        if appends:  # ids follow what the cache holds
            ids, prompt = np.concatenate([np.zeros((ids.shape[0], have), ids.dtype), ids], 1), prompt + have
        elif have >= prompt:
            have = prompt - 1
            cache.crop(have)
        mask = None
        if self.mask is not None:
            rest = np.ones((ids.shape[0], ids.shape[1] - prompt), np.uint8)
            mask = np.concatenate([np.repeat(self.mask, each, 0), rest], 1)
        more: Dict[str, Any] = dict(self.shown)
        if self.seq2seq:
            more["encoder_outputs"] = None if self.filled else self.source.repeated(each)
            if before is not None:
                from ..seq2seq import beside
                cache = beside(before)
            else:
                from ..seq2seq import empty_pair
                cache = empty_pair(self.settings)
        steps = []
        edges = [have, *range(prompt, ids.shape[1])]
        for begin, end in zip(edges, edges[1:]):
            part = like(np.ascontiguousarray(ids[:, begin:end]), self.torch)
            if self.seq2seq:
                steps.append(model.forward(decoder_input_ids=part, past_key_values=cache, **more))
                more.pop("encoder_outputs", None)
                continue
            given: Dict[str, Any] = {"attention_mask": None, "position_ids": None}
            if mask is not None:
                places = np.maximum(np.cumsum(mask[:, :end].astype(np.int64), 1) - 1, 0)
                given = {"attention_mask": mask[:, :end], "position_ids": places[:, begin:end]}
            steps.append(model.forward(part, past_key_values=cache, **given, **more))
        names = ("decoder_attentions", "cross_attentions", "decoder_hidden_states") if self.seq2seq else \
            ("attentions", "hidden_states")
        return {name: tuple(s[name] for s in steps) for name in names if steps and steps[0].get(name) is not None}


def _length(cache: Any) -> int:
    """Returns the tokens of a cache; raises BusyError while a call uses it."""
    with getattr(cache, "self_attention_cache", cache)._use():
        return int(cache.get_seq_length())


def _result_class(seq2seq: bool, beams: bool) -> Any:
    if seq2seq:
        return GenerateBeamEncoderDecoderOutput if beams else GenerateEncoderDecoderOutput
    return GenerateBeamDecoderOnlyOutput if beams else GenerateDecoderOnlyOutput


def _first(kwargs: Dict[str, Any], *names: str) -> Any:
    found = [v for v in (kwargs.pop(n, None) for n in names) if v is not None]
    return found[0] if found else None


def _list(value: Any) -> List[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


class GenerationMixin:
    """generate(), for models."""

    generation_config: GenerationConfig

    def generate(self, inputs: Any = None, generation_config: Optional[GenerationConfig] = None,
                 logits_processor: Any = None, stopping_criteria: Any = None,
                 prefix_allowed_tokens_fn: Optional[Callable[[int, Any], Any]] = None,
                 synced_gpus: Optional[bool] = None, assistant_model: Any = None, streamer: Any = None,
                 negative_prompt_ids: Any = None, negative_prompt_attention_mask: Any = None,
                 use_model_defaults: Optional[bool] = None, custom_generate: Any = None, **kwargs: Any) -> Any:
        """Generates text after input_ids [batch, tokens].

        Options are keyword arguments (``max_new_tokens=20``, ``do_sample=True``, ``num_beams=4``, ``stop_strings=["."]``,
        ...; docs/OPTIONS.md), fields of generation_config, or those of the model.  past_key_values continues a cache.
        cache_implementation and cache_config name a strategy; cache_memory and on_full limit its memory.
        inputs_embeds [batch, n, hidden] (see get_input_embeddings) stand for the ids of the prompt: the result then has the new
        tokens alone, or follows input_ids where both are given.  For greedy decoding and sampling; a cache must be empty.

        Returns ids [rows, tokens], the prompt included, int64, in torch if the input was; with
        return_dict_in_generate=True a GenerateOutput.  Raises OutOfMemoryError at cache_memory, ArgumentError for options.
        Ctrl-C ends the generation, and the cache is usable after it.
        """
        if custom_generate is not None:
            raise NotImplementedError("custom_generate is not supported; write a loop over forward()")
        if negative_prompt_ids is not None:
            kwargs["negative_prompt_ids"] = negative_prompt_ids
        processors = _list(logits_processor)
        this = Call(self, inputs, generation_config, kwargs, processors)
        g = this.options.struct
        if streamer is not None and g.num_beams > 1:
            raise ArgumentError("a streamer needs num_beams=1: beams change earlier tokens")
        if prefix_allowed_tokens_fn is not None:
            processors.append(PrefixConstrainedLogitsProcessor(prefix_allowed_tokens_fn, max(g.num_beams, g.num_return_sequences, 1)))
        assistant = None
        try:
            if assistant_model is not None:
                helper = assistant_model._handle
                assistant = helper.own_store(assistant_model._defaults) if helper is self._handle else \
                    helper.store(assistant_model._defaults, this.options.sequences(1))
            callbacks = Callbacks(streamer, processors, _list(stopping_criteria), this.torch, g.num_beams > 1,
                                  assistant, self._notice)
            if streamer is not None:
                streamer.put(like(this.begin().astype(np.int64), this.torch))
            with callbacks.interruptible():
                out = this.run(callbacks)
            if streamer is not None:
                streamer.end()
            return out
        except BaseException as e:
            if streamer is not None and hasattr(streamer, "fail"):
                streamer.fail(e)
            raise
        finally:
            if assistant is not None:
                assistant.lock.release()

    def compute_transition_scores(self, sequences: Any, scores: Any, beam_indices: Any = None,
                                  normalize_logits: bool = False) -> Any:
        """Returns the scores of the generated tokens, [rows, new tokens], from the ``sequences`` and ``scores`` of a result.

        beam_indices: those of the result, with beams.  normalize_logits: makes log probabilities of scores.
        """
        ids, steps = ids_2d(sequences, "sequences"), [to_numpy(s, np.float32) for s in scores or ()]
        if not steps or any(s.ndim != 2 or s.shape != steps[0].shape for s in steps):
            raise ArgumentError("scores is a tuple of [rows, vocab] for each new token, as generate() returns it with "
                                "return_dict_in_generate=True and output_scores=True")
        table = np.stack(steps)
        if normalize_logits:
            table = log_softmax(table)
        if beam_indices is None:
            lanes = np.repeat(np.arange(table.shape[1])[:, None], table.shape[0], 1)
        else:
            lanes = ids_2d(beam_indices, "beam_indices")
        n = int((lanes >= 0).sum(1).max(initial=0))
        lanes, made = lanes[:, :n], ids[:, max(ids.shape[1] - n, 0):]
        if lanes.shape != made.shape or n > len(steps) or lanes.max(initial=0) >= table.shape[1]:
            raise ArgumentError(f"sequences {list(ids.shape)}, scores of {len(steps)} steps for {table.shape[1]} rows"
                                f"{'' if beam_indices is None else ' and beam_indices'} are not of one result of generate()")
        if made.size and not 0 <= made.min() <= made.max() < table.shape[2]:
            raise ArgumentError(f"sequences hold a new token outside the vocabulary of {table.shape[2]}")
        out = table[np.arange(n), np.maximum(lanes, 0), made]
        return like(np.where(lanes < 0, np.float32(0), out), is_torch(sequences))

    def _own_options(self) -> GenerationConfig:
        """Returns the options of the model that the library knows."""
        return self.generation_config

    def _notice(self, text: str) -> None:
        raise NotImplementedError


