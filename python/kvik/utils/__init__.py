"""Small things that programs for Transformers import from its utils."""
import re
from importlib.metadata import version as package_version
from importlib.util import find_spec
from typing import Any

from ..outputs import ModelOutput
from ..tool_schema import DocstringParsingException, TypeHintParsingException, get_json_schema
from . import logging


def is_torch_available() -> bool:
    """True if torch is installed."""
    return find_spec("torch") is not None


def is_accelerate_available(*_: Any) -> bool:
    """Returns False: a model opens on this machine's CPU without it."""
    return False


is_bitsandbytes_available = is_cuda_available = is_flash_attn_2_available = is_flax_available = is_mps_available = is_accelerate_available
is_tf_available = is_torch_cuda_available = is_torch_npu_available = is_torch_xpu_available = is_accelerate_available


def is_hqq_available() -> bool:
    """Returns True: the library has the arithmetic of hqq and of quanto."""
    return True


is_optimum_quanto_available = is_quanto_available = is_hqq_available


def is_torch_greater_or_equal(version: str, *_: Any, **__: Any) -> bool:
    """True if torch is installed in this version or a later one."""
    if not is_torch_available():
        return False
    have, want = ([int(part) for part in re.findall(r"\d+", text)[:3]] for text in (package_version("torch"), version))
    return have >= want


__all__ = ["DocstringParsingException", "ModelOutput", "TypeHintParsingException", "get_json_schema", "is_accelerate_available",
           "is_flash_attn_2_available", "is_hqq_available", "is_optimum_quanto_available", "is_torch_available",
           "is_torch_greater_or_equal", "logging"]
