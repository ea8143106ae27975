"""A loop of your own over forward(), greedy, for a padded batch."""
import sys

import numpy as np

from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tokenizer.padding_side = "left"
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
inputs = tokenizer(["The sea is", "Once upon a time there was"], padding=True, return_tensors="np")
cache, ids, mask = DynamicCache(), inputs.input_ids, inputs.attention_mask
new = ids
for _ in range(8):
    # A padded row counts its positions from its first real token.
    positions = np.maximum(mask.cumsum(1) - 1, 0)[:, -new.shape[1]:]
    out = model(new, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1)
    new = out.logits[:, -1:].argmax(-1)
    ids = np.concatenate([ids, new], 1)
    mask = np.concatenate([mask, np.ones_like(new)], 1)
for text in tokenizer.batch_decode(ids, skip_special_tokens=True):
    print(text)
