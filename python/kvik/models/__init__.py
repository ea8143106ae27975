"""Classes by architecture; `model_class` finds the one of a model type."""
from importlib import import_module
from typing import Any, Dict, Optional

_MODULES: Dict[str, str] = {
    "llama": "llama",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gpt2": "gpt2",
    "llama4": "llama4",
    "llama4_text": "llama4",
    "gpt_oss": "gpt_oss",
    "mamba": "mamba",
    "mamba2": "mamba2",
    "falcon_mamba": "falcon_mamba",
    "jamba": "jamba",
    "zamba2": "zamba2",
    "t5": "t5",
}


def model_class(model_type: str, asked: Any) -> Optional[Any]:
    """Returns the class of a model type: with a head, or without if the class that was asked for has none."""
    name = _MODULES.get(model_type)
    if name is None:
        return None
    module = import_module(f"{__name__}.{name}.modeling_{name}")
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "_architectures", None) and value._head == asked._head:
            return value
    return None
