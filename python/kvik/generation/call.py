"""One call of generate(): its arguments as the library takes them, and its result as Transformers returns it."""
import ctypes
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from .. import _abi, legacy
from .._arrays import ids_2d, is_torch, like, mask_2d, to_numpy, torch_module
from .._lib import address, call, lib, sized
from ..cache_utils import DynamicCache, as_cache, class_of
from ..caches import Cache
from ..cross_cache import beside, empty_pair, pair_of, settings_of_pair
from ..encoder import take_input
from ..errors import ArgumentError, LimitError, UnsupportedError
from ..store import Batch, ModelHandle, Settings, Store, settings_of
from ..written_caches import calls_update
from .advice import advise_batch, advise_options, padding_of
from .callbacks import Callbacks
from .beams import Beams
from .configuration_utils import merged
from .healing import healed
from .logits_process import settle
from .loop import Loop, check_options
from .options import Options
from .result import Result, class_of_result
from .seeds import seeded
from .texts import Texts
from .watermarks import marked

_OPTIONS_OF_CACHE = ("cache_implementation", "cache_config", "max_cache_len", "cross_cache_implementation", "cross_cache_config")
_IGNORED = ("tokenizer", "position_ids", "token_type_ids", "return_dict", "trust_remote_code")
_OF_THE_PACKAGE = ("token_healing", "assistant_early_exit")  # options that the library does not have
_RESERVING = ("static", "offloaded_static")


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
        tokenizer = kwargs.get("tokenizer")
        for name in _IGNORED:
            kwargs.pop(name, None)
        kwargs.pop("cache_position", None)
        kwargs.pop("negative_prompt_attention_mask", None)
        explicit = kwargs.get("cache_implementation") or getattr(generation_config, "cache_implementation", None)
        if self.past is not None and explicit:
            raise ArgumentError(f"cache_implementation={explicit!r} and a cache object (past_key_values) were both given; "
                                "the object decides, so leave the name out")
        own = {k: kwargs.pop(k) for k in list(kwargs) if k in Settings.__dataclass_fields__ and k not in _OPTIONS_OF_CACHE}
        values = marked(settle(processors, merged(model._own_options(), generation_config, kwargs)), processors, self.vocab())
        heals, self.early_exit = bool(values.get("token_healing")), values.get("assistant_early_exit")
        values.update({name: None for name in _OF_THE_PACKAGE if name in values})
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
            ids, self.torch = np.array([[bos]]), torch_module() is not None
        if not self.seq2seq:
            self.ids, self.mask = ids_2d(ids), mask_2d(mask)
            self.rows = self.ids.shape[0]
            if self.ids.shape[1] == 0 and self.embeds is None:
                raise ArgumentError("input_ids has no tokens")
            if self.mask is not None and self.mask.shape[0] != self.rows:
                raise ArgumentError(f"attention_mask has {self.mask.shape[0]} rows, input_ids {self.rows}")
        if heals:
            self._heal(tokenizer)
        self.want_dict = bool(values.get("return_dict_in_generate"))
        self.shown = {n: bool(values.pop(n, None)) and self.want_dict for n in ("output_attentions", "output_hidden_states")}
        if self.seq2seq and self.past is not None:  # the rows then come back with their sequences
            values = {**values, "return_dict_in_generate": True}
        self.options = Options(model._handle, seeded(values))
        if not self.seq2seq and self.embeds is None and self.mask is None and not (self.past and _length(self.past)):
            self.mask = padding_of(self.ids, values.get("pad_token_id"), values.get("eos_token_id"))
        self._advise(values, merged(None, generation_config, kwargs))
        if any(self.shown.values()) and self.embeds is not None:
            raise UnsupportedError("output_attentions and output_hidden_states of generate() need input_ids; forward() shows what "
                                   "inputs_embeds give")
        if any(self.shown.values()) and self.options.struct.num_beams > 1:
            raise UnsupportedError("output_attentions and output_hidden_states of beams: kvik does not keep what dropped beams "
                                   "saw; use them without num_beams, or call forward() with the sequences")
        self.settings = self._settings(own)

    def _heal(self, tokenizer: Any) -> None:
        """Chooses the last token of each prompt anew."""
        if self.seq2seq or self.embeds is not None or (self.past and _length(self.past)):
            raise UnsupportedError("token_healing needs prompts in input_ids, no encoder, and no cache that holds a text")
        fresh = ids_2d(healed(self.model, self.ids, tokenizer))
        if self.mask is not None and fresh.shape != self.ids.shape:
            self.mask = padding_of(fresh, getattr(tokenizer, "pad_token_id", None), None)
        self.ids = fresh

    def _advise(self, values: Dict[str, Any], given: Dict[str, Any]) -> None:
        prompt = self.columns()
        advise_options(given, self.options.struct, prompt, self.options.new_tokens(prompt), self.embeds is None or bool(self.ids.size))
        if not self.seq2seq and self.embeds is None:
            advise_batch(self.ids, self.mask, values.get("pad_token_id"), values.get("eos_token_id"))

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
        self.source = take_input(self.model, outputs, ids, mask, features)
        self.mask = None
        cross = getattr(self.past, "cross_attention_cache", None)
        if cross is not None:
            cross.settle()
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
            settings = settings_of_pair(self.past).over(settings)
        handle: ModelHandle = self.model._handle
        settings = handle.fitting(settings.over(self.model._defaults))
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
            return np.asarray(self.decoder)
        return np.full((self.rows, 1), max(self.options.struct.decoder_start_token_id, 0), np.int32)

    def columns(self) -> int:
        """Returns the columns of the cache that the prompt takes."""
        return int(max(self.begin().shape[1], 0 if self.embeds is None else self.embeds.shape[1]))

    def texts(self) -> Texts:
        """Returns what callbacks see of the rows of this call."""
        g = self.options.struct
        each = g.num_beams if g.num_beams > 1 else g.num_return_sequences
        return Texts(self.begin(), int(each), self.options.pad(), self.want_dict and bool(g.output_scores))

    def vocab(self) -> int:
        """Returns the number of tokens of the model."""
        return int(lib.kvik_model_vocab(self.model._handle.pointer))

    # -- running

    def run(self, callbacks: Callbacks) -> Any:
        """Generates, and returns sequences or a GenerateOutput."""
        if calls_update(self.past, self.model._handle):
            return self._with_written(callbacks, self.past)
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
                    self.past._take(cache._batch, self.torch)
                    cache = self.past
                return self._output(result, cache)
        raise AssertionError

    def _finish(self, code: Callable[[Any], Any], callbacks: Callbacks) -> Result:
        result = Result()
        try:
            code(ctypes.byref(result.pointer))
        except Exception:
            if callbacks.error is not None:
                raise callbacks.error from None
            raise
        if callbacks.error is not None:
            for row in result.rows():
                row.seq = 0 if self.past is not None else row.seq
            raise callbacks.error
        if any(r.finish == _abi.KVIK_FINISH_CANCELLED for r in result.rows()):
            raise KeyboardInterrupt  # a signal came while a callback was entered
        return result

    def _generate(self, store: Store, callbacks: Callbacks) -> Result:
        rows = self.rows
        if self.mask is not None and self.embeds is not None and self.mask.shape[1] != self.embeds.shape[1]:
            raise ArgumentError(f"the attention mask has {self.mask.shape[1]} columns for {self.embeds.shape[1]} embeddings")
        if self.mask is not None and self.embeds is None and self.mask.shape[1] != self.ids.shape[1]:
            raise ArgumentError(f"the attention mask has {self.mask.shape[1]} columns for {self.ids.shape[1]} ids")
        prompts = (_abi.kvik_prompt * rows)()
        for i in range(rows):
            prompts[i].size = ctypes.sizeof(_abi.kvik_prompt)
            if self.decoder is not None:
                prompts[i].ids = self.decoder[i].ctypes.data
                prompts[i].n = self.decoder.shape[1]
            if self.source is not None:
                prompts[i].source = ctypes.pointer(self.source.source(i))
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
        return self._finish(generate, callbacks)

    def _with_written(self, callbacks: Callbacks, cache: Any) -> Any:
        g = self.options.struct
        if self.embeds is not None or any(self.shown.values()):
            raise UnsupportedError(f"inputs_embeds, output_attentions and output_hidden_states of generate() need a cache of kvik, and the "
                                   f"update() of this one is called ({type(cache).__name__}); forward() takes embeddings and shows states")
        callbacks.criteria = [*callbacks.criteria, *check_options(self.model, self.options, cache, bool(callbacks.struct.assistant_model))]
        ids, mask, each = self.begin(), self.mask, max(int(g.num_beams if g.num_beams > 1 else g.num_return_sequences), 1)
        if each > 1:
            ids, mask = np.repeat(ids, each, 0), None if mask is None else np.repeat(mask, each, 0)
            if cache.get_seq_length():
                cache.batch_repeat_interleave(each)
        loop = (Beams if g.num_beams > 1 else Loop)(self.model, cache, self.options, callbacks, ids, mask, self.torch)
        loop.source = None if self.source is None or self.filled else self.source.repeated(each)
        loop.run()
        return loop.output(self.want_dict)

    def _with_cache(self, callbacks: Callbacks, cache: Any) -> Any:
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
                try:
                    result = self._finish(lambda out: call(
                        "kvik_batch_generate", batch.pointer, ctypes.byref(g), ctypes.byref(inputs),
                        ctypes.byref(callbacks.struct), out), callbacks)
                except BaseException:
                    if repeat > 1 and batch.rows == rows * repeat:  # the caller's cache had one of each
                        first = np.arange(0, rows * repeat, repeat, dtype=np.uint32)
                        call("kvik_batch_select", batch.pointer, address(first), rows)
                    raise
                del ids, mask
            cache._torch = self.torch
        return self._output(result, pair, before)

    def _several_beams(self, callbacks: Callbacks, cache: Cache) -> Any:
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
                cache._take(made._batch, self.torch)
        return self._output(result, cache)

    # -- results

    def _cache_of(self, store: Store, result: Result) -> Any:
        """Makes a cache of the sequences that the rows of a result came with."""
        rows = result.rows()
        if not rows or not all(r.seq for r in rows):
            for r in rows:
                if r.seq:
                    lib.kvik_cache_drop(store.pointer, r.seq)
            return None
        seqs = (ctypes.c_uint32 * len(rows))(*(r.seq for r in rows))
        if self.seq2seq:
            return pair_of(self.settings, Batch.of(store, seqs, len(rows), None), self.torch, self.model.config, self.past)
        mask = self.mask
        if mask is not None:
            mask = np.repeat(mask, len(rows) // mask.shape[0], 0)
        elif any(r.n_prompt != self.ids.shape[1] for r in rows):
            mask = None
        batch = Batch.of(store, seqs, len(rows), mask)
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
        return class_of_result(self.seq2seq, g.num_beams > 1)(
            sequences=sequences, sequences_scores=scores, scores=result.steps("scores", self.torch),
            logits=result.steps("logits", self.torch), beam_indices=None if beams is None else like(beams, self.torch),
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
        more: Dict[str, Any] = {**self.shown, "use_cache": True, "return_dict": True}  # whatever the configuration says
        if self.seq2seq:
            more["encoder_outputs"] = None if self.filled else self.source.repeated(each)
            if before is not None:
                cache = beside(before)
            else:
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
        return {**self._heard(), **{name: tuple(s[name] for s in steps) for name in names if steps and steps[0].get(name) is not None}}

    def _heard(self) -> Dict[str, Any]:
        """Returns what was asked for of the encoder: once for each text, however many rows decode it, as in Transformers."""
        if self.source is None:
            return {}
        self.source.settings = self.settings.over(self.source.settings)
        return {"encoder_attentions": self.source.weights() if self.shown["output_attentions"] else None,
                "encoder_hidden_states": self.source.states() if self.shown["output_hidden_states"] else None}


def _length(cache: Any) -> int:
    """Returns the tokens of a cache; raises BusyError while a call uses it."""
    with getattr(cache, "self_attention_cache", cache)._use():
        return int(cache.get_seq_length())


def _first(kwargs: Dict[str, Any], *names: str) -> Any:
    found = [v for v in (kwargs.pop(n, None) for n in names) if v is not None]
    return found[0] if found else None
