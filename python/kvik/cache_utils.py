"""The caches, by the names and with the arguments of Transformers.

Versions of Transformers differ in the arguments of some classes; both forms work, by name and by position.  ``device`` is
accepted and means this machine's CPU.  ``dtype`` is recorded: how rows are kept follows from the model (rows of 16 bits for
weights of 16 bits or fewer, else f32), or from the first update() of a cache without a model.  ``max_batch_size`` is
recorded; a batch of any size works.
"""
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Type, TypeVar, Union

from . import display, legacy
from .cache_layers import heir_of
from .cache_configs import CacheConfig, QuantizedCacheConfig as QuantizedCacheConfig, StaticCacheConfig as StaticCacheConfig
from .caches import Cache as Cache  # programs import it from here
from .configuration import PretrainedConfig
from .errors import ArgumentError
from .layer_views import (CacheLayer, CacheLayerMixin as CacheLayerMixin, DummyLayer as DummyLayer, DynamicIndexedLayer as DynamicIndexedLayer,
                          DynamicLayer as DynamicLayer, DynamicSlidingWindowLayer, Fp8QuantizedLayer, HQQQuantizedLayer, LinearAttentionAndFullAttentionLayer as
                          LinearAttentionAndFullAttentionLayer, LinearAttentionAndSlidingWindowAttentionLayer as
                          LinearAttentionAndSlidingWindowAttentionLayer, LinearAttentionLayer, QuantizedLayer, QuantoQuantizedLayer as
                          QuantoQuantizedLayer, StaticLayer, StaticSlidingWindowLayer)
from .layered_cache import LayeredCache as LayeredCache
from .pickles import of

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import CacheArguments, QuantizedArguments, StaticArguments
    from ._options import CacheSettings

_P = TypeVar("_P", bound="EncoderDecoderCache")


def _window(config: Any) -> Optional[int]:
    get = getattr(config, "get_text_config", None)
    return getattr(get(decoder=True) if get else config, "sliding_window", None)


def _context(config: Any) -> Optional[int]:
    get = getattr(config, "get_text_config", None)
    return getattr(get(decoder=True) if get else config, "max_position_embeddings", None)


def _with_windows(windows: List[Optional[int]]) -> PretrainedConfig:
    """Returns a configuration of layers with these windows; None: a layer without one."""
    known = {w for w in windows if w is not None}
    if len(known) > 1:
        raise ArgumentError(f"layers with windows of {min(known)} and {max(known)}: the windows of a cache have one length")
    return PretrainedConfig(num_hidden_layers=len(windows), sliding_window=max(known, default=None),
                            layer_types=["sliding_attention" if w else "full_attention" for w in windows])


class DynamicCache(Cache):
    """Keeps the keys and values of a text, so that model.generate() and model() compute new tokens alone.

    ``cache = DynamicCache()``, then ``model.generate(ids, past_key_values=cache)``: the next call with a longer text that begins
    alike goes on from it.  ``copy.deepcopy(cache)`` or ``cache.fork()`` shares it, ``cache.crop(n)`` cuts it to n tokens,
    ``cache.save(path)`` keeps it on disk, ``cache.memory()`` tells its bytes, ``cache.get_seq_length()`` its tokens, and
    ``cache.reset()`` empties it.  It grows with the text; layers with a window keep what their next token sees.

    cache_memory: a limit, such as "64M"; on_full="offload" then moves to disk what is beyond it.
    offloading: full pages live on disk and stream through memory layer by layer; offload_only_non_sliding leaves layers
    with a window in memory.  ddp_cache_data: an iterable of (keys, values) per layer to begin with.
    """

    _implementation = "dynamic"

    def __init__(self, ddp_cache_data: Any = None, config: Any = None, offloading: bool = False,
                 offload_only_non_sliding: bool = False, num_hidden_layers: Optional[int] = None,
                 **arguments: "Unpack[CacheArguments]") -> None:
        kwargs: Dict[str, Any] = {**arguments}
        data = None
        if isinstance(ddp_cache_data, PretrainedConfig):
            config = ddp_cache_data
        elif ddp_cache_data is not None and not isinstance(ddp_cache_data, int):
            data = ddp_cache_data
        data = kwargs.pop("_distributed_cache_data", data)
        layers = None if data is None else list(data)
        if config is None and layers and any(len(layer) > 2 and layer[2] is not None for layer in layers):
            config = _with_windows([int(layer[2]) if len(layer) > 2 and layer[2] is not None else None for layer in layers])
        if offloading:
            kwargs["cache_implementation"] = "offloaded"
            if offload_only_non_sliding:
                kwargs["cache_config"] = {**(kwargs.get("cache_config") or {}), "offload_only_non_sliding": True}
        super().__init__(config, **kwargs)
        layers = layers if layers and any(layer[0] is not None for layer in layers) else None
        if layers:
            self._hold([layer[:2] for layer in layers])


