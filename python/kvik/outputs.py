"""Results of forward() and generate(): attributes, keys and positions at once, as Transformers returns them."""
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Tuple

from . import display

if TYPE_CHECKING:
    from ._typing import Array
    from .cache_utils import EncoderDecoderCache
    from .caches import Cache


class Later:
    """An entry of an output that is computed when it is first read."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __repr__(self) -> str:
        return "<computed when it is read>"


class ModelOutput(Dict[str, Any]):
    """A dictionary whose entries are attributes: ``out.logits``, ``out["logits"]``, ``out[0]``.

    An entry that is None is an attribute but no key.
    """

    _fields: Tuple[str, ...] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({k: v for k, v in kwargs.items() if v is not None})
        object.__setattr__(self, "_given", tuple(kwargs))

    # To a type checker, what a class below declares is there as if it had been asked for; what was not is None.  Arrays are
    # properties, because pyright takes an attribute of a class with the base Any for a descriptor.
    if not TYPE_CHECKING:
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
        if not isinstance(key, str):
            return self.to_tuple()[key]
        value = dict.__getitem__(self, key)
        if isinstance(value, Later):
            value = value.make()
            dict.__setitem__(self, key, value)
        return value

    def to_tuple(self) -> Tuple[Any, ...]:
        """Returns the entries that are not None."""
        return tuple(self[name] for name in self)

    # What reads values of a dictionary without __getitem__.

    def values(self) -> Any:
        """Returns the entries that are not None."""
        self.to_tuple()
        return super().values()

    def items(self) -> Any:
        """Returns the names and entries that are not None."""
        self.to_tuple()
        return super().items()

    def get(self, key: str, default: Any = None) -> Any:
        """Returns an entry, or the default if it is None."""
        return self[key] if key in self else default

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def _repr_html_(self) -> str:
        return display.output_html(self)

    def __reduce__(self) -> Any:
        return _restore, (type(self), dict(self))


def _restore(kind: Any, values: Any) -> Any:
    return kind(**values)


class CausalLMOutputWithPast(ModelOutput):
    """Of forward(): ``logits`` [batch, tokens, vocab], ``past_key_values``, ``hidden_states``, ``attentions``."""

    _fields = ("loss", "logits", "past_key_values", "cache_params", "hidden_states", "attentions")
    if TYPE_CHECKING:
        @property
        def loss(self) -> Array: ...
        @property
        def logits(self) -> Array: ...
        past_key_values: Cache
        cache_params: Cache
        hidden_states: Tuple[Array, ...]
        attentions: Tuple[Array, ...]


class BaseModelOutputWithPast(ModelOutput):
    """Of a model without a head: ``last_hidden_state`` [batch, tokens, hidden], and the rest as above."""

    _fields = ("last_hidden_state", "past_key_values", "cache_params", "hidden_states", "attentions")
    if TYPE_CHECKING:
        @property
        def last_hidden_state(self) -> Array: ...
        past_key_values: Cache
        cache_params: Cache
        hidden_states: Tuple[Array, ...]
        attentions: Tuple[Array, ...]


class Seq2SeqLMOutput(ModelOutput):
    """Of forward() of a model with an encoder: ``logits`` [batch, tokens, vocab], ``past_key_values``,
    ``encoder_last_hidden_state``, and by request ``decoder_hidden_states``, ``decoder_attentions``, ``cross_attentions``,
    ``encoder_hidden_states``, ``encoder_attentions``."""

    _fields = ("loss", "logits", "past_key_values", "decoder_hidden_states", "decoder_attentions", "cross_attentions",
               "encoder_last_hidden_state", "encoder_hidden_states", "encoder_attentions")
    if TYPE_CHECKING:
        @property
        def loss(self) -> Array: ...
        @property
        def logits(self) -> Array: ...
        past_key_values: EncoderDecoderCache  # pyright: ignore[reportIncompatibleVariableOverride]
        decoder_hidden_states: Tuple[Array, ...]
        decoder_attentions: Tuple[Array, ...]
        cross_attentions: Tuple[Array, ...]
        @property
        def encoder_last_hidden_state(self) -> Array: ...
        encoder_hidden_states: Tuple[Array, ...]
        encoder_attentions: Tuple[Array, ...]


class GenerateOutput(ModelOutput):
    """Of generate(return_dict_in_generate=True).

    ``sequences`` [rows, tokens]; ``scores`` and ``logits``: a tuple of [rows, vocab] per new token;
    ``sequences_scores``, ``beam_indices`` with beams; ``past_key_values``.  With output_attentions and
    output_hidden_states, ``attentions`` and ``hidden_states``: for each new token a tuple with an array for each layer,
    [rows, heads, n, cached + n] and [rows, n, hidden], where n is the prompt's length for the first, else 1; of models with
    an encoder ``decoder_attentions``, ``cross_attentions``, ``decoder_hidden_states``, and once, with an array for each layer,
    ``encoder_attentions`` and ``encoder_hidden_states``.  They are computed again behind the
    generation, with the same bits, and not with beams.  Of kvik: ``texts``, ``finish_reasons``, ``stats``.
    """

    _fields = ("sequences", "sequences_scores", "scores", "logits", "beam_indices", "encoder_attentions", "encoder_hidden_states",
               "attentions", "decoder_attentions", "cross_attentions", "hidden_states", "decoder_hidden_states", "past_key_values",
               "texts", "finish_reasons", "stats")
    if TYPE_CHECKING:
        @property
        def sequences(self) -> Array: ...
        @property
        def sequences_scores(self) -> Array: ...
        scores: Tuple[Array, ...]
        logits: Tuple[Array, ...]
        @property
        def beam_indices(self) -> Array: ...
        encoder_attentions: Tuple[Array, ...]
        encoder_hidden_states: Tuple[Array, ...]
        attentions: Tuple[Tuple[Array, ...], ...]
        decoder_attentions: Tuple[Tuple[Array, ...], ...]
        cross_attentions: Tuple[Tuple[Array, ...], ...]
        hidden_states: Tuple[Tuple[Array, ...], ...]
        decoder_hidden_states: Tuple[Tuple[Array, ...], ...]
        past_key_values: Cache
        cache_params: Cache
        texts: List[str]
        finish_reasons: List[str]
        stats: Dict[str, float]


class GenerateDecoderOnlyOutput(GenerateOutput):
    """Of models without an encoder, without beams."""


class GenerateBeamDecoderOnlyOutput(GenerateOutput):
    """Of models without an encoder, with beams."""


class GenerateEncoderDecoderOutput(GenerateOutput):
    """Of models with an encoder, without beams."""

    if TYPE_CHECKING:
        past_key_values: EncoderDecoderCache  # pyright: ignore[reportIncompatibleVariableOverride]


class GenerateBeamEncoderDecoderOutput(GenerateOutput):
    """Of models with an encoder, with beams."""

    if TYPE_CHECKING:
        past_key_values: EncoderDecoderCache  # pyright: ignore[reportIncompatibleVariableOverride]
