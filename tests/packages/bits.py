"""Prints a digest of the logits that the package computes for golden models, with every set of kernels of this processor: two builds
of one source must print the same.  KVIK_PYTHON names the package, KVIK_LIBRARY the library."""
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import numpy as np  # noqa: E402
from common import kvik, model_path  # noqa: E402

for isa in ("ref", "avx2", "avx512", "avx512bf16", "neon", "neondot", "neoni8mm"):
    for name in ("llama-mha", "qwen2-f16", "mistral", "mamba2", "phi3.gguf"):
        for compute in ("exact", "fast"):
            try:
                m = kvik.AutoModelForCausalLM.from_pretrained(model_path(name), isa=isa, compute=compute, threads=2)
                out = m.generate(np.arange(40, 90)[None], max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True)
            except kvik.KvikError as e:
                if isa in str(e):
                    break  # not of this processor
                raise
            logits = np.stack([np.asarray(x) for x in out.logits])
            print(isa, name, compute, hashlib.sha256(logits.tobytes()).hexdigest()[:32])