class OffloadedCache(DynamicCache):
    """A dynamic cache whose full pages live on disk.  Its results are those of DynamicCache, bit for bit.

    cache_memory: the most bytes in memory (an int, or "64M").  spill_dir: the directory of the unlinked file.
    """

    _implementation = "offloaded"

    def __init__(self, config: Any = None, **kwargs: "Unpack[CacheArguments]") -> None:
        Cache.__init__(self, config, **kwargs)


class StaticCache(Cache):
    """Reserves max_cache_len rows when a sequence begins, so that later steps find room.

    Where prompt and new tokens need more than max_cache_len, generate() raises OutOfMemoryError before the first token;
    forward() raises LimitError at the first row too many.  The cache is then as it was before the call.  max_cache_len
    None: the model's context.  ``StaticCache(config, max_cache_len)`` and ``StaticCache(config, batch_size,
    max_cache_len, device, dtype)`` both work.
    """

    _implementation = "static"
    _offloaded = "offloaded_static"
    is_compileable = True

    def __init__(self, config: Any, *args: Any, offloading: bool = False, offload_only_non_sliding: bool = True,
                 **arguments: "Unpack[StaticArguments]") -> None:
        kwargs = _static_arguments(type(self).__name__, args, {**arguments})
        offloading = kwargs.pop("offloading", offloading)
        offload_only_non_sliding = kwargs.pop("offload_only_non_sliding", offload_only_non_sliding)
        self._max_batch_size = kwargs.pop("max_batch_size", None)
        kwargs.pop("layer_device_map", None)
        kwargs.pop("offload_device", None)
        if kwargs.get("max_cache_len") is None and "max_cache_len" not in str(kwargs.get("cache_config") or ""):
            kwargs["max_cache_len"] = _context(config)
        most: Any = kwargs.get("max_cache_len")
        if most is not None and int(most) < 1:
            raise ValueError(f"max_cache_len={most}: at least 1")
        if offloading:
            kwargs["cache_implementation"] = self._offloaded
            if not offload_only_non_sliding:
                kwargs["cache_config"] = {**(kwargs.get("cache_config") or {}), "offload_only_non_sliding": False}
        super().__init__(config, **kwargs)

    def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]:
        """Returns max_cache_len."""
        return self._settings.max_cache_len


