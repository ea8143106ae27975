"""Llama models, by the names of Transformers."""
from ...model import PreTrainedModel


class LlamaForCausalLM(PreTrainedModel):
    """A Llama model that generates text."""

    _architectures = ("llama",)


class LlamaModel(PreTrainedModel):
    """A Llama model without its head: forward() gives last_hidden_state."""

    _architectures = ("llama",)
    _head = False


__all__ = ["LlamaForCausalLM", "LlamaModel"]
