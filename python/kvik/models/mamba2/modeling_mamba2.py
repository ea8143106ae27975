"""Mamba2 models, by the names of Transformers."""
from ...cache_utils import MambaCache
from ...model import PreTrainedModel


class Mamba2ForCausalLM(PreTrainedModel):
    """A Mamba2 model that generates text."""

    _architectures = ("mamba2",)
    _state_name = "cache_params"


class Mamba2Model(PreTrainedModel):
    """A Mamba2 model without its head: forward() gives last_hidden_state."""

    _architectures = ("mamba2",)
    _head = False
    _state_name = "cache_params"


__all__ = ["Mamba2ForCausalLM", "Mamba2Model", "MambaCache"]
