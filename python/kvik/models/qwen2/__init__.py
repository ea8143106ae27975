"""Qwen2 models."""
from .modeling_qwen2 import Qwen2ForCausalLM, Qwen2Model

__all__ = ["Qwen2ForCausalLM", "Qwen2Model"]
