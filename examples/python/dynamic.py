"""The default cache, and one of your own that continues a text."""
import sys

from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
inputs = tokenizer("The sea is", return_tensors="np")

print(tokenizer.decode(model.generate(**inputs, max_new_tokens=12)[0]))

cache = DynamicCache(config=model.config)
ids = model.generate(**inputs, max_new_tokens=6, past_key_values=cache)
ids = model.generate(ids, max_new_tokens=6, past_key_values=cache)
print(tokenizer.decode(ids[0]), f"({cache.get_seq_length()} tokens cached)")
