"""What a configuration has where its file says nothing: values of Transformers 5.23 by types of models."""
from typing import Any, Dict, Tuple

OF: Dict[str, Dict[str, Any]] = {
    "bart": {
        "is_encoder_decoder": True, "vocab_size": 50265, "max_position_embeddings": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096,
        "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
        "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_function": "gelu", "d_model": 1024, "dropout": 0.1,
        "attention_dropout": 0.0, "activation_dropout": 0.0, "init_std": 0.02, "classifier_dropout": 0.0, "scale_embedding": False,
        "use_cache": True, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
        "forced_eos_token_id": 2, "is_decoder": False, "tie_word_embeddings": True},
    "falcon_mamba": {
        "vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "layer_norm_epsilon": 1e-05,
        "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "expand": 2, "conv_kernel": 4, "use_bias": False,
        "use_conv_bias": True, "hidden_act": "silu", "initializer_range": 0.1, "residual_in_fp32": True, "time_step_rank": 48,
        "time_step_scale": 1.0, "time_step_min": 0.001, "time_step_max": 0.1, "time_step_init_scheme": "random",
        "time_step_floor": 0.0001, "rescale_prenorm_residual": False, "use_cache": True, "use_mambapy": False,
        "use_associative_scan": True, "tie_word_embeddings": True, "mixer_rms_eps": 1e-06, "intermediate_size": 1536},
    "gemma": {
        "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
        "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": True, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
        "tie_word_embeddings": True, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": False,
        "attention_dropout": 0.0, "use_bidirectional_attention": None},
    "gemma2": {
        "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
        "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": True, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
        "tie_word_embeddings": True, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": False,
        "attention_dropout": 0.0, "query_pre_attn_scalar": 256, "sliding_window": 4096, "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0, "use_bidirectional_attention": None},
    "gemma3": {
        "mm_tokens_per_image": 256, "boi_token_index": 255999, "eoi_token_index": 256000, "image_token_index": 262144,
        "initializer_range": 0.02, "tie_word_embeddings": True},
    "gemma3_text": {
        "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
        "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": True, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
        "tie_word_embeddings": True, "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0}}, "attention_bias": False, "attention_dropout": 0.0,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "use_bidirectional_attention": False, "_sliding_window_pattern": 6,
        "final_logit_softcapping": None, "attn_logit_softcapping": None},
    "gpt_oss": {
        "num_hidden_layers": 36, "num_local_experts": 128, "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
        "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128, "tie_word_embeddings": False,
        "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096, "rope_theta": 150000.0}, "attention_dropout": 0.0, "num_experts_per_tok": 4,
        "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "router_aux_loss_coef": 0.001, "output_router_logits": False, "use_cache": True,
        "attention_bias": True, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "gpt2": {
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "activation_function": "gelu_new",
        "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
        "summary_type": "cls_index", "summary_use_proj": True, "summary_proj_to_labels": True, "summary_first_dropout": 0.1,
        "scale_attn_weights": True, "use_cache": True, "bos_token_id": 50256, "eos_token_id": 50256,
        "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "add_cross_attention": False,
        "tie_word_embeddings": True, "n_inner": None, "summary_activation": None, "pad_token_id": None},
    "granite": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": True,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0, "rope_type":
        "default"}, "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "embedding_multiplier": 1.0,
        "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0, "pad_token_id": None},
    "jamba": {
        "vocab_size": 65536, "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-06,
        "use_cache": True, "output_router_logits": False, "router_aux_loss_coef": 0.001, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "max_position_embeddings": 262144, "attention_dropout": 0.0, "num_experts_per_tok": 2, "num_experts": 16,
        "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "use_mamba_kernels": True,
        "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256, "mamba_conv_bias": True,
        "mamba_proj_bias": False, "use_mambapy": False, "use_associative_scan": True},
    "llama": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": True,
        "bos_token_id": 1, "eos_token_id": 2, "pretraining_tp": 1, "tie_word_embeddings": False, "rope_parameters": {"rope_theta":
        10000.0, "rope_type": "default"}, "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "pad_token_id": None},
    "llama4": {
        "boi_token_index": 200080, "eoi_token_index": 200081, "image_token_index": 200092, "tie_word_embeddings": False},
    "llama4_text": {
        "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 131072,
        "initializer_range": 0.02, "rms_norm_eps": 1e-05, "use_cache": True, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": False, "attention_dropout": 0.0, "num_experts_per_tok": 1, "num_local_experts": 16,
        "interleave_moe_layer_step": 1, "use_qk_norm": True, "output_router_logits": False, "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "no_rope_layer_interval": 4,
        "attention_chunk_size": 8192, "attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1, "attention_bias": False,
        "pad_token_id": None},
    "mamba": {
        "vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "layer_norm_epsilon": 1e-05,
        "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "expand": 2, "conv_kernel": 4, "use_bias": False,
        "use_conv_bias": True, "hidden_act": "silu", "initializer_range": 0.1, "residual_in_fp32": True, "time_step_rank": 48,
        "time_step_scale": 1.0, "time_step_min": 0.001, "time_step_max": 0.1, "time_step_init_scheme": "random",
        "time_step_floor": 0.0001, "rescale_prenorm_residual": False, "use_cache": True, "use_mambapy": False,
        "use_associative_scan": True, "tie_word_embeddings": True, "intermediate_size": 1536},
    "mamba2": {
        "num_heads": 128, "head_dim": 64, "vocab_size": 32768, "hidden_size": 4096, "state_size": 128, "num_hidden_layers": 64,
        "layer_norm_epsilon": 1e-05, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "expand": 2, "conv_kernel": 4,
        "n_groups": 8, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu", "initializer_range": 0.1,
        "residual_in_fp32": True, "time_step_rank": 256, "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 0.0001,
        "rescale_prenorm_residual": False, "use_cache": True, "chunk_size": 256, "tie_word_embeddings": False},
    "mbart": {
        "is_encoder_decoder": True, "vocab_size": 50265, "max_position_embeddings": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096,
        "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
        "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "use_cache": True, "activation_function": "gelu", "d_model": 1024,
        "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0, "init_std": 0.02, "classifier_dropout": 0.0,
        "scale_embedding": False, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2,
        "is_decoder": False, "tie_word_embeddings": True, "decoder_start_token_id": None},
    "mistral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072, "initializer_range": 0.02,
        "rms_norm_eps": 1e-06, "use_cache": True, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "sliding_window": 4096, "attention_dropout": 0.0,
        "pad_token_id": None},
    "mixtral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072, "initializer_range": 0.02,
        "rms_norm_eps": 1e-05, "use_cache": True, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
        "attention_dropout": 0.0, "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": False,
        "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "head_dim": None, "pad_token_id": None, "sliding_window": None},
    "mt5": {
        "is_encoder_decoder": True, "vocab_size": 250112, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8,
        "num_decoder_layers": 8, "num_heads": 6, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "dropout_rate": 0.1, "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, "feed_forward_proj": "gated-gelu",
        "use_cache": True, "tie_word_embeddings": True, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
        "classifier_dropout": 0.0, "is_decoder": False, "dense_act_fn": "gelu_new", "is_gated_act": True, "bos_token_id": None},
    "olmo2": {
        "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02, "use_cache": True, "pad_token_id": 1,
        "bos_token_id": None, "eos_token_id": 50279, "tie_word_embeddings": False,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": False, "attention_dropout": 0.0,
        "rms_norm_eps": 1e-05},
    "olmo3": {
        "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02, "use_cache": True, "pad_token_id": 1,
        "bos_token_id": None, "eos_token_id": 50279, "tie_word_embeddings": False,
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 500000.0}}, "attention_bias": False, "attention_dropout": 0.0,
        "rms_norm_eps": 1e-05, "sliding_window": 4096},
    "phi3": {
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0, "hidden_act": "silu", "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096, "initializer_range": 0.02, "rms_norm_eps": 1e-05, "use_cache": True,
        "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 1.0, "rope_type": "default"},
        "bos_token_id": 1, "eos_token_id": 32000, "pad_token_id": 32000, "sliding_window": None},
    "qwen2": {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02,
        "rms_norm_eps": 1e-06, "use_cache": True, "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0, "rope_type":
        "default"}, "use_sliding_window": False, "max_window_layers": 28, "attention_dropout": 0.0, "sliding_window": None,
        "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "qwen3": {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02,
        "rms_norm_eps": 1e-06, "use_cache": True, "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0, "rope_type":
        "default"}, "attention_bias": False, "use_sliding_window": False, "max_window_layers": 28, "attention_dropout": 0.0,
        "sliding_window": None, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "qwen3_5": {
        "image_token_id": 248056, "video_token_id": 248057, "vision_start_token_id": 248053, "vision_end_token_id": 248054,
        "tie_word_embeddings": False},
    "qwen3_5_moe": {
        "image_token_id": 248056, "video_token_id": 248057, "vision_start_token_id": 248053, "vision_end_token_id": 248054,
        "tie_word_embeddings": False},
    "qwen3_5_text": {
        "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
        "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02,
        "rms_norm_eps": 1e-06, "use_cache": True, "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0,
        "partial_rotary_factor": 0.25, "rope_type": "default"}, "attention_bias": False, "attention_dropout": 0.0, "head_dim": 256,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "qwen3_5_moe_text": {
        "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2,
        "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": True,
        "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25, "rope_type": "default"},
        "attention_bias": False, "attention_dropout": 0.0, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256, "output_router_logits": False,
        "router_aux_loss_coef": 0.001, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "qwen3_next": {
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02,
        "rms_norm_eps": 1e-06, "use_cache": True, "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 10000.0,
        "partial_rotary_factor": 0.25, "rope_type": "default"}, "attention_bias": False, "attention_dropout": 0.0, "head_dim": 256,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "decoder_sparse_step": 1, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 10, "num_experts": 512, "norm_topk_prob": True, "output_router_logits": False,
        "router_aux_loss_coef": 0.001, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "t5": {
        "is_encoder_decoder": True, "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
        "num_decoder_layers": 6, "num_heads": 8, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "dropout_rate": 0.1, "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, "feed_forward_proj": "relu", "use_cache": True,
        "pad_token_id": 0, "eos_token_id": 1, "classifier_dropout": 0.0, "is_decoder": False, "dense_act_fn": "relu",
        "is_gated_act": False, "scale_decoder_outputs": True, "tie_word_embeddings": True},
    "whisper": {
        "is_encoder_decoder": True, "vocab_size": 51865, "num_mel_bins": 80, "encoder_layers": 4, "encoder_attention_heads": 6,
        "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "encoder_ffn_dim": 1536, "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0, "decoder_start_token_id": 50257, "use_cache": True, "activation_function": "gelu", "d_model": 384,
        "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "init_std": 0.02, "scale_embedding": False,
        "max_source_positions": 1500, "max_target_positions": 448, "pad_token_id": 50256, "bos_token_id": 50256, "eos_token_id": 50256,
        "use_weighted_layer_sum": False, "classifier_proj_size": 256, "apply_spec_augment": False, "mask_time_prob": 0.05,
        "mask_time_length": 10, "mask_time_min_masks": 2, "mask_feature_prob": 0.0, "mask_feature_length": 10,
        "mask_feature_min_masks": 0, "median_filter_width": 7, "tie_word_embeddings": True},
    "zamba2": {
        "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_size": 2560, "num_hidden_layers": 54, "mamba_d_state": 64,
        "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "time_step_min": 0.001, "time_step_max": 0.1,
        "time_step_floor": 0.0001, "n_mamba_heads": 8, "use_mamba_kernels": True, "use_conv_bias": True, "chunk_size": 256,
        "use_mem_eff_path": False, "add_bias_linear": False, "intermediate_size": 10240, "hidden_act": "gelu",
        "num_attention_heads": 32, "attention_dropout": 0.0, "num_mem_blocks": 1, "use_shared_attention_adapter": False,
        "adapter_rank": 128, "use_mem_rope": False, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "initializer_range": 0.02, "rms_norm_eps": 1e-05, "use_cache": True, "num_logits_to_keep": 1, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "use_long_context": False, "tie_word_embeddings": True, "attention_hidden_size": 5120,
        "attention_head_dim": 160, "mamba_headdim": 640, "kv_channels": 80, "num_query_groups": 32},
}
"""Keys that every configuration of a type has, and their values."""

DERIVED: Dict[str, Tuple[str, ...]] = {
    "num_key_value_heads": (
        "granite", "llama", "olmo2", "olmo3", "phi3", "zamba2"),
    "head_dim": (
        "llama", "mistral"),
}
"""Types whose value follows from others: as many key heads as query heads, hidden_size / num_attention_heads for a head."""

LAYERED = (
    "gemma2", "gemma3_text", "gpt_oss", "llama4_text", "olmo3", "qwen2", "qwen3", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
"""Types whose configurations have layer_types."""
