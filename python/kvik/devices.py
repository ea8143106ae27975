"""Devices and dtypes, as far as a library for the CPU has them.

Names of other devices are accepted, so that programs written for them run: they mean this machine's CPU, with one warning.
"""
from typing import Any, Callable, Optional, Tuple

from ._arrays import torch_module
from .utils.logging import notice

_warned = False


class Device:
    """A device, where torch is not imported: ``type`` is "cpu", ``index`` is None."""

    type = "cpu"
    index = None

    def __repr__(self) -> str:
        return "device(type='cpu')"

    def __str__(self) -> str:
        return "cpu"

    def __eq__(self, other: object) -> bool:
        return str(other) == "cpu"

    def __hash__(self) -> int:
        return hash("cpu")


def cpu() -> Any:
    """Returns the device of every model: torch.device("cpu") if torch is imported, else a Device."""
    torch = torch_module()
    return torch.device("cpu") if torch is not None else Device()


def infer_device() -> str:
    """Returns the name of the device that models run on: "cpu"."""
    return "cpu"


def get_backend() -> Tuple[str, int, Callable[..., None]]:
    """Returns the device, the number of devices and a function that frees cached memory, as accelerate's test helper."""
    return "cpu", 1, lambda *_: None


def accept_device(device: Any) -> None:
    """Takes a device or a device map.  Warns, once, if it names something else than the CPU."""
    global _warned
    if isinstance(device, dict):
        for value in device.values():
            accept_device(value)
        return
    if device is None or str(device) in ("auto", "cpu", "balanced", "balanced_low_0", "sequential", "disk"):
        return
    if not _warned:
        _warned = True
        notice(f"device {device!r}: kvik computes on the CPU; every device means this machine's CPU")


def dtype_name(dtype: Any) -> Optional[str]:
    """Returns "float32", "float16", "bfloat16", another name, or None for none and "auto"."""
    if dtype is None or dtype == "auto":
        return None
    name = getattr(dtype, "__name__", None) or str(dtype)
    return name.rsplit(".", 1)[-1].strip("'<>")


def asked_dtype(dtype: Any) -> Optional[str]:
    """Returns the name of the dtype that from_pretrained() was given.  Raises ValueError for any other."""
    name = dtype_name(dtype)
    if name not in (None, "float32", "float16", "bfloat16", "float64", "float", "half", "double"):
        raise ValueError(f"dtype={dtype!r}: expected float32, float16, bfloat16 or 'auto'")
    return name


_ATTENTION = {"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "continuous"}


def accept_attention(name: Any) -> None:
    """Takes the name of an implementation of attention, or a dictionary of names: kvik has one.  Raises ValueError for what is none."""
    for value in name.values() if isinstance(name, dict) else (name,):
        text = str(value)
        if value is not None and text.split("|")[-1] not in _ATTENTION and "/" not in text:
            raise ValueError(f"attn_implementation={value!r} is no implementation of attention: expected one of "
                             f"{', '.join(sorted(_ATTENTION))}, which all mean that of kvik")


def dtype_changes_nothing(asked: Optional[str], kept: Optional[str]) -> None:
    """Tells that a dtype was asked for which the weights do not have.  kept: the dtype of the files; None: several, as of quantized ones."""
    short = {"half": "float16", "float": "float32", "double": "float64"}
    asked = short.get(asked or "", asked)
    if asked in (None, kept) or (asked == "float32" and kept is not None):
        return
    notice(f"dtype {asked}: weights are used as the files have them ({kept or 'quantized, or of several types'}), and activations are "
           "float32; quantize= makes them smaller")


def dtype_object(name: str) -> Any:
    """Returns torch's dtype of a name if torch is imported, else the name."""
    torch = torch_module()
    return getattr(torch, name, name) if torch is not None else name
