"""Models of the Hugging Face hub that are not here, where a program asks for them: kvik pull downloads, into the hub's own cache.

The arguments and variables are those of Transformers.  A program asks with local_files_only=False or force_download=True, or whoever
starts it with HF_HUB_OFFLINE=0; else nothing is downloaded.
"""
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, Optional, Union

from . import files, hub
from .errors import KvikError, MissingError
from .utils.logging import notice

ARGUMENTS = ("revision", "gguf_file", "cache_dir", "token", "use_auth_token", "local_files_only", "force_download", "resume_download",
             "code_revision")
"""What from_pretrained() of all classes takes about the hub."""
_ON, _OFF = ("1", "on", "yes", "true"), ("0", "off", "no", "false")


def _is(variable: str, values: Any) -> bool:
    return os.environ.get(variable, "").lower() in values


def is_offline() -> bool:
    """True if a variable forbids the network.  HF_HUB_OFFLINE=0 allows it, whatever the other one says."""
    return _is("HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE", _ON)


def command() -> Optional[str]:
    """Returns the path of the command kvik: of the source tree, of the wheel, or of $PATH; None if there is none."""
    here = Path(__file__).resolve().parent
    places = [here.parent.parent, Path(sysconfig.get_path("scripts")), Path(sys.executable).parent, *(p / "bin" for p in here.parents)]
    found = next((str(p / "kvik") for p in places if os.access(p / "kvik", os.X_OK) and (p / "kvik").is_file()), None)
    return found or shutil.which("kvik")


def _pull(name: str, revision: Optional[str], gguf_file: Optional[str], cache: Any, token: Any) -> str:
    """Downloads what is missing of a repository; returns the path of the model.  Raises MissingError with the command's sentence."""
    program = command()
    if program is None:
        raise MissingError(f"no model {name!r}, and no command kvik beside the package or in $PATH that could download it")
    env = dict(os.environ)
    if cache is not None:
        env["HF_HUB_CACHE"] = os.path.abspath(os.path.expanduser(os.fspath(cache)))
    if isinstance(token, str):
        env["HF_TOKEN"] = token
    elif token is False:
        env.pop("HF_TOKEN", None)
        env["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
    word = name + (f":{gguf_file}" if gguf_file else "") + (f"@{revision}" if revision else "")
    done = subprocess.run([program, "pull", "--json", "--", word], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=env, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")
        raise MissingError(f"no model {word!r}: " + "; ".join(line[6:] if line.startswith("kvik: ") else line for line in said if line))
    return str(json.loads(done.stdout)["path"])


def find(name: Union[str, "os.PathLike[str]"], revision: Optional[str] = None, gguf_file: Optional[str] = None, cache_dir: Any = None,
         token: Any = None, use_auth_token: Any = None, local_files_only: Optional[bool] = None, force_download: Optional[bool] = None,
         **_: Any) -> str:
    """Returns the path of a model as hub.resolve() does, and downloads it before that if it is asked to."""
    asked = local_files_only is False or bool(force_download) or _is("HF_HUB_OFFLINE", _OFF)
    text = os.fspath(name)
    local = not asked or local_files_only or is_offline() or not hub.is_repository(text) or files.exists(os.path.expanduser(text))
    if local:
        return hub.resolve(name, revision, gguf_file, cache_dir)
    try:
        return hub.resolve(_pull(text, revision, gguf_file, cache_dir, token if token is not None else use_auth_token))
    except KvikError as e:
        try:
            found = hub.resolve(name, revision, gguf_file, cache_dir)
        except KvikError:
            found = ""
        if force_download or not found:
            raise
        notice(f"{text} is used as it is in the cache, since the hub did not give it: {e}")
        return found


def take(name: Union[str, "os.PathLike[str]"], arguments: Dict[str, Any]) -> str:
    """Returns find() of a name with those of the arguments that are about the hub, which it takes out."""
    return find(name, **{k: arguments.pop(k) for k in ARGUMENTS if k in arguments})
