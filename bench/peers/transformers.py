#!/usr/bin/env python3
"""What bench/rates.c measures, by the same plan, of Hugging Face Transformers: PyTorch in float32, the dynamic cache.

    transformers.py MODEL THREADS f32 IDS [LOGITS]

A GGUF file is dequantized when it is loaded, so the weights have the values that the other programs compute with.
"""

import os
import re
import statistics
import sys
import time

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]  # this file's name
sys.path.append(os.path.dirname(_here))
os.environ["TQDM_DISABLE"] = "1"
import plan  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM, DynamicCache  # noqa: E402


def main():
    path, threads, _, ids_path, *logits_path = sys.argv[1:]
    torch.set_num_threads(int(threads))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if path.endswith(".gguf"):
        model = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32)
    else:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = torch.tensor([[int(x) for x in re.findall(r"\d+", open(ids_path).read())]])
    ids = ids[:, : min(plan.MOST, model.config.max_position_embeddings)]
    cache = DynamicCache(config=model.config)

    def feed(start, n):
        for i in range(start, start + n, plan.PROMPT):
            part = ids[:, i : min(i + plan.PROMPT, start + n)]
            logits = model(part, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits[0, -1]

    def rate(what, at, n, piece):
        rates, spent = [], 0.0
        while len(rates) < plan.MOST_RUNS and spent < plan.ENOUGH_SECONDS:
            begun = time.perf_counter()
            for i in range(0, n, piece):
                feed(at + i, piece)
            seconds = time.perf_counter() - begun
            cache.crop(-n)
            rates.append(n / seconds)
            spent += seconds
        print(f"{what} at {at},{statistics.median(rates):.2f}", flush=True)

    with torch.inference_mode():
        if logits_path:
            feed(0, plan.QUALITY)
            with open(logits_path[0], "wb") as f:
                for i in range(plan.COUNTED):
                    f.write(feed(plan.QUALITY + i, 1).float().numpy().tobytes())
            return
        feed(0, plan.PROMPT)
        cache = DynamicCache(config=model.config)
        at = 0
        for depth in plan.depths:
            if depth + plan.PROMPT > ids.shape[1]:
                break
            if depth > at:
                feed(at, depth - at)
            rate(f"prefill {plan.PROMPT}", depth, plan.PROMPT, plan.PROMPT)
            rate("decode", depth, plan.STEPS, 1)
            at = depth


main()
