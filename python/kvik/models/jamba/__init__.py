"""Jamba models."""
from .modeling_jamba import JambaForCausalLM, JambaModel

__all__ = ["JambaForCausalLM", "JambaModel"]