def _static_arguments(name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Sorts positional arguments: (max_cache_len) of version 5, or (batch_size, max_cache_len, device, dtype)."""
    if len(args) == 1 and "max_cache_len" not in kwargs and not isinstance(args[0], str):
        names: Tuple[str, ...] = ("max_cache_len",)
    elif len(args) >= 2 and isinstance(args[1], bool):
        names = ("max_cache_len", "offloading", "offload_only_non_sliding")
    else:
        names = ("max_batch_size", "max_cache_len", "device", "dtype", "max_batch_size_2", "layer_device_map")
    if len(args) > len(names):
        raise TypeError(f"{name} got {len(args)} positional arguments after config; at most {len(names)}")
    out = dict(kwargs)
    out.update(zip(names, args))
    batch = [out.pop(k, None) for k in ("max_batch_size", "batch_size", "max_batch_size_2")]
    out["max_batch_size"] = next((b for b in batch if b is not None), None)
    return out


class OffloadedStaticCache(StaticCache):
    """A static cache whose full pages live on disk; layers with a window stay in memory."""

    _implementation = "offloaded_static"


class SlidingWindowCache(StaticCache):
    """Keeps the last ``sliding_window`` tokens of every layer.  The configuration must have a window."""

    _implementation = "sliding_window"

    def __init__(self, config: Any, *args: Any, **kwargs: "Unpack[StaticArguments]") -> None:
        window = _window(config)
        if not window:
            raise ValueError("SlidingWindowCache needs a configuration with sliding_window, and this one has none; "
                             "DynamicCache() is for models with full attention")
        super().__init__(config, *args, **kwargs)
        self._window_length = window

    def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]:
        """Returns the window, or max_cache_len if that is lower."""
        most = self._settings.max_cache_len
        return self._window_length if most is None else min(self._window_length, most)


class HybridCache(StaticCache):
    """Keeps each layer by its kind: a window where the layer has one, else max_cache_len rows, reserved first.

    The model must have a layer with a window or a chunk.  DynamicCache keeps layers by their kinds as well, without a reserve.
    """

    _implementation = "hybrid"
    _offloaded = "offloaded_hybrid"


class HybridChunkedCache(HybridCache):
    """As HybridCache, for layers with chunked attention."""

    _implementation = "hybrid_chunked"
    _offloaded = "offloaded_hybrid_chunked"


class OffloadedHybridCache(HybridChunkedCache):
    """As HybridChunkedCache, with full pages on disk."""

    _implementation = "offloaded_hybrid_chunked"


class SinkCache(Cache):
    """Keeps the first num_sink_tokens tokens and the latest, window_length in all, for texts without an end.

    A prompt of any length is accepted; each token sees the sinks and its own window.  Raises ValueError unless
    0 <= num_sink_tokens < window_length, and UnsupportedError at first use with a model whose rows are bound to their positions
    (learned positions, chunks, frequencies that depend on the length).
    """

    _implementation = "sink"

    def __init__(self, window_length: int, num_sink_tokens: int, **arguments: "Unpack[CacheArguments]") -> None:
        kwargs: Dict[str, Any] = {**arguments}
        if not 0 <= int(num_sink_tokens) < int(window_length):
            raise ValueError(f"num_sink_tokens={num_sink_tokens} must be less than window_length={window_length}, which "
                             "counts the sinks")
        self.window_length, self.num_sink_tokens = int(window_length), int(num_sink_tokens)
        given = dict(kwargs.pop("cache_config", None) or {})
        super().__init__(cache_config={**given, "window_length": self.window_length,
                                       "num_sink_tokens": self.num_sink_tokens}, **kwargs)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the tokens that the cache holds: at most window_length."""
        return min(super().get_seq_length(layer_idx), self.window_length)

    def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]:
        """Returns window_length."""
        return self.window_length

    @property
    def seen_tokens(self) -> int:
        """The tokens that the cache has seen, evicted ones included."""
        return Cache.get_seq_length(self)


