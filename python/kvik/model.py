"""Models: forward() and generate() over an open model."""
import copy
import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Literal, Optional, Tuple, Type, TypeVar, Union, overload

import numpy as np

from . import display, download
from ._arrays import ids_2d, integers, is_torch, like, to_numpy
from ._lib import address, call, lib, text_of
from .cache_utils import DynamicCache, as_cache
from .config_changes import Changes
from .configuration import PretrainedConfig
from .devices import accept_attention, accept_device, asked_dtype, cpu, dtype_changes_nothing, dtype_name, dtype_object
from .encoder import encoder_of
from .errors import ArgumentError, UnsupportedError
from .generation import GenerationMixin, Options, log_softmax
from .generation.configuration_utils import GenerationConfig
from .outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from .pickles import checked, of
from .step import Step
from .store import ModelHandle, Settings, settings_of
from .utils.logging import notice
from .weights import Weight, arrays, named
from .written_caches import calls_update

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import Array, ForwardArguments, OpenArguments, Past

_M = TypeVar("_M", bound="PreTrainedModel")

CLASSES: Dict[str, Callable[[Any], Any]] = {}
"""For each type of models, what returns its class with a head, or without if the class that is asked for has none; or None.
kvik.models registers them."""

_COMPUTE = {"float32": "exact"}
_WEIGHTS = "the weights stay in the library; model.parameters(), named_parameters() and state_dict() tell of them"
_LAYERS = "it is called as a whole; output_hidden_states=True and output_attentions=True show what its layers compute"
# What programs for Transformers ask a torch.nn.Module, and the sentence that answers.
_OF_MODULES = {
    **dict.fromkeys(("buffers", "load_state_dict"), _WEIGHTS),
    **dict.fromkeys(("model", "base_model", "lm_head", "transformer", "modules", "named_modules", "get_output_embeddings",
                     "register_forward_hook"), _LAYERS),
    **dict.fromkeys(("resize_token_embeddings", "save_pretrained", "push_to_hub", "gradient_checkpointing_enable", "add_adapter",
                     "load_adapter", "zero_grad"), "kvik runs models as their files are, and neither changes nor writes them")}
# Arguments of from_pretrained: kvik's, and those of Transformers that change nothing here.
_OPEN_TAKES = {f.name for f in fields(Settings)} | {
    "config", "trust_remote_code", "low_cpu_mem_usage", "use_safetensors", "attn_implementation"}
# Keys of a configuration that models of Transformers read anew in every forward(), and the library once, when it opens a model.
_READ_ONCE = ("final_logit_softcapping", "layer_types", "num_hidden_layers", "sliding_window")
_FORWARD_IGNORED = ("token_type_ids", "position_embeddings", "output_router_logits", "cache_kwargs")


