"""Every strategy by its name, with the memory that its rows take."""
import sys

from kvik import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
inputs = tokenizer("The sea is", return_tensors="np")

for name, config in (("dynamic", None), ("static", None), ("offloaded", None), ("offloaded_static", None),
                     ("quantized", {"backend": "quanto", "nbits": 4}),
                     ("sliding_window", {"sliding_window": 8}), ("sink", {"window_length": 8, "num_sink_tokens": 2})):
    out = model.generate(**inputs, max_new_tokens=16, cache_implementation=name, cache_config=config,
                         return_dict_in_generate=True)
    print(f"{name}: {out.texts[0].strip()} ({out.past_key_values.memory()['own_bytes'] >> 10} KiB)")
