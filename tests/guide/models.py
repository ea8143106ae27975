"""Models for the guide's code: the golden models with a tokenizer and a chat template, in a cache of the hub.

Each id that the guide names is one of the golden models of its architecture, so names of models need no change.
"""
import json
import os
import shutil

IDS = {
    "meta-llama/Llama-2-7b-chat-hf": "llama-mha", "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "llama-gqa-l3",
    # Without a window, and with wide rows, so that a budget can be too small for them.
    "microsoft/Phi-3-mini-4k-instruct": "llama-d128",
    "mistralai/Mistral-7B-v0.1": "mistral",
    "teknium/OpenHermes-2.5-Mistral-7B": "mistral", "google/gemma-2-9b": "gemma2", "state-spaces/mamba-130m-hf": "mamba",
    "ai21labs/Jamba-v0.1": "jamba",
}
CONTEXT = 8192  # the guide's prompts are longer than the context of the golden models
COMMIT = "0" * 40
TEMPLATE = ("{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token + '\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}")
TEXT = ["okay okay okay okay Fun fact: The most", "Hello, my name is", "I like rock music because", "<|user|>\n<|assistant|>\n",
        "This is a long story about unicorns, fairies and magic.", "Yesterday I was on a rock concert and.",
        "You are a helpful assistant. Help me to write a blogpost about travelling. What is the capital of France?"]


def _tokenizer(folder, config):
    """Trains a byte-level BPE of the model's vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    names = {0: "<pad>", 1: "<s>", 2: "</s>"}
    special = [names[i] for i in range(3)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=config["vocab_size"], special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    usual = {"bos": 1, "eos": 2, "pad": 0}
    ids = {role: i if config.get(f"{role}_token_id") is None else config[f"{role}_token_id"] for role, i in usual.items()}
    roles = {f"{role}_token": names[i[0] if isinstance(i, list) else i] for role, i in ids.items()}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, **roles}, f)


def make(golden, hub):
    """Makes the cache of the hub."""
    for name, source in IDS.items():
        repository = os.path.join(hub, "models--" + name.replace("/", "--"))
        folder = os.path.join(repository, "snapshots", COMMIT)
        shutil.rmtree(repository, ignore_errors=True)
        shutil.copytree(os.path.join(golden, "models", source), folder)
        os.makedirs(os.path.join(repository, "refs"))
        with open(os.path.join(repository, "refs", "main"), "w", encoding="utf-8") as f:
            f.write(COMMIT)
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        if config.get("max_position_embeddings"):
            config["max_position_embeddings"] = CONTEXT
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        _tokenizer(folder, config)


def folder_of(hub, name):
    """Returns the snapshot of a model."""
    return os.path.join(hub, "models--" + name.replace("/", "--"), "snapshots", COMMIT)
