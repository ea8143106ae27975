#!/usr/bin/env python3
"""What bench/cuda.c measures, of the caches of Hugging Face Transformers on a GPU: decoding with a model of random weights in bf16.

    caches.py 1b|7b

    what,model,depth,batch,ms,tokens a second,amount,unit,floor,ms of the floor,share,holds

The columns are those of bench_cuda.  The floor is a copy within the device, measured here;
the offloaded cache cannot reach it, since its rows come from memory of the host.  scripts/bench-cuda.sh runs this where
torch finds a GPU.
"""

import os
import statistics
import sys
import time

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]  # transformers.py is there
import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

SHAPES = {
    "1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
               intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True),
    "7b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
               intermediate_size=14336, vocab_size=32000, tie_word_embeddings=False),
}
STEPS = 21
CASES = [(16, 1), (16, 8), (16, 32), (8192, 1), (8192, 8), (65536, 1)]


def copy_rate():
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        b.copy_(a)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return 2 * a.numel() / statistics.median(times)


def step_ms(model, cache, depth, batch):
    """Milliseconds of a token, from the difference of a long and a short generation behind `depth` random tokens."""
    ids = torch.randint(5, model.config.vocab_size, (batch, depth), device="cuda")
    seconds = {}
    for new in (1, 1 + STEPS, 1, 1 + STEPS):  # the first two make what is made once
        torch.cuda.synchronize()
        begun = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
                       cache_implementation=cache, pad_token_id=0)
        torch.cuda.synchronize()
        seconds[new] = time.perf_counter() - begun
    return 1e3 * (seconds[1 + STEPS] - seconds[1]) / STEPS


def main():
    shape = sys.argv[1]
    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=131072, rope_theta=500000.0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    rate = copy_rate()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    if not config.tie_word_embeddings:
        weights -= model.model.embed_tokens.weight.numel() * 2
    row = 4 * config.num_hidden_layers * config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    for cache in ("dynamic", "static", "offloaded"):
        for depth, batch in CASES:
            amount = weights + batch * depth * row
            try:
                ms, holds = step_ms(model, cache, depth, batch), "holds"
            except torch.cuda.OutOfMemoryError:
                ms, holds = 0, "no memory"
            torch.cuda.empty_cache()
            least = 1e3 * amount / rate
            print(f"transformers {cache},{shape}-bf16,{depth},{batch},{ms:.3f},{1e3 * batch / ms if ms else 0:.1f},{amount / 1e9:.4g},"
                  f"GB,hbm,{least:.3f},{least / ms if ms else 0:.3f},{holds}", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
