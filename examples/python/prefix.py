"""A prompt computed once, and forked for two continuations.  A fork copies nothing."""
import copy
import sys

from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])

prefix = "You are a helpful assistant. "
prompt_cache = model(**tokenizer(prefix, return_tensors="np"), past_key_values=DynamicCache()).past_key_values
for question in ("The capital of France is", "The first man on the moon was"):
    inputs = tokenizer(prefix + question, return_tensors="np")
    out = model.generate(**inputs, past_key_values=copy.deepcopy(prompt_cache), max_new_tokens=8)
    print(tokenizer.decode(out[0]))
print(prompt_cache.get_seq_length(), "tokens of the prefix")
