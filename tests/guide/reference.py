"""Reference runs: what Transformers generates, with its default cache, in float32, for the inputs of a recorded call."""
import torch
import transformers

_models = {}


def model(folder):
    """Opens a model, once."""
    if folder not in _models:
        _models[folder] = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                            attn_implementation="eager").eval()
        _models[folder].generation_config.cache_implementation = None
    return _models[folder]


def generate(folder, call):
    """Runs a recorded call of generate() without a cache object and without a strategy."""
    ids = torch.tensor(call["ids"])
    mask = torch.ones_like(ids) if call["mask"] is None else torch.tensor(call["mask"])
    options = {k: call["options"][k] for k in ("max_new_tokens", "max_length") if k in call["options"]}
    with torch.no_grad():
        return model(folder).generate(ids, attention_mask=mask, do_sample=False, **options).tolist()


def forward(folder, ids):
    """Returns the logits of all positions, without a cache."""
    with torch.no_grad():
        return model(folder)(torch.tensor(ids), use_cache=False).logits


def cache(folder, ids):
    """Returns (keys, values) per layer after a forward."""
    with torch.no_grad():
        past = model(folder)(torch.tensor(ids), use_cache=True).past_key_values
    return [(layer.keys, layer.values) for layer in past.layers]
