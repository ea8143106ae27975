"""Phi3 models."""
from .modeling_phi3 import Phi3ForCausalLM, Phi3Model

__all__ = ["Phi3ForCausalLM", "Phi3Model"]
