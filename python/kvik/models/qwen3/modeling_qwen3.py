"""Qwen3 models, by the names of Transformers."""
from ...model import PreTrainedModel


class Qwen3ForCausalLM(PreTrainedModel):
    """A Qwen3 model that generates text."""

    _architectures = ("qwen3",)


class Qwen3Model(PreTrainedModel):
    """A Qwen3 model without its head: forward() gives last_hidden_state."""

    _architectures = ("qwen3",)
    _head = False


__all__ = ["Qwen3ForCausalLM", "Qwen3Model"]
