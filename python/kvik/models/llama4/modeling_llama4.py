"""Llama4 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Llama4ForCausalLM(PreTrainedModel):
    """A Llama4 model that generates text."""

    _architectures = ("llama4", "llama4_text")


class Llama4Model(PreTrainedModel):
    """A Llama4 model without its head: forward() gives last_hidden_state."""

    _architectures = ("llama4", "llama4_text")
    _head = False


__all__ = ["Llama4ForCausalLM", "Llama4Model"]
