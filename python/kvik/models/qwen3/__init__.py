"""Qwen3 models."""
from .modeling_qwen3 import Qwen3ForCausalLM, Qwen3Model

__all__ = ["Qwen3ForCausalLM", "Qwen3Model"]
