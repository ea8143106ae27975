"""Jamba models, by the names of Transformers."""
from ...cache_utils import HybridMambaAttentionDynamicCache
from ...model import PreTrainedModel


class JambaForCausalLM(PreTrainedModel):
    """A Jamba model that generates text."""

    _architectures = ("jamba",)


class JambaModel(PreTrainedModel):
    """A Jamba model without its head: forward() gives last_hidden_state."""

    _architectures = ("jamba",)
    _head = False


__all__ = ["JambaForCausalLM", "JambaModel", "HybridMambaAttentionDynamicCache"]
