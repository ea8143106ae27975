"""Mistral models."""
from .modeling_mistral import MistralForCausalLM, MistralModel

__all__ = ["MistralForCausalLM", "MistralModel"]
