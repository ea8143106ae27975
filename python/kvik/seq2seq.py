"""Models with an encoder: generate() and forward() over the two caches of a decoder."""
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Tuple, Union, cast, overload

import numpy as np

from . import legacy
from ._arrays import ids_2d, is_torch, like
from .cache_files import encoder_length
from .cache_utils import DynamicCache, EncoderDecoderCache
from .caches import Cache
from .encoder import Encoder, EncoderInput, take_input
from .errors import ArgumentError
from .generation.options import Options as CallOptions
from .model import PreTrainedModel, _Forward, _loss
from .outputs import Seq2SeqLMOutput
from .pickles import of
from .store import Batch, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import Array, EncoderDecoderOutput, GenerateArguments, Hooks, Options, Past, Seq2SeqArguments


class CrossCache(DynamicCache):
    """The rows of the encoder in the sequences of the decoder's cache.  What reorders or removes those does it here."""

    _pickled = {"_own": of(Cache), "_settings": of(Settings)}

    def __init__(self, own: Cache) -> None:
        self._own = own
        super().__init__()
        self._torch = own._torch

    @property
    def _batch(self) -> Optional[Batch]:
        return self._own._batch

    @_batch.setter
    def _batch(self, value: Any) -> None:
        pass

    @property
    def _session(self) -> Any:
        return self._own._session

    @_session.setter
    def _session(self, value: Any) -> None:
        pass

    def _read(self) -> Any:
        return self._own._read()

    def __getstate__(self) -> Dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_guard", "_row_dtype")}  # the rows are in those of _own

    def beside(self, own: Cache) -> Any:
        """Returns the same for a fork of the decoder's cache."""
        return CrossCache(own)

    def reorder_cache(self, beam_idx: Any) -> None:
        """Does nothing: the decoder's cache reorders both."""

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Does nothing: the decoder's cache repeats both."""

    def batch_select_indices(self, indices: Any) -> None:
        """Does nothing: the decoder's cache selects both."""

    def reset(self) -> None:
        """Does nothing: the decoder's cache resets both."""

    def crop(self, max_length: int) -> None:
        """Raises: the encoder's rows stay as long as the text."""
        raise ArgumentError("the rows of an encoder cannot be cropped; reset() of the whole cache removes them")

    def _layers(self) -> legacy.Layers:
        if self._batch is None and self._session is None:
            return []
        with self._read() as batch:
            return legacy.cross_of_batch(batch)

    def _maps(self) -> List[Dict[str, Any]]:
        return [{**m, "groups": [g for g in m["groups"] if g["kind"] == "frozen"]} for m in self._own._maps()]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the encoder's rows: those of the row of the batch with the most."""
        if self._batch is not None:
            return encoder_length(self._batch)
        return int((self._session or {}).get("encoder", 0))


def settings_of_pair(cache: Any) -> Settings:
    """Returns the settings of a store for an empty cache that was given."""
    if not isinstance(cache, EncoderDecoderCache):
        return cast(Settings, cache._settings)
    cross = cache.cross_attention_cache._settings
    return replace(cache.self_attention_cache._settings, cross_cache_implementation=cross.cache_implementation,
                   cross_cache_config=cross.cache_config, max_encoder_len=cross.max_cache_len)


def pair_of(settings: Settings, batch: Batch, torch: bool, config: Any, into: Any = None) -> Any:
    """Makes an EncoderDecoderCache of a batch, or makes the one that was given hold it."""
    pair = into if isinstance(into, EncoderDecoderCache) else EncoderDecoderCache(DynamicCache(), DynamicCache())
    own = pair.self_attention_cache
    own._batch, own._torch = batch, torch
    own._settings, own.config = settings, config
    pair.cross_attention_cache = CrossCache(own)
    pair._torch = torch
    pair.is_updated = {i: True for i in range(len(own))}
    return pair


