"""Small things that programs for Transformers import from its utils."""
from importlib.util import find_spec

from ..outputs import ModelOutput
from ..tool_schema import get_json_schema
from . import logging


def is_torch_available() -> bool:
    """True if torch is installed."""
    return find_spec("torch") is not None


def is_flash_attn_2_available() -> bool:
    """Returns False: kvik has one implementation of attention."""
    return False


__all__ = ["ModelOutput", "get_json_schema", "is_flash_attn_2_available", "is_torch_available", "logging"]
