"""Classes by architecture, from one table: ``kvik.models.jamba.modeling_jamba`` and the like are made when they are imported."""
import sys
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Dict, Optional, Sequence, Tuple

from .. import cache_utils, configuration, model, processing
from ..configuration import PretrainedConfig
from ..model import PreTrainedModel
from ..seq2seq import Seq2SeqModel
from ..speech import SpeechSeq2SeqModel

# Folder; what the names of its classes begin with; model types; the suffixes of its classes.
_TEXT = ("ForCausalLM", "Model")
_TABLE: Tuple[Tuple[str, str, Tuple[str, ...], Tuple[str, ...]], ...] = (
    ("llama", "Llama", ("llama",), _TEXT),
    ("llama4", "Llama4", ("llama4", "llama4_text"), _TEXT),
    ("mistral", "Mistral", ("mistral",), _TEXT),
    ("mixtral", "Mixtral", ("mixtral",), _TEXT),
    ("gemma", "Gemma", ("gemma",), _TEXT),
    ("gemma2", "Gemma2", ("gemma2",), _TEXT),
    ("gemma3", "Gemma3", ("gemma3", "gemma3_text"), _TEXT),
    ("granite", "Granite", ("granite",), _TEXT),
    ("olmo2", "Olmo2", ("olmo2",), _TEXT),
    ("olmo3", "Olmo3", ("olmo3",), _TEXT),
    ("phi3", "Phi3", ("phi3",), _TEXT),
    ("qwen2", "Qwen2", ("qwen2",), _TEXT),
    ("qwen3", "Qwen3", ("qwen3",), _TEXT),
    ("qwen3_next", "Qwen3Next", ("qwen3_next",), _TEXT),
    ("qwen3_5", "Qwen3_5", ("qwen3_5", "qwen3_5_text"), _TEXT),
    ("qwen3_5_moe", "Qwen3_5Moe", ("qwen3_5_moe", "qwen3_5_moe_text"), _TEXT),
    ("gpt2", "GPT2", ("gpt2",), ("LMHeadModel", "Model")),
    ("gpt_oss", "GptOss", ("gpt_oss",), _TEXT),
    ("mamba", "Mamba", ("mamba",), _TEXT),
    ("mamba2", "Mamba2", ("mamba2",), _TEXT),
    ("falcon_mamba", "FalconMamba", ("falcon_mamba",), _TEXT),
    ("jamba", "Jamba", ("jamba",), _TEXT),
    ("zamba2", "Zamba2", ("zamba2",), _TEXT),
    ("t5", "T5", ("t5",), ("ForConditionalGeneration",)),
    ("mt5", "MT5", ("mt5",), ("ForConditionalGeneration",)),
    ("bart", "Bart", ("bart",), ("ForConditionalGeneration",)),
    ("mbart", "MBart", ("mbart",), ("ForConditionalGeneration",)),
    ("whisper", "Whisper", ("whisper",), ("ForConditionalGeneration",)),
)
_ROWS = {row[0]: row for row in _TABLE}
# Keys of configurations that have a usual name and one of their own.
_GPT2 = {"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
         "num_hidden_layers": "n_layer"}
