"""GPT2 models, by the names of Transformers."""
from ...model import PreTrainedModel


class GPT2LMHeadModel(PreTrainedModel):
    """A GPT2 model that generates text."""

    _architectures = ("gpt2",)


class GPT2Model(PreTrainedModel):
    """A GPT2 model without its head: forward() gives last_hidden_state."""

    _architectures = ("gpt2",)
    _head = False


__all__ = ["GPT2LMHeadModel", "GPT2Model"]
