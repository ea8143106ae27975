"""Callbacks of a call into the library: what they raise, signals that arrive in them, and the hooks of generate()."""
import ctypes
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from .. import _abi
from .._arrays import like, to_numpy
from .._lib import sized, view
from ..store import Store
from .stopping_criteria import is_true, rows_that_end
from .texts import Texts


class Interruptible:
    """The callbacks of a call: an exception in one of them is kept in ``error``, ends the call, and is raised after it.

    Python runs signal handlers where a callback is entered, before its first statement.  ctypes gives what is raised there,
    a KeyboardInterrupt too, to sys.unraisablehook, and the call would go on.  In a `with`, the hook keeps it for the end.
    """

    error: Optional[BaseException] = None
    _before: Optional[Callable[[Any], Any]] = None  # the program's hook

    def interruptibly(self, function: Callable[[], Any]) -> Any:
        """Calls a function that calls the library.  Raises what a callback has raised in place of the library's error.

        A handler of a signal may raise at any instruction, also before the first of __exit__, and leave the hook.  Then the
        hook is put back here.  One that two such exceptions leave does no harm: it hands everything else to the program's.
        """
        try:
            with self:
                return function()
        finally:
            self._restore()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # the only one that runs handlers
            self._before = sys.unraisablehook
            sys.unraisablehook = self._take

    def __exit__(self, kind: Any, raised: Optional[BaseException], place: Any) -> None:
        self._restore()
        if self.error is not None and (raised is None or isinstance(raised, Exception)):
            raise self.error from None

    def _restore(self) -> None:
        if self._before is not None and sys.unraisablehook == self._take:  # the program may have set another one in a callback
            sys.unraisablehook = self._before

    def _take(self, dropped: Any) -> None:
        place = dropped.exc_traceback
        if place is None or place.tb_frame.f_locals.get("self") is not self:
            (self._before or sys.__unraisablehook__)(dropped)
        elif self.error is None:
            self.error = dropped.exc_value


class Callbacks(Interruptible):
    """The hooks of generate()."""

    def __init__(self, streamer: Any, processors: List[Callable[..., Any]], criteria: List[Callable[..., Any]], torch: bool,
                 beams: bool, assistant: Optional[Store], notices: Callable[[str], None], texts: Texts, vocab: int) -> None:
        self.streamer, self.processors, self.criteria, self.torch = streamer, processors, criteria, torch
        self.notices, self.texts, self.vocab, self._tokens = notices, texts, vocab, texts.tokens()
        hooks: Dict[str, Any] = {"on_progress": _abi.kvik_on_progress(self._progress), "on_notice": _abi.kvik_on_notice(self._notice)}
        if streamer is not None and not beams:
            hooks["on_token"] = _abi.kvik_on_token(self._token)
        elif not beams:  # with beams, on_progress is called in every step
            hooks["on_pulse"] = _abi.kvik_on_pulse(self._pulse)
        together = {}
        if processors:  # of single rows: of drafts, and in contrastive search
            hooks["logits_processor"] = _abi.kvik_logits_processor(self._scores)
            together["logits_processor"] = _abi.kvik_texts_processor(self._scores_together)
        if criteria:
            hooks["stopping_criteria"] = _abi.kvik_stopping_criteria(self._stops)
            together["stopping_criteria"] = _abi.kvik_texts_criteria(self._stops_together)
        self._together = sized(_abi.kvik_together, **together)
        if together:
            hooks["together"] = ctypes.pointer(self._together)
        self.struct = sized(_abi.kvik_hooks, **hooks, assistant_model=assistant.pointer if assistant else None)

    def _token(self, ctx: Any, row: int, token: int, text: bytes) -> bool:
        try:
            step = self._tokens.put(row, token)
            if step is not None:
                self.streamer.put(like(step, self.torch))
            return self.error is None
        except BaseException as e:  # noqa: BLE001 - raised again after the call
            self.error = self.error or e
            return False

    def _progress(self, ctx: Any, done: int, total: int) -> bool:
        try:
            return self.error is None
        except BaseException as e:  # noqa: BLE001
            self.error = e
            return False

    def _pulse(self, ctx: Any) -> bool:
        """Is called now and then: Python runs the handlers of signals where a callback begins."""
        try:
            return self.error is None
        except BaseException as e:  # noqa: BLE001
            self.error = e
            return False

    def _notice(self, ctx: Any, text: bytes) -> None:
        try:
            self.notices((text or b"").decode("utf-8", "replace"))
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e

    def _inputs(self, ids: int, n: int, scores: Optional[int], vocab: int) -> Tuple[Any, Any]:
        """Returns copies, which a callback may keep: the memory of the library is only valid for the time of the call."""
        tokens = view(ids, (1, n), np.int32).astype(np.int64)
        values = None if scores is None else view(scores, (1, vocab), np.float32).copy()
        return like(tokens, self.torch), None if values is None else like(values, self.torch)

    def _scores(self, ctx: Any, row: int, ids: int, n: int, scores: int, vocab: int) -> bool:
        try:
            self._process(*self._inputs(ids, n, scores, vocab), row, view(scores, (1, vocab), np.float32))
            return True
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return False

    def _process(self, tokens: Any, given: Any, row: int, scores: np.ndarray) -> None:
        """Calls the processors for rows, of which `row` is the first of the result, and keeps what they return in scores."""
        out = given
        for processor in self.processors:
            out = processor(tokens, out, row) if getattr(processor, "_kvik_row", False) else processor(tokens, out)
        if out is None:
            raise TypeError("a logits processor returned None; it must return the scores")
        result = to_numpy(out, np.float32)
        if result.size != scores.size:
            raise ValueError(f"a logits processor returned {result.size} scores, {list(result.shape)}; expected {list(scores.shape)}")
        scores[:] = result.reshape(scores.shape)

    def _scores_together(self, ctx: Any, texts: Any, scores: int, vocab: int) -> bool:
        try:
            shown = ctypes.cast(texts, ctypes.POINTER(_abi.kvik_texts)).contents
            place = view(scores, (shown.rows, vocab), np.float32)
            tokens, given = like(self.texts.ids(shown, 0), self.torch), like(place.copy(), self.torch)
            self._process(tokens, given, int(view(shown.row, (1,), np.uint32)[0]), place)
            return True
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return False

    def _stops_together(self, ctx: Any, texts: Any, ends: int) -> None:
        rows = 0
        try:
            shown = ctypes.cast(texts, ctypes.POINTER(_abi.kvik_texts)).contents
            rows = int(shown.rows)
            tokens, scores = like(self.texts.ids(shown, 1), self.torch), self.texts.scores(shown, self.vocab)
            if scores is not None:
                scores = tuple(like(s, self.torch) for s in scores)
            done = np.zeros(rows, bool)
            for criterion in self.criteria:
                done |= rows_that_end(criterion(tokens, scores), rows)
            view(ends, (rows,), bool)[:] = done
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            view(ends, (rows,), bool)[:] = True

    def _stops(self, ctx: Any, row: int, ids: int, n: int) -> bool:
        try:
            tokens, _ = self._inputs(ids, n, None, 0)
            for criterion in self.criteria:  # no generator: it would make another exception of a StopIteration
                if is_true(criterion(tokens, None)):
                    return True
            return False
        except BaseException as e:  # noqa: BLE001
            self.error = self.error or e
            return True
