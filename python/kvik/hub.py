"""Names of models: a directory, a .gguf file, an id of the Hugging Face hub that is in the local cache, or the name of a
file in kvik's own cache.

Nothing is downloaded here: see `download`.
"""
import os
import re
from pathlib import Path
from typing import List, Optional, Union

from . import files
from .errors import MissingError


def cache_dir() -> Path:
    """Returns the directory of the hub's local cache, by the variables that the hub's own library reads."""
    for variable, rest in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"),
                           ("XDG_CACHE_HOME", "huggingface/hub")):
        value = os.environ.get(variable)
        if value:
            return Path(os.path.expanduser(value)) / rest  # no shell has read a variable of a file of variables
    return Path.home() / ".cache" / "huggingface" / "hub"


def own_cache() -> Path:
    """Returns the directory of kvik's own cache, where the command looks for names without a slash."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(os.path.expanduser(given)) if given else Path.home() / ".cache") / "kvik"


def _is_name(name: str) -> bool:
    """True if a name is one of the hub.  Two names with "--" could have one folder in its cache, so there are none."""
    return re.fullmatch(r"(\b[\w.-]{1,96}\b/)?\b[\w.-]{1,96}\b", name, re.ASCII) is not None and not re.search(r"--|\.\.|\.git$", name)


def is_repository(name: str) -> bool:
    """True if a name is one of the hub with an owner: "org/name"."""
    return "/" in name and _is_name(name) and not name.endswith(".gguf")


def _own(name: str) -> Optional[Path]:
    if not name or "/" in name:
        return None
    return next((p for p in (own_cache() / name, own_cache() / (name + ".gguf")) if os.path.lexists(p)), None)


def _absent(name: str, folder: Path) -> MissingError:
    """Returns the error of a name that nothing has.  folder: where the hub's cache would have it."""
    if name.startswith(("/", "~", ".")) or name.count("/") > 1 or ("/" in name and name.endswith(".gguf")):
        return MissingError(f"no model {name!r}: no such file or directory")  # a path, and no name that something could be fetched by
    own, near = "", ""
    if "/" not in name:
        own = f"none of this name in {own_cache()}, and "
        files_there = sorted(p.name for p in own_cache().glob("*.gguf")) if len(name) > 2 else []
        near = next((f" Did you mean {n!r}?" for n in files_there if name.lower() in n.lower()), "")
    return MissingError(f"no model {name!r}: no such file or directory, {own}no {folder} in the local cache of the hub.{near} Give a path, "
                        "fetch the model with `kvik pull` or `hf download`, or let from_pretrained(..., local_files_only=False) download it.")


def _snapshot(folder: Path, revision: str) -> Optional[Path]:
    snapshots = folder / "snapshots"
    ref = folder / "refs" / revision
    if ref.is_file():
        commit = snapshots / ref.read_text(encoding="utf-8").strip()
        if commit.is_dir():
            return commit
    if (snapshots / revision).is_dir():
        return snapshots / revision
    found = sorted(snapshots.iterdir()) if snapshots.is_dir() else []
    return found[0] if revision == "main" and len(found) == 1 else None


def _gguf(folder: Path) -> List[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix == ".gguf")


def resolve(name: Union[str, "os.PathLike[str]"], revision: Optional[str] = None, gguf_file: Optional[str] = None,
            cache: Optional[str] = None) -> str:
    """Returns the path of a model.

    name: a directory, a .gguf file, "org/name", or the name of a file in kvik's own cache, with or without ".gguf".  A directory
    that has no config.json and one .gguf file means that file; ``gguf_file`` names one of several.  Raises MissingError with the places
    that were searched.
    """
    path = Path(os.path.expanduser(os.fspath(name)))
    if not files.exists(path):
        folder = (Path(cache) if cache else cache_dir()) / ("models--" + os.fspath(name).replace("/", "--"))
        found = (None if cache or revision else _own(os.fspath(name))) or (_snapshot(folder, revision or "main") if _is_name(os.fspath(name)) else None)
        if found is None:
            raise _absent(os.fspath(name), folder)
        path = found
    if os.path.isdir(path) and gguf_file:
        path = path / gguf_file
        if not files.exists(path):
            raise MissingError(f"no file {path}")
    elif os.path.isdir(path) and not files.exists(path / "config.json"):
        ggufs = _gguf(path)
        if len(ggufs) == 1:
            path = ggufs[0]
        elif len(ggufs) > 1:
            raise MissingError(f"{path} holds {len(ggufs)} .gguf files; choose one with gguf_file={ggufs[0].name!r}")
    return str(path)
