"""Zamba2 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Zamba2ForCausalLM(PreTrainedModel):
    """A Zamba2 model that generates text."""

    _architectures = ("zamba2",)


class Zamba2Model(PreTrainedModel):
    """A Zamba2 model without its head: forward() gives last_hidden_state."""

    _architectures = ("zamba2",)
    _head = False


__all__ = ["Zamba2ForCausalLM", "Zamba2Model"]
