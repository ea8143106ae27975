#!/usr/bin/env python3
"""Writes tests/fixtures/smollm2 with Transformers as the reference implementation (torch on CPU, f32).

usage: make-fixtures.py MODEL.gguf EVAL.txt OUTDIR

Transformers reads the model from the GGUF itself and dequantizes it to float32, so the oracle has exactly the
weights that kvik has.  Three files per run:

prompts.json
    {"model": file name, "sha256": of the model, "reference": versions, "vocab": n, "cases": [
      {"name", "text",                 the prompt as text (rendered, when it is a chat)
       "messages",                     the chat it was rendered from, or null
       "input_ids": [n],               text encoded; nothing is added in front
       "output_ids": [n],              64 tokens of greedy continuation; eos does not stop it
       "eos_at",                       index in output_ids of the first eos (a run that stops there
                                       would end with it), or null
       "output_text",                  output_ids decoded, special tokens kept
       "margins": [n],                 gap between best and second logit of each step
       "min_margin",
       "logits"}]}                     null, or the file that holds f32 logits: tensor
                                       "prefill" [vocab], after the last prompt token, and tensor
                                       "last" [vocab], the ones that chose the last output token
    A case with a margin under 0.005 is cut after its first eos, when the margins up to there are
    larger, or left out: rounding could flip it.
logits-NAME.safetensors
    as described above
tokens.jsonl
    one object per line: {"text", "ids", "decode"}; special tokens in the text are recognised.

The tokenizer that Transformers builds from a GGUF file ignores tokenizer.ggml.pre.  For this model it
says "smollm": digits are split one by one before the byte-level split, which changes the whitespace
in front of digits ("\\n\\n1." is one token of two newlines, and two without it).  The script restores the split.
"""
import hashlib
import json
import os
import sys

import gguf
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS = 64
MIN_MARGIN = 0.005

CHATS = {
    "chat-sea": [{"role": "user", "content": "Write one sentence about the sea."}],
    "chat-french": [{"role": "user", "content": "Écris deux phrases sur le printemps à Paris."}],
    "chat-system": [
        {"role": "system", "content": "You are a careful assistant. Answer briefly."},
        {"role": "user", "content": "What is the capital of Norway?"},
        {"role": "assistant", "content": "Oslo."},
        {"role": "user", "content": "And which river runs through it? Please explain how it got its name, "
         "what it was used for in the nineteenth century, and what one can see there on a walk today."},
    ],
    "chat-code": [{"role": "user", "content": "Write a Python function that reverses the words of a sentence."}],
}
TEXTS = {
    "raw-five": "The capital of France is",
    "raw-story": "Once upon a time, in a small village between two mountains, there lived a clockmaker who",
    "raw-c": "#include <stdio.h>\n\nint main(void)\n{\n    for (int i = 0; i < 10; i++) {\n",
    "raw-python": "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n",
    "raw-numbers": "Powers of two: 1, 2, 4, 8, 16, 32, 64,",
    "raw-german": "Der Unterschied zwischen Wetter und Klima ist, dass",
    "raw-spanish": "En un lugar de la costa, donde el mar y la montaña se encuentran,",
    "raw-json": "{\n  \"name\": \"station\",\n  \"readings\": [\n    {\"hour\": 6, \"temp\": 4.1},\n    {\"hour\": 12,",
    "raw-list": "Things to pack for a week in the mountains:\n\n1. A warm jacket\n2. Good boots\n3.",
    "raw-letter": "Dear Sir,\n\nI am writing to you about the train that did not arrive on Monday. I waited",
    "raw-sql": "SELECT name, COUNT(*) AS orders\nFROM customers\nJOIN orders ON",
    "raw-recipe": "Ingredients for a simple bread: flour, water, salt and yeast. First, mix the",
    "raw-history": "The invention of the printing press in the fifteenth century changed Europe because",
    "raw-unicode": "Smörgåsbord, naïve café, Ελλάδα, 日本語, 😀🚀 - these words show that",
}
WITH_LOGITS = ("chat-code", "raw-c", "deep")
TOKEN_TEXTS = [
    "", " ", "a", "Hello world", " Hello  world ", "In 12345 there were  3.14 things", "  2", "x=10\n\n\n  y = 20\t30",
    "don't can't we'll I'M", "\n\n \n", "tabs\t\tand\r\nreturns", "日本語のテキスト", "ελληνικά", "naïve café ﬁ",
    "e\u0301 versus é", "😀👩‍👩‍👧 🚀", "½ ² ⅷ ٣ 12٣4", "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", "<|im_end", "<|IM_END|>",
    "<repo_name>x<file_sep>", "\u00a0nbsp\u2003em", "\u200bzero", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "http://a.b/c?d=e&f=1#g",
    "1,000,000.00 €", "snake_case camelCase kebab-case", "    indented\n        more", "a\u0000b", "\ufeffbom", "Ⅻ ① ㊀ 7",
]


