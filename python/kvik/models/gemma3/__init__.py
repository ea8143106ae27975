"""Gemma3 models."""
from .modeling_gemma3 import Gemma3ForCausalLM, Gemma3Model

__all__ = ["Gemma3ForCausalLM", "Gemma3Model"]