class QuantizedCache(Cache):
    """Keeps all but the latest rows in nbits bits.

    ``QuantizedCache(backend, config, nbits, axis_key, axis_value, q_group_size, residual_length)``, or
    ``QuantizedCache(QuantizedCacheConfig(...))``.

    backend: "quanto" (nbits 2 or 4) or "hqq" (1, 2, 3, 4 or 8; axes 1 are the better ones), or "fp8" (floats of 8 bits), which
    has none of the other options; or "kvik", the library's own.  axis_key, axis_value: along which
    direction the values of a group lie.  q_group_size: values that share a scale.  residual_length: rows that may stay
    as they are.  Wrong values, and groups that do not fit the heads of the model, raise ArgumentError at first use.
    """

    _implementation = "quantized"
    _backend: Optional[str] = None

    def __init__(self, backend: Any = None, config: Any = None, nbits: Union[int, str, None] = None,
                 axis_key: Optional[int] = None, axis_value: Optional[int] = None, q_group_size: Optional[int] = None,
                 residual_length: Optional[int] = None, cache_config: Any = None, **kwargs: "Unpack[QuantizedArguments]") -> None:
        if isinstance(backend, (CacheConfig, dict)):
            cache_config, backend = backend, None
        elif backend is not None and not isinstance(backend, str):
            raise TypeError(f"backend is 'quanto', 'hqq', 'fp8', 'kvik' or a QuantizedCacheConfig, not {type(backend).__name__}")
        values = dict(cache_config if isinstance(cache_config, dict) else cache_config.to_dict() if cache_config else {})
        given = {"backend": self._backend or backend, "nbits": nbits, "axis_key": axis_key, "axis_value": axis_value,
                 "q_group_size": q_group_size, "residual_length": residual_length}
        values.update({k: v for k, v in given.items() if v is not None})
        super().__init__(config, cache_config=values, **kwargs)
        self.cache_config = values


