"""Results of forward() and generate(): attributes, keys and positions at once, as Transformers returns them."""
from typing import Any, Dict, Iterator, Tuple


class ModelOutput(Dict[str, Any]):
    """A dictionary whose entries are attributes: ``out.logits``, ``out["logits"]``, ``out[0]``.

    An entry that is None is an attribute but no key.
    """

    _fields: Tuple[str, ...] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({k: v for k, v in kwargs.items() if v is not None})
        object.__setattr__(self, "_given", tuple(kwargs))

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.__dict__.get("_given", ()) or name in type(self)._fields:
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self)}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self.pop(name, None)

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(self, key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> Tuple[Any, ...]:
        """Returns the entries that are not None."""
        return tuple(self.values())

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def __reduce__(self) -> Any:
        return _restore, (type(self), dict(self))


def _restore(kind: Any, values: Any) -> Any:
    return kind(**values)


class CausalLMOutputWithPast(ModelOutput):
    """Of forward(): ``logits`` [batch, tokens, vocab], ``past_key_values``, ``hidden_states``, ``attentions``."""

    _fields = ("loss", "logits", "past_key_values", "cache_params", "hidden_states", "attentions")


class BaseModelOutputWithPast(ModelOutput):
    """Of a model without a head: ``last_hidden_state`` [batch, tokens, hidden], and the rest as above."""

    _fields = ("last_hidden_state", "past_key_values", "cache_params", "hidden_states", "attentions")


class Seq2SeqLMOutput(ModelOutput):
    """Of forward() of a model with an encoder: ``logits`` [batch, tokens, vocab], ``past_key_values``, and by request
    ``decoder_hidden_states``, ``decoder_attentions``, ``cross_attentions``."""

    _fields = ("loss", "logits", "past_key_values", "decoder_hidden_states", "decoder_attentions", "cross_attentions",
               "encoder_last_hidden_state", "encoder_hidden_states", "encoder_attentions")


class GenerateOutput(ModelOutput):
    """Of generate(return_dict_in_generate=True).

    ``sequences`` [rows, tokens]; ``scores`` and ``logits``: a tuple of [rows, vocab] per new token;
    ``sequences_scores``, ``beam_indices`` with beams; ``past_key_values``.  With output_attentions and
    output_hidden_states, ``attentions`` and ``hidden_states``: for each new token a tuple with an array for each layer,
    [rows, heads, n, cached + n] and [rows, n, hidden], where n is the prompt's length for the first, else 1; of models with
    an encoder ``decoder_attentions``, ``cross_attentions`` and ``decoder_hidden_states``.  They are computed again behind the
    generation, with the same bits, and not with beams.  Of kvik: ``texts``, ``finish_reasons``, ``stats``.
    """

    _fields = ("sequences", "sequences_scores", "scores", "logits", "beam_indices", "encoder_attentions", "encoder_hidden_states",
               "attentions", "decoder_attentions", "cross_attentions", "hidden_states", "decoder_hidden_states", "past_key_values",
               "texts", "finish_reasons", "stats")


class GenerateDecoderOnlyOutput(GenerateOutput):
    """Of models without an encoder, without beams."""


class GenerateBeamDecoderOnlyOutput(GenerateOutput):
    """Of models without an encoder, with beams."""


class GenerateEncoderDecoderOutput(GenerateOutput):
    """Of models with an encoder, without beams."""


class GenerateBeamEncoderDecoderOutput(GenerateOutput):
    """Of models with an encoder, with beams."""
