"""One hearing of a recording by the library: its options, its callbacks, and its transcript as dictionaries."""
import ctypes
import warnings
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from . import _abi
from ._lib import call, encode, field_kinds, fits, owned, view
from .errors import ArgumentError
from .generation import Interruptible

_EARLY = {None: _abi.KVIK_EARLY_FALSE, False: _abi.KVIK_EARLY_FALSE, True: _abi.KVIK_EARLY_TRUE, "never": _abi.KVIK_EARLY_NEVER}


class Hearing(Interruptible):
    """The options of a transcript as a kvik_speech, with its callbacks.

    read(n) gives at most n bytes of a recording that is heard as it comes.
    """

    def __init__(self, options: Dict[str, Any], progress: Optional[Callable[[float, float], None]] = None,
                 on_segment: Optional[Callable[[Dict[str, Any]], Any]] = None, read: Optional[Callable[[int], Any]] = None) -> None:
        self.progress, self.on_segment, self.read = progress, on_segment, read
        self.struct = _abi.kvik_speech()
        call("kvik_speech_init_sized", ctypes.byref(self.struct), ctypes.sizeof(self.struct))
        self._keep: List[Any] = []
        temperatures = options.get("temperature")
        values = [0.0] if temperatures is None else [float(t or 0) for t in np.atleast_1d(np.array(temperatures, object))]
        s = self.struct
        self._keep.append((ctypes.c_double * len(values))(*values))
        s.temperatures, s.n_temperatures = ctypes.addressof(self._keep[-1]), len(values)
        for name in ("language", "task", "prompt"):
            if options.get(name) is not None:
                setattr(s, name, encode(str(options[name])))
        s.return_timestamps = bool(options.get("return_timestamps"))
        s.word_timestamps = bool(options.get("word_timestamps"))
        s.condition_on_prev_tokens = bool(options.get("condition_on_prev_tokens"))
        for name in ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"):
            setattr(s, name, float(options.get(name) or 0))
        kinds = field_kinds(s)
        for name in ("seed", "max_new_tokens", "num_beams"):
            setattr(s, name, fits(int(options.get(name) or 0), kinds[name], name))
        if options.get("length_penalty") is not None:
            s.length_penalty = float(options["length_penalty"])
        early = options.get("early_stopping")
        if early not in _EARLY:
            raise ArgumentError(f"early_stopping={early!r}: expected False, True or 'never'")
        s.early_stopping = _EARLY[early]
        s.on_hearing = self._on_hearing = _abi.kvik_on_hearing(self._hear)
        s.on_notice = self._on_notice = _abi.kvik_on_notice(self._notice)
        s.on_segment = self._on_segment = _abi.kvik_on_segment(self._segment)
        self.on_sound = _abi.kvik_on_sound(self._sound)

    def _hear(self, ctx: Any, what: int, seconds: float, total: float) -> bool:
        try:
            if self.progress is not None and what == _abi.KVIK_HEARING_TRANSCRIBE:
                self.progress(seconds, total)
            return self.error is None
        except BaseException as e:  # noqa: BLE001 - raised again after the call
            self.error = self.error or e
            return False

    def _notice(self, ctx: Any, text: Any) -> None:
        try:
            warnings.warn(_text(text), stacklevel=2)
        except BaseException as e:  # noqa: BLE001 - a warning that is an error
            self.error = self.error or e

    def _segment(self, ctx: Any, segment: Any) -> bool:
        try:
            if self.on_segment is not None:
                self.on_segment(_segment(ctypes.cast(segment, ctypes.POINTER(_abi.kvik_segment)).contents))
            return self.error is None
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return False

    def _sound(self, ctx: Any, place: Any, n: int) -> int:
        try:
            assert self.read is not None
            data = memoryview(self.read(n)).cast("B")
            if len(data) > n:
                raise ArgumentError(f"read({n}) returned {len(data)} bytes")
            ctypes.memmove(place, bytes(data), len(data))
            return len(data)
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return int(_abi.KVIK_CANCELLED)

    def run(self, function: Callable[[Any], Any]) -> Dict[str, Any]:
        """Calls a function with the place for a transcript; returns the transcript as a dictionary."""
        out = owned("kvik_transcript_free")
        self.interruptibly(lambda: function(ctypes.byref(out)))
        return _transcript(ctypes.cast(out, ctypes.POINTER(_abi.kvik_transcript)).contents)


def _text(value: Optional[bytes]) -> str:
    return (value or b"").decode("utf-8", "replace")


def _each(pointer: Any, n: int, kind: Any) -> List[Any]:
    if not n:
        return []
    array = ctypes.cast(pointer, ctypes.POINTER(ctypes.POINTER(kind) * n)).contents
    return [array[i].contents for i in range(n)]


def _segment(s: Any) -> Dict[str, Any]:
    one = {"start": s.start, "end": s.end, "text": _text(s.text), "tokens": view(s.ids, (s.n,), np.int32).astype(np.int64),
           "temperature": s.temperature, "avg_logprob": s.avg_logprob, "compression_ratio": s.compression_ratio,
           "no_speech_prob": s.no_speech_prob, "level": s.level, "no_speech": s.no_speech}
    if s.time:
        one["token_timestamps"] = view(s.time, (s.n,), np.float64).astype(np.float32)
        one["words"] = [{"text": _text(w.text), "timestamp": (round(w.start, 2), round(w.end, 2))}
                        for w in _each(s.word, s.n_words, _abi.kvik_word)]
    return one


def _transcript(t: Any) -> Dict[str, Any]:
    return {"text": _text(t.text), "language": _text(t.language), "seconds": t.seconds,
            "segments": [_segment(s) for s in _each(t.segment, t.n_segments, _abi.kvik_segment)]}
