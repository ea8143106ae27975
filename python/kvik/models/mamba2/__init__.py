"""Mamba2 models."""
from .modeling_mamba2 import Mamba2ForCausalLM, Mamba2Model

__all__ = ["Mamba2ForCausalLM", "Mamba2Model"]
