"""Zamba2 models."""
from .modeling_zamba2 import Zamba2ForCausalLM, Zamba2Model

__all__ = ["Zamba2ForCausalLM", "Zamba2Model"]
