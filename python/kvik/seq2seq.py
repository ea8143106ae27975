"""Models with an encoder: generate() and forward() over the two caches of a decoder."""
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, List, Literal, Optional, Tuple, Union, overload

import numpy as np

from ._arrays import ids_2d, is_torch, like
from .cache_utils import DynamicCache, EncoderDecoderCache
from .caches import Cache
from .cross_cache import HeardCache, pair_of, settings_of_pair
from .encoder import Encoder, EncoderInput, shown_of, take_input
from .errors import ArgumentError
from .generation.options import Options as CallOptions
from .kept_rows import kept_settings
from .model import PreTrainedModel, _loss
from .outputs import Seq2SeqLMOutput
from .step import Step
from .store import Batch, Settings
from .written_caches import calls_update

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import Array, EncoderDecoderOutput, GenerateArguments, Hooks, Options, Past, Seq2SeqArguments


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

        def generate(self, *args: Any, **kwargs: Any) -> Any: ...  # pyright: ignore[reportIncompatibleMethodOverride]

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
                past_key_values: "Past" = None, *, return_dict: Literal[False],
                **kwargs: "Unpack[Seq2SeqArguments]") -> Tuple[Any, ...]: ...

    def forward(self, input_ids: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,  # pyright: ignore[reportIncompatibleMethodOverride]
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
        [batch, heads, n, encoder rows] of each layer.  Of an encoder that this call gave its input ``encoder_last_hidden_state``, and
        by the same requests ``encoder_hidden_states`` and ``encoder_attentions``, which are computed when they are first read.
        """
        for name, value in kwargs.items():
            if value is not None and value is not False:
                raise TypeError(f"forward() of a model with an encoder takes no argument {name!r}")
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self._behind_start(labels)
        if decoder_input_ids is None:
            raise ArgumentError("forward() of a model with an encoder needs decoder_input_ids")
        call_ = Step(self, decoder_input_ids, None, decoder_attention_mask, None, cache_position, 0)
        given = take_input(self, encoder_outputs, input_ids, attention_mask, input_features)
        cache = past_key_values
        keep = cache is not None or self._heeded("use_cache", use_cache, True)
        if cache is not None and not isinstance(cache, Cache):
            raise ArgumentError("past_key_values of a model with an encoder is an EncoderDecoderCache")
        held = cache
        if isinstance(cache, EncoderDecoderCache):
            held = cache.self_attention_cache
            cache.cross_attention_cache.settle()
        written = calls_update(cache, self._handle)
        hidden = self._heeded("output_hidden_states", output_hidden_states, False)
        attentions = self._heeded("output_attentions", output_attentions, False)
        with held._use() if held is not None else nullcontext():
            if held is not None and written and isinstance(cache, EncoderDecoderCache):
                batch = self._heard_beside(cache, given, call_)
                out = call_.run_kept(held, hidden, attentions, batch)
            else:
                cache, batch = self._ready(cache, held, given, call_)
                with batch.store.locked():
                    out = call_.run(batch, hidden, attentions)
        result = Seq2SeqLMOutput(logits=out["logits"], past_key_values=cache if keep else None,
                                 decoder_hidden_states=out["hidden_states"], decoder_attentions=out["attentions"],
                                 cross_attentions=out["cross_attentions"], **shown_of(given, batch.store.settings, hidden, attentions))
        if labels is not None:
            result = Seq2SeqLMOutput(loss=_loss(result.logits, labels, 0), **result)
        return result if self._heeded("return_dict", return_dict, True) else result.to_tuple()

    if TYPE_CHECKING:
        __call__ = forward  # type: ignore[assignment]

    def _behind_start(self, labels: Any) -> Any:
        """Returns the ids that a decoder reads to write labels: its start token, and all but the last label."""
        ids = ids_2d(labels, "labels").copy()
        ids[ids == -100] = getattr(self.config, "pad_token_id", None) or 0
        start = np.full((ids.shape[0], 1), max(CallOptions(self._handle, {}).struct.decoder_start_token_id, 0), np.int32)
        return like(np.concatenate([start, ids[:, :-1]], 1), is_torch(labels))

    def _ready(self, cache: Any, held: Optional[Cache], given: Optional[EncoderInput], call_: Step) -> Tuple[Any, Batch]:
        """Returns the cache of a forward(), and its batch, whose rows the encoder has filled."""
        batch = held._batch if held is not None else None
        if held is not None and held._state.session is not None:  # a pickle
            batch = held._bind(self._handle, self._defaults, call_.rows)
        if held is None or batch is None:
            if held is not None and held.is_initialized:
                raise ArgumentError("a cache of legacy arrays cannot continue a model with an encoder; use the one that "
                                    "forward() or generate() returned")
            settings = (Settings() if cache is None else settings_of_pair(cache)).over(self._defaults)
            batch = self._encode(settings, given, call_.rows)
            return pair_of(settings, batch, call_.torch, self.config, cache), batch
        if not batch.length and given is not None:  # a crop to 0 left the rows of the last input
            batch = self._encode(held._settings.over(self._defaults), given, call_.rows)
            held._take(batch, held._torch)
        elif batch.store.model is not self._handle:
            raise ArgumentError("the cache holds rows of another model; every model needs a cache of its own")
        elif batch.rows != call_.rows:
            raise ArgumentError(f"the input has {call_.rows} rows, the cache has {batch.rows}")
        return cache, batch

    def _heard_beside(self, cache: EncoderDecoderCache, given: Optional[EncoderInput], call_: Step) -> Batch:
        """Returns the batch with the rows of the encoder, for a decoder's cache whose update() is called."""
        cross, pair = cache.cross_attention_cache, settings_of_pair(cache)
        batch = cross._batch if isinstance(cross, HeardCache) else None
        if batch is None or (given is not None and not cache.get_seq_length()):
            if cross.is_initialized and batch is None:
                raise ArgumentError("the rows of an encoder in this cache are not of this model; give an empty DynamicCache beside the "
                                    "cache whose update() is called")
            settings = replace(kept_settings(self._defaults, call_.rows, call_.n), max_encoder_len=pair.max_encoder_len,
                               cross_cache_implementation=pair.cross_cache_implementation, cross_cache_config=pair.cross_cache_config)
            batch = self._encode(settings, given, call_.rows)
            cache.cross_attention_cache = HeardCache(DynamicCache._of(settings, batch, call_.torch, self.config))
            cache.is_updated = {i: True for i in range(len(cache.cross_attention_cache))}
        elif batch.store.model is not self._handle:
            raise ArgumentError("the cache holds rows of another model; every model needs a cache of its own")
        elif batch.rows != call_.rows:
            raise ArgumentError(f"the input has {call_.rows} rows, the cache has {batch.rows}")
        return batch

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
