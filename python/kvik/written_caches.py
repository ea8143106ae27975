"""Which caches a forward of kvik asks: those whose update() a program has written."""
from typing import Any

from .caches import Cache
from .errors import UnsupportedError
from .layered_cache import LayeredCache
from .store import ModelHandle
from .utils.logging import notice


def calls_update(cache: Any, model: ModelHandle) -> bool:
    """True if a forward of the model calls update() of the cache: one that a program has written.  A model without attention calls none, as
    in Transformers.  Raises UnsupportedError where update() would have to be called and cannot be."""
    own = getattr(cache, "self_attention_cache", None) if model.hears else None
    parts = (cache,) if own is None else (own, cache.cross_attention_cache)
    written = [part for part in parts if isinstance(part, Cache) and part.is_written]
    if not written or not model.attends:
        return False
    first = written[0]
    why = "a sink cache turns its rows inside the library. Drop rows in the update() of a DynamicCache, as examples/python/evict.py does" \
        if first._settings.cache_implementation == "sink" else \
        f"it is one cache, and a model with an encoder has two. Give EncoderDecoderCache({type(first).__name__}(), DynamicCache())" \
        if model.hears and own is None else \
        "the rows of an encoder stay inside the library. Override update() of the decoder's cache, the first of the two" \
        if parts[-1] in written and own is not None else \
        "the layers of a program have no place for the recurrent states of this model. Write the update() of a DynamicCache" \
        if model.has_states and isinstance(first, LayeredCache) else None
    if why:
        raise UnsupportedError(f"{type(first).__name__}.update() cannot be called: {why}")
    notice(f"{type(first).__name__}.update() is called for every layer, which is slower than kvik's own caches")
    return True
