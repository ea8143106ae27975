"""Gemma3 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Gemma3ForCausalLM(PreTrainedModel):
    """A Gemma3 model that generates text."""

    _architectures = ("gemma3", "gemma3_text")


class Gemma3Model(PreTrainedModel):
    """A Gemma3 model without its head: forward() gives last_hidden_state."""

    _architectures = ("gemma3", "gemma3_text")
    _head = False


__all__ = ["Gemma3ForCausalLM", "Gemma3Model"]
