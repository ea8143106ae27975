"""Small things that programs for Transformers import from its utils."""
from importlib.util import find_spec

from ..outputs import ModelOutput
from . import logging


def is_torch_available() -> bool:
    """True if torch is installed."""
    return find_spec("torch") is not None


__all__ = ["ModelOutput", "is_torch_available", "logging"]
