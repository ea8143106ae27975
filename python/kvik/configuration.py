"""Configurations of models: config.json as attributes, or what the metadata of a GGUF file says."""
import copy
import ctypes
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Type, Union

from . import download, files
from ._lib import call, encode, lib, text_of
from .config_defaults import DERIVED, LAYERED, OF
from .errors import FormatError, UnsupportedError

CONFIGS: Dict[str, Callable[[], Any]] = {}
"""For each type of models, what returns the class of its configurations.  kvik.models registers them."""

# Attributes that are None where the file of a model does not have them, as in Transformers.
_NONE = object()
_COMMON: Dict[str, Any] = {
    "_attn_implementation": None, "_name_or_path": "", "chunk_size_feed_forward": 0, "id2label": {0: "LABEL_0", 1: "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "is_encoder_decoder": False, "output_attentions": False, "output_hidden_states": False, "problem_type": None, "return_dict": True}
_UNSAID = ("_attn_implementation", "_name_or_path", "_handed")  # attributes that are of the program and not of the model
_UNSET = ("architectures", "bos_token_id", "decoder_start_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype")


class PretrainedConfig:
    """The configuration of a model.

    Attributes are the keys of config.json (``num_hidden_layers``, ``sliding_window``, ...).  Nested objects, such as
    ``text_config``, are configurations of their own.  A key that is not given has the value that Transformers gives it for this type
    of models, and to_dict() has it too.  Ids of special tokens that a file does not have are None.
    """

    model_type = ""
    attribute_map: Dict[str, str] = {"dtype": "torch_dtype", "torch_dtype": "dtype"}
    """Other names of keys: ``hidden_size`` of GPT-2 is its ``n_embd``."""

    def __init__(self, **kwargs: Any) -> None:
        for key, value in kwargs.items():
            if key.endswith("_config") and isinstance(value, dict) and key != "quantization_config":
                value = PretrainedConfig(**value)
            setattr(self, key, value)

    def __getattr__(self, name: str) -> Any:
        other = type(self).attribute_map.get(name)
        if other in vars(self):
            return vars(self)[other]
        found = self._default(name)
        if found is _NONE and other is not None:
            found = self._default(other)
        if isinstance(found, (dict, list)):
            return self._hand_out(name, found)
        if found is not _NONE:
            return found
        if name in _UNSET:
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has the keys of the model's file")

    def _hand_out(self, name: str, usual: Any) -> Any:
        """Returns a value that a program may change in place (``config.rope_parameters["factor"] = 4``): the same one as before.

        One that nobody has changed follows the keys that it is made of.
        """
        kept = vars(self).setdefault("_handed", {})
        if name not in kept or kept[name][0] == kept[name][1] != usual:
            kept[name] = usual, copy.deepcopy(usual)
        return kept[name][0]

    def own_values(self) -> Dict[str, Any]:
        """Returns what the configuration was given, and what a program has changed in place since."""
        changed = {k: value for k, (value, usual) in vars(self).get("_handed", {}).items() if value != usual}
        older = ("rope_scaling", "rope_theta") if "rope_parameters" in changed else ()
        return {**{k: v for k, v in vars(self).items() if k not in _UNSAID and k not in older}, **changed}

    def _default(self, name: str) -> Any:
        """Returns what a configuration of this type has for a key that is not given; _NONE if it has none."""
        kind = str(self.model_type or "")
        if name == "num_labels":
            return len(self.id2label)
        if name in _COMMON and name not in OF.get(kind, ()):
            return copy.deepcopy(_COMMON[name])
        if kind not in OF or name.startswith("__"):
            return _NONE
        if name == "layer_types" and kind in (*LAYERED, *_RECURRENT):
            return layer_kinds(self) or ["full_attention"] * int(self.num_hidden_layers)
        if kind in DERIVED.get(name, ()):
            heads = int(self.num_attention_heads)
            return heads if name == "num_key_value_heads" else int(self.hidden_size) // heads
        if name.endswith("_token_id") and "model_type" in vars(self):  # of a file, which has the ids that the model ends with
            return _NONE
        if name not in OF[kind]:
            return _NONE
        return self._rope(OF[kind][name]) if name == "rope_parameters" else copy.deepcopy(OF[kind][name])

    def _rope(self, usual: Dict[str, Any]) -> Any:
        """Returns rope_parameters of a file that has the older rope_theta and rope_scaling; _NONE where kinds of layers differ."""
        own, scaling = vars(self), dict(vars(self).get("rope_scaling") or {})
        if "full_attention" in usual and own.keys() & {"rope_theta", "rope_scaling"}:
            return _NONE
        if "type" in scaling:
            scaling.setdefault("rope_type", scaling.pop("type"))
        return {**copy.deepcopy(usual), **scaling, **{k: own[k] for k in ("rope_theta", "partial_rotary_factor") if k in own}}

    def to_diff_dict(self) -> Dict[str, Any]:
        """Returns the keys of this type of models, and those of all types whose values differ from the usual ones."""
        usual = {**_COMMON, **dict.fromkeys(_UNSET)}
        return {k: v for k, v in self.to_dict().items() if k not in usual or v != usual[k] or k in OF.get(self.model_type, ())}

    def __setattr__(self, name: str, value: Any) -> None:
        other = type(self).attribute_map.get(name)
        object.__setattr__(self, other if other is not None and other in vars(self) else name, value)

    @classmethod
    def from_dict(cls, values: Dict[str, Any], **kwargs: Any) -> "PretrainedConfig":
        """Makes a configuration of a dictionary."""
        return cls(**{**values, **kwargs})

    @classmethod
    def from_pretrained(cls, name: Any, **kwargs: Any) -> "PretrainedConfig":
        """Reads the configuration of a model's directory or .gguf file.  The weights are not loaded."""
        path = download.take(name, kwargs)
        kwargs.pop("trust_remote_code", None)
        out = cls.from_dict(read_config(path), **kwargs)
        out._name_or_path = str(name)
        return out

    def get_text_config(self, decoder: bool = False) -> "PretrainedConfig":
        """Returns the configuration of the text model, which is this one unless it is nested."""
        return getattr(self, "text_config", None) or self

    def to_dict(self) -> Dict[str, Any]:
        """Returns the keys and values, with those that this type of models has where they are not given."""
        kind = str(self.model_type or "")
        names = [*_COMMON, *_UNSET, *OF.get(kind, ()), *(k for k, kinds in DERIVED.items() if kind in kinds),
                 *(("layer_types",) if kind in LAYERED else ())]
        told = {k: getattr(self, k, _NONE) for k in names if k not in _UNSAID and type(self).attribute_map.get(k) not in vars(self)}
        told.pop("torch_dtype" if "dtype" in told else "", None)
        values = {**({"model_type": kind} if kind else {}), **{k: v for k, v in told.items() if v is not _NONE}, **self.own_values()}
        return {k: v.to_dict() if isinstance(v, PretrainedConfig) else copy.deepcopy(v) for k, v in values.items()}

    def to_json_string(self) -> str:
        """Returns the configuration as JSON."""
        return json.dumps(self.to_diff_dict(), indent=2, sort_keys=True, default=str) + "\n"

    def save_pretrained(self, directory: Union[str, "os.PathLike[str]"], **_: Any) -> None:
        """Writes config.json to a directory."""
        os.makedirs(directory, exist_ok=True)
        Path(directory, "config.json").write_text(self.to_json_string(), encoding="utf-8")

    def update(self, values: Dict[str, Any]) -> None:
        """Sets attributes."""
        for key, value in values.items():
            setattr(self, key, value)

    def get(self, key: str, default: Optional[Any] = None) -> Any:
        """Returns a value, or the default."""
        if key in _UNSET and not {key, type(self).attribute_map.get(key)} & vars(self).keys():
            return default
        return getattr(self, key, default)

    def __iter__(self) -> Iterator[str]:
        return (k for k in vars(self) if k != "_handed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PretrainedConfig) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.to_json_string()}"


# Types of models whose files, from before layer_types, leave out that every so many-th layer sees all of the text.
_PERIODS = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "olmo3": 4}


_RECURRENT = ("falcon_mamba", "jamba", "mamba", "mamba2")  # of these Transformers derives layer_types


def layer_kinds(config: Any) -> Optional[List[str]]:
    """Returns what each layer sees, in the words of layer_types; None if each sees all of the text, or the number is not known.

    Where the configuration has no layer_types, they are those that Transformers makes of its other keys.
    """
    types = config.own_values().get("layer_types") if isinstance(config, PretrainedConfig) else getattr(config, "layer_types", None)
    n = int(getattr(config, "num_hidden_layers", None) or 0)
    if types:
        return list(types)
    kind = str(getattr(config, "model_type", None) or "")
    if kind in _RECURRENT:
        every, first = (getattr(config, f"attn_layer_{what}", None) for what in ("period", "offset"))
        return ["full_attention" if every and i % every == first else "linear_attention" for i in range(n)]
    if getattr(config, "attention_chunk_size", None) and kind.startswith("llama4"):
        every = getattr(config, "no_rope_layer_interval", None) or 4
        ropes = getattr(config, "no_rope_layers", None) or [(i + 1) % every for i in range(n)]
        return ["chunked_attention" if rope else "full_attention" for rope in ropes]
    asked = getattr(config, "use_sliding_window", None)
    if asked is None:
        asked = not kind.startswith(("qwen2", "qwen3"))
    if not n or not asked or not getattr(config, "sliding_window", None):
        return None
    period = next((p for p in (getattr(config, name, None) for name in ("sliding_window_pattern", "_sliding_window_pattern")) if p),
                  _PERIODS.get(kind))
    first = getattr(config, "max_window_layers", None) or 0
    slides = [(i + 1) % period if period else i >= first for i in range(n)]
    return ["sliding_attention" if x else "full_attention" for x in slides]


def _rope_of(d: Dict[str, Any], rope: Dict[str, Any], usual: Dict[str, Any]) -> Dict[str, Any]:
    """Returns rope_parameters of what a description says of rotary positions.  usual: those of the type of models."""
    out: Dict[str, Any] = {"rope_theta": rope["theta"], "rope_type": rope["type"]}
    for key, name in (("factor", "factor"), ("original_context", "original_max_position_embeddings")):
        if key in rope:
            out[name] = rope[key]
    if "partial_rotary_factor" in usual:
        out["partial_rotary_factor"] = rope["dims"] / d["head_dim"]
    return out


def _own_names(values: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the values under the names that this type of models has for them: n_embd of GPT-2 is its hidden_size."""
    kind = str(values["model_type"] or "")
    own, names = OF.get(kind, {}), config_class(kind).attribute_map
    return {names[k] if k not in own and names.get(k) in own else k: v for k, v in values.items()}


def _from_description(d: Dict[str, Any]) -> Dict[str, Any]:
    """Returns what the description of a model says, under the keys of config.json."""
    layers = [layer for layer in d.get("layers") or [] if layer["kind"] != "cross_attention"]
    kind = str(d.get("architecture") or "")
    kind = kind + "_text" if kind + "_text" in OF else kind  # a .gguf file holds no other parts
    own = OF.get(kind, {})
    usual = own.get("rope_parameters")
    windows = {layer.get("window") for layer in layers if layer.get("window")}
    tokens = d.get("tokenizer") or {}
    values: Dict[str, Any] = {
        "model_type": kind or None, "vocab_size": d.get("vocab"), "hidden_size": d.get("hidden_size"),
        "intermediate_size": d.get("intermediate_size"), "num_hidden_layers": len(layers),
        "num_attention_heads": d.get("attention_heads"), "num_key_value_heads": d.get("kv_heads"),
        "head_dim": d.get("head_dim"), "max_position_embeddings": d.get("context"),
        "tie_word_embeddings": d.get("tied_head"), "sliding_window": min(windows) if windows else None,
        "layer_types": [layer["kind"] for layer in layers] or None,
    }
    for role in ("bos", "eos", "pad"):
        values[f"{role}_token_id"] = (tokens.get(f"{role}_token") or {}).get("id")
    epsilon = next((k for k in ("rms_norm_eps", "layer_norm_epsilon") if k in own), None)
    if epsilon:
        values[epsilon] = d.get("norm_eps")
    if usual and d.get("rope"):
        if "full_attention" in usual:
            both = {"full_attention": d["rope"], "sliding_attention": d.get("rope_sliding") or d["rope"]}
            values["rope_parameters"] = {k: _rope_of(d, rope, usual[k]) for k, rope in both.items()}
        else:
            values["rope_parameters"] = _rope_of(d, d["rope"], usual)
    if "original_max_position_embeddings" in own and "original_context" in (d.get("rope") or {}):
        values["original_max_position_embeddings"] = d["rope"]["original_context"]
    if "d_ff" in own:  # T5, whose attribute_map does not have it
        values["d_ff"] = values.pop("intermediate_size")
    return _own_names(values)


def read_config(path: str, model: Any = None) -> Dict[str, Any]:
    """Returns the configuration of a path.  model: a handle whose description stands in for config.json."""
    file = Path(path) / "config.json"
    if files.exists(file):
        return files.read_object(file)
    if model is not None:
        return _from_description(json.loads(text_of("kvik_model_describe", model)))
    opened = ctypes.c_void_p()
    try:
        call("kvik_model_open_with", encode(path), None, ctypes.byref(opened))  # the weights are mapped, and not read
    except (FormatError, UnsupportedError):
        return {"model_type": json.loads(text_of("kvik_model_peek", encode(path))).get("architecture")}
    try:
        return _from_description(json.loads(text_of("kvik_model_describe", opened)))
    finally:
        lib.kvik_model_close(opened)


class AutoConfig(PretrainedConfig):
    """Reads the configuration of any model, as the class of its type where there is one."""

    @classmethod
    def from_dict(cls, values: Dict[str, Any], **kwargs: Any) -> PretrainedConfig:
        """Makes a configuration of a dictionary."""
        return config_class(values.get("model_type"))(**{**values, **kwargs})

    @classmethod
    def for_model(cls, model_type: str, **kwargs: Any) -> PretrainedConfig:
        """Makes a configuration of a type of models."""
        return config_class(model_type)(**{"model_type": model_type, **kwargs})


def config_class(model_type: Any) -> Type[PretrainedConfig]:
    """Returns the class of a type's configurations: LlamaConfig for "llama"."""
    made = CONFIGS.get(str(model_type or ""))
    return PretrainedConfig if made is None else made()


PreTrainedConfig = PretrainedConfig


class BitsAndBytesConfig:
    """Keeps its arguments and does nothing else, so that a program that imports it runs.

    from_pretrained(quantization_config=...) warns and ignores it; ``quantize="q4_0"`` quantizes weights.
    """

    def __init__(self, *_: Any, **kwargs: Any) -> None:
        vars(self).update(kwargs)


class QuantoConfig(BitsAndBytesConfig):
    """As BitsAndBytesConfig."""


class HqqConfig(BitsAndBytesConfig):
    """As BitsAndBytesConfig."""
