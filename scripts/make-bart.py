#!/usr/bin/env python3
"""Writes tiny random BART and mBART models and cases of Transformers ("the reference") that the golden set lacks.

usage: make-bart.py tests/golden

Models go to models/NAME, cases to cases-own beside those of make-tiny.py, whose index.json must exist: entries of these
models are replaced.  Each model has a bias of the logits, tied embeddings and a forced first and last token.  A row of
the batch is padded on the left, where masked columns count in the positions of the encoder.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (BartConfig, BartForConditionalGeneration, GenerationConfig, MBartConfig,
                          MBartForConditionalGeneration)

REFERENCE = f"transformers {transformers.__version__}"
PAD, BOS, EOS = 1, 0, 2
BASE = dict(vocab_size=320, max_position_embeddings=80, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
            decoder_start_token_id=EOS, tie_word_embeddings=True)
MODELS = {
    "bart": (BartForConditionalGeneration, BartConfig(
        d_model=48, encoder_layers=2, decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=4,
        encoder_ffn_dim=40, decoder_ffn_dim=64, scale_embedding=False, **BASE)),
    "mbart": (MBartForConditionalGeneration, MBartConfig(
        d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=2,
        encoder_ffn_dim=40, decoder_ffn_dim=32, scale_embedding=True, activation_function="relu", **BASE)),
}
FORCED = {"forced_bos_token_id": 7, "forced_eos_token_id": EOS}
# id suffix, rows: (tokens, masked columns before, behind), decoder's prompt, generate arguments
CASES = [
    ("basic.dynamic", [(11, 0, 0)], None, {"max_new_tokens": 12}),
    ("basic.static", [(11, 0, 0)], None, {"max_new_tokens": 12, "cache_implementation": "static"}),
    ("basic.nocache", [(11, 0, 0)], None, {"max_new_tokens": 12, "use_cache": False}),
    ("forced.dynamic", [(11, 0, 0)], None, {"max_new_tokens": 8, **FORCED}),
    ("batch.dynamic", [(9, 3, 0), (12, 0, 0), (8, 0, 4)], None, {"max_new_tokens": 10}),
    ("prompt.dynamic", [(11, 0, 0)], [EOS, 40, 41, 200], {"max_new_tokens": 8}),
    ("beams", [(8, 2, 0), (10, 0, 0)], None, {"max_new_tokens": 8, "num_beams": 3}),
    ("forced.beams", [(8, 0, 0), (8, 0, 0)], None, {"max_new_tokens": 8, "num_beams": 4, "length_penalty": 2.0,
                                                   "no_repeat_ngram_size": 3, "early_stopping": True, **FORCED}),
]


def make(name):
    kind, config = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    model = kind(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "norm" in key and key.endswith("weight"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif key.endswith("bias"):
                p.copy_(0.3 * torch.randn_like(p))
            elif "shared" in key or "embed" in key:
                p.copy_(torch.randn_like(p) * (0.5 if config.scale_embedding else 0.9))
            elif "q_proj" in key or "k_proj" in key:
                p.copy_(torch.randn_like(p) * 2.0 / p.shape[1] ** 0.5)
            else:
                p.copy_(torch.randn_like(p) * 1.5 / p.shape[1] ** 0.5)
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.generation_config = GenerationConfig(pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
                                               decoder_start_token_id=EOS)
    return model


@torch.no_grad()
def run(model, rows, prompt, extra, seed):
    """Generates from random inputs; None when a margin is too small or a row ends early."""
    g = torch.Generator().manual_seed(seed)
    width = max(sum(r) for r in rows)
    ids = torch.full((len(rows), width), PAD)
    mask = torch.zeros_like(ids)
    for i, (n, left, _) in enumerate(rows):
        ids[i, left:left + n] = torch.randint(5, model.config.vocab_size, (n,), generator=g)
        mask[i, left:left + n] = 1
    generate = {"do_sample": False, **extra}
    given = {} if prompt is None else {"decoder_input_ids": torch.tensor([prompt] * len(rows))}
    beams = extra.get("num_beams", 1) > 1
    out = model.generate(ids, attention_mask=mask, return_dict_in_generate=True, output_logits=not beams,
                         output_scores=beams, **given, **generate)
    first = 1 if prompt is None else len(prompt)
    expect = {"sequences": out.sequences.tolist(), "steps": out.sequences.shape[1] - first}
    logits = None
    if beams:
        again = model.generate(ids, attention_mask=mask, return_dict_in_generate=True, output_scores=True,
                               **{**generate, "num_return_sequences": extra["num_beams"]})
        s = again.sequences_scores.reshape(len(rows), -1)
        gap = (s[:, 0] - s[:, 1]).min().item()
        if gap < 0.01:
            return None
        expect["margin"] = {"beam_gap_min": round(gap, 6)}
        expect["sequences_scores"] = out.sequences_scores.tolist()
    else:
        logits = torch.stack(out.logits).float()
        top = torch.topk(logits, 2, dim=-1).values
        gaps = (top[..., 0] - top[..., 1]).flatten()
        short = expect["steps"] < extra["max_new_tokens"] and "forced_eos_token_id" not in extra
        if gaps.min().item() < 0.02 or short or (out.sequences[:, first:-1] == EOS).any():
            return None
        expect["margin"] = {"min": round(gaps.min().item(), 6), "median": round(gaps.median().item(), 4)}
    case = {"input_ids": ids.tolist(), "attention_mask": mask.tolist(), "generate": generate, "cache": None,
            "expect": expect}
    if prompt is not None:
        case["decoder_input_ids"] = [prompt] * len(rows)
    return case, logits


def main():
    root = sys.argv[1]
    own = os.path.join(root, "cases-own")
    path = os.path.join(own, "index.json")
    index = json.load(open(path))
    index["cases"] = [c for c in index["cases"] if c["model"] not in MODELS]
    for name, (kind, _) in MODELS.items():
        folder = os.path.join(root, "models", name)
        make(name).save_pretrained(folder)
        for f in os.listdir(folder):
            os.chmod(os.path.join(folder, f), 0o644)
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        index["models"][name] = {"arch": name, "saved_by": REFERENCE, "dtype": "f32", "bytes": size}
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        used = {}
        for suffix, rows, prompt, extra in CASES:
            group = suffix.split(".")[0]
            for seed in [used[group]] if group in used and "beams" not in suffix else range(400):
                r = run(model, rows, prompt, extra, seed)
                if r:
                    break
            assert r, (name, suffix)
            used.setdefault(group, seed)
            case_id = f"{name}.{suffix}"
            case, logits = r
            case["expect"]["logits"] = None
            if logits is not None:
                file = case_id + ".safetensors"
                save_file({"logits": logits.contiguous()}, os.path.join(own, file))
                os.chmod(os.path.join(own, file), 0o644)
                case["expect"]["logits"] = {"file": file, "key": "logits", "of_case": None}
            tags = ["encoder-decoder"] + (["beam"] if "beams" in suffix else [])
            case = {"id": case_id, "kind": "generate", "model": name, "reference": REFERENCE, "attention": "eager",
                    "dtype": "f32", **case, "tags": tags}
            with open(os.path.join(own, case_id + ".json"), "w") as f:
                json.dump(case, f, separators=(",", ":"))
                f.write("\n")
            index["cases"].append({"id": case_id, "kind": "generate", "model": name, "arch": name, "dtype": "f32",
                                   "reference": REFERENCE, "strategy": "encoder-decoder", "tags": tags,
                                   "batch": len(rows), "steps": case["expect"]["steps"],
                                   "margin": case["expect"]["margin"], "issue": "D", "meet": "exact"})
            print(case_id, "seed", seed, case["expect"]["margin"], case["expect"]["sequences"])
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(
            json.dumps(k) + ": " + (json.dumps(v) if isinstance(v, dict) else
                                    "[\n" + ",\n".join(json.dumps(x) for x in v) + "\n]" if v else "[]")
            for k, v in index.items()) + "\n}\n")


main()
