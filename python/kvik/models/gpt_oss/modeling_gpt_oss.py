"""GptOss models, by the names of Transformers."""
from ...model import PreTrainedModel


class GptOssForCausalLM(PreTrainedModel):
    """A GptOss model that generates text."""

    _architectures = ("gpt_oss",)


class GptOssModel(PreTrainedModel):
    """A GptOss model without its head: forward() gives last_hidden_state."""

    _architectures = ("gpt_oss",)
    _head = False


__all__ = ["GptOssForCausalLM", "GptOssModel"]
