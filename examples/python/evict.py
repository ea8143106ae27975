"""evict.py MODEL - a cache of your own: it keeps the newest rows and, of the others, those with the shortest keys, which
draw the most attention.  A model of kvik calls its update() for every layer."""
import sys
import warnings

import numpy as np

from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache


class ShortKeys(DynamicCache):
    """Keeps at most `most` rows of a layer, the last `recent` of them always."""

    def __init__(self, most, recent):
        super().__init__()
        self.most, self.recent, self.seen = most, recent, 0

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        if layer_idx == 0:
            self.seen += key_states.shape[2]
        keys, values = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        if keys.shape[2] > self.most:  # of every head the same number, each its own rows
            old = np.linalg.norm(keys[:, :, :-self.recent], axis=-1)
            chosen = np.sort(np.argsort(old, -1)[..., :self.most - self.recent], -1)[..., None]
            layer = self.layers[layer_idx]
            layer.keys, layer.values = (np.concatenate([np.take_along_axis(rows, chosen, 2), rows[:, :, -self.recent:]], 2)
                                        for rows in (keys, values))
        return keys, values

    def get_seq_length(self, layer_idx=0):
        return self.seen  # positions go on, whatever is kept


warnings.simplefilter("ignore")  # the notice that this is slower
tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModelForCausalLM.from_pretrained(sys.argv[1])
inputs = tokenizer("The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy", return_tensors="np")
for most in (64, 12):
    cache = ShortKeys(most, 4)
    ids = model.generate(**inputs, past_key_values=cache, max_new_tokens=8, do_sample=False)
    print(f"at most {most} rows: {len(inputs.input_ids[0])} tokens, {cache.layers[0].keys.shape[2]} rows at the end,",
          repr(tokenizer.decode(ids[0, inputs.input_ids.shape[1]:])))