class PreTrainedModel(GenerationMixin):
    """A model that ``from_pretrained`` has opened.

    ``config``, ``generation_config``, ``device``, ``dtype``.  Calling it computes logits; generate() makes text.  One model
    can serve several threads, each with a cache of its own.
    """

    _architectures: Optional[Tuple[str, ...]] = None
    _head = True
    _state_name: Optional[str] = None
    main_input_name = "input_ids"
    training = False

    def __init__(self, handle: Any = None, config: Any = None, defaults: Any = None, dtype: Optional[str] = None) -> None:
        if not isinstance(handle, ModelHandle):
            name = type(self).__name__
            raise TypeError(f"{name} has no weights without a file; call {name}.from_pretrained(name)")
        self._handle, self.config, self._defaults = handle, config, defaults
        self._dtype = dtype or dtype_name(getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)) or "float32"
        self.name_or_path = handle.path
        self._opened_with = {k: copy.copy(vars(config)[k]) for k in _READ_ONCE if k in vars(config)}
        self.generation_config = GenerationConfig()
        try:
            self.generation_config = GenerationConfig.from_pretrained(handle.path)
        except (OSError, ValueError):  # the library reads the same file, and says what is wrong when it generates
            pass
        self.generation_config = GenerationConfig._of({k: v for k, v in self.generation_config.to_dict().items()
                                                       if not k.startswith("_") and k != "transformers_version"})
        self._take_ends()

    def _take_ends(self) -> None:
        """Completes the options with the end-of-sequence and padding tokens that the library reads from other files."""
        options = Options(self._handle, {})  # its end frees the list
        g = options.struct
        ends = [int(g.eos_token_id[i]) for i in range(g.n_eos)]
        if self.generation_config.eos_token_id is None and ends:
            self.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]
        if self.generation_config.pad_token_id is None and g.pad_token_id >= 0:
            self.generation_config.pad_token_id = int(g.pad_token_id)

    @classmethod
    def from_pretrained(cls: Type[_M], pretrained_model_name_or_path: Union[str, "os.PathLike[str]"], *_: Any, dtype: Any = None,
                        torch_dtype: Any = None, device_map: Any = None, quantize: Optional[str] = None,
                        device: Optional[str] = None, **arguments: "Unpack[OpenArguments]") -> _M:
        """Opens a directory, a .gguf file, a hub id in the local cache, or a name that `kvik models` lists.

        local_files_only=False downloads a hub id that is not in the cache, or not of the newest revision, as `kvik pull` does; so does
        force_download=True.  revision, cache_dir, token and gguf_file are as in Transformers.

        dtype (torch_dtype): torch.float32 computes with float32 throughout; other types are recorded, and weights are used
        as the files have them.  device_map is accepted; models run on the CPU.  Of kvik: cache_memory, max_sequences,
        threads, compute, isa, spill_dir, on_full are defaults for the caches of this model; the variable KVIK_CACHE_MEMORY is
        that of cache_memory.  quantize="q8_0", "q4_0" or "q4_k" quantizes matrices of float32, float16 and bfloat16, as
        --quantize of the command does: the first opening writes them to ~/.cache/kvik/weights, later ones map them, and
        describe() names the types.  config (a configuration, its dictionary or path), and arguments that are keys of it
        (num_hidden_layers=2), open the model of a directory as if its config.json had them; of a .gguf file they raise
        UnsupportedError.  device="cuda" computes the model on a GPU, as --device of the command does (compiled and emulated, not
        yet run on a GPU).  Arguments that kvik does not have are ignored with a warning.
        """
        kwargs: Dict[str, Any] = {**arguments}
        accept_device(device_map)
        name = asked_dtype(dtype if dtype is not None else torch_dtype)
        path = download.take(pretrained_model_name_or_path, kwargs)
        own = {k: kwargs.pop(k) for k in list(kwargs) if k in _OPEN_TAKES}
        attention = own.pop("attn_implementation", None)
        accept_attention(attention)
        changes = Changes(path, own.pop("config", None), kwargs)
        if kwargs:
            notice(f"from_pretrained() ignores {', '.join(kwargs)}; kvik has no such argument")
        kwargs = own
        if os.environ.get("KVIK_CACHE_MEMORY"):
            kwargs.setdefault("cache_memory", os.environ["KVIK_CACHE_MEMORY"])
        defaults = settings_of(kwargs)
        if name in _COMPUTE and defaults.compute is None:
            defaults = Settings(compute=_COMPUTE[name]).over(defaults)
        handle = ModelHandle(path, quantize, changes, device)
        config = changes.config(handle.pointer)
        if cls.main_input_name == "input_features" and not encoder_of(handle).bins:
            raise UnsupportedError(f"{path} is a model of type {getattr(config, 'model_type', None)!r}, and no speech model")
        kind = _class_for(cls, config) if cls._architectures is None else cls
        if getattr(cls, "_seq2seq", False) and not getattr(kind, "_seq2seq", False):
            raise ArgumentError(f"{path} is a model of type {getattr(config, 'model_type', None)!r}, which has no encoder; open it "
                                "with AutoModelForCausalLM")
        config._attn_implementation, config._name_or_path = attention or "sdpa", str(pretrained_model_name_or_path)
        dtype_changes_nothing(name, dtype_name(getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)))
        model: _M = kind(handle, config, defaults, name)
        model._check_class()
        return model

    def _check_config(self) -> None:
        """Raises for a configuration that was changed after the model was opened, where Transformers would compute another model."""
        have = vars(self.config)
        for key, value in self._opened_with.items():
            if have.get(key) != value:
                raise ArgumentError(f"model.config.{key} is now {have.get(key)!r}, and the model was opened with {value!r}; open it again: "
                                    f"from_pretrained(..., {key}={have.get(key)!r})")

    @classmethod
    def from_config(cls, config: Any, **_: Any) -> Any:
        """Raises: kvik runs the weights of files, and makes none."""
        raise NotImplementedError(f"{cls.__name__}.from_config() makes new weights, to train them, and kvik runs those of files; call "
                                  f"{cls.__name__}.from_pretrained(name, config=config)")

    def _check_class(self) -> None:
        kind = getattr(self.config, "model_type", None)
        if self._architectures and kind not in self._architectures:
            notice(f"{self.name_or_path} is a model of type {kind!r}, not one for {type(self).__name__}; it runs as "
                   f"{kind!r}")

    # -- what a model is

    @property
    def device(self) -> Any:
        """The device: the CPU."""
        return cpu()

    @property
    def dtype(self) -> Any:
        """The dtype that was asked for, or that of the configuration: torch's where torch is imported, else its name."""
        return dtype_object(self._dtype)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Returns itself; see `devices`.  A dtype changes nothing, and a notice says so."""
        for value in (*args, *kwargs.values()):
            if isinstance(value, str) or type(value).__name__ == "device":
                accept_device(value)
            elif type(value).__name__ == "dtype" or isinstance(value, type):
                self._cast(value)
        return self

    def _cast(self: _M, dtype: Any) -> _M:
        name = asked_dtype(dtype)
        if name not in (None, self._dtype):
            notice(f"the model stays as it was opened, with dtype {self._dtype}; from_pretrained(..., dtype=\"float32\") computes in "
                   f"float32 throughout, and {name} changes nothing here")
        return self

    def eval(self) -> Any:
        """Returns itself: models are for inference only."""
        return self

    def train(self, mode: bool = True) -> Any:
        """Raises for mode True: models are for inference only."""
        if mode:
            raise NotImplementedError("kvik is for inference only")
        return self

    def half(self: _M) -> _M:
        """Returns itself; weights are used as the files have them, and a notice says so."""
        return self._cast("float16")

    if TYPE_CHECKING:
        def cuda(self: _M, *args: Any, **kwargs: Any) -> _M: ...
        cpu = float = bfloat16 = double = requires_grad_ = cuda
    else:
        cuda = cpu = requires_grad_ = lambda self, *args, **kwargs: self

        def float(self):
            """Returns itself, as half()."""
            return self._cast("float32")

        def bfloat16(self):
            """Returns itself, as half()."""
            return self._cast("bfloat16")

        def double(self):
            """Returns itself, as half()."""
            return self._cast("float64")

    def compile(self, *_: Any, **__: Any) -> None:
        """Does nothing: every strategy replays a recorded step."""

    def set_attn_implementation(self, attn_implementation: Any, *_: Any, **__: Any) -> None:
        """Changes the name alone: kvik has one implementation of attention.  Raises ValueError for what is none."""
        accept_attention(attn_implementation)
        self.config._attn_implementation = attn_implementation

    def tie_weights(self, *_: Any, **__: Any) -> None:
        """Does nothing: the head and the embeddings are tied as the files say."""

    def get_memory_footprint(self, **_: Any) -> int:
        """Returns the bytes of the weights."""
        return int(self.describe()["bytes"])

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if name in _OF_MODULES:
                raise AttributeError(f"a model of kvik has no {name!r}: {_OF_MODULES[name]}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def can_generate(self) -> bool:
        """True if the model has a head."""
        return self._head

    def get_input_embeddings(self) -> "Embeddings":
        """Returns a callable that makes inputs_embeds of ids."""
        return Embeddings(self)

    def num_parameters(self, **_: Any) -> int:
        """Returns the number of weights."""
        return int(self.describe()["parameters"])

    def named_parameters(self, *_: Any, **__: Any) -> "Iterator[Tuple[str, Weight]]":
        """Yields the names of the weights in the files, and what is known of each: see `weights`."""
        return named(self._handle.path, self.describe()["tensors"])

    def parameters(self, recurse: bool = True) -> "Iterator[Weight]":
        """Yields the weights: ``next(model.parameters()).device`` and ``dtype``, ``numel()``, and the values of safetensors files."""
        return (weight for _, weight in self.named_parameters())

    def state_dict(self) -> Dict[str, Any]:
        """Returns the values of all weights by name, as the safetensors files have them.  Raises UnsupportedError for other files."""
        return arrays(self._handle.path, self.describe()["tensors"])

    def prepare_inputs_for_generation(self, input_ids: Any, next_sequence_length: Optional[int] = None, past_key_values: Any = None,
                                      attention_mask: Any = None, inputs_embeds: Any = None, is_first_iteration: bool = False,
                                      **kwargs: Any) -> Dict[str, Any]:
        """Returns the arguments of forward() for a step of a loop: what is not None, with the last next_sequence_length ids if given."""
        if next_sequence_length is not None:
            input_ids = input_ids[:, -next_sequence_length:]
        first = {"inputs_embeds": inputs_embeds} if inputs_embeds is not None and is_first_iteration else {"input_ids": input_ids}
        out = {**first, "past_key_values": past_key_values, "attention_mask": attention_mask, **kwargs}
        return {name: value for name, value in out.items() if value is not None}

    def describe(self) -> Dict[str, Any]:
        """Returns what the library knows of the model: layers, tensors, tokenizer, bytes of cache per token."""
        return dict(json.loads(text_of("kvik_model_describe", self._handle.pointer)))

    def describe_caches(self) -> Dict[str, Any]:
        """Returns every cache strategy for this model with its bytes per token and at the full context."""
        return dict(json.loads(text_of("kvik_model_describe_caches", self._handle.pointer)))

    def _with_layers(self, n: int) -> Any:
        """Returns this model with its first n layers alone, for drafts; the same one in later calls."""
        changes, early = self._handle.changes, self.__dict__.setdefault("_early", {})
        if n not in early:
            if not isinstance(n, int) or not 0 < n < self._handle.layers:
                raise ArgumentError(f"assistant_early_exit={n!r}: expected 1 to {self._handle.layers - 1}, the layers that write drafts")
            fewer: Dict[str, Any] = {"num_hidden_layers": n}
            if changes and changes.values:
                fewer = {"config": {**changes.values, **fewer}}
            early[n] = type(self).from_pretrained(self._handle.path, quantize=self._handle.quantize, device=self._handle.device, **fewer)
        return early[n]

    def _notice(self, text: str) -> None:
        notice(text)

    def __copy__(self: _M) -> _M:
        """Returns a model that shares all with this one, so that each takes the caches of the other."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self: _M, memo: Dict[int, Any]) -> _M:
        """Returns a model with a configuration and options of its own; the two share the weights, which never change."""
        twin = copy.copy(self)
        twin.__dict__.update(config=copy.deepcopy(self.config, memo), generation_config=copy.deepcopy(self.generation_config, memo))
        return twin

    def __reduce__(self) -> Any:
        """A pickle has the path of the model, its settings and its options; unpickling opens the files again."""
        changes = self._handle.changes
        return _open_again, (type(self), self._handle.path, self._handle.quantize, self.config, self._defaults, self._dtype,
                             self.generation_config, changes.values if changes else {}, self._handle.device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name_or_path!r})"

    def _repr_html_(self) -> str:
        return display.model_html(self)

    # -- forward

    if not TYPE_CHECKING:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """As forward()."""
            return self.forward(*args, **kwargs)

    @overload
    def forward(self, input_ids: Any = None, attention_mask: Any = None, *, past_key_values: "Past" = None,
                return_dict: Optional[Literal[True]] = None, **kwargs: "Unpack[ForwardArguments]") -> CausalLMOutputWithPast: ...

    @overload
    def forward(self, input_ids: Any = None, attention_mask: Any = None, *, past_key_values: "Past" = None,
                return_dict: Literal[False], **kwargs: "Unpack[ForwardArguments]") -> Tuple[Any, ...]: ...

    def forward(self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None,
                past_key_values: Any = None, inputs_embeds: Any = None, labels: Any = None, use_cache: Optional[bool] = None,
                output_attentions: Optional[bool] = None, output_hidden_states: Optional[bool] = None,
                return_dict: Optional[bool] = None, cache_position: Any = None, logits_to_keep: Any = 0,
                cache_params: Any = None, **kwargs: Any) -> Any:
        """Computes the logits of input_ids [batch, n] after the cached tokens, and appends them to the cache.

        attention_mask: [batch, cached + n].  position_ids: [1 or batch, n].  cache_position: [n], length, length + 1, ...;
        anything else is an error.  inputs_embeds: [batch, n, hidden] in place of ids.  logits_to_keep: logits of the last
        so many columns, 0 for all.  labels [batch, n]: adds ``loss``, the mean of -log p of each next label that is not -100.

        Returns ``logits`` f32 [batch, kept, vocab], ``past_key_values`` (the cache that was given; else a new one,
        unless use_cache=False), ``hidden_states`` ([batch, n, hidden] of the embedding and each layer) and ``attentions``
        ([batch, heads, n, cached + n] per layer).  Masked columns are zeros.  What is None of use_cache, output_hidden_states,
        output_attentions and return_dict is as the configuration has it.
        """
        logits_to_keep = kwargs.pop("num_logits_to_keep", logits_to_keep)
        kwargs = {k: v for k, v in kwargs.items() if v is not None and k not in _FORWARD_IGNORED}
        if kwargs:
            raise TypeError(f"forward() takes no argument {next(iter(kwargs))!r}")
        if (input_ids is None) == (inputs_embeds is None):
            raise ArgumentError("give either input_ids or inputs_embeds")
        self._check_config()
        given = past_key_values if past_key_values is not None else cache_params
        cache, was_legacy = as_cache(given)
        if labels is not None and not (self._head and np.ndim(logits_to_keep) == 0 and not logits_to_keep):
            raise ArgumentError("labels need the logits of all columns, and a model with a head")
        call_ = Step(self, input_ids, inputs_embeds, attention_mask, position_ids, cache_position, logits_to_keep)
        show = self._heeded("output_hidden_states", output_hidden_states, False)
        hidden, keep = show or not self._head, cache is not None or self._heeded("use_cache", use_cache, True)
        if cache is None:
            cache = DynamicCache._of(Settings(), None, call_.torch, self.config)
        attentions = self._heeded("output_attentions", output_attentions, False)
        if calls_update(cache, self._handle):
            out = call_.run_kept(cache, hidden, attentions)
        else:
            with cache._use():
                batch = cache._bind(self._handle, self._defaults, call_.rows)
                with batch.store.locked():
                    out = call_.run(batch, hidden, attentions)
                cache._torch = call_.torch
        past: Any = (cache.to_legacy_cache() if was_legacy else cache) if keep else None
        result = self._result(out, past, show)
        if labels is not None:
            result = type(result)(loss=_loss(result.logits, labels), **result)
        return result if self._heeded("return_dict", return_dict, True) else result.to_tuple()

    if TYPE_CHECKING:
        __call__ = forward

    def _heeded(self, name: str, given: Optional[bool], usual: bool) -> bool:
        """Returns an argument of forward(), which the configuration decides where it is None."""
        found = getattr(self.config, name, None) if given is None else given
        return usual if found is None else bool(found)

    def _result(self, out: Dict[str, Any], past: Any, hidden: bool) -> Any:
        cache = {"past_key_values": past}
        if self._state_name:
            cache = {self._state_name: past}
        states = out["hidden_states"]
        if not self._head:
            return BaseModelOutputWithPast(last_hidden_state=states[-1], **cache, hidden_states=states if hidden else None,
                                           attentions=out["attentions"])
        return CausalLMOutputWithPast(logits=out["logits"], **cache, hidden_states=states if hidden else None,
                                      attentions=out["attentions"])


