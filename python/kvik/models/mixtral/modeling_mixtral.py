"""Mixtral models, by the names of Transformers."""
from ...model import PreTrainedModel


class MixtralForCausalLM(PreTrainedModel):
    """A Mixtral model that generates text."""

    _architectures = ("mixtral",)


class MixtralModel(PreTrainedModel):
    """A Mixtral model without its head: forward() gives last_hidden_state."""

    _architectures = ("mixtral",)
    _head = False


__all__ = ["MixtralForCausalLM", "MixtralModel"]
