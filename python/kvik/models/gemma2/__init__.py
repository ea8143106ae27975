"""Gemma2 models."""
from .modeling_gemma2 import Gemma2ForCausalLM, Gemma2Model

__all__ = ["Gemma2ForCausalLM", "Gemma2Model"]
