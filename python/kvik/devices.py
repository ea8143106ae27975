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


def dtype_object(name: str) -> Any:
    """Returns torch's dtype of a name if torch is imported, else the name."""
    torch = torch_module()
    return getattr(torch, name, name) if torch is not None else name
