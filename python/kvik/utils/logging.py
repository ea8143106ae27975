"""How much kvik says: its notices are Python warnings, which set_verbosity_error() silences.

The variable TRANSFORMERS_VERBOSITY sets the level at the start: "debug", "info", "warning" (the default), "error" or
"critical".
"""
import functools
import logging as _logging
import os
import warnings
from logging import CRITICAL, DEBUG, ERROR, FATAL, INFO, NOTSET, WARN, WARNING
from typing import Any, Dict, Optional

_LEVELS: Dict[str, int] = {"detail": DEBUG, "debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR, "critical": CRITICAL}
_level = _LEVELS.get(os.environ.get("TRANSFORMERS_VERBOSITY", "").lower(), WARNING)


def get_verbosity() -> int:
    """Returns the level: logging.WARNING and the like."""
    return _level


def set_verbosity(verbosity: int) -> None:
    """Sets the level.  Above WARNING kvik gives no notices; errors are exceptions in any case."""
    global _level
    _level = int(verbosity)
    get_logger().setLevel(_level)


def set_verbosity_info() -> None:
    """Sets the level INFO."""
    set_verbosity(INFO)


def set_verbosity_warning() -> None:
    """Sets the level WARNING."""
    set_verbosity(WARNING)


def set_verbosity_debug() -> None:
    """Sets the level DEBUG."""
    set_verbosity(DEBUG)


def set_verbosity_error() -> None:
    """Sets the level ERROR: no notices."""
    set_verbosity(ERROR)


def get_log_levels_dict() -> Dict[str, int]:
    """Returns the levels by name."""
    return dict(_LEVELS)


def is_progress_bar_enabled() -> bool:
    """Returns False: kvik shows no progress bars."""
    return False


def enable_progress_bar() -> None:
    """Does nothing: kvik shows no progress bars."""


def disable_progress_bar() -> None:
    """Does nothing: kvik shows no progress bars."""


class _Logger(_logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger that can say something once."""

    @functools.lru_cache(None)
    def warning_once(self, *args: Any) -> None:
        """Says a warning the first time."""
        self.warning(*args)

    @functools.lru_cache(None)
    def info_once(self, *args: Any) -> None:
        """Says an information the first time."""
        self.info(*args)

    warning_advice = warning_once


def get_logger(name: Optional[str] = None) -> Any:
    """Returns a logger of Python for a program's own messages; None: that of kvik."""
    return _Logger(_logging.getLogger(name or "kvik"), {})


def notice(text: str, stacklevel: int) -> None:
    """Gives a notice of the package as a warning of Python, unless the level is above WARNING."""
    if _level <= WARNING:
        warnings.warn(text, stacklevel=stacklevel + 1)


__all__ = ["CRITICAL", "DEBUG", "ERROR", "FATAL", "INFO", "NOTSET", "WARN", "WARNING", "disable_progress_bar", "enable_progress_bar",
           "get_log_levels_dict", "get_logger", "get_verbosity", "is_progress_bar_enabled", "set_verbosity", "set_verbosity_debug",
           "set_verbosity_error", "set_verbosity_info", "set_verbosity_warning"]
