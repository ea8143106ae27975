"""The hooks of generate() with a bar for the prompt."""
from typing import Any

from ..progress import Bar
from .callbacks import Callbacks


class Watched(Callbacks):
    """Callbacks that show the progress of the prompt."""

    bar: Bar

    def _progress(self, ctx: Any, done: int, total: int) -> bool:
        try:
            if self.error is None:
                self.bar(done, total)
        except BaseException as e:  # noqa: BLE001 - raised again after the call
            self.error = e
        return super()._progress(ctx, done, total)
