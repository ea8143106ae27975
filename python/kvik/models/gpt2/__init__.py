"""GPT2 models."""
from .modeling_gpt2 import GPT2LMHeadModel, GPT2Model

__all__ = ["GPT2LMHeadModel", "GPT2Model"]
