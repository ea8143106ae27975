# Written by scripts/make-python-types.py, for type checkers and editors.  Do not edit.
from typing import Any, Dict, Literal, Mapping, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
from typing_extensions import TypedDict

Integer = Union[int, np.integer[Any]]
Number = Union[float, np.floating[Any], np.integer[Any]]

class Listed(Protocol):
    """An array or a tensor."""
    def tolist(self) -> Any: ...

class Described(Protocol):
    """A configuration that is an object, such as QuantizedCacheConfig."""
    def to_dict(self) -> Dict[str, Any]: ...

Ids = Union[int, Sequence[Integer], Listed]
Configuration = Union[str, Mapping[str, Any], Described]

class CallOptions(TypedDict, total=False):
    """Options of one call of generate()."""
    max_new_tokens: Optional[Integer]
    """tokens to generate, without the prompt; wins over max_length; with neither set: 20"""
    max_length: Optional[Integer]
    """tokens of the prompt and the answer together"""
    min_new_tokens: Optional[Integer]
    """ban end-of-sequence tokens before this many new tokens"""
    min_length: Optional[Integer]
    """ban end-of-sequence tokens before this many tokens, prompt included"""
    max_time: Optional[Number]
    """seconds after which generation stops with the current token; 0: no limit"""
    eos_token_id: Optional[Ids]
    """end-of-sequence token, or several; an empty list: none"""
    stop_strings: Optional[Union[str, Sequence[str]]]
    """one text or several that end the answer"""
    include_stop_str_in_output: Optional[bool]
    """false: the text ends before the stop string, and a stream holds back what may begin one"""
    pad_token_id: Optional[Integer]
    """token that fills finished rows in the output; -1: none"""
    bos_token_id: Optional[Integer]
    """token that begins a text; -1: none"""
    decoder_start_token_id: Optional[Integer]
    """token that begins the decoder's text, in models with an encoder; -1: the model's own"""
    do_sample: Optional[bool]
    """draw the next token at random; false: always take the most likely token"""
    seed: Optional[Integer]
    """seed of sampling; the same seed gives the same text"""
    temperature: Optional[Union[Number, Sequence[Number]]]
    """divides the logits when sampling; below 1: sharper, above 1: flatter"""
    top_h: Optional[Number]
    """draw from the likeliest of the 100 most likely tokens, as many as hold this share of the entropy of the 100; 0: off"""
    top_k: Optional[Integer]
    """draw from the k most likely tokens; 0: from all"""
    top_p: Optional[Number]
    """draw from the smallest set of tokens that reaches this probability"""
    min_p: Optional[Number]
    """remove tokens below this share of the probability of the most likely token"""
    top_n_sigma: Optional[Number]
    """remove tokens whose logit is more than so many standard deviations of all logits below the best; 0: off"""
    xtc_probability: Optional[Number]
    """how often all likely tokens but the least likely of them are removed; 0: off"""
    xtc_threshold: Optional[Number]
    """the probability from which on xtc_probability takes a token for likely; above 0.5: off"""
    typical_p: Optional[Number]
    """draw from the tokens whose surprise is nearest to the expected one, as many as have this probability together; 1: off"""
    epsilon_cutoff: Optional[Number]
    """remove tokens below this probability; 0: off"""
    eta_cutoff: Optional[Number]
    """like epsilon_cutoff, but less strict where many tokens are plausible; 0: off"""
    repetition_penalty: Optional[Number]
    """above 1: tokens that are already in the text become less likely"""
    encoder_repetition_penalty: Optional[Number]
    """above 1: tokens of the prompt, or of the encoder's input, become more likely"""
    no_repeat_ngram_size: Optional[Integer]
    """ban every sequence of this many tokens that the text already has; 0: off"""
    encoder_no_repeat_ngram_size: Optional[Integer]
    """ban every sequence of this many tokens that the prompt, or the encoder's input, has; 0: off"""
    sequence_bias: Optional[Union[Mapping[Tuple[int, ...], Number], Sequence[Any]]]
    """adds to the score of token sequences: [[[5], -2.0], [[7, 8], 1.5]]"""
    bad_words_ids: Optional[Sequence[Sequence[Integer]]]
    """token sequences to ban: [[5], [7, 8]]"""
    suppress_tokens: Optional[Ids]
    """tokens to ban"""
    begin_suppress_tokens: Optional[Ids]
    """tokens to ban as the first generated token"""
    forced_bos_token_id: Optional[Integer]
    """the token to put after a prompt of one token; -1: none"""
    forced_eos_token_id: Optional[Ids]
    """the last token of a text that reaches its maximum length; with several, any of them"""
    exponential_decay_length_penalty: Optional[Sequence[Number]]
    """[START, FACTOR]: after START new tokens the end becomes likelier by FACTOR with every token"""
    guidance_scale: Optional[Number]
    """above 1: follow the prompt more closely than negative_prompt_ids; 1: off"""
    remove_invalid_values: Optional[bool]
    """replace scores that are NaN by 0, and infinite scores by finite ones"""
    json_schema: Optional[Union[str, bool, Mapping[str, Any]]]
    """JSON Schema that the answer is valid under; "json_object": any JSON object"""
    renormalize_logits: Optional[bool]
    """make the scores log-probabilities again after all other changes"""
    num_beams: Optional[Integer]
    """above 1: beam search with this many beams; the cache holds their common rows once"""
    num_return_sequences: Optional[Integer]
    """answers for each prompt: the best beams, or this many samples"""
    length_penalty: Optional[Number]
    """beams: divide scores by length to this power; above 0 favours longer answers"""
    early_stopping: Optional[Union[bool, Literal["never"]]]
    """when a beam search ends. true: when num_beams answers are complete; false: when a better one is unlikely; never: when a better one is impossible"""
    num_beam_groups: Optional[Integer]
    """divide the beams into this many groups, which diversity_penalty keeps apart"""
    diversity_penalty: Optional[Number]
    """groups of beams: subtracted from the score of a token, once for each beam of an earlier group that has chosen this token in the same step"""
    penalty_alpha: Optional[Number]
    """above 0: contrastive search among the top_k tokens, with this weight on being unlike the text so far"""
    prompt_lookup_num_tokens: Optional[Integer]
    """draft up to this many tokens at once from matching earlier text, and keep the accepted ones; 0: off"""
    max_matching_ngram_size: Optional[Integer]
    """the longest match that prompt_lookup_num_tokens searches for"""
    num_assistant_tokens: Optional[Integer]
    """tokens that an assistant model drafts at once"""
    num_assistant_tokens_schedule: Optional[Union[Literal["constant", "heuristic", "heuristic_transient"], str]]
    """how num_assistant_tokens changes. constant: never; heuristic: it grows when all drafts are accepted and shrinks otherwise; heuristic_transient: the same, and each call begins with the given value"""
    assistant_confidence_threshold: Optional[Number]
    """the assistant stops drafting when its token is less probable than this"""
    use_cache: Optional[bool]
    """false: recompute the whole text for every token"""
    cache_implementation: Optional[Union[Literal["dynamic", "static", "offloaded", "offloaded_static", "quantized", "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "sink", "mamba", "dynamic_full", "offloaded_dynamic"], str]]
    """how the cache stores the past. dynamic: grows as needed; static: reserves memory for max_cache_len tokens; offloaded: streams from disk; quantized: stores few bits; sink: keeps the first and the last tokens alone"""
    cache_config: Optional[Configuration]
    """settings of any cache as a JSON object: max_cache_len (strict), sliding_window, window_length with num_sink_tokens, backend, nbits, k_bits, v_bits, max_kld, layers, axis_key, axis_value, q_group_size, residual_length, offloading, offload_only_non_sliding, moved_chunks"""
    cross_cache_implementation: Optional[Union[Literal["dynamic", "static", "offloaded", "quantized", "mamba", "dynamic_full", "offloaded_dynamic"], str]]
    """how the rows of an encoder are stored, in models with one; none: as they were computed"""
    cross_cache_config: Optional[Configuration]
    """settings of the encoder's rows as a JSON object: backend, nbits, axis_key, axis_value, q_group_size, residual_length, offloading"""
    max_encoder_len: Optional[Integer]
    """rows that an encoder's input may have; none: as many as the model was made for"""
    max_cache_len: Optional[Integer]
    """tokens that a static cache reserves; raised to what the text needs"""
    prefill_chunk_size: Optional[Integer]
    """prefill the prompt in chunks of this many tokens; the result is the same"""
    disable_compile: Optional[bool]
    """accepted without effect: kvik compiles nothing"""
    compile_config: Optional[Configuration]
    """accepted without effect, like disable_compile"""
    output_logits: Optional[bool]
    """return the raw logits of every step"""
    output_scores: Optional[bool]
    """return the processed scores of every step"""
    return_legacy_cache: Optional[bool]
    """return the rows of the cache as arrays"""
    assistant_early_exit: Any
    assistant_ensemble_weight: Any
    assistant_lookbehind: Any
    constraints: Any
    continuous_batching_config: Any
    dola_layers: Any
    force_words_ids: Any
    forced_decoder_ids: Any
    is_assistant: Any
    low_memory: Any
    output_attentions: Any
    output_hidden_states: Any
    speculation_type: Any
    target_lookbehind: Any
    token_healing: Any
    transformers_version: Any
    use_mtp: Any
    watermarking_config: Any

class GenerationOptions(CallOptions, total=False):
    """Options of a GenerationConfig."""
    negative_prompt_ids: Optional[Union[Ids, Sequence[Sequence[Integer]]]]
    """the prompt that guidance_scale leads away from; none: the last token of the prompt"""
    negative_prompt_attention_mask: Optional[Union[Ids, Sequence[Sequence[Integer]]]]
    """zeros hide tokens of negative_prompt_ids"""
    return_dict_in_generate: Optional[bool]
    """return the cache along with the tokens"""
    alignment_heads: Any
    compression_ratio_threshold: Any
    condition_on_prev_tokens: Any
    is_multilingual: Any
    lang_to_id: Any
    language: Any
    logprob_threshold: Any
    max_initial_timestamp_index: Any
    no_speech_threshold: Any
    no_timestamps_token_id: Any
    prev_sot_token_id: Any
    return_timestamps: Any
    return_token_timestamps: Any
    task: Any
    task_to_id: Any

class OptionAttributes:
    """The same as attributes."""
    max_new_tokens: Optional[Integer]
    max_length: Optional[Integer]
    min_new_tokens: Optional[Integer]
    min_length: Optional[Integer]
    max_time: Optional[Number]
    eos_token_id: Optional[Ids]
    stop_strings: Optional[Union[str, Sequence[str]]]
    include_stop_str_in_output: Optional[bool]
    pad_token_id: Optional[Integer]
    bos_token_id: Optional[Integer]
    decoder_start_token_id: Optional[Integer]
    do_sample: Optional[bool]
    seed: Optional[Integer]
    temperature: Optional[Union[Number, Sequence[Number]]]
    top_h: Optional[Number]
    top_k: Optional[Integer]
    top_p: Optional[Number]
    min_p: Optional[Number]
    top_n_sigma: Optional[Number]
    xtc_probability: Optional[Number]
    xtc_threshold: Optional[Number]
    typical_p: Optional[Number]
    epsilon_cutoff: Optional[Number]
    eta_cutoff: Optional[Number]
    repetition_penalty: Optional[Number]
    encoder_repetition_penalty: Optional[Number]
    no_repeat_ngram_size: Optional[Integer]
    encoder_no_repeat_ngram_size: Optional[Integer]
    sequence_bias: Optional[Union[Mapping[Tuple[int, ...], Number], Sequence[Any]]]
    bad_words_ids: Optional[Sequence[Sequence[Integer]]]
    suppress_tokens: Optional[Ids]
    begin_suppress_tokens: Optional[Ids]
    forced_bos_token_id: Optional[Integer]
    forced_eos_token_id: Optional[Ids]
    exponential_decay_length_penalty: Optional[Sequence[Number]]
    guidance_scale: Optional[Number]
    negative_prompt_ids: Optional[Union[Ids, Sequence[Sequence[Integer]]]]
    negative_prompt_attention_mask: Optional[Union[Ids, Sequence[Sequence[Integer]]]]
    remove_invalid_values: Optional[bool]
    json_schema: Optional[Union[str, bool, Mapping[str, Any]]]
    renormalize_logits: Optional[bool]
    num_beams: Optional[Integer]
    num_return_sequences: Optional[Integer]
    length_penalty: Optional[Number]
    early_stopping: Optional[Union[bool, Literal["never"]]]
    num_beam_groups: Optional[Integer]
    diversity_penalty: Optional[Number]
    penalty_alpha: Optional[Number]
    prompt_lookup_num_tokens: Optional[Integer]
    max_matching_ngram_size: Optional[Integer]
    num_assistant_tokens: Optional[Integer]
    num_assistant_tokens_schedule: Optional[Union[Literal["constant", "heuristic", "heuristic_transient"], str]]
    assistant_confidence_threshold: Optional[Number]
    use_cache: Optional[bool]
    cache_implementation: Optional[Union[Literal["dynamic", "static", "offloaded", "offloaded_static", "quantized", "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "sink", "mamba", "dynamic_full", "offloaded_dynamic"], str]]
    cache_config: Optional[Configuration]
    cross_cache_implementation: Optional[Union[Literal["dynamic", "static", "offloaded", "quantized", "mamba", "dynamic_full", "offloaded_dynamic"], str]]
    cross_cache_config: Optional[Configuration]
    max_encoder_len: Optional[Integer]
    max_cache_len: Optional[Integer]
    prefill_chunk_size: Optional[Integer]
    disable_compile: Optional[bool]
    compile_config: Optional[Configuration]
    output_logits: Optional[bool]
    output_scores: Optional[bool]
    return_dict_in_generate: Optional[bool]
    return_legacy_cache: Optional[bool]
    assistant_early_exit: Any
    assistant_ensemble_weight: Any
    assistant_lookbehind: Any
    constraints: Any
    continuous_batching_config: Any
    dola_layers: Any
    force_words_ids: Any
    forced_decoder_ids: Any
    is_assistant: Any
    low_memory: Any
    output_attentions: Any
    output_hidden_states: Any
    speculation_type: Any
    target_lookbehind: Any
    token_healing: Any
    transformers_version: Any
    use_mtp: Any
    watermarking_config: Any
    alignment_heads: Any
    compression_ratio_threshold: Any
    condition_on_prev_tokens: Any
    is_multilingual: Any
    lang_to_id: Any
    language: Any
    logprob_threshold: Any
    max_initial_timestamp_index: Any
    no_speech_threshold: Any
    no_timestamps_token_id: Any
    prev_sot_token_id: Any
    return_timestamps: Any
    return_token_timestamps: Any
    task: Any
    task_to_id: Any

class StoreSettings(TypedDict, total=False):
    """Settings of a cache that are no options of generate()."""
    cache_memory: Optional[Union[int, str]]
    max_sequences: Optional[int]
    step_tokens: Optional[int]
    snapshots: Optional[int]
    threads: Optional[int]
    compute: Optional[str]
    isa: Optional[str]
    on_full: Optional[str]
    spill_dir: Optional[str]
    no_prefix_cache: Optional[bool]

class CacheSettings(StoreSettings, total=False):
    """All settings of a cache."""
    cache_implementation: Optional[Union[Literal["dynamic", "static", "offloaded", "offloaded_static", "quantized", "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "sink", "mamba", "dynamic_full", "offloaded_dynamic"], str]]
    cache_config: Optional[Configuration]
    max_cache_len: Optional[Integer]
    cross_cache_implementation: Optional[Union[Literal["dynamic", "static", "offloaded", "quantized", "mamba", "dynamic_full", "offloaded_dynamic"], str]]
    cross_cache_config: Optional[Configuration]
    max_encoder_len: Optional[Integer]
