"""FalconMamba models, by the names of Transformers."""
from ...cache_utils import MambaCache
from ...model import PreTrainedModel


class FalconMambaForCausalLM(PreTrainedModel):
    """A FalconMamba model that generates text."""

    _architectures = ("falcon_mamba",)
    _state_name = "cache_params"


class FalconMambaModel(PreTrainedModel):
    """A FalconMamba model without its head: forward() gives last_hidden_state."""

    _architectures = ("falcon_mamba",)
    _head = False
    _state_name = "cache_params"


__all__ = ["FalconMambaForCausalLM", "FalconMambaModel", "MambaCache"]
