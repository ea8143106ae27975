"""Gemma2 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Gemma2ForCausalLM(PreTrainedModel):
    """A Gemma2 model that generates text."""

    _architectures = ("gemma2",)


class Gemma2Model(PreTrainedModel):
    """A Gemma2 model without its head: forward() gives last_hidden_state."""

    _architectures = ("gemma2",)
    _head = False


__all__ = ["Gemma2ForCausalLM", "Gemma2Model"]
