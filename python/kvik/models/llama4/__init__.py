"""Llama4 models."""
from .modeling_llama4 import Llama4ForCausalLM, Llama4Model

__all__ = ["Llama4ForCausalLM", "Llama4Model"]
