"""Mixtral models."""
from .modeling_mixtral import MixtralForCausalLM, MixtralModel

__all__ = ["MixtralForCausalLM", "MixtralModel"]