class QuantoQuantizedCache(QuantizedCache):
    """A quantized cache with the backend quanto.  Takes a configuration of the model, or a QuantizedCacheConfig."""

    _backend = "quanto"

    def __init__(self, config: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(config, (CacheConfig, dict)):
            kwargs["cache_config"], config = config, None
        super().__init__(None, config, *args, **kwargs)


class HQQQuantizedCache(QuantoQuantizedCache):
    """A quantized cache with the backend hqq."""

    _backend = "hqq"


class MambaCache(Cache):
    """The states of a Mamba model; made by generate() and forward() themselves where none is given.

    ``conv_states`` and ``ssm_states`` hold the states of each layer, which have the same bytes after any text.
    """

    _implementation = "dynamic"

    def __init__(self, config: Any, batch_size: Optional[int] = None, dtype: Any = None, device: Any = None,
                 max_batch_size: Optional[int] = None, **kwargs: "Unpack[CacheSettings]") -> None:
        super().__init__(config, device=device, dtype=dtype, **kwargs)
        self._max_batch_size = max_batch_size or batch_size


class HybridMambaAttentionDynamicCache(MambaCache):
    """Keys and values of the attention layers and states of the others, for Jamba and its kind."""


@heir_of("EncoderDecoderCache")
class EncoderDecoderCache(Cache):
    """Two caches: of the decoder's self-attention, and of its attention to the encoder.

    ``EncoderDecoderCache(self_attention_cache, cross_attention_cache)``, or an iterable of (keys, values, cross keys, cross
    values) per layer.  The two may be of different classes; the second: dynamic, static, offloaded or quantized.  crop() cuts the
    decoder's text; the encoder's rows stay.  Raises ValueError or TypeError for anything else.
    """

    _pickled = {**Cache._pickled, "self_attention_cache": of(Cache), "cross_attention_cache": of(Cache)}

    def __init__(self, *caches: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if len(caches) == 1:
            caches = self._of_layers(list(caches[0]))
        elif len(caches) == 0 and kwargs.get("_empty"):
            caches = (DynamicCache(), DynamicCache())
        if len(caches) != 2:
            raise ValueError(f"EncoderDecoderCache takes two caches, or one iterable of layers; got {len(caches)}")
        for cache in caches:
            if not isinstance(cache, Cache):
                raise TypeError(f"EncoderDecoderCache takes caches, not {type(cache).__name__}")
        self.self_attention_cache: Cache = caches[0]
        self.cross_attention_cache: Cache = caches[1]
        self.is_updated: Dict[int, bool] = {i: True for i in range(len(self.cross_attention_cache))
                                            if self.cross_attention_cache.get_seq_length(i)}

    @staticmethod
    def _of_layers(layers: List[Any]) -> Tuple[Any, Any]:
        own, cross = [], []
        for layer in layers:
            if len(layer) not in (2, 4, 6):
                raise ValueError(f"a layer of an encoder-decoder cache has {len(layer)} arrays; expected 4 (keys, values, "
                                 "cross keys, cross values) or 6")
            own.append(layer[:2])
            if len(layer) > 2:
                cross.append(layer[2:4] if len(layer) == 4 else layer[3:5])
        return (DynamicCache.from_legacy_cache(own) if own else DynamicCache(),
                DynamicCache.from_legacy_cache(cross) if cross else DynamicCache())

    @classmethod
    def from_legacy_cache(cls: Type[_P], past_key_values: Any = None, **kwargs: Any) -> _P:
        """Makes a cache of (keys, values, cross keys, cross values) per layer; None makes an empty one."""
        return cls(*cls._of_layers(list(past_key_values or ())), **kwargs)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the tokens of the decoder."""
        return self.self_attention_cache.get_seq_length(layer_idx)

    @property
    def batch_size(self) -> int:
        """The number of rows of the decoder's cache."""
        return self.self_attention_cache.batch_size

    def get_max_cache_shape(self, layer_idx: Optional[int] = 0) -> Optional[int]:
        """Returns the limit of the decoder's text, or None."""
        return self.self_attention_cache.get_max_cache_shape()

    @property
    def is_sliding(self) -> List[bool]:
        """That of the decoder's cache."""
        return self.self_attention_cache.is_sliding

    @property  # type: ignore[misc]
    def layers(self) -> List[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The layers of the decoder's cache."""
        return self.self_attention_cache.layers

    def activate_past_recording(self) -> None:
        """Calls it for the decoder's cache."""
        self.self_attention_cache.activate_past_recording()

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> Tuple[int, int]:
        """Returns those of the decoder's cache."""
        return self.self_attention_cache.get_mask_sizes(query_length, layer_idx)

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: an update names one of the two caches."""
        raise ArgumentError("update self_attention_cache or cross_attention_cache")

    def save(self, path: Any, note: str = "") -> None:
        """Raises: a session file holds a text, and no encoder's rows.  A pickle keeps both."""
        raise ArgumentError("a session file keeps no rows of an encoder; use pickle for this cache")

    def to_legacy_cache(self) -> Tuple[Tuple[Any, ...], ...]:
        """Returns (keys, values, cross keys, cross values) per layer."""
        own, cross = self.self_attention_cache.to_legacy_cache(), self.cross_attention_cache.to_legacy_cache()
        return tuple(layer + (cross[i] if i < len(cross) else ()) for i, layer in enumerate(own))

    def __getitem__(self, layer_idx: int) -> Tuple[Any, ...]:
        return self.self_attention_cache[layer_idx] + (
            self.cross_attention_cache[layer_idx] if layer_idx < len(self.cross_attention_cache) else ())

    def __iter__(self) -> Iterator[Any]:
        for own, cross in zip(self.self_attention_cache, self.cross_attention_cache):
            yield own + cross

    def __len__(self) -> int:
        return len(self.self_attention_cache)

    @property
    def is_initialized(self) -> bool:
        """True if the decoder's cache has been used."""
        return self.self_attention_cache.is_initialized

    def reset(self) -> None:
        """Removes the rows of both caches."""
        self.self_attention_cache.reset()
        self.cross_attention_cache.reset()
        self.is_updated.clear()

    def crop(self, max_length: int) -> None:
        """Crops the decoder's text; the encoder's stays."""
        self.self_attention_cache.crop(max_length)

    def reorder_cache(self, beam_idx: Any) -> None:
        """Reorders the rows of both caches."""
        self.self_attention_cache.reorder_cache(beam_idx)
        self.cross_attention_cache.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats the rows of both caches."""
        self.self_attention_cache.batch_repeat_interleave(repeats)
        self.cross_attention_cache.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Any) -> None:
        """Selects rows of both caches."""
        self.self_attention_cache.batch_select_indices(indices)
        self.cross_attention_cache.batch_select_indices(indices)

    def fork(self: _P) -> _P:
        """Returns a cache with the same contents."""
        copy = super().fork()
        copy.self_attention_cache = self.self_attention_cache.fork()
        cross = self.cross_attention_cache
        beside = getattr(cross, "beside", None)  # rows of an encoder lie in the sequences of the decoder's cache
        copy.cross_attention_cache = beside(copy.self_attention_cache) if beside else cross.fork()
        copy.is_updated = dict(self.is_updated)
        return copy

    def _repr_html_(self) -> str:
        return display.pair_html(self)


def class_of(settings: Any) -> Any:
    """Returns the class of a cache that generate() has made by its name."""
    name = settings.cache_implementation
    return QuantizedCache if name == "quantized" else StaticCache if name and name.endswith(("static", "sliding_window", "hybrid", "hybrid_chunked")) \
        else DynamicCache


def as_cache(value: Any) -> Tuple[Optional[Cache], bool]:
    """Returns past_key_values as a cache, and True if it came as tuples."""
    if value is None or isinstance(value, Cache):
        return value, False
    if legacy.is_legacy(value):
        return (DynamicCache.from_legacy_cache(value) if len(value) else DynamicCache()), True
    kind = value if isinstance(value, type) else type(value)
    what = f"the class {kind.__name__}" if kind is value else repr(value) if isinstance(value, str) else \
        f"{kind.__module__}.{kind.__name__}"
    hint = f"; cache_implementation={value!r} names a strategy" if isinstance(value, str) else \
        f"; make one: {kind.__name__}(...)" if kind is value and issubclass(kind, Cache) else \
        "; import the cache from kvik" if hasattr(value, "get_seq_length") else ""
    raise TypeError(f"past_key_values is a cache of kvik or a tuple of layers, not {what}{hint}")


def _alone(layer: CacheLayer, *args: Any, **kwargs: Any) -> Cache:
    """Makes the cache of a layer that belongs to none, with the arguments of the layer's class."""
    names = {DynamicSlidingWindowLayer: ("sliding_window",), StaticLayer: ("max_cache_len",),
             StaticSlidingWindowLayer: ("max_cache_len", "sliding_window"),
             QuantizedLayer: ("nbits", "axis_key", "axis_value", "q_group_size", "residual_length")}
    kind = next((k for k in type(layer).__mro__ if k in names), None)
    given = {**dict(zip(names[kind] if kind else (), args)), **kwargs}
    window = given.pop("sliding_window", None)
    config = _with_windows([window if isinstance(layer, (DynamicSlidingWindowLayer, StaticSlidingWindowLayer)) else None])
    if isinstance(layer, LinearAttentionLayer) and not isinstance(layer, DynamicLayer):
        return DynamicCache(config=PretrainedConfig(num_hidden_layers=1, layer_types=["linear_attention"]))
    if isinstance(layer, StaticLayer):
        return StaticCache(config, given["max_cache_len"])
    if isinstance(layer, QuantizedLayer):
        backend = "hqq" if isinstance(layer, HQQQuantizedLayer) else "fp8" if isinstance(layer, Fp8QuantizedLayer) else "quanto"
        return QuantizedCache(backend, config, **given)
    return DynamicCache(config=config)


CacheLayer.alone = _alone

__all__ = [name for name, value in list(globals().items())
           if isinstance(value, type) and (issubclass(value, (Cache, CacheConfig, CacheLayer)))]
