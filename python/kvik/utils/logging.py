"""How much kvik says: its notices are Python warnings, which set_verbosity_error() silences.

The variable TRANSFORMERS_VERBOSITY sets the level at the start: "debug", "info", "warning" (the default), "error" or
"critical".
"""
import functools
import logging as _logging
import os
import sys
import warnings
from importlib.util import find_spec
from logging import CRITICAL, DEBUG, ERROR, FATAL, INFO, NOTSET, WARN, WARNING
from typing import Any, Dict, Optional

_LEVELS: Dict[str, int] = {"detail": DEBUG, "debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR, "critical": CRITICAL}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_bars = False
_HANDLER = _logging.StreamHandler()
_HANDLER.setFormatter(_logging.Formatter("[kvik] %(message)s"))


def get_verbosity() -> int:
    """Returns the level of kvik's logger: logging.WARNING and the like."""
    return int(get_logger().getEffectiveLevel())


def set_verbosity(verbosity: int) -> None:
    """Sets the level.  Above WARNING kvik gives no notices; errors are exceptions in any case."""
    get_logger().setLevel(verbosity)


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
    """True if long prompts and recordings show how far they are.  Not at the start."""
    return _bars


def enable_progress_bar() -> None:
    """Lets tqdm draw a bar for each long prompt of generate(), in tokens, and each recording, in seconds.

    Gives a notice, and shows none, if tqdm is not installed.
    """
    global _bars
    _bars = find_spec("tqdm") is not None
    if not _bars:
        notice("progress bars need tqdm, which is not installed: pip install tqdm")


def disable_progress_bar() -> None:
    """Shows no more progress bars."""
    global _bars
    _bars = False


def disable_default_handler() -> None:
    """Takes the handler that kvik's logger has off it."""
    get_logger().removeHandler(_HANDLER)


def enable_default_handler() -> None:
    """Gives kvik's logger its handler back, which writes to stderr."""
    get_logger().addHandler(_HANDLER)


def add_handler(handler: _logging.Handler) -> None:
    """Adds a handler to kvik's logger."""
    get_logger().addHandler(handler)


def remove_handler(handler: _logging.Handler) -> None:
    """Removes a handler of kvik's logger."""
    get_logger().removeHandler(handler)


def disable_propagation() -> None:
    """Keeps the messages of kvik's logger from the handlers of the root logger, as at the start."""
    get_logger().propagate = False


def enable_propagation() -> None:
    """Gives the messages of kvik's logger to the handlers of the root logger as well."""
    get_logger().propagate = True


def enable_explicit_format() -> None:
    """Lets the handlers of kvik's logger write level, file, line and time before each message."""
    _format(_logging.Formatter("[%(levelname)s|%(filename)s:%(lineno)d] %(asctime)s >> %(message)s"))


def reset_format() -> None:
    """Lets the handlers of kvik's logger write messages alone."""
    _format(None)


def _format(formatter: Optional[_logging.Formatter]) -> None:
    for handler in get_logger().handlers:
        handler.setFormatter(formatter)


def captureWarnings(capture: bool) -> None:
    """Sends warnings of Python, and so kvik's notices, to the logger "py.warnings", or no longer."""
    _logging.captureWarnings(capture)


def get_logger(name: Optional[str] = None) -> Any:
    """Returns a logger of Python for a program's own messages; None: that of kvik.

    It has ``warning_once``, ``info_once`` and ``warning_advice`` as well.  kvik itself gives notices, which are warnings.
    """
    return _made(name or "kvik")


@functools.lru_cache(None)
def _made(name: str) -> Any:
    logger = _logging.getLogger(name)
    logger.warning_once = functools.lru_cache(None)(logger.warning)  # type: ignore[attr-defined]
    logger.info_once = functools.lru_cache(None)(logger.info)  # type: ignore[attr-defined]
    logger.warning_advice = functools.partial(_advise, logger)  # type: ignore[attr-defined]
    if name == "kvik":
        if not logger.level:  # else the program has set one before the import
            logger.setLevel(_LEVELS.get(os.environ.get("TRANSFORMERS_VERBOSITY", "").lower(), WARNING))
        logger.addHandler(_HANDLER)
        logger.propagate = False
    return logger


def _advise(logger: _logging.Logger, *args: Any, **kwargs: Any) -> None:
    """Warns, unless the variable TRANSFORMERS_NO_ADVISORY_WARNINGS is set."""
    if not os.environ.get("TRANSFORMERS_NO_ADVISORY_WARNINGS"):
        logger.warning(*args, **{"stacklevel": 2, **kwargs})


def notice(text: str) -> None:
    """Gives a notice of the package as a warning of Python, at the line of the program that called it.

    Gives none if the level is above WARNING.
    """
    if get_verbosity() > WARNING:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


__all__ = [
    "CRITICAL", "DEBUG", "ERROR", "FATAL", "INFO", "NOTSET", "WARN", "WARNING", "add_handler", "captureWarnings",
    "disable_default_handler", "disable_progress_bar", "disable_propagation", "enable_default_handler", "enable_explicit_format",
    "enable_progress_bar", "enable_propagation", "get_log_levels_dict", "get_logger", "get_verbosity", "is_progress_bar_enabled",
    "remove_handler", "reset_format", "set_verbosity", "set_verbosity_debug", "set_verbosity_error", "set_verbosity_info",
    "set_verbosity_warning"]
