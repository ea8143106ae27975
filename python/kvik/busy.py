"""Whether the thread that took a cache still uses it."""
import sys
import threading

LEAVING = threading.Lock()  # of several threads that find a cache left, one takes it


def has_left(thread: int) -> bool:
    """True if a thread runs nothing of this package: a handler of a signal raised where its call ended, before the cache was let go."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(f"{__package__}."):
            return False
        frame = frame.f_back
    return True
