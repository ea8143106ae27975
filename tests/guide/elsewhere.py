"""Models that are written elsewhere: those of Transformers, with kvik's caches in place of their own."""
import os

import torch
import transformers

import kvik

# Folder of a golden model; the caches of Transformers and of kvik.  The texts are longer than the windows.
CASES = (
    ("llama-dynamic", lambda lib, config: lib.DynamicCache()),
    ("llama-dynamic", lambda lib, config: lib.StaticCache(config=config, max_cache_len=40)),
    ("mistral", lambda lib, config: lib.DynamicCache(config=config)),
    ("gemma2", lambda lib, config: lib.DynamicCache(config=config)),
    ("gemma2", lambda lib, config: lib.StaticCache(config=config, max_cache_len=64)),
    ("gpt-oss", lambda lib, config: lib.DynamicCache(config=config)),
    ("llama4", lambda lib, config: lib.DynamicCache(config=config)),
)


def logits(model, ids, cache):
    """Returns the logits after the last column of a prompt, and of greedy tokens behind it."""
    steps = []
    with torch.no_grad():
        for _ in range(20):
            steps.append(model(ids, past_key_values=cache).logits[:, -1:])
            ids = steps[-1].argmax(-1)
    return torch.cat(steps, 1)


def check(folder):
    """Raises AssertionError if a cache of kvik changes a bit of the logits, or a token of generate()."""
    ids = torch.arange(3, 21).reshape(2, 9)
    for name, make in CASES:
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, name), dtype=torch.float32).eval()
        want, got = (logits(model, ids, make(lib, model.config)) for lib in (transformers, kvik))
        assert torch.equal(got, want), f"{name}: the logits differ"
        for options in ({}, {"num_beams": 3}):
            same(name, model, ids, make, **options)
        if name == "llama-dynamic" and not make(kvik, model.config).max_cache_len:  # tokens are taken back
            same(name, model, ids[:1], make, prompt_lookup_num_tokens=3)
    for name in ("t5", "bart"):
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(os.path.join(folder, name), dtype=torch.float32).eval()
        for options in ({}, {"num_beams": 3}):
            same(name, model, ids, lambda lib, config: lib.EncoderDecoderCache(lib.DynamicCache(), lib.DynamicCache()), **options)


def same(name, model, ids, make, **options):
    """Raises AssertionError if generate() gives other tokens with a cache of kvik."""
    want, got = (model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False,
                                past_key_values=make(lib, model.config), **options) for lib in (transformers, kvik))
    assert got.tolist() == want.tolist(), f"{name}: the tokens differ with {options}"
