"""Llama models."""
from .modeling_llama import LlamaForCausalLM, LlamaModel

__all__ = ["LlamaForCausalLM", "LlamaModel"]
