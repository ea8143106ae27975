"""The guide's code, with its imports, its names of devices and its printing errors changed, and nothing else."""
import os
import re

# Printing errors that the guide's README lists: file, what is printed, what it must be.
ERRORS = [
    # torch.cpu, which the snippet reaches after an out-of-memory on a machine without a GPU, has no empty_cache.
    ("06-resilient-generate-v2.py", "torch_device_module.empty_cache()",
     'getattr(torch_device_module, "empty_cache", lambda: None)()'),
    ("09-sliding-window-v2.py", 'cache_implementation="sloding_window"', 'cache_implementation="sliding_window"'),
    ("09-sliding-window-v2.py", "meta-llama/Llama-2-7b-chat-hf", "mistralai/Mistral-7B-v0.1"),  # a model with a window
    ("11-hybrid-gemma2.py", "from kvik import", "import torch\nfrom kvik import"),
    ("11-hybrid-gemma2.py", "GemmaForCausalLM", "Gemma2ForCausalLM"),
    ("11-hybrid-gemma2.py", "dtype=torch.int64, device=model.device)", "dtype=torch.int64, device=model.device)[-1:]"),
    ("13-jamba.py", "HybridMambaAttentionDynamicCacheconfig(", "HybridMambaAttentionDynamicCache("),
    ("13-jamba.py", "JambaModelfrom_pretrained", "JambaForCausalLM.from_pretrained"),
    ("14-manual-loop-v2.py", "torch.cat(inputs.attention_mask)", 'inputs["attention_mask"]'),
]


def read(folder, name):
    """Returns the text of a snippet as it runs here."""
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r"^(\s*from) transformers\b", r"\1 kvik", text, flags=re.M)
    text = text.replace("from accelerate.test_utils.testing import", "from kvik.devices import")
    text = re.sub(r"""(["'])cuda(?::0)?\1""", r"\1cpu\1", text)
    for file, printed, right in ERRORS:
        if file == name:
            if printed not in text:
                raise ValueError(f"{name} has no {printed!r}")
            text = text.replace(printed, right)
    return text
