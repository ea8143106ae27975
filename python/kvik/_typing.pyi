# Types of arguments and results that only type checkers and editors read.
from typing import Any, Callable, List, Literal, Mapping, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
from typing_extensions import TypedDict

from ._options import CacheSettings, CallOptions, Number, StoreSettings
from .caches import Cache
from .encoder import EncoderInput
from .generation.configuration_utils import GenerationConfig
from .model import PreTrainedModel
from .outputs import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput

class Array(np.ndarray[Any, Any], Any):  # type: ignore[misc]
    """A numpy array, or a torch tensor where the program gave tensors: Any as a base allows what only tensors have."""

class Streamer(Protocol):
    """What gets the tokens of generate()."""
    def put(self, value: Any, /) -> Any: ...
    def end(self) -> Any: ...

Key = Literal["input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "offset_mapping", "overflow_to_sample_mapping",
              "assistant_masks", "length", "labels", "input_features"]
EncoderDecoderOutput = Union[GenerateEncoderDecoderOutput, GenerateBeamEncoderDecoderOutput]
Past = Union[Cache, Tuple[Any, ...], List[Any], None]
Options = Union[GenerationConfig, Mapping[str, Any], None]
Hooks = Union[Callable[..., Any], Sequence[Callable[..., Any]], None]

class GenerateArguments(CallOptions, StoreSettings, total=False):
    """Keyword arguments of generate() that are no parameters of its own."""
    prefix_allowed_tokens_fn: Optional[Callable[[int, Any], Any]]
    synced_gpus: Optional[bool]
    assistant_model: Optional[PreTrainedModel]
    streamer: Optional[Streamer]
    negative_prompt_ids: Any
    negative_prompt_attention_mask: Any
    use_model_defaults: Optional[bool]
    custom_generate: Any
    input_ids: Any
    attention_mask: Any
    past_key_values: Past
    cache_params: Past
    inputs_embeds: Any
    decoder_input_ids: Any
    decoder_inputs_embeds: Any
    encoder_outputs: Optional[EncoderInput]
    input_features: Any
    pixel_values: Any
    position_ids: Any
    cache_position: Any
    token_type_ids: Any
    tokenizer: Any
    return_dict: Optional[bool]
    trust_remote_code: Optional[bool]

class TextPipelineArguments(CallOptions, StoreSettings, total=False):
    """Keyword arguments of the call of a text pipeline that are no parameters of its own."""
    batch_size: Optional[int]
    num_workers: Optional[int]
    generation_config: Options
    logits_processor: Hooks
    stopping_criteria: Hooks
    streamer: Optional[Streamer]
    assistant_model: Optional[PreTrainedModel]
    past_key_values: Past
    negative_prompt_ids: Any
    return_dict_in_generate: Optional[bool]
    skip_special_tokens: Optional[bool]
    add_special_tokens: Optional[bool]
    padding: Union[bool, str, None]
    truncation: Union[bool, str, None]
    tokenizer_encode_kwargs: Optional[Mapping[str, Any]]
    tools: Optional[Sequence[Any]]
    documents: Optional[Sequence[Any]]
    stop_sequence: Union[str, Sequence[str], None]
    prefix: Optional[str]
    handle_long_generation: Optional[str]

class SpeechArguments(CallOptions, StoreSettings, total=False):
    """Keyword arguments of generate() of a speech model."""
    prefix_allowed_tokens_fn: Optional[Callable[[int, Any], Any]]
    synced_gpus: Optional[bool]
    streamer: Optional[Streamer]
    return_timestamps: Optional[bool]
    task: Optional[str]
    language: Union[str, Sequence[str], None]
    is_multilingual: Optional[bool]
    prompt_ids: Any
    prompt_condition_type: Optional[str]
    condition_on_prev_tokens: Optional[bool]
    compression_ratio_threshold: Optional[Number]
    logprob_threshold: Optional[Number]
    no_speech_threshold: Optional[Number]
    num_segment_frames: Optional[int]
    attention_mask: Any
    time_precision: float
    time_precision_features: float
    force_unique_generate_call: Optional[bool]
    monitor_progress: Optional[Callable[[Any], Any]]
    encoder_outputs: Optional[EncoderInput]
    decoder_input_ids: Any
    past_key_values: Past

class TranscribeArguments(StoreSettings, total=False):
    """Keyword arguments of transcribe()."""
    language: Optional[str]
    task: Optional[str]
    prompt: Optional[str]
    return_timestamps: Optional[bool]
    word_timestamps: Optional[bool]
    condition_on_prev_tokens: Optional[bool]
    temperature: Union[Number, Sequence[Number], None]
    compression_ratio_threshold: Optional[Number]
    logprob_threshold: Optional[Number]
    no_speech_threshold: Optional[Number]
    max_new_tokens: Optional[int]
    max_length: Optional[int]
    num_beams: Optional[int]
    length_penalty: Optional[Number]
    early_stopping: Union[bool, str, None]
    seed: Optional[int]
    forced_decoder_ids: Any
    cache_implementation: Optional[str]
    cache_config: Any
    max_cache_len: Optional[int]

class ForwardArguments(TypedDict, total=False):
    """Keyword arguments of a model's call."""
    position_ids: Any
    inputs_embeds: Any
    labels: Any
    use_cache: Optional[bool]
    output_attentions: Optional[bool]
    output_hidden_states: Optional[bool]
    cache_position: Any
    logits_to_keep: Any
    num_logits_to_keep: Any
    cache_params: Past
    token_type_ids: Any
    position_embeddings: Any
    output_router_logits: Optional[bool]
    cache_kwargs: Any

class Seq2SeqArguments(TypedDict, total=False):
    """Keyword arguments of the call of a model with an encoder."""
    use_cache: Optional[bool]
    output_attentions: Optional[bool]
    output_hidden_states: Optional[bool]
    cache_position: Any
    input_features: Any
    labels: Any

class SpeechForward(TypedDict, total=False):
    """Keyword arguments of the call of a speech model."""
    use_cache: Optional[bool]
    output_attentions: Optional[bool]
    output_hidden_states: Optional[bool]
    cache_position: Any
    labels: Any

class OpenArguments(CacheSettings, total=False):
    """Keyword arguments of from_pretrained() of models.  Keys of the configuration (num_hidden_layers=2) work as well."""
    config: Any
    revision: Optional[str]
    gguf_file: Optional[str]
    cache_dir: Any
    token: Any
    use_auth_token: Any
    local_files_only: Optional[bool]
    force_download: Optional[bool]
    trust_remote_code: Optional[bool]
    low_cpu_mem_usage: Optional[bool]
    use_safetensors: Optional[bool]
    attn_implementation: Optional[str]

class CacheArguments(CacheSettings, total=False):
    """Keyword arguments of all caches."""
    device: Any
    dtype: Any

class QuantizedArguments(StoreSettings, total=False):
    """Keyword arguments of quantized caches that are no parameters of their own."""
    device: Any
    dtype: Any
    cache_implementation: Optional[str]
    max_cache_len: Optional[int]

class StaticArguments(CacheArguments, total=False):
    """Keyword arguments of static caches, of versions 4 and 5."""
    max_batch_size: Optional[int]
    batch_size: Optional[int]
    layer_device_map: Any
    offload_device: Any

class EncodeArguments(TypedDict, total=False):
    """Keyword arguments of a tokenizer's call that are no parameters of its own."""
    max_target_length: Optional[int]
    split_special_tokens: Optional[bool]
    clean_up_tokenization_spaces: Optional[bool]
    verbose: bool
