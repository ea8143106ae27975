"""T5 models."""
from .modeling_t5 import T5ForConditionalGeneration

__all__ = ["T5ForConditionalGeneration"]
