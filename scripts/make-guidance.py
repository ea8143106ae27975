#!/usr/bin/env python3
"""Records classifier-free guidance in Transformers (guidance_scale, negative_prompt_ids) on a tiny golden model.
usage: make-guidance.py tests/golden    (needs torch, transformers 5.x, safetensors)
Cases go to cases-own beside those of the other makers and into their index, in the format of the golden set."""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

MODEL, STEPS = "llama-mha", 10
REFERENCE = "transformers " + transformers.__version__
# name, lengths of the prompts, length of the negative prompt (0: none), further arguments
CASES = [
    ("guidance-last", [8], 0, {"guidance_scale": 1.5}),
    ("guidance-negative", [8], 6, {"guidance_scale": 1.5}),
    ("guidance-below-one", [8], 6, {"guidance_scale": 0.4}),
    ("guidance-penalty", [9], 5, {"guidance_scale": 2.0, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2}),
    ("guidance-batch", [5, 9], 0, {"guidance_scale": 1.5}),
    ("guidance-nocache", [8], 6, {"guidance_scale": 1.5, "use_cache": False}),
]


def run(model, lens, negative, extra, seed):
    gen = torch.Generator().manual_seed(seed)
    width = max(lens)
    ids = torch.randint(5, model.config.vocab_size, (len(lens), width), generator=gen)
    mask = torch.ones_like(ids)
    for i, n in enumerate(lens):
        mask[i, : width - n] = 0
        ids[i, : width - n] = 0
    generate = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": [], **extra}
    if negative:
        generate["negative_prompt_ids"] = torch.randint(5, model.config.vocab_size, (len(lens), negative), generator=gen)
    out = model.generate(ids, attention_mask=mask, return_dict_in_generate=True, output_logits=True, output_scores=True,
                         **{k: None if v == [] else v for k, v in generate.items()})
    top = torch.topk(torch.stack(out.scores).float(), 2, dim=-1).values
    gaps = (top[..., 0] - top[..., 1]).flatten()
    if gaps.min().item() < 0.02:
        return None
    if negative:
        generate["negative_prompt_ids"] = generate["negative_prompt_ids"].tolist()
    return {"input_ids": ids.tolist(), "attention_mask": mask.tolist() if len(lens) > 1 else None, "generate": generate,
            "sequences": out.sequences.tolist(), "logits": torch.stack(out.logits).float(),
            "margin": {"min": round(gaps.min().item(), 6), "median": round(gaps.median().item(), 4)}}


def main():
    root = sys.argv[1]
    own = os.path.join(root, "cases-own")
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(root, "models", MODEL), dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    with open(os.path.join(own, "index.json")) as f:
        index = json.load(f)
    index["cases"] = [c for c in index["cases"] if ".guidance-" not in c["id"]]
    for name, lens, negative, extra in CASES:
        r = next(r for r in (run(model, lens, negative, extra, seed) for seed in range(7, 200)) if r)
        case_id = f"{MODEL}.{name}"
        path = os.path.join(own, case_id + ".safetensors")
        save_file({"logits": r["logits"].contiguous()}, path)
        os.chmod(path, 0o644)
        expect = {"sequences": r["sequences"], "steps": STEPS, "margin": r["margin"],
                  "logits": {"file": case_id + ".safetensors", "key": "logits", "of_case": None}}
        case = {"id": case_id, "kind": "generate", "model": MODEL, "reference": REFERENCE, "attention": "eager",
                "dtype": "f32", "input_ids": r["input_ids"], "attention_mask": r["attention_mask"],
                "generate": r["generate"], "cache": None, "expect": expect, "tags": ["guidance"]}
        with open(os.path.join(own, case_id + ".json"), "w") as f:
            json.dump(case, f, separators=(",", ":"))
            f.write("\n")
        index["cases"].append({"id": case_id, "kind": "generate", "model": MODEL, "arch": "llama", "dtype": "f32",
                               "reference": REFERENCE, "strategy": "dynamic", "tags": ["guidance"], "batch": len(lens),
                               "steps": STEPS, "margin": r["margin"], "issue": "C", "meet": "exact"})
        print(case_id, r["margin"])
    with open(os.path.join(own, "index.json"), "w") as f:
        f.write("{\n" + ",\n".join(
            json.dumps(k) + ": " + (json.dumps(v) if isinstance(v, dict) else
                                    "[\n" + ",\n".join(json.dumps(x) for x in v) + "\n]" if v else "[]")
            for k, v in index.items()) + "\n}\n")


main()
