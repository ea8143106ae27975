"""Mamba models."""
from .modeling_mamba import MambaForCausalLM, MambaModel

__all__ = ["MambaForCausalLM", "MambaModel"]
