"""What a tokenizer returns: a mapping whose entries are attributes, too."""
from collections import UserDict
from typing import Any, Dict, List, Optional

from ._arrays import is_torch
from .devices import accept_device


class BatchEncoding(UserDict):
    """Token ids and masks by name: ``e["input_ids"]``, ``e.input_ids``, ``model(**e)``.

    The values are lists, numpy arrays or torch tensors of shape [batch, tokens], as ``return_tensors`` asked.
    """

    def __init__(self, data: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        super().__init__(data or {})

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data")
        if data is not None and name in data:
            return data[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(data or {}) or 'nothing'}")

    def __getstate__(self) -> Dict[str, Any]:
        return {"data": self.data}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)

    def to(self, device: Any = None, *, non_blocking: bool = False, **_: Any) -> "BatchEncoding":
        """Returns itself.  Tensors live in the machine's memory, where kvik computes; see `devices`."""
        accept_device(device)
        for key, value in self.data.items():
            if is_torch(value) and value.device.type != "cpu":
                self.data[key] = value.cpu()
        return self

    def convert_to_tensors(self, tensor_type: Any = None, **_: Any) -> "BatchEncoding":
        """Makes tensors ("pt", "np") of lists of equal length, in place."""
        from ._arrays import tensors
        for key, value in self.data.items():
            if isinstance(value, list):
                rows: List[Any] = value if value and isinstance(value[0], list) else [value]
                self.data[key] = tensors(rows, tensor_type)
        return self
