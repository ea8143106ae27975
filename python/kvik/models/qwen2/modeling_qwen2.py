"""Qwen2 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Qwen2ForCausalLM(PreTrainedModel):
    """A Qwen2 model that generates text."""

    _architectures = ("qwen2",)


class Qwen2Model(PreTrainedModel):
    """A Qwen2 model without its head: forward() gives last_hidden_state."""

    _architectures = ("qwen2",)
    _head = False


__all__ = ["Qwen2ForCausalLM", "Qwen2Model"]
