"""The seeds of calls that sample and are given none."""
import random
from typing import Any, Dict, Optional

from .._arrays import torch_module

_next: Optional[int] = None


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Sets the seed of the next generate() that samples and is given none; each later one takes the next number."""
    global _next
    _next = int(seed)


def seeded(values: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options with a seed, if they sample and have none: the next one of set_seed(), else a random number.

    The random number comes from torch where the program uses torch, so that torch.manual_seed() decides, else from `random`.
    """
    global _next
    if not values.get("do_sample") or values.get("seed") is not None:
        return values
    if _next is not None:
        seed, _next = _next, (_next + 1) % 2**63
    else:
        torch = torch_module()
        seed = int(torch.randint(2**62, ())) if torch is not None else random.getrandbits(62)
    return {**values, "seed": seed}
