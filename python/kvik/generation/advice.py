"""Notices of generate() for options without an effect and for batches that are probably not meant so, as Transformers gives them."""
from typing import Any, Dict, Optional

import numpy as np

from ..utils.logging import notice
from .configuration_utils import names_set, useless

_PENALTIES = {"repetition_penalty": (1,), "no_repeat_ngram_size": (0,)}
_OF_THE_PROMPT = {"encoder_repetition_penalty": (1,), "encoder_no_repeat_ngram_size": (0,)}


def advise_options(given: Dict[str, Any], g: Any, prompt: int, new: int, ids: bool) -> None:
    """Gives notices about the options of a call.

    given: what the call itself sets, without the options of the model.  g: the kvik_generation with all of them.  prompt: tokens
    before the new ones, of which there are at most `new`.  ids: the prompt has ids, which penalties can count.
    """
    for sentence in useless(given, bool(g.do_sample), int(g.num_beams), bool(g.penalty_alpha), bool(g.return_dict_in_generate)):
        notice(sentence)
    for most, least in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
        if given.get(most) is not None and given.get(least) is not None:
            notice(f"{most}={given[most]} and {least}={given[least]} were both given; {most} counts")
    low = given.get("min_new_tokens") or max(int(given.get("min_length") or 0) - prompt, 0)
    if low > new:
        notice(f"the least number of new tokens is {low}, and the text ends after {new} new tokens; lower the former or raise "
               "max_new_tokens")
    names = names_set(given, _PENALTIES)
    if names and not ids:
        notice(f"the prompt has no ids beside inputs_embeds, so {names} counts new tokens alone")
    names = names_set(given, _OF_THE_PROMPT)
    if names and not ids:
        notice(f"the prompt has no ids beside inputs_embeds, so {names} has no effect; give input_ids as well, or leave it out")


def padding_of(ids: np.ndarray, pad: Optional[int], eos: Any) -> Optional[np.ndarray]:
    """Returns the mask of ids that came without one: of the pad token, unless it may be text, as an end token may."""
    ends = np.ravel(eos).tolist() if eos is not None else []
    if pad is None or pad in ends or not (ids == pad).any():
        return None
    mask = (ids != pad).astype(np.uint8)
    return mask if mask.any(1).all() else None


def advise_batch(ids: np.ndarray, mask: Optional[np.ndarray], pad: Optional[int], eos: Any) -> None:
    """Gives notices about a batch [rows][n] that is padded on the right, or padded without a mask."""
    if not ids.shape[1]:
        return
    if mask is not None and mask.shape == ids.shape:
        if not mask[:, -1].all():
            notice("rows are padded on the right: kvik continues each behind its last token, but the new ids stand behind the padding, "
                   "and Transformers continues the padding; set tokenizer.padding_side = \"left\"")
        return
    fills = pad if pad is not None else eos[0] if isinstance(eos, (list, tuple)) and eos else eos
    if mask is not None or not isinstance(fills, int) or ids.shape[0] < 2:
        return
    padded = ids[:, [0, -1]] == fills
    if (padded.any(0) & ~padded.all(0)).any():  # an id that begins or ends all rows is no padding
        notice(f"rows begin or end with the pad token {fills} and there is no attention_mask, so the padding is read as text; give "
               "the attention_mask that tokenizer(texts, padding=True) returns")