def beside(own: Cache) -> EncoderDecoderCache:
    """Makes an EncoderDecoderCache of a decoder's cache whose sequences have the encoder's rows."""
    pair = EncoderDecoderCache(own, CrossCache(own))
    pair.is_updated = {i: True for i in range(len(own))}
    return pair


def empty_pair(settings: Settings) -> EncoderDecoderCache:
    """Makes an empty EncoderDecoderCache with the settings of a store."""
    own, cross = DynamicCache._of(settings, None), DynamicCache._of(Settings(
        cache_implementation=settings.cross_cache_implementation, cache_config=settings.cross_cache_config,
        max_cache_len=settings.max_encoder_len), None)
    return EncoderDecoderCache(own, cross)


class Seq2SeqModel(PreTrainedModel):
    """A model whose decoder reads what an encoder made of input_ids."""

    _seq2seq = True

    if TYPE_CHECKING:
        @overload
        def generate(self, inputs: Any = None, generation_config: Options = None, logits_processor: Hooks = None,
                     stopping_criteria: Hooks = None, *, return_dict_in_generate: Optional[Literal[False]] = None,
                     **kwargs: Unpack[GenerateArguments]) -> Array: ...

        @overload
        def generate(self, inputs: Any = None, generation_config: Options = None, logits_processor: Hooks = None,
                     stopping_criteria: Hooks = None, *, return_dict_in_generate: Literal[True] = ...,
                     **kwargs: Unpack[GenerateArguments]) -> EncoderDecoderOutput: ...

        @overload
        def generate(self, inputs: Any = None, generation_config: Options = None, logits_processor: Hooks = None,
                     stopping_criteria: Hooks = None, *, return_dict_in_generate: Optional[bool] = ...,
                     **kwargs: Unpack[GenerateArguments]) -> Union[Array, EncoderDecoderOutput]: ...

        def generate(self, *args: Any, **kwargs: Any) -> Any: ...

    def get_encoder(self) -> Encoder:
        """Returns the encoder; what it returns is for ``encoder_outputs=``."""
        return Encoder(self)

    @overload  # type: ignore[override]
    def forward(self, input_ids: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,
                decoder_attention_mask: Any = None, encoder_outputs: Optional[EncoderInput] = None,
                past_key_values: "Past" = None, *, return_dict: Optional[Literal[True]] = None,
                **kwargs: "Unpack[Seq2SeqArguments]") -> Seq2SeqLMOutput: ...

    @overload
    def forward(self, input_ids: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,
                decoder_attention_mask: Any = None, encoder_outputs: Optional[EncoderInput] = None,
                past_key_values: "Past" = None, *, return_dict: Literal[False] = ...,
                **kwargs: "Unpack[Seq2SeqArguments]") -> Tuple[Any, ...]: ...

    def forward(self, input_ids: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,
                decoder_attention_mask: Any = None, encoder_outputs: Any = None, past_key_values: Any = None, *,
                use_cache: Optional[bool] = None, output_attentions: Optional[bool] = None,
                output_hidden_states: Optional[bool] = None, return_dict: Optional[bool] = None, cache_position: Any = None,
                input_features: Any = None, labels: Any = None, **kwargs: Any) -> Any:
        """Computes the logits of decoder_input_ids [batch, n] after the cached tokens, and appends them to the cache.

        Without a cache, or with an empty one, the encoder reads input_ids [batch, tokens] (of a speech model
        input_features f32 [batch, bins, frames]), or encoder_outputs, which get_encoder() made; a cache that holds its
        rows needs them no more.  labels [batch, n]: adds ``loss``, the mean of -log p of the labels that are not -100; without
        decoder_input_ids the decoder gets the labels behind its start token.

        Returns ``logits`` f32 [batch, n, vocab] and ``past_key_values``, an EncoderDecoderCache; with
        output_hidden_states ``decoder_hidden_states``, [batch, n, hidden] of the embedding and each layer; with
        output_attentions ``decoder_attentions`` [batch, heads, n, cached + n] and ``cross_attentions``
        [batch, heads, n, encoder rows] of each layer.  The encoder's own states and attentions are None.
        """
        for name, value in kwargs.items():
            if value is not None and value is not False:
                raise TypeError(f"forward() of a model with an encoder takes no argument {name!r}")
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self._behind_start(labels)
        if decoder_input_ids is None:
            raise ArgumentError("forward() of a model with an encoder needs decoder_input_ids")
        call_ = _Forward(self, decoder_input_ids, None, decoder_attention_mask, None, cache_position, 0)
        given = take_input(self._handle, encoder_outputs, input_ids, attention_mask, input_features)
        cache = past_key_values
        if cache is not None and not isinstance(cache, Cache):
            raise ArgumentError("past_key_values of a model with an encoder is an EncoderDecoderCache")
        held = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        with held._use() if held is not None else nullcontext():
            cache, batch = self._ready(cache, held, given, call_)
            with batch.store.locked():
                out = call_.run(batch, bool(output_hidden_states), bool(output_attentions))
        result = Seq2SeqLMOutput(logits=out["logits"], past_key_values=None if use_cache is False else cache,
                                 decoder_hidden_states=out["hidden_states"], decoder_attentions=out["attentions"],
                                 cross_attentions=out["cross_attentions"])
        if labels is not None:
            result = Seq2SeqLMOutput(loss=_loss(result.logits, labels, 0), **result)
        return result.to_tuple() if return_dict is False else result

    if TYPE_CHECKING:
        __call__ = forward  # type: ignore[assignment]

    def _behind_start(self, labels: Any) -> Any:
        """Returns the ids that a decoder reads to write labels: its start token, and all but the last label."""
        ids = ids_2d(labels, "labels").copy()
        ids[ids == -100] = getattr(self.config, "pad_token_id", None) or 0
        start = np.full((ids.shape[0], 1), max(CallOptions(self._handle, {}).struct.decoder_start_token_id, 0), np.int32)
        return like(np.concatenate([start, ids[:, :-1]], 1), is_torch(labels))

    def _ready(self, cache: Any, held: Optional[Cache], given: Optional[EncoderInput], call_: _Forward) -> Tuple[Any, Batch]:
        """Returns the cache of a forward(), and its batch, whose rows the encoder has filled."""
        batch = held._batch if held is not None else None
        if held is not None and held._session is not None:  # a pickle
            batch = held._bind(self._handle, self._defaults, call_.rows)
        if held is None or batch is None:
            if held is not None and held.is_initialized:
                raise ArgumentError("a cache of legacy arrays cannot continue a model with an encoder; use the one that "
                                    "forward() or generate() returned")
            settings = (Settings() if cache is None else settings_of_pair(cache)).over(self._defaults)
            batch = self._encode(settings, given, call_.rows)
            return pair_of(settings, batch, call_.torch, self.config, cache), batch
        if not batch.length and given is not None:  # a crop to 0 left the rows of the last input
            held._batch = batch = self._encode(held._settings.over(self._defaults), given, call_.rows)
        elif batch.store.model is not self._handle:
            raise ArgumentError("the cache holds rows of another model; every model needs a cache of its own")
        elif batch.rows != call_.rows:
            raise ArgumentError(f"the input has {call_.rows} rows, the cache has {batch.rows}")
        return cache, batch

    def _encode(self, settings: Settings, given: Optional[EncoderInput], rows: int) -> Batch:
        if given is None:
            raise ArgumentError(f"the cache has no rows of the encoder yet; give {self.main_input_name}")
        if given.rows != rows:
            raise ArgumentError(f"{self.main_input_name} has {given.rows} rows, decoder_input_ids {rows}")
        batch = Batch.open(self._handle, settings, rows)
        given.encode(batch)
        return batch


class AutoModelForSeq2SeqLM(Seq2SeqModel):
    """Opens any model with an encoder that reads ids."""


__all__: List[str] = ["AutoModelForSeq2SeqLM", "Seq2SeqModel"]
