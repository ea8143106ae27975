"""Files of a model that Python reads by itself: what has a name is read, or its error is told; absent is only what has no name."""
import json
import os
import stat
from typing import Any, Dict, Union

from .errors import FileError, FormatError, MissingError

Path = Union[str, "os.PathLike[str]"]


def exists(path: Path) -> bool:
    """True if anything has this name, a broken link too, or if the system fails to look: reading it then gives the error."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_text(path: Path) -> str:
    """Returns the text of a regular file.  Raises MissingError if nothing has this name, FileError for a broken link and all else."""
    name = os.fspath(path)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block
    except OSError as e:
        if os.path.islink(name) and isinstance(e, FileNotFoundError):
            raise FileError(f"{name}: a broken link: its target {os.readlink(name)} is not there") from e
        raise (FileError if exists(name) else MissingError)(f"{name}: {e.strerror}") from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileError(f"{name}: not a regular file")
    try:
        with open(fd, encoding="utf-8") as f:
            return f.read()
    except OSError as e:
        raise FileError(f"{name}: {e.strerror}") from e
    except ValueError as e:
        raise FormatError(f"{name}: {e}") from e


def read_object(path: Path) -> Dict[str, Any]:
    """Returns the object in a file of JSON.  Raises as read_text(), and FormatError if the file holds no object."""
    try:
        values = json.loads(read_text(path))
    except RecursionError as e:
        raise FormatError(f"{os.fspath(path)}: its arrays and objects are nested too deeply") from e
    except json.JSONDecodeError as e:
        raise FormatError(f"{os.fspath(path)}: {e}") from e
    if not isinstance(values, dict):
        raise FormatError(f"{os.fspath(path)}: expected a JSON object")
    return values