def reference_tokenizer(folder, name):
    tok = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    field = gguf.GGUFReader(os.path.join(folder, name)).fields["tokenizer.ggml.pre"]
    assert field.contents() == "smollm"
    tok.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    return tok


@torch.no_grad()
def greedy(model, ids):
    """64 tokens with the cache, one forward per step; also the first and the last logits."""
    past, feed, out, margins = None, torch.tensor([ids]), [], []
    for step in range(STEPS):
        r = model(input_ids=feed, past_key_values=past, use_cache=True)
        past, logits = r.past_key_values, r.logits[0, -1].float()
        if step == 0:
            first = logits.clone()
        top = torch.topk(logits, 2)
        margins.append(round((top.values[0] - top.values[1]).item(), 6))
        out.append(int(top.indices[0]))
        feed = torch.tensor([[out[-1]]])
    return out, margins, first, logits.clone()


def main():
    model_path, eval_path, outdir = sys.argv[1:4]
    folder, name = os.path.split(os.path.abspath(model_path))
    os.makedirs(outdir, exist_ok=True)
    torch.manual_seed(0)
    tok = reference_tokenizer(folder, name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()

    text = open(eval_path, encoding="utf-8").read()
    print("evaluation text:", len(tok(text).input_ids), "tokens")
    prompts = [(k, m, tok.apply_chat_template(m, add_generation_prompt=True, tokenize=False)) for k, m in CHATS.items()]
    prompts += [(k, None, t) for k, t in TEXTS.items()]
    # Longer than two attention atoms of 256 rows: the beginning of the evaluation text, cut at a token.
    deep = tok.decode(tok(text).input_ids[:620])
    prompts.append(("deep", None, deep))

    cases = []
    for key, messages, prompt in prompts:
        ids = tok(prompt, add_special_tokens=False).input_ids
        out, margins, first, last = greedy(model, ids)
        eos = model.config.eos_token_id
        print(f"{key}: {len(ids)} tokens, min margin {min(margins):.4f}: {tok.decode(out)!r}"[:240])
        if min(margins) < MIN_MARGIN and eos in out:
            out, margins = out[:out.index(eos) + 1], margins[:out.index(eos) + 1]
            print(f"    cut to {len(out)} tokens, min margin {min(margins):.4f}")
        if min(margins) < MIN_MARGIN:
            print("    left out")
            continue
        case = {"name": key, "text": prompt, "messages": messages, "input_ids": ids, "output_ids": out,
                "eos_at": out.index(eos) if eos in out else None, "output_text": tok.decode(out),
                "margins": margins, "min_margin": min(margins), "logits": None}
        if key in WITH_LOGITS:
            case["logits"] = f"logits-{key}.safetensors"
            tensors = {"prefill": first.contiguous()}
            if len(out) == STEPS:
                tensors["last"] = last.contiguous()
            save_file(tensors, os.path.join(outdir, case["logits"]))
            os.chmod(os.path.join(outdir, case["logits"]), 0o644)
        cases.append(case)
    head = {"model": name, "sha256": hashlib.sha256(open(model_path, "rb").read()).hexdigest(),
            "reference": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, "
                         f"tokenizers {tokenizers.__version__}",
            "vocab": model.config.vocab_size}
    with open(os.path.join(outdir, "prompts.json"), "w", encoding="utf-8") as f:
        lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
        f.write(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n")

    texts = TOKEN_TEXTS + [p for _, _, p in prompts] + [p for p in text.split("\n") if p]
    with open(os.path.join(outdir, "tokens.jsonl"), "w", encoding="utf-8") as f:
        for t in texts:
            ids = tok(t, add_special_tokens=False).input_ids
            f.write(json.dumps({"text": t, "ids": ids,
                                "decode": tok.decode(ids, clean_up_tokenization_spaces=False)}) + "\n")


main()