def _loss(logits: Any, labels: Any, shift: int = 1) -> Any:
    """Returns the mean of -log p of labels.  shift: logits of a column are those of the label so many columns on."""
    wanted = ids_2d(labels, "labels")
    table = to_numpy(logits, np.float32)
    if wanted.shape != table.shape[:2]:
        raise ArgumentError(f"labels have the shape {list(wanted.shape)}; expected {list(table.shape[:2])}")
    wanted = wanted[:, shift:].astype(np.int64)
    real = wanted != -100
    if wanted[real].size and not 0 <= wanted[real].min() <= wanted[real].max() < table.shape[2]:
        raise ArgumentError("labels hold a number that is neither a token id nor -100")
    rows, columns = np.nonzero(real)
    chosen = log_softmax(table[rows, columns])[np.arange(rows.size), wanted[real]]
    mean = -chosen.mean(dtype=np.float64) if rows.size else np.nan
    return like(np.asarray(mean, np.float32), is_torch(logits))


class Embeddings:
    """The embeddings of a model: ids [...] to float32 [..., hidden], scaled where the model scales them."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._handle = model._handle
        self.num_embeddings = int(lib.kvik_model_vocab(model._handle.pointer))
        self.embedding_dim = int(lib.kvik_model_hidden(model._handle.pointer))

    def __call__(self, input_ids: Any) -> "Array":
        """Returns the embeddings of ids."""
        ids = integers(input_ids, "input_ids")
        flat = ids.ravel()
        out = np.empty((flat.size, self.embedding_dim), np.float32)
        call("kvik_model_embed", self._handle.pointer, address(flat), flat.size, address(out))
        return like(out.reshape(*ids.shape, self.embedding_dim), is_torch(input_ids))  # type: ignore[no-any-return]

    @property
    def weight(self) -> np.ndarray:
        """The embeddings of all ids, [vocab, hidden], a copy."""
        return np.asarray(self(np.arange(self.num_embeddings)))


def _open_again(kind: Any, path: str, quantize: Optional[str], config: Any, defaults: Settings, dtype: str, options: Any,
                changes: Any = None, device: Optional[str] = None) -> Any:
    """Opens a pickled model.  changes: of the configuration; older pickles have none, and no device."""
    changes = changes if changes is not None else {}
    checked(kind, {"path": path, "quantize": quantize, "config": config, "settings": defaults, "options": options, "changes": changes,
                   "device": device}, {
        "path": of(str), "quantize": of(str, type(None)), "config": of(PretrainedConfig), "settings": of(Settings),
        "options": of(GenerationConfig), "changes": of(dict), "device": of(str, type(None))})
    model = kind(ModelHandle(path, quantize, Changes(path, changes, {}) if changes else None, device), config, defaults, dtype)
    model.generation_config = options
    return model


def _class_for(asked: Any, config: PretrainedConfig) -> Any:
    """Returns the class of a model type, for the classes that take any."""
    made = CLASSES.get(getattr(config, "model_type", "") or "")
    return made and made(asked) or asked


class AutoModelForCausalLM(PreTrainedModel):
    """Opens any model that generates text."""


class AutoModel(PreTrainedModel):
    """Opens any model without its head: forward() gives last_hidden_state."""

    _head = False
    if TYPE_CHECKING:
        @overload  # type: ignore[override]
        def forward(self, input_ids: Any = None, attention_mask: Any = None, *, past_key_values: Past = None,
                    return_dict: Optional[Literal[True]] = None, **kwargs: Unpack[ForwardArguments]) -> BaseModelOutputWithPast: ...

        @overload
        def forward(self, input_ids: Any = None, attention_mask: Any = None, *, past_key_values: Past = None,
                    return_dict: Literal[False], **kwargs: Unpack[ForwardArguments]) -> Tuple[Any, ...]: ...

        def forward(self, *args: Any, **kwargs: Any) -> Any: ...  # pyright: ignore[reportIncompatibleMethodOverride]

        __call__ = forward  # type: ignore[assignment]


