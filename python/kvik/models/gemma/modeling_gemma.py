"""Gemma models, by the names of Transformers."""
from ...model import PreTrainedModel


class GemmaForCausalLM(PreTrainedModel):
    """A Gemma model that generates text."""

    _architectures = ("gemma",)


class GemmaModel(PreTrainedModel):
    """A Gemma model without its head: forward() gives last_hidden_state."""

    _architectures = ("gemma",)
    _head = False


__all__ = ["GemmaForCausalLM", "GemmaModel"]
