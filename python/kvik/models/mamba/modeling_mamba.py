"""Mamba models, by the names of Transformers."""
from ...cache_utils import MambaCache
from ...configuration import MambaConfig
from ...model import PreTrainedModel


class MambaForCausalLM(PreTrainedModel):
    """A Mamba model that generates text."""

    _architectures = ("mamba",)
    _state_name = "cache_params"


class MambaModel(PreTrainedModel):
    """A Mamba model without its head: forward() gives last_hidden_state."""

    _architectures = ("mamba",)
    _head = False
    _state_name = "cache_params"


__all__ = ["MambaForCausalLM", "MambaModel", "MambaCache", "MambaConfig"]
