#!/usr/bin/env python3
"""Writes tiny random Llama models and cases of Transformers ("the reference") that the golden set lacks.

usage: make-tiny.py tests/golden

Models go to models/NAME, cases and their own index.json to cases-own, in the format of the golden
cases (index.json of tests/golden): yarn (plain, and with mscale, betas and no truncation), dynamic NTK
with its prompts below, across and beyond the trained length, multi-query heads, biases everywhere,
and a bf16 model of 2048 positions for runs deeper than two attention atoms.

A case with "dtype": "f32" on a model stored in bf16 means that the reference loaded the weights into
f32, which is what exact compute does.  Every forward of the dynamic cases is recorded with a fresh
model, because the reference keeps the longest length it has seen in the module.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

REFERENCE = f"transformers {transformers.__version__}"
BASE = dict(vocab_size=384, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=True)
MODELS = {
    "llama-yarn": dict(rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                        "original_max_position_embeddings": 32}),
    "llama-yarn-mscale": dict(num_attention_heads=4, num_key_value_heads=2,
                              rope_parameters={"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0,
                                               "original_max_position_embeddings": 32, "beta_fast": 16.0,
                                               "beta_slow": 2.0, "mscale": 0.8, "mscale_all_dim": 0.5,
                                               "truncate": False}),
    "llama-dynamic": dict(max_position_embeddings=32, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                          hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                          rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}),
    "llama-bf16-long": dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
                            max_position_embeddings=2048, tie_word_embeddings=False,
                            rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
}
# id suffix, prompt lengths of the rows, new tokens, dtype of the run, further generate arguments
CASES = {
    "llama-yarn": [("below.dynamic", [12], 12, "f32", {}), ("across.dynamic", [26], 16, "f32", {}),
                   ("above.dynamic", [70], 16, "f32", {}), ("above.static", [70], 16, "f32", {"cache_implementation": "static"}),
                   ("above.nocache", [70], 16, "f32", {"use_cache": False}), ("leftpad.dynamic", [9, 50, 31], 12, "f32", {})],
    "llama-yarn-mscale": [("below.dynamic", [12], 12, "f32", {}), ("across.dynamic", [26], 16, "f32", {}),
                          ("above.dynamic", [70], 16, "f32", {})],
    "llama-dynamic": [("below.dynamic", [12], 12, "f32", {}), ("above-one.dynamic", [50], 1, "f32", {}),
                      ("above.dynamic", [50], 16, "f32", {}), ("across.dynamic", [24], 20, "f32", {}),
                      ("edge.dynamic", [32], 8, "f32", {}), ("edge-one-over.dynamic", [33], 8, "f32", {}),
                      ("across.static", [24], 20, "f32", {"cache_implementation": "static"})],
    "llama-bf16-long": [("basic.dynamic", [12], 12, "bf16", {}), ("deep.dynamic", [640], 12, "bf16", {}),
                        ("basic-f32.dynamic", [12], 12, "f32", {}), ("deep-f32.dynamic", [640], 16, "f32", {}),
                        ("deep-f32.static", [640], 16, "f32", {"cache_implementation": "static"})],
}
MIN_MARGIN = {"f32": 0.02, "bf16": 0.15}


def make(name, fields):
    config = LlamaConfig(**{**BASE, **fields})
    torch.manual_seed(sum(map(ord, name)))
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "norm" in key:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif key.endswith("bias"):
                p.copy_(0.3 * torch.randn_like(p))
            elif "embed" in key:
                p.copy_(torch.randn_like(p) * (0.35 if config.tie_word_embeddings else 0.8))
            elif "q_proj" in key or "k_proj" in key:
                p.copy_(torch.randn_like(p) * 2.0 / p.shape[1] ** 0.5)
            else:
                p.copy_(torch.randn_like(p) * 1.2 / p.shape[1] ** 0.5)
    return model.to(torch.bfloat16) if "bf16" in name else model


def load(folder, dtype):
    return LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def run(folder, lens, steps, dtype, extra, seed):
    """Generates from random prompts; None when a margin is too small or a row ends early."""
    model = load(folder, torch.float32 if dtype == "f32" else torch.bfloat16)
    g = torch.Generator().manual_seed(seed)
    width = max(lens)
    ids = torch.zeros(len(lens), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, n in enumerate(lens):
        ids[i, width - n:] = torch.randint(5, model.config.vocab_size, (n,), generator=g)
        mask[i, width - n:] = 1
    generate = {"max_new_tokens": steps, "do_sample": False, **extra}
    out = model.generate(ids, attention_mask=mask, return_dict_in_generate=True, output_logits=True, **generate)
    logits = torch.stack(out.logits).float()  # [steps, rows, vocab]
    top = torch.topk(logits, 2, dim=-1).values
    gaps = (top[..., 0] - top[..., 1]).flatten()
    if logits.shape[0] != steps or gaps.min().item() < MIN_MARGIN[dtype]:
        return None
    new = out.sequences[:, width:]
    if (new == 2).any() or (steps > 4 and min(len(set(r.tolist())) for r in new) < steps // 2):
        return None
    cache = out.past_key_values if extra.get("use_cache", True) else None
    return {"input_ids": ids.tolist(), "attention_mask": mask.tolist() if len(lens) > 1 else None, "generate": generate,
            "sequences": out.sequences.tolist(), "logits": logits,
            "margin": {"min": round(gaps.min().item(), 6), "median": round(gaps.median().item(), 4)},
            "cache": {"class": type(cache).__name__, "seq_length": int(cache.get_seq_length())} if cache is not None else None}


def main():
    root = sys.argv[1]
    own = os.path.join(root, "cases-own")
    os.makedirs(own, exist_ok=True)
    index = {"models": {}, "cases": [], "equals": [], "differs": [], "not_recorded": []}
    for name, fields in MODELS.items():
        folder = os.path.join(root, "models", name)
        make(name, fields).save_pretrained(folder)
        for f in os.listdir(folder):
            os.chmod(os.path.join(folder, f), 0o644)
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        index["models"][name] = {"arch": "llama", "saved_by": REFERENCE, "dtype": "bf16" if "bf16" in name else "f32",
                                 "bytes": size}
        kept = {}
        for suffix, lens, steps, dtype, extra in CASES[name]:
            twin = kept.get((suffix.split(".")[0]))
            first = twin["seed"] if twin else 0
            for seed in range(first, first + 400):
                r = run(folder, lens, steps, dtype, extra, seed)
                if r or twin:
                    break
            assert r, (name, suffix)
            case_id, strategy = f"{name}.{suffix}", suffix.split(".")[1]
            expect = {"sequences": r["sequences"], "steps": steps, "margin": r["margin"], "cache": r["cache"]}
            if twin:
                assert twin["sequences"] == r["sequences"], case_id
                expect["logits"] = {"file": twin["id"] + ".safetensors", "key": "logits", "of_case": twin["id"],
                                    "max_abs_diff": (twin["logits"] - r["logits"]).abs().max().item()}
                index["equals"].append([twin["id"], case_id])
            else:
                path = os.path.join(own, case_id + ".safetensors")
                save_file({"logits": r["logits"].contiguous()}, path)
                os.chmod(path, 0o644)
                expect["logits"] = {"file": case_id + ".safetensors", "key": "logits", "of_case": None}
                kept[suffix.split(".")[0]] = {"id": case_id, "seed": seed, **r}
            tags = ["rope" if "bf16" not in name else "deep", strategy]
            case = {"id": case_id, "kind": "generate", "model": name, "reference": REFERENCE, "attention": "eager",
                    "dtype": dtype, "input_ids": r["input_ids"], "attention_mask": r["attention_mask"],
                    "generate": r["generate"], "cache": None, "expect": expect, "tags": tags}
            with open(os.path.join(own, case_id + ".json"), "w") as f:
                json.dump(case, f, separators=(",", ":"))
                f.write("\n")
            index["cases"].append({"id": case_id, "kind": "generate", "model": name, "arch": "llama", "dtype": dtype,
                                   "reference": REFERENCE, "strategy": strategy, "tags": tags, "batch": len(lens),
                                   "steps": steps, "margin": r["margin"], "issue": "A", "meet": "exact"})
            print(case_id, "seed", seed, r["margin"], [len(set(s[max(lens):])) for s in r["sequences"]])
    with open(os.path.join(own, "index.json"), "w") as f:
        f.write("{\n" + ",\n".join(
            json.dumps(k) + ": " + (json.dumps(v) if isinstance(v, dict) else
                                    "[\n" + ",\n".join(json.dumps(x) for x in v) + "\n]" if v else "[]")
            for k, v in index.items()) + "\n}\n")


main()
