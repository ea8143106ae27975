#!/usr/bin/env python3
"""states.py - where models with recurrent states differ from Transformers: padded rows, and cached decoding.

usage: PYTHONPATH=python bench/states.py        (needs torch and transformers)

Makes tiny random models in a temporary folder.  For each, and for Transformers and kvik: the greatest difference of a row's last
logits when the row is padded on the left, from the same row alone; and that of logits decoded one token at a time with a cache,
from those of one whole forward.  Prints the table of docs/COMPARISON.md, with the logit of the
most likely token.
"""
import tempfile

import kvik
import numpy as np
import torch
import transformers
from transformers import (JambaConfig, JambaForCausalLM, Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM,
                          Zamba2Config, Zamba2ForCausalLM)

PAD, LENGTH, PADDED, WHOLE = 0, 6, 5, 24
BASE = dict(vocab_size=384, hidden_size=32, num_hidden_layers=3, pad_token_id=PAD, bos_token_id=1, eos_token_id=2)
MAMBA2 = dict(num_heads=8, head_dim=8, state_size=16, n_groups=2, chunk_size=8)
HYBRID = dict(intermediate_size=64, num_attention_heads=4, num_key_value_heads=4, mamba_d_state=8)
ZAMBA2 = dict(attention_head_dim=16, n_mamba_heads=4, mamba_headdim=16, mamba_ngroups=1, hybrid_layer_ids=[1], chunk_size=8,
              layers_block_type=["mamba", "hybrid", "mamba"], num_mem_blocks=1, use_mem_rope=True)


def models():
    """Yields a name, a class and a configuration for each model."""
    for bias in (False, True):
        word = f"`use_bias={str(bias).lower()}`"
        yield f"Mamba, {word}", MambaForCausalLM, MambaConfig(**BASE, state_size=16, use_bias=bias)
        yield f"Mamba 2, {word}", Mamba2ForCausalLM, Mamba2Config(**BASE, **MAMBA2, use_bias=bias)
        yield f"Jamba, `mamba_proj_bias={str(bias).lower()}`", JambaForCausalLM, JambaConfig(
            **BASE, **HYBRID, mamba_proj_bias=bias, num_experts=2, attn_layer_period=2, attn_layer_offset=1,
            use_mamba_kernels=False)
    yield "Mamba 2, `time_step_limit=[0.5, 1]`", Mamba2ForCausalLM, Mamba2Config(**BASE, **MAMBA2, time_step_limit=(0.5, 1.0))
    yield "Zamba 2", Zamba2ForCausalLM, Zamba2Config(**BASE, **HYBRID, **ZAMBA2)
    yield "Zamba 2, `time_step_min=1e-9`", Zamba2ForCausalLM, Zamba2Config(**BASE, **HYBRID, **ZAMBA2, time_step_min=1e-9)
    yield "Zamba 2, `tests/golden/models/zamba2`", Zamba2ForCausalLM, "tests/golden/models/zamba2"


def make(cls, config, folder):
    """Saves a random model of this configuration.  Returns it, and kvik's of the same file.  config: or the folder of a model."""
    if isinstance(config, str):
        return (cls.from_pretrained(config, attn_implementation="eager").eval(),
                kvik.AutoModelForCausalLM.from_pretrained(config, max_sequences=4))
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    model = cls(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not name.endswith(("A_log", "dt_bias", "norm.weight", "layernorm.weight", "norm_f.weight", ".D")):
                p.copy_(torch.randn(p.shape) * (0.5 if name.endswith("bias") else 0.2))
    model.tie_weights()
    model.save_pretrained(folder)
    return model, kvik.AutoModelForCausalLM.from_pretrained(folder, max_sequences=4)


def positions(mask):
    """Returns the positions that generate() gives to the tokens of a padded row: they begin behind the padding."""
    return np.maximum(np.cumsum(mask, 1) - 1, 0)


def reference(model, ids, mask=None):
    """Returns the last logits of Transformers."""
    more = {} if mask is None else {"attention_mask": torch.tensor(mask)}
    if mask is not None and model.config.model_type == "zamba2":
        more["position_ids"] = torch.tensor(positions(mask))
    with torch.no_grad():
        out = model(torch.tensor(ids), use_cache=False, **more)
    return out.logits.float().numpy()


def decoded(model, ids):
    """Returns the logits of Transformers, decoded one token at a time after the first eight, as generate() does."""
    out, past, key = [], None, "cache_params" if model.config.model_type in ("mamba", "mamba2") else "past_key_values"
    with torch.no_grad():
        for end in range(8, ids.shape[1] + 1):
            new = ids[:, :8] if past is None else ids[:, end - 1:end]
            got = model(torch.tensor(new), use_cache=True, **({} if past is None else {key: past}))
            past = getattr(got, key)
            out.append(got.logits[:, -1].float().numpy())
    return np.stack(out, 1)


def decoded_here(model, ids):
    """Returns the logits of kvik, decoded in the same way."""
    cache, out = kvik.DynamicCache(), []
    for end in range(8, ids.shape[1] + 1):
        new = ids[:, :8] if end == 8 else ids[:, end - 1:end]
        out.append(np.asarray(model(new, past_key_values=cache).logits)[:, -1])
    return np.stack(out, 1)


def apart(a, b):
    """Returns the greatest difference as text; equal bits are 0."""
    d = float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())
    return f"{d:.0e}" if d else "0"


def pads(model, ours, ids):
    """Returns the last logits of a row alone and padded, of Transformers and of kvik."""
    row = np.concatenate([np.full((1, PADDED), PAD, np.int64), ids[:, :LENGTH]], 1)
    mask = (np.arange(PADDED + LENGTH) >= PADDED).astype(np.int64)[None]
    more = {"position_ids": positions(mask)} if model.config.model_type == "zamba2" else {}
    alone = reference(model, ids[:, :LENGTH])[0, -1], np.asarray(ours(ids[:, :LENGTH]).logits)[0, -1]
    padded = reference(model, row, mask)[0, -1], np.asarray(ours(row, attention_mask=mask, **more).logits)[0, -1]
    return alone, padded


def main():
    """Prints a row of a table for each model."""
    ids = np.random.default_rng(3).integers(3, 380, (1, WHOLE))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, kvik {kvik.__version__}\n")
    print("| | Transformers: alone, padded | kvik: alone, padded | padded: Transformers | padded: kvik | decoded: Transformers | decoded: kvik |")
    print("|---" * 7 + "|")
    for name, cls, config in models():
        with tempfile.TemporaryDirectory() as folder:
            model, ours = make(cls, config, folder)
            alone, padded = pads(model, ours, ids)
            whole = reference(model, ids)[:, 7:], np.asarray(ours(ids).logits)[:, 7:]
            best = int(alone[0].argmax())
            two = [f"{a[best]:.4f}, {p[best]:.4f}" for a, p in zip(alone, padded)]
            print(f"| {name} | {two[0]} | {two[1]} | {apart(alone[0], padded[0])} | {apart(alone[1], padded[1])} | "
                  f"{apart(whole[0], decoded(model, ids))} | {apart(whole[1], decoded_here(ours, ids))} |", flush=True)


if __name__ == "__main__":
    main()
