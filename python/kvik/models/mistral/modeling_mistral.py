"""Mistral models, by the names of Transformers."""
from ...model import PreTrainedModel


class MistralForCausalLM(PreTrainedModel):
    """A Mistral model that generates text."""

    _architectures = ("mistral",)


class MistralModel(PreTrainedModel):
    """A Mistral model without its head: forward() gives last_hidden_state."""

    _architectures = ("mistral",)
    _head = False


__all__ = ["MistralForCausalLM", "MistralModel"]
