"""The settings of caches as objects, as release 4 of Transformers has them."""
from typing import Any, Dict, Optional, Union


class CacheConfig:
    """Settings of a cache: keyword arguments that are attributes."""

    cache_implementation: Optional[str] = None

    def __init__(self, cache_implementation: Optional[str] = None, **kwargs: Any) -> None:
        self.cache_implementation = cache_implementation or self.cache_implementation
        self.__dict__.update(kwargs)

    @classmethod
    def from_dict(cls, config_dict: Dict[str, Any], **kwargs: Any) -> "CacheConfig":
        """Makes settings of a dictionary."""
        return cls(**{**config_dict, **kwargs})

    def to_dict(self) -> Dict[str, Any]:
        """Returns the settings that the library reads."""
        return {k: v for k, v in self.__dict__.items() if k not in ("cache_implementation", "compute_dtype", "device")}

    def validate(self) -> None:
        """Checks the settings; raises ValueError."""


class QuantizedCacheConfig(CacheConfig):
    """Settings of a quantized cache.  compute_dtype and device are recorded."""

    cache_implementation = "quantized"

    def __init__(self, backend: str = "quanto", nbits: Union[int, str, None] = 4, axis_key: Optional[int] = 0,
                 axis_value: Optional[int] = 0, q_group_size: Optional[int] = 64, residual_length: Optional[int] = 128,
                 compute_dtype: Any = None, device: Optional[str] = "cpu", **kwargs: Any) -> None:
        super().__init__("quantized", **kwargs)
        if backend.lower() == "fp8" and (nbits, axis_key, axis_value, q_group_size, residual_length) == (4, 0, 0, 64, 128):
            nbits = axis_key = axis_value = q_group_size = residual_length = None  # defaults of the others; fp8 has none of them
        self.backend, self.nbits, self.axis_key, self.axis_value = backend, nbits, axis_key, axis_value
        self.q_group_size, self.residual_length = q_group_size, residual_length
        self.compute_dtype, self.device = compute_dtype, device
        self.validate()

    def validate(self) -> None:
        """Raises ValueError for a value that no backend takes."""
        for name, good, what in (("nbits", self.nbits in (None, "auto", 1, 2, 3, 4, 8), "1, 2, 3, 4, 8 or 'auto'"),
                                 ("q_group_size", (self.q_group_size or 1) > 0, "above 0"),
                                 ("residual_length", (self.residual_length or 0) >= 0, "0 or more"),
                                 ("axis_key", self.axis_key in (None, 0, 1, -1), "0, 1 or -1"),
                                 ("axis_value", self.axis_value in (None, 0, 1, -1), "0, 1 or -1")):
            if not good:
                raise ValueError(f"{name}={getattr(self, name)}: expected {what}")


class StaticCacheConfig(CacheConfig):
    """Settings of a static cache."""

    cache_implementation = "static"
