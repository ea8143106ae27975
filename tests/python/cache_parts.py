"""What tests of caches without a model make them of: rows of keys or values, and a configuration."""
import numpy as np
from common import kvik

RNG = np.random.default_rng(7)


def rows(n, batch=2, heads=2, dim=8):
    return RNG.standard_normal((batch, heads, n, dim)).astype(np.float32)


class Config(kvik.PretrainedConfig):
    """A configuration of a model that is not there."""


def config(**kwargs):
    return Config(**{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 16,
                     "max_position_embeddings": 64, **kwargs})
