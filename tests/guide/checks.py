"""What must be true of each snippet after it has run."""
import copy
import os

import reference
import torch

import kvik

# Strategies that change the logits: their tokens need not be those of the default cache.
LOSSY = ("07", "08")


def same_tokens(calls):
    """Every recorded call gave the tokens of the reference."""
    assert calls, "generate() was not called"
    for call in calls:
        want = reference.generate(call["folder"], call)
        assert call["out"] == want, f"tokens differ from the reference:\n{call['out']}\n{want}"


def check(name, scope, calls, execute, text):
    """Checks a snippet.  Raises AssertionError with what is wrong."""
    number = name[:2]
    special = globals().get("check_" + number)
    if number not in ("06", "10", "14", *LOSSY) and name != "16-iterative-chat-v2.py":
        same_tokens(calls)
    if special:
        special(name, scope, calls, execute, text)


def check_02(name, scope, calls, execute, text):
    cache = scope["past_key_values"]
    assert cache.get_seq_length() == len(calls[0]["ids"][0]) + 19, "the passed object is not the one that was filled"


def check_04(name, scope, calls, execute, text):
    lines = scope["_printed"].splitlines()
    if name != "04-offloaded-v3.py":
        half = len(lines) // 2
        assert len(calls) == 2 and calls[0]["out"] == calls[1]["out"], "offloaded and default differ"
        assert lines[:half] == lines[half:], "offloaded and default print different texts"


def check_06(name, scope, calls, execute, text):
    free = calls[-1]["out"]
    assert len(free) == 40 and len(scope["responses"]) == 40, "40 rows were asked for"
    assert "retrying" not in scope["_printed"]
    # The same program with a budget that the default cache exceeds: it retries, and the tokens are the same.
    os.environ["KVIK_CACHE_MEMORY"] = "5500K"
    try:
        again = execute(name, text)
    finally:
        del os.environ["KVIK_CACHE_MEMORY"]
    assert "cache full" in again["_printed"] and "retrying with cache_implementation='offloaded'" in again["_printed"], \
        again["_printed"]
    assert again["out"].tolist() == free, "offloading changed the tokens"
    # Each group of one beam is greedy with a penalty for tokens of earlier groups: the first is greedy decoding.
    alone = dict(calls[0], options={"max_new_tokens": 23})
    greedy = reference.generate(alone["folder"], alone)[0]
    assert greedy in free, "greedy decoding is not among the groups"


def lossy(name, scope, calls, execute, text):
    """The prompt is read without quantization, so the first new token is that of the reference."""
    for call in calls:
        want = reference.generate(call["folder"], call)
        prompt = len(call["ids"][0])
        assert len(call["out"][0]) == len(want[0]) and call["out"][0][:prompt + 1] == want[0][:prompt + 1], "first token"
        if "cache_implementation" not in call["options"]:
            assert call["out"] == want, "the default cache after a quantized one"


check_07 = check_08 = lossy


def check_09(name, scope, calls, execute, text):
    if name == "09-sliding-window-v2.py":
        try:
            execute(name, text.replace("sliding_window", "sloding_window"))
        except kvik.ArgumentError as e:
            assert "sloding_window" in str(e) and "did you mean \"sliding_window\"" in str(e), e
        else:
            raise AssertionError("a misspelt cache was accepted")


def check_10(name, scope, calls, execute, text):
    """Equal to the reference until the window is full; then at most the window is held."""
    call = calls[0]
    want, got = reference.generate(call["folder"], call), call["out"]
    window = 256
    assert got[0][:window] == want[0][:window], "tokens differ within the window"
    assert scope["past_key_values"].get_seq_length() <= window
    assert scope["past_key_values"].get_max_length() == window
    if len(want[0]) > window:
        assert len(got[0]) > window, "the text ended at the window"


def check_11(name, scope, calls, execute, text):
    want = reference.forward(calls[0]["folder"], calls[0]["out"])[:, -1:]
    error = (scope["logits"] - want).abs().max().item()
    assert scope["logits"].shape == want.shape and error < 1e-3, f"logits differ by {error}"


def check_13(name, scope, calls, execute, text):
    assert scope["cache"].get_seq_length() == len(calls[0]["ids"][0]), "the cache was not filled"
    want = reference.forward(calls[0]["folder"], calls[0]["ids"])
    error = (scope["logits"] - want).abs().max().item()
    assert error < 1e-3, f"logits differ by {error}"


def check_14(name, scope, calls, execute, text):
    ids = scope["generated_ids"].tolist()
    prompt = [row[:-10] for row in ids]
    want = reference.generate(scope["model"].name_or_path,
                              {"ids": prompt, "mask": None, "options": {"max_new_tokens": 10}})
    n = len(want[0])  # the loop does not stop at the end of the text
    assert [row[:n] for row in ids] == want, "the loop differs from generate()"


def check_15(name, scope, calls, execute, text):
    first = scope["generation_outputs"].past_key_values
    second = scope["legacy_format_cache"]
    assert isinstance(first, tuple) and len(first) == len(second)
    for a, b in zip(first, second):
        assert all(torch.equal(x, y) for x, y in zip(a, b)), "the two conversions differ"
    want = reference.cache(calls[0]["folder"], [calls[0]["out"][0][:-1]])
    for (k, v), (wk, wv) in zip(first, want):
        assert k.shape == wk.shape and (k - wk).abs().max() < 1e-4 and (v - wv).abs().max() < 1e-4, "rows differ"


def check_16(name, scope, calls, execute, text):
    assert len(calls) == 2 and len(scope["messages"]) == 4, "two turns"
    cache = scope["past_key_values"]
    if name == "16-iterative-chat-v2.py":
        assert scope["max_cache_length"] == 30 and cache.get_max_length() == 30
        assert all(len(c["out"][0]) > len(c["ids"][0]) for c in calls), "a turn gave no text"
    else:
        assert cache.get_seq_length() == len(calls[1]["out"][0]) - 1


def check_17(name, scope, calls, execute, text):
    cache = scope["prompt_cache"]
    prompt = scope["inputs_initial_prompt"]["input_ids"]
    assert cache.get_seq_length() == prompt.shape[1], "a continuation changed the prompt's cache"
    fork = copy.deepcopy(cache)
    scope["model"](prompt[:, -1:], past_key_values=fork)
    assert cache.get_seq_length() == prompt.shape[1], "a fork is not independent"
