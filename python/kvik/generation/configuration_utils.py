"""Options of generation as an object."""
import copy
import ctypes
import json
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from .. import _abi, download, files
from .._lib import encode, lib
from ..errors import ArgumentError
from ..utils.logging import notice
from .watermark_configs import BaseWatermarkingConfig, SynthIDTextWatermarkingConfig, WatermarkingConfig, watermark_of

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from .._options import GenerationOptions, OptionAttributes
else:
    OptionAttributes = object


def option_names() -> List[str]:
    """Returns the names of all options."""
    names: List[str] = []
    while True:
        row = lib.kvik_option_at(len(names))
        if not row:
            return names
        option = ctypes.cast(row, ctypes.POINTER(_abi.kvik_option)).contents if isinstance(row, int) else row.contents
        names.append(option.name.decode())


STATIC_CACHE_IMPLEMENTATIONS = ("static", "offloaded_static")
DYNAMIC_CACHE_IMPLEMENTATIONS = ("dynamic", "offloaded", "quantized")
ALL_STATIC_CACHE_IMPLEMENTATIONS = (*STATIC_CACHE_IMPLEMENTATIONS, "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid",
                                    "offloaded_hybrid_chunked")
ALL_CACHE_IMPLEMENTATIONS = (*ALL_STATIC_CACHE_IMPLEMENTATIONS, *DYNAMIC_CACHE_IMPLEMENTATIONS)


class GenerationMode(str, Enum):
    """The ways to choose tokens, by the names of Transformers."""

    CONTRASTIVE_SEARCH = "contrastive_search"
    GREEDY_SEARCH = "greedy_search"
    SAMPLE = "sample"
    ASSISTED_GENERATION = "assisted_generation"
    DOLA_GENERATION = "dola_generation"
    BEAM_SEARCH = "beam_search"
    BEAM_SAMPLE = "beam_sample"
    CONSTRAINED_BEAM_SEARCH = "constrained_beam_search"
    GROUP_BEAM_SEARCH = "group_beam_search"


class CompileConfig:
    """Keeps its arguments and does nothing else: every strategy replays a recorded step."""

    def __init__(self, fullgraph: bool = False, dynamic: Optional[bool] = None, backend: Any = "inductor", mode: Optional[str] = "reduce-overhead",
                 options: Optional[Dict[str, Any]] = None) -> None:
        self.fullgraph, self.dynamic, self.backend, self.mode, self.options = fullgraph, dynamic, backend, mode, options

    def to_dict(self) -> Dict[str, Any]:
        """Returns the arguments."""
        return dict(vars(self))


# Options of Transformers that kvik does not have: reading them gives None, as there.
_OTHERS = {
    "assistant_early_exit", "assistant_lookbehind", "begin_suppress_tokens", "cache_config", "continuous_batching_config",
    "constraints", "dola_layers", "exponential_decay_length_penalty", "force_words_ids", "forced_decoder_ids", "is_assistant",
    "low_memory", "output_attentions", "output_hidden_states", "remove_invalid_values", "renormalize_logits",
    "target_lookbehind", "token_healing", "transformers_version", "watermarking_config", "compile_config", "disable_compile", "use_mtp",
    "assistant_ensemble_weight", "speculation_type"}
_OF_OBJECTS = ("_original_object_hash",)
_SAMPLING = {"temperature": (0, 1), "top_k": (50,), "top_p": (1,), "min_p": (), "top_h": (), "typical_p": (1,), "epsilon_cutoff": (0,),
             "eta_cutoff": (0,), "top_n_sigma": (0,), "xtc_probability": (0,)}  # the values that change nothing
_BEAMS = {"early_stopping": (False,), "length_penalty": (1,)}


def names_set(given: Dict[str, Any], options: Dict[str, Any]) -> str:
    """Returns the names of options that are set to a value of effect.  options: the values without one."""
    return ", ".join(name for name, neutral in options.items() if given.get(name) is not None and given[name] not in neutral)


