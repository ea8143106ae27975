"""The weights of a model as programs ask for them: their names, shapes and dtypes, and the arrays of files that have them as they are."""
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from ._arrays import like, torch_module
from .devices import cpu, dtype_object
from .errors import UnsupportedError

_NUMPY = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class Weight:
    """A tensor of a model's files: ``name``, ``shape``, ``dtype``, ``device``; numpy() reads it, read-only, where it is not quantized."""

    requires_grad = False

    def __init__(self, folder: str, name: str, shape: Tuple[int, ...], kind: str) -> None:
        self._folder, self.name, self.shape, self.kind = folder, name, shape, kind

    @property
    def device(self) -> Any:
        """The device: the CPU."""
        return cpu()

    @property
    def dtype(self) -> Any:
        """torch's dtype where torch is imported, else its name; of a quantized tensor the name of its type."""
        return dtype_object(_NAMES.get(self.kind, self.kind))

    def numel(self) -> int:
        """Returns the number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    def numpy(self) -> np.ndarray:
        """Returns the values, over the mapped file; bfloat16 as float32, which is a copy."""
        found = _in_files(self._folder).get(self.name)
        if found is None:
            raise UnsupportedError(f"{self.name} of {self._folder} is not in a safetensors file, so its values stay in the library")
        path, begin, kind, shape = found
        array: np.ndarray = np.memmap(path, _NUMPY[kind], "r", begin, shape)
        return (array.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else array

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.asarray(self.numpy(), *args)

    def __repr__(self) -> str:
        return f"Weight({self.name!r}, {list(self.shape)}, {self.kind})"


def _in_files(folder: str) -> Dict[str, Tuple[str, int, str, Tuple[int, ...]]]:
    """Returns where each tensor of the safetensors files of a directory is: the file, the byte, the type and the shape."""
    out: Dict[str, Tuple[str, int, str, Tuple[int, ...]]] = {}
    for path in sorted(Path(folder).glob("*.safetensors")) if os.path.isdir(folder) else ():
        with open(path, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            head = json.loads(f.read(min(size, 1 << 27)))
        for name, tensor in head.items():
            if name != "__metadata__" and tensor["dtype"] in _NUMPY:
                out[name] = str(path), 8 + size + int(tensor["data_offsets"][0]), tensor["dtype"], tuple(map(int, tensor["shape"]))
    return out


def named(folder: str, tensors: List[Dict[str, Any]]) -> Iterator[Tuple[str, Weight]]:
    """Yields the weights of a model.  tensors: what the library says of them."""
    for tensor in tensors:
        yield tensor["name"], Weight(folder, tensor["name"], tuple(tensor["shape"]), tensor["dtype"])


def arrays(folder: str, tensors: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Returns the values of all weights, read-only arrays of the mapped files, or tensors where torch is imported."""
    out: Dict[str, Any] = {}
    for name, weight in named(folder, tensors):
        values = weight.numpy()
        out[name] = values if torch_module() is None else like(values.copy(), True)
    return out
