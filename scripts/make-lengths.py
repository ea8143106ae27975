#!/usr/bin/env python3
"""Writes two random models of the same size: a Mamba and a Llama of 28 million bf16 weights.

usage: make-lengths.py DIR

The models are DIR/mamba and DIR/llama, for build/release/bench_lengths.  They have no tokenizer, and the
same bytes on every machine.  Only the standard library is needed.
"""
import json
import os
import random
import struct
import sys

HIDDEN, VOCAB = 512, 4096
MAMBA = dict(architectures=["MambaForCausalLM"], model_type="mamba", hidden_size=HIDDEN, intermediate_size=2 * HIDDEN,
             num_hidden_layers=15, state_size=16, conv_kernel=4, expand=2, time_step_rank=32, vocab_size=VOCAB,
             hidden_act="silu", use_bias=False, use_conv_bias=True, layer_norm_epsilon=1e-5, tie_word_embeddings=True,
             bos_token_id=0, eos_token_id=0, torch_dtype="bfloat16")
LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=HIDDEN, intermediate_size=1536,
             num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=64, vocab_size=VOCAB,
             hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=True, max_position_embeddings=1 << 17,
             rope_theta=500000.0, bos_token_id=0, eos_token_id=0, torch_dtype="bfloat16")


def weights(draw, n):
    """n values of either sign between 1/64 and 1/32, as bf16."""
    bits = int.from_bytes(draw.randbytes(2 * n), "little")
    keep, base = (int.from_bytes(struct.pack("<H", h) * n, "little") for h in (0x807F, 0x3C80))
    return (bits & keep | base).to_bytes(2 * n, "little")


def same(value, n):
    return struct.pack("<f", value)[2:] * n


def mamba(c):
    inner, state, rank = c["intermediate_size"], c["state_size"], c["time_step_rank"]
    yield "backbone.embeddings.weight", [VOCAB, HIDDEN], None
    yield "backbone.norm_f.weight", [HIDDEN], 1.0
    for i in range(c["num_hidden_layers"]):
        at = f"backbone.layers.{i}."
        yield at + "norm.weight", [HIDDEN], 1.0
        at += "mixer."
        yield at + "A_log", [inner, state], 1.0
        yield at + "D", [inner], 1.0
        yield at + "conv1d.weight", [inner, 1, 4], None
        yield at + "conv1d.bias", [inner], None
        yield at + "in_proj.weight", [2 * inner, HIDDEN], None
        yield at + "x_proj.weight", [rank + 2 * state, inner], None
        yield at + "dt_proj.weight", [inner, rank], None
        yield at + "dt_proj.bias", [inner], -3.0
        yield at + "out_proj.weight", [HIDDEN, inner], None


def llama(c):
    rows = c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN], None
    yield "model.norm.weight", [HIDDEN], 1.0
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [HIDDEN], 1.0
        yield at + "post_attention_layernorm.weight", [HIDDEN], 1.0
        for name, n in ("q", HIDDEN), ("k", rows), ("v", rows), ("o", HIDDEN):
            yield at + f"self_attn.{name}_proj.weight", [n, HIDDEN], None
        for name, shape in ("gate", [1536, HIDDEN]), ("up", [1536, HIDDEN]), ("down", [HIDDEN, 1536]):
            yield at + f"mlp.{name}_proj.weight", shape, None


def write(path, config, tensors):
    draw, head, data = random.Random(1), {}, bytearray()
    for name, shape, value in tensors:
        n = 1
        for k in shape:
            n *= k
        start = len(data)
        data += weights(draw, n) if value is None else same(value, n)
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    print(f"{path}: {len(data) / 2e6:.1f} million weights")


if len(sys.argv) != 2:
    sys.exit(__doc__)
write(os.path.join(sys.argv[1], "mamba"), MAMBA, mamba(MAMBA))
write(os.path.join(sys.argv[1], "llama"), LLAMA, llama(LLAMA))
