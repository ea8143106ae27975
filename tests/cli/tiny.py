#!/usr/bin/env python3
"""tiny.py MODEL OUT - copies a tiny golden model and adds a byte-level tokenizer and a chat template, so that the command's
text paths are tested without the real model.  Ids: 0 <pad>, 1 <s>, 2 </s>, 3 <user>, 4 <bot>, then the 256 bytes."""
import json, os, shutil, sys

source, out = sys.argv[1:3]
os.makedirs(out, exist_ok=True)
for name in sorted(n for n in os.listdir(source) if n.endswith((".json", ".safetensors"))):
    shutil.copy(os.path.join(source, name), out)
    os.chmod(os.path.join(out, name), 0o644)
size = json.load(open(os.path.join(source, "config.json")))["vocab_size"]

plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
shown, extra = {}, 0
for b in range(256):
    shown[b] = chr(b) if b in plain else chr(256 + extra)
    extra += b not in plain
special = ["<pad>", "<s>", "</s>", "<user>", "<bot>"]
vocab = {t: i for i, t in enumerate(special)}
for b in range(256):
    vocab[shown[b]] = len(vocab)
while len(vocab) < size:
    vocab["w%d" % len(vocab)] = len(vocab)
json.dump({
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                      "special": True} for i, t in enumerate(special)],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []},
}, open(os.path.join(out, "tokenizer.json"), "w"))
json.dump({
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
    "chat_template": "{% for m in messages %}{{ '<' + ('bot' if m.role == 'assistant' else 'user') + '>' }}{{ m.content }}"
                     "{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}",
}, open(os.path.join(out, "tokenizer_config.json"), "w"))
