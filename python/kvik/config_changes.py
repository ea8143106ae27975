"""What a program changes of a model's configuration when it opens the model: from_pretrained(name, config=..., num_hidden_layers=2).

The library reads config.json beside the weights.  So a model with changes is opened in a folder of its own, which has links to the
model's files and a config.json with the changes.
"""
import copy
import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Dict

from .configuration import AutoConfig, PretrainedConfig, config_class, read_config
from .config_defaults import OF
from .errors import ArgumentError, UnsupportedError

# Keys that a file may leave out and that change what is computed.
_KNOWN = {"attention_chunk_size", "head_dim", "layer_types", "max_position_embeddings", "max_window_layers", "num_hidden_layers",
          "num_key_value_heads", "partial_rotary_factor", "rms_norm_eps", "rope_local_base_freq", "rope_parameters", "rope_scaling",
          "rope_theta", "sliding_window", "sliding_window_pattern", "tie_word_embeddings", "use_sliding_window"}
# Keys that change nothing of what kvik computes; model.config has them all the same.
_NEUTRAL = {"_name_or_path", "architectures", "auto_map", "dtype", "id2label", "initializer_range", "is_decoder", "is_encoder_decoder",
            "label2id", "output_attentions", "output_hidden_states", "pretraining_tp", "return_dict",
            "torch_dtype", "transformers_version", "use_cache"}


def is_neutral(key: str) -> bool:
    """True if a key of a configuration changes nothing of what is computed."""
    return key in _NEUTRAL or key.startswith("_attn") or key.endswith(("_token_id", "_dropout", "dropout"))


def _same(value: Any, usual: Any) -> bool:
    """True if two values of a key mean the same: a nested configuration has its usual values too."""
    if isinstance(value, dict) and isinstance(usual, dict) and value.keys() != usual.keys() and "model_type" in usual:
        value, usual = (AutoConfig.from_dict(v).to_dict() for v in (value, usual))
    return bool(value == usual or not (value or usual))


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a process that this one forked
        shutil.rmtree(folder, ignore_errors=True)


class Changes:
    """The configuration that a program asks for beside a path.

    given: a configuration, its dictionary, its path, or None.  options: keyword arguments of from_pretrained(), of which the keys of
    the configuration are taken out.  ``folder``: where the model is opened.
    """

    def __init__(self, path: str, given: Any, options: Dict[str, Any]) -> None:
        self.path, self.folder = path, path
        self.given = given
        if isinstance(given, (str, os.PathLike)):
            self.given = given = AutoConfig.from_pretrained(given)
        self.values: Dict[str, Any] = {}
        if given is not None or any(key in _KNOWN or is_neutral(key) or self._has(key) for key in options):
            self._take(options)

    @property
    def own(self) -> Dict[str, Any]:
        """The configuration of the files."""
        if not hasattr(self, "_own"):
            self._own = read_config(self.path)
        return self._own

    def _has(self, key: str) -> bool:
        """True if the configuration of a model has a key, or its type of models has one."""
        return key in self.own or key in OF.get(str(self.own.get("model_type") or ""), ())

    def _take(self, options: Dict[str, Any]) -> None:
        usual = {**AutoConfig.from_dict(self.own).to_dict(), **self.own}
        names = config_class(self.own.get("model_type")).attribute_map
        wanted = dict(self.given if isinstance(self.given, dict) else self.given.to_dict() if self.given is not None else {})
        for key in list(options):
            real = names[key] if key not in usual and names.get(key) in usual else key
            if real in usual or real in _KNOWN or is_neutral(real):
                wanted[real] = options.pop(key)
        self.values = {k: v for k, v in wanted.items() if not _same(v, usual.get(k))}
        for key, value in self.values.items():
            if key not in usual and key not in _KNOWN and not is_neutral(key):
                raise ArgumentError(f"{key}={value!r}: the configuration of {self.path} has no {key}, and kvik computes the model as its "
                                    "files say; leave it out")
        self._open({k: v for k, v in self.values.items() if not is_neutral(k)})

    def _open(self, computing: Dict[str, Any]) -> None:
        """Makes the folder of a model with changes of what is computed, if there are any."""
        if not computing:
            return
        key, value = next(iter(computing.items()))
        if not os.path.isdir(self.path):
            raise UnsupportedError(f"{key}={value!r} differs from {self.path}, and a .gguf file has its configuration in itself; open a "
                                   "directory with config.json, or leave it out")
        if "model_type" in computing:
            raise ArgumentError(f"{self.path} is a model of type {self.own.get('model_type')!r}, and config is of type "
                                f"{computing['model_type']!r}")
        values = {**self.own, **computing}
        if "num_hidden_layers" in computing and len(values.get("layer_types") or ()) > int(values["num_hidden_layers"]) > 0:
            values["layer_types"] = values["layer_types"][:int(values["num_hidden_layers"])]
        if "rope_parameters" in computing:  # the newer form of the other two
            values = {k: v for k, v in values.items() if k not in ("rope_scaling", "rope_theta") or k in computing}
        elif values.get("rope_parameters") and computing.keys() & {"rope_scaling", "rope_theta"}:
            values["rope_parameters"] = {**values["rope_parameters"], **(computing.get("rope_scaling") or {}),
                                         **{k: v for k, v in computing.items() if k == "rope_theta"}}
        self.folder = tempfile.mkdtemp(prefix="kvik-")
        weakref.finalize(self, _remove, self.folder, os.getpid())
        for entry in os.scandir(self.path):
            if entry.name != "config.json":
                os.symlink(os.path.abspath(entry.path), os.path.join(self.folder, entry.name))
        Path(self.folder, "config.json").write_text(json.dumps(values), encoding="utf-8")

    def config(self, model: Any) -> PretrainedConfig:
        """Returns the configuration of the opened model.  model: its handle in the library."""
        if isinstance(self.given, PretrainedConfig):
            out = copy.deepcopy(self.given)
            out.update(self.values)
            return out
        return AutoConfig.from_dict({**read_config(self.folder, model), **self.values})
