"""Token healing: the last token of a prompt may be cut in the middle of a word, and is chosen anew among the tokens that begin with it."""
from typing import Any, Dict, Optional, Tuple

import numpy as np

from .._arrays import to_numpy
from ..errors import ArgumentError
from ..tokenization import AutoTokenizer
from .configuration_utils import GenerationConfig

_LIKELY = 10.0  # added to the scores of all tokens that begin with the last one
_SAME = 11.0  # and of itself: "http" stays "http", unless "https" is much likelier


def healed(model: Any, ids: np.ndarray, tokenizer: Any = None) -> np.ndarray:
    """Returns prompts [rows, tokens] whose last token has been chosen anew.

    Texts are read and encoded again, so spaces at their ends go and a row may become longer or shorter; tokens that begin texts are padding
    then.  tokenizer: that of the model if it is None.
    """
    tokenizer = AutoTokenizer.from_pretrained(model.name_or_path) if tokenizer is None else tokenizer
    texts = [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    if not all(texts):
        raise ArgumentError("token_healing: a prompt has no text but spaces and special tokens")
    rows = np.ascontiguousarray(to_numpy(tokenizer(texts, return_tensors="np", padding=len(texts) > 1).input_ids))
    bos, pad = tokenizer.bos_token_id, tokenizer.pad_token_id
    if bos is not None and pad is not None:
        rows[rows == bos] = pad
    vocabulary = tokenizer.get_vocab()
    for row in rows:
        _heal(model, row, tokenizer, vocabulary, bos, pad)
    return rows


def _heal(model: Any, row: np.ndarray, tokenizer: Any, vocabulary: Dict[str, int], bos: Optional[int], pad: Optional[int]) -> None:
    """Chooses the last token of a row anew, in place."""
    tail = int(row[-1])
    spelled = tokenizer.convert_ids_to_tokens(tail)
    bias: Dict[Tuple[int, ...], float] = {(i,): _LIKELY for token, i in vocabulary.items() if token.startswith(spelled)}
    if len(bias) <= 1 or row.size < 2:
        return
    bias[tail,] = _SAME
    before = row[None, :-1].copy()
    if (row != pad).sum() == 1 and bos is not None:
        before[0, -1] = bos
    options = {"max_new_tokens": 1, "pad_token_id": pad, "sequence_bias": bias, "token_healing": False, "watermarking_config": None}
    row[-1] = to_numpy(model.generate(before, generation_config=GenerationConfig._of({k: v for k, v in options.items() if v is not None})))[0, -1]
