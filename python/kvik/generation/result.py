"""The result of a generation in the library's memory."""
import ctypes
from typing import Any, List, Optional

import numpy as np

from .. import _abi
from .._arrays import like
from .._lib import owned, view
from ..outputs import (GenerateBeamDecoderOnlyOutput, GenerateBeamEncoderDecoderOutput, GenerateDecoderOnlyOutput,
                       GenerateEncoderDecoderOutput)


class Result:
    """Owns a kvik_result, which a call makes in its pointer; arrays over its memory keep it alive."""

    def __init__(self) -> None:
        self.pointer = owned("kvik_result_free")

    @property
    def value(self) -> Any:
        """The kvik_result."""
        return ctypes.cast(self.pointer, ctypes.POINTER(_abi.kvik_result)).contents

    def rows(self) -> List[Any]:
        """Returns the rows."""
        return [self.value.row[i].contents for i in range(self.value.n_rows)]

    def sequences(self, pad: int) -> np.ndarray:
        """Returns the ids of all rows, filled with pad."""
        rows = self.rows()
        out = np.full((len(rows), max(r.n for r in rows)), pad, np.int64)
        for i, r in enumerate(rows):
            out[i, : r.n] = view(r.ids, (r.n,), np.int32)
        return out

    def steps(self, field: str, torch: bool) -> Any:
        """Returns logits or scores as a tuple of [rows, vocab] per step, or None."""
        r = self.value
        pointer = getattr(r, field)
        if not pointer:
            return None
        all_steps = view(pointer, (r.logit_steps, r.logit_rows, r.vocab), np.float32, self)
        return tuple(like(step, torch) for step in all_steps)

    def beam_indices(self) -> Optional[np.ndarray]:
        """Returns [rows][new tokens], -1 after the end of a row; None without beams."""
        rows = self.rows()
        if not rows or not rows[0].beam_indices:
            return None
        out = np.full((len(rows), max(r.n - r.n_prompt for r in rows)), -1, np.int32)
        for i, r in enumerate(rows):
            out[i, : r.n - r.n_prompt] = view(r.beam_indices, (r.n - r.n_prompt,), np.int32)
        return out


def class_of_result(seq2seq: bool, beams: bool) -> Any:
    """Returns the class of what generate() returns, of a model with an encoder or without, with beams or without."""
    if seq2seq:
        return GenerateBeamEncoderDecoderOutput if beams else GenerateEncoderDecoderOutput
    return GenerateBeamDecoderOnlyOutput if beams else GenerateDecoderOnlyOutput
