"""Gemma models."""
from .modeling_gemma import GemmaForCausalLM, GemmaModel

__all__ = ["GemmaForCausalLM", "GemmaModel"]