_T5 = {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers", "head_dim": "d_kv"}
_BART = {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads", "num_hidden_layers": "encoder_layers"}
_KEYS: Dict[str, Dict[str, str]] = {"gpt2": _GPT2, "t5": _T5, "mt5": _T5, "bart": _BART, "mbart": _BART,
                                    "whisper": {**_BART, "num_key_value_heads": "encoder_attention_heads"}}
_STATES = ("mamba", "mamba2", "falcon_mamba")  # whose cache is the argument cache_params
# Other names that Transformers has in these modules, and the modules of kvik that have them.
_MORE: Dict[str, Tuple[Any, Tuple[str, ...]]] = {
    "mamba": (cache_utils, ("MambaCache",)),
    "falcon_mamba": (cache_utils, ("MambaCache",)),
    "jamba": (cache_utils, ("HybridMambaAttentionDynamicCache",)),
    "whisper": (processing, ("WhisperProcessor", "WhisperFeatureExtractor", "WhisperTokenizer", "WhisperTokenizerFast")),
}

CONFIGS: Dict[str, str] = {prefix + "Config": folder for folder, prefix, _, _ in _TABLE}
"""The folder of each class of configurations."""
CLASSES: Dict[str, str] = {prefix + suffix: folder for folder, prefix, _, suffixes in _TABLE for suffix in suffixes}
"""The folder of each class."""


def _make(folder: str, suffix: str, module: str) -> Any:
    """Makes one class."""
    prefix, kinds = _ROWS[folder][1:3]
    base, does = PreTrainedModel, "that generates text"
    if suffix == "ForConditionalGeneration":
        base, does = Seq2SeqModel, "an encoder reads input_ids, a decoder writes text"
        if folder == "whisper":
            base, does = SpeechSeq2SeqModel, "recordings to text"
    values: Dict[str, Any] = {"_architectures": kinds, "__module__": module}
    if suffix == "Model":
        values["_head"], does = False, "without its head; forward() gives last_hidden_state"
    if folder in _STATES:
        values["_state_name"] = "cache_params"
    values["__doc__"] = f"A {prefix} model: {does}."
    return type(prefix + suffix, (base,), values)


def _make_config(folder: str, module: str) -> Any:
    prefix, kinds = _ROWS[folder][1:3]
    return type(prefix + "Config", (PretrainedConfig,), {
        "model_type": kinds[0], "__module__": module,
        "attribute_map": {**PretrainedConfig.attribute_map, **_KEYS.get(folder, {})},
        "__doc__": f"The configuration of a {prefix} model: the keys that it is given.  It has no values of its own."})


def _fill(module: ModuleType, folder: str) -> None:
    prefix, _, suffixes = _ROWS[folder][1:]
    told = f"{__name__}.{folder}.configuration_{folder}"
    config = prefix + "Config"
    setattr(module, config, _make_config(folder, told) if module.__name__ == told else getattr(import_module(told), config))
    if module.__name__ == told:
        module.__all__ = [config]  # type: ignore[attr-defined]
        return
    inner = f"{__name__}.{folder}.modeling_{folder}"
    names = [prefix + s for s in suffixes]
    for name, suffix in zip(names, suffixes):
        own = module.__name__ == inner
        setattr(module, name, _make(folder, suffix, inner) if own else getattr(import_module(inner), name))
    names.append(config)
    source, more = _MORE.get(folder, (None, ()))
    for name in more:
        setattr(module, name, getattr(source, name))
        names.append(name)
    module.__all__ = names  # type: ignore[attr-defined]


class _Loader(Loader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"{_ROWS[self.folder][1]} models, by the names of Transformers."
        _fill(module, self.folder)


class _Finder(MetaPathFinder):
    """Finds kvik.models.FOLDER, its modeling_FOLDER and its configuration_FOLDER."""

    def find_spec(self, fullname: str, path: Optional[Sequence[str]], target: Any = None) -> Optional[ModuleSpec]:
        if not fullname.startswith(__name__ + "."):
            return None
        folder, _, inner = fullname[len(__name__) + 1:].partition(".")
        if folder not in _ROWS or inner not in ("", f"modeling_{folder}", f"configuration_{folder}"):
            return None
        return ModuleSpec(fullname, _Loader(folder), is_package=not inner)


if not any(type(f).__qualname__ == "_Finder" and type(f).__module__ == __name__ for f in sys.meta_path):
    sys.meta_path.append(_Finder())


def class_named(name: str) -> Any:
    """Returns a class of the table by its name."""
    folder = CLASSES[name]
    return getattr(import_module(f"{__name__}.{folder}.modeling_{folder}"), name)


def config_named(name: str) -> Any:
    """Returns a class of configurations by its name."""
    folder = CONFIGS[name]
    return getattr(import_module(f"{__name__}.{folder}.configuration_{folder}"), name)


def _class_of(prefix: str, suffixes: Tuple[str, ...], asked: Any) -> Optional[Any]:
    """Returns the class of an architecture: with a head, or without if the class that was asked for has none."""
    fit = [s for s in suffixes if (s == "Model") != asked._head]
    return class_named(prefix + fit[0]) if fit else None


for _, _prefix, _kinds, _suffixes in _TABLE:
    for _kind in _kinds:
        configuration.CONFIGS[_kind] = partial(config_named, _prefix + "Config")
        model.CLASSES[_kind] = partial(_class_of, _prefix, _suffixes)
