"""A budget for the cache: fall back to an offloaded cache when it is full.  Nothing is lost by the failure."""
import sys

from kvik import AutoModelForCausalLM, AutoTokenizer, OutOfMemoryError

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], max_sequences=1)
inputs = tokenizer("okay " * 400 + "Fun fact: The most", return_tensors="np")
try:
    out = model.generate(**inputs, max_new_tokens=10, cache_memory="8M")
except OutOfMemoryError as e:
    print(str(e).split(":")[0])
    out = model.generate(**inputs, max_new_tokens=10, cache_memory="8M", cache_implementation="offloaded")
print(tokenizer.decode(out[0, -10:]))
