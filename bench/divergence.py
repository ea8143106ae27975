"""The KL divergence of next-token distributions, for quality.py and cache_quality.py."""
import numpy as np


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(want, got):
    """Returns the KL divergence of each position from log-probabilities `want`, and at how many the most likely token is the same."""
    return (np.exp(want) * (want - got)).sum(-1), int((want.argmax(-1) == got.argmax(-1)).sum())
