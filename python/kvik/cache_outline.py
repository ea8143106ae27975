"""What a cache without a model knows of its layers."""
import json
from dataclasses import replace
from typing import Any, Callable, List, Optional, Tuple

from .configuration import layer_kinds
from .layer_store import LayerStore
from .store import Settings

WINDOWS = ("sliding_attention", "chunked_attention")
"""Kinds of layers that forget."""

Shapes = Optional[Tuple[List[str], Optional[int]]]
"""The kinds of a model's layers, and the window of those that have one."""

_GUESS = 64  # layers of a cache whose number is not known; it grows


class Outline:
    """The layers of a cache by its configuration and its settings, or by the model that has computed its rows before.

    shapes: returns those of that model, or None.
    """

    def __init__(self, config: Any, settings: Settings, shapes: Callable[[], Shapes]) -> None:
        get = getattr(config, "get_text_config", None)
        self.config = get(decoder=True) if get else config
        self._settings, self._shapes = settings, shapes

    def count(self) -> int:
        """Returns the number of layers by the configuration; 0 if it is not known."""
        return int(getattr(self.config, "num_hidden_layers", None) or 0)

    def kinds(self) -> Optional[List[str]]:
        """Returns the kinds of the layers; None: all are full, or as the settings say."""
        if self._settings.cache_implementation in ("sink", "sliding_window"):
            return None
        model = self._shapes()
        kinds = model[0] if model else layer_kinds(self.config)
        return [k if k in WINDOWS else "full_attention" for k in kinds] if kinds else None

    def window(self, kinds: Optional[List[str]]) -> Optional[int]:
        """Returns the window of the layers that have one."""
        model = self._shapes()
        if model or self.config is None:
            return model[1] if model else None
        return getattr(self.config, "attention_chunk_size" if kinds and "chunked_attention" in kinds else "sliding_window", None)

    def open(self, batch: int, layer: int) -> LayerStore:
        """Makes a store that has this layer, and room for a batch."""
        kinds, count = self.kinds(), self.count()
        n = max(len(kinds or ()) or count or _GUESS, count, layer + 1)
        if kinds and len(kinds) < n:
            kinds = kinds + [kinds[-1]] * (n - len(kinds))
        settings = self._with_window(self.window(kinds))
        settings = replace(settings, max_sequences=max(settings.max_sequences or 1, batch), compute=None, step_tokens=None, snapshots=None)
        return LayerStore(settings, n, kinds or None)

    def _with_window(self, window: Optional[int]) -> Settings:
        """Returns the settings with the window of layers, unless they have one."""
        values = json.loads(self._settings.cache_config or "{}")
        if not window or "sliding_window" in values or "window_length" in values:
            return self._settings
        return replace(self._settings, cache_config=json.dumps({**values, "sliding_window": int(window)}, sort_keys=True))
