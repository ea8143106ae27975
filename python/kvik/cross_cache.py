"""The rows of an encoder as a cache, and the pair of caches of a model with an encoder.

The library keeps the encoder's rows in the sequences of the decoder, so the second cache of a pair is a view of the first.
"""
from dataclasses import replace
from typing import Any, Dict, List, Optional, cast

from . import legacy
from .cache_files import encoder_length
from .cache_utils import DynamicCache, EncoderDecoderCache
from .cache_states import State
from .caches import _LIVE, Cache
from .errors import ArgumentError, UnsupportedError
from .layer_views import Edits
from .pickles import of
from .store import Batch, Settings


class CrossCache(DynamicCache):
    """The rows of the encoder in the sequences of the decoder's cache.  What reorders or removes those does it here."""

    _pickled = {"_own": of(Cache), "_settings": of(Settings)}

    def __init__(self, own: Cache) -> None:
        self._own = own
        super().__init__()
        self._torch = own._torch

    @property
    def _state(self) -> State:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._own._state

    @_state.setter
    def _state(self, value: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        pass

    def _use(self) -> Any:
        return self._own._use()

    def settle(self, layer: Optional[int] = None) -> None:
        """Raises where rows were set: they are read again by every row of the batch, and stay as the encoder made them."""
        if self._edits.changed():
            self._edits = Edits()
            raise ArgumentError("the rows of an encoder cannot be set; change what the encoder is given, or encoder_outputs")

    def __getstate__(self) -> Dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _LIVE}  # the rows are in those of _own

    def beside(self, own: Cache) -> Any:
        """Returns the same for a fork of the decoder's cache."""
        return CrossCache(own)

    def fork(self) -> Any:
        """Returns the same for a fork of the decoder's cache, which this makes."""
        return CrossCache(self._own.fork())

    __copy__ = fork

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: a model of kvik has computed these rows."""
        raise ArgumentError("the rows of an encoder lie in the decoder's cache of a model of kvik, and another model cannot append to "
                            "them; give it an EncoderDecoderCache of its own")

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

    def _layers(self, settled: bool = True) -> legacy.Layers:
        if not self._state.is_of_model:
            return []
        with self._use(), self._state.read() as batch:
            return legacy.cross_of_batch(batch)

    def _maps(self) -> List[Dict[str, Any]]:
        return [{**m, "groups": [g for g in m["groups"] if g["kind"] == "frozen"]} for m in self._own._maps()]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the encoder's rows: those of the row of the batch with the most."""
        if self._batch is not None:
            return encoder_length(self._batch)
        return int((self._state.session or {}).get("encoder", 0))


class HeardCache(CrossCache):
    """The rows of an encoder beside a decoder's cache whose update() a program has written: in sequences of their own, without a text."""

    def beside(self, own: Cache) -> Any:
        """Returns a fork: the decoder's cache has none of these rows."""
        return self.fork()

    def fork(self) -> Any:
        """Returns the same rows in sequences of their own."""
        return HeardCache(self._own.fork())

    __copy__ = fork

    def reorder_cache(self, beam_idx: Any) -> None:
        """Gives row i the contents of row beam_idx[i]."""
        self._own.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row."""
        self._own.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Any) -> None:
        """Makes the batch the rows of these indices."""
        self._own.batch_select_indices(indices)

    def reset(self) -> None:
        """Removes the rows."""
        self._own.reset()

    def __getstate__(self) -> Dict[str, Any]:
        raise UnsupportedError("the rows of an encoder beside a written cache are not pickled; pickle cache.to_legacy_cache()")


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
    own._take(batch, torch)
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
