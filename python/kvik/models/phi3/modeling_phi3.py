"""Phi3 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Phi3ForCausalLM(PreTrainedModel):
    """A Phi3 model that generates text."""

    _architectures = ("phi3",)


class Phi3Model(PreTrainedModel):
    """A Phi3 model without its head: forward() gives last_hidden_state."""

    _architectures = ("phi3",)
    _head = False


__all__ = ["Phi3ForCausalLM", "Phi3Model"]