def useless(given: Dict[str, Any], do_sample: bool, num_beams: int, contrastive: bool, returned: bool = True) -> List[str]:
    """Returns a sentence about each kind of options without an effect.  returned: the result is a GenerateOutput."""
    said = []
    names = ", ".join(name for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states") if given.get(name))
    if names and not returned:
        said.append(f"{names} shows nothing without return_dict_in_generate=True; set it, or leave it out")
    names = names_set(given, {name: values for name, values in _SAMPLING.items() if name != "top_k" or not contrastive})
    if names and not do_sample:
        said.append(f"without do_sample=True the most likely token is taken, so {names} has no effect; set do_sample=True or leave it out")
    names = names_set(given, _BEAMS)
    if names and num_beams <= 1:
        said.append(f"{names} is for beams and has no effect with num_beams=1; set num_beams above 1 or leave it out")
    return said


class GenerationConfig(OptionAttributes):
    """Options of generate() by name: ``GenerationConfig(max_new_tokens=20, do_sample=True)``.

    docs/OPTIONS.md explains each option.  An option that was not given is None here and has its default.
    """

    def __init__(self, **kwargs: "Unpack[GenerationOptions]") -> None:
        self.__dict__.update(kwargs)
        self._take_watermark()
        self._refuse()
        self._advise({**kwargs})

    @classmethod
    def _of(cls, values: Dict[str, Any]) -> "GenerationConfig":
        """Makes options of a file, whose options without an effect are no mistake of the program."""
        out = cls.__new__(cls)
        out.__dict__.update(values)
        out._take_watermark()
        return out

    def _take_watermark(self) -> None:
        """Makes an object of the dictionary that a file has for a watermark."""
        if self.__dict__.get("watermarking_config") is not None:
            self.__dict__["watermarking_config"] = watermark_of(self.__dict__["watermarking_config"])

    def _advise(self, given: Dict[str, Any]) -> None:
        """Gives notices about options without an effect that a call sets, where it says itself how tokens are chosen, or this object does."""
        have = self.__dict__.get
        for sentence in useless(given, have("do_sample") is not False, have("num_beams") or 2, bool(have("penalty_alpha")),
                                have("return_dict_in_generate") is not False):
            notice(sentence)

    def _refuse(self) -> None:
        """Raises ValueError for values that cannot be meant, whatever the model: the library checks the others when it generates."""
        have = self.__dict__.get
        wrong = None
        foreign = next((name for name in ("logits_processor", "stopping_criteria", "streamer") if have(name) is not None), None)
        if foreign:
            wrong = f"{foreign} is an argument of generate(), and no option"
        elif have("early_stopping") not in (None, True, False, "never"):
            wrong = f"early_stopping={have('early_stopping')!r}: expected True, False or 'never'"
        elif isinstance(have("max_new_tokens"), str):
            raise TypeError(f"max_new_tokens={have('max_new_tokens')!r} is no integer")
        elif isinstance(have("max_new_tokens"), int) and have("max_new_tokens") <= 0:  # type: ignore[operator]
            wrong = f"max_new_tokens={have('max_new_tokens')}: at least 1"
        elif have("cache_implementation") not in (None, *ALL_CACHE_IMPLEMENTATIONS, "sink", "mamba", "dynamic_full"):
            wrong = f"cache_implementation={have('cache_implementation')!r}: expected one of {', '.join(ALL_CACHE_IMPLEMENTATIONS)}, sink"
        elif have("compile_config") is not None and not isinstance(have("compile_config"), (CompileConfig, dict)):
            wrong = f"compile_config is of type {type(have('compile_config')).__name__}, not a CompileConfig"
        elif isinstance(have("num_return_sequences"), int) and have("num_return_sequences") > 1:  # type: ignore[operator]
            beams = have("num_beams") or 1
            if beams == 1 and not have("do_sample"):
                wrong = f"num_return_sequences={have('num_return_sequences')}: greedy decoding has one text; set do_sample=True or num_beams"
            elif 1 < beams < have("num_return_sequences"):  # type: ignore[operator]
                wrong = f"num_return_sequences={have('num_return_sequences')} is more than num_beams={beams}"
        elif have("assistant_ensemble_weight") is not None and not 0 < have("assistant_ensemble_weight") < 1:  # type: ignore[operator]
            wrong = f"assistant_ensemble_weight={have('assistant_ensemble_weight')}: above 0 and below 1"
        if wrong:
            raise ArgumentError(wrong)
        if have("watermarking_config") is not None:
            watermark_of(have("watermarking_config")).validate()

    if not TYPE_CHECKING:  # to a type checker, a name that is no option is a mistake
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            if name in _OTHERS or name in option_names():
                return None
            near = lib.kvik_option_nearest(encode(name))
            raise AttributeError(f"GenerationConfig has no {name!r}" + (f"; did you mean {near.decode()!r}?" if near else ""))

    @classmethod
    def from_pretrained(cls, name: Union[str, "os.PathLike[str]"], config_file_name: str = "generation_config.json",
                        **kwargs: Any) -> "GenerationConfig":
        """Reads the options of a model's directory, or of one of save_pretrained().  Raises MissingError if it has none."""
        path = Path(download.take(name, kwargs))
        path = path / config_file_name if os.path.isdir(path) else path.parent / config_file_name
        wants = kwargs.pop("return_unused_kwargs", False)
        out = cls._of(files.read_object(path))
        unused = out.update(**kwargs)  # which are ignored, as in Transformers
        return (out, unused) if wants else out  # type: ignore[return-value]

    @classmethod
    def from_model_config(cls, config: Any) -> "GenerationConfig":
        """Makes options of those in a configuration: special tokens, and options that older files have there."""
        known = set(option_names())
        values = {k: v for k, v in config.to_dict().items() if k.endswith("_token_id") or k in known}
        text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        values.update({k: v for k, v in (text.to_dict() if text is not config else {}).items() if k in known and k not in values})
        return cls._of({"_from_model_config": True, **values})

    @classmethod
    def from_dict(cls, values: Dict[str, Any], **kwargs: Any) -> "GenerationConfig":
        """Makes options of a dictionary."""
        return cls(**{**values, **kwargs})

    def to_dict(self) -> Dict[str, Any]:
        """Returns the options that were given."""
        return {k: v for k, v in self.__dict__.items() if k not in _OF_OBJECTS}

    def to_diff_dict(self) -> Dict[str, Any]:
        """Returns the options that were given and are not None."""
        return {k: v for k, v in self.to_dict().items() if v is not None}

    def to_json_string(self, use_diff: bool = True, ignore_metadata: bool = False) -> str:
        """Returns the options as JSON.  use_diff: without those that are None.  ignore_metadata: options alone."""
        values = self.to_diff_dict() if use_diff else self.to_dict()
        if ignore_metadata:
            values = {k: v for k, v in values.items() if k not in ("_from_model_config", "transformers_version")}
        return json.dumps(values, indent=2, sort_keys=True, default=_plain) + "\n"

    def to_json_file(self, json_file_path: Union[str, "os.PathLike[str]"], use_diff: bool = True, **_: Any) -> None:
        """Writes the options to a file."""
        Path(json_file_path).write_text(self.to_json_string(use_diff), encoding="utf-8")

    def save_pretrained(self, directory: Union[str, "os.PathLike[str]"], config_file_name: Optional[str] = None, **_: Any) -> None:
        """Writes the options to a file in a directory.  Raises ValueError for options without an effect, which would be kept for ever."""
        said = useless(self.__dict__, bool(self.do_sample), int(self.num_beams or 1), bool(self.penalty_alpha))
        if said:
            raise ArgumentError("options that are saved have to fit each other: " + "; ".join(said))
        os.makedirs(directory, exist_ok=True)
        self.to_json_file(Path(directory, config_file_name or "generation_config.json"))

    def get_generation_mode(self, assistant_model: Any = None) -> GenerationMode:
        """Returns the way to choose tokens that these options mean."""
        sampled, beams = bool(self.do_sample), (self.num_beams or 1) > 1
        if self.constraints is not None or self.force_words_ids is not None:
            return GenerationMode.CONSTRAINED_BEAM_SEARCH
        if beams:
            return GenerationMode.GROUP_BEAM_SEARCH if (self.num_beam_groups or 1) > 1 else \
                GenerationMode.BEAM_SAMPLE if sampled else GenerationMode.BEAM_SEARCH
        if not sampled and (self.top_k or 0) > 1 and (self.penalty_alpha or 0) > 0:
            return GenerationMode.CONTRASTIVE_SEARCH
        if self.dola_layers is not None:
            return GenerationMode.DOLA_GENERATION
        if assistant_model is not None or self.prompt_lookup_num_tokens is not None or self.assistant_early_exit is not None:
            return GenerationMode.ASSISTED_GENERATION
        return GenerationMode.SAMPLE if sampled else GenerationMode.GREEDY_SEARCH

    def update(self, **kwargs: Any) -> Dict[str, Any]:
        """Sets options that exist, or that this object has; returns the others."""
        known = {*option_names(), *self.__dict__, *_OTHERS}
        unknown = {k: v for k, v in kwargs.items() if k not in known}
        self.__dict__.update({k: v for k, v in kwargs.items() if k in known})
        self._refuse()
        self._advise(kwargs)
        return unknown

    def validate(self, strict: bool = False, **_: Any) -> None:
        """Raises ArgumentError for a wrong value, and for an unknown option, with the nearest name.

        Gives a notice about options without an effect, such as a temperature without do_sample; strict: an error.
        """
        self._refuse()
        self._check_names()
        said = useless(self.__dict__, bool(self.do_sample), int(self.num_beams or 1), bool(self.penalty_alpha),
                       bool(self.return_dict_in_generate))
        if isinstance(self.pad_token_id, int) and self.pad_token_id < 0:
            said.append(f"pad_token_id={self.pad_token_id} is no token: a batch with padding is an error; set one, or leave it out")
        if strict and self.use_cache is False and self.cache_implementation is not None:  # no notice: the tokens are the same
            said.append(f"use_cache=False makes no cache, so cache_implementation={self.cache_implementation!r} has no effect")
        if said and strict:
            raise ArgumentError("; ".join(said))
        for sentence in said:
            notice(sentence)

    def _check_names(self) -> None:
        known = {*option_names(), *_OTHERS, "compile_config", "disable_compile"}
        for name in self.__dict__:
            if name not in known and not name.startswith("_") and name != "transformers_version":
                near = lib.kvik_option_nearest(encode(name))
                raise ArgumentError(f"unknown option {name!r}" + (f"; did you mean {near.decode()!r}?" if near else ""))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenerationConfig) and self.to_json_string(False, True) == other.to_json_string(False, True)

    def __hash__(self) -> int:
        return hash(self.to_json_string(ignore_metadata=True))

    def __deepcopy__(self, memo: Dict[int, Any]) -> "GenerationConfig":
        twin = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def __repr__(self) -> str:
        return f"GenerationConfig {self.to_json_string(ignore_metadata=True)}"


def _plain(value: Any) -> Any:
    """Returns what JSON has for a value that it does not know: the dictionary of an object, or the name of a dtype."""
    return value.to_dict() if hasattr(value, "to_dict") else str(value).split(".")[-1]


def merged(model: Optional[GenerationConfig], given: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options of a call: the model's, over them those of a given object, over them keyword arguments."""
    values: Dict[str, Any] = dict(model.__dict__) if model is not None else {}
    if given is not None:
        if not isinstance(given, dict) and not hasattr(given, "to_dict"):
            raise TypeError(f"generation_config is a GenerationConfig or a dictionary, not {type(given).__name__}")
        theirs = given if isinstance(given, dict) else given.to_dict()
        values.update({k: v for k, v in theirs.items() if v is not None})
    values.update(kwargs)
    return {k: v for k, v in values.items() if not k.startswith("_") and k != "transformers_version"}
