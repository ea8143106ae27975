"""A cache for a model of your own: update() returns the keys and values that attention must see."""
import numpy as np

from kvik import SinkCache

cache = SinkCache(window_length=6, num_sink_tokens=2)
for step in range(9):
    rows = np.full((1, 1, 1, 4), step, np.float32)  # [batch, heads, tokens, dim]
    keys, values = cache.update(rows, rows, layer_idx=0)
print("rows that the last token sees:", keys[0, 0, :, 0].astype(int).tolist())
