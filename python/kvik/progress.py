"""Bars that show how far a call is: of a long prompt in tokens, of a recording in seconds.  tqdm draws them, in a notebook as it
does there.

There are none until kvik.utils.logging.enable_progress_bar(), since a library writes nothing unasked.
"""
from typing import Any, Callable, Optional

from .utils.logging import is_progress_bar_enabled


class Bar:
    """A bar for the time of a `with`.  It appears at the first news that something is left to do, so short calls have none."""

    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit = what, unit
        self.drawn: Any = None
        self.ended = False

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.drawn is not None:
            self.drawn.close()

    def __call__(self, done: float, total: float) -> None:
        """Shows that so much of the total is done.  total 0: not known.  A bar ends with its total, before a streamer writes."""
        if self.ended:
            return
        if self.drawn is None:
            if not is_progress_bar_enabled() or 0 < total <= done:
                return
            from tqdm.auto import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
            form = "{desc}: {percentage:3.0f}% {bar} {n:.0f}/{total:.0f} {unit} [{elapsed}<{remaining}]" if total else None
            self.drawn = tqdm(desc=self.what, total=total or None, unit=self.unit, bar_format=form)
        self.drawn.update(done - self.drawn.n)
        self.ended = 0 < total <= done
        if self.ended:
            self.drawn.close()

    def beside(self, told: Optional[Callable[[float, float], Any]]) -> Callable[[float, float], None]:
        """Returns a function that shows the progress, and tells it a function of the program."""
        def both(done: float, total: float) -> None:
            self(done, total)
            if told is not None:
                told(done, total)
        return both
