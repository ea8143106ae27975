"""A chat over one cache: each turn computes its new tokens alone.  The reply is printed as it comes."""
import sys

from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache, TextStreamer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
cache, messages = DynamicCache(), []
for prompt in ("Hello, what's your name?", "Btw, yesterday I was at a rock concert."):
    messages.append({"role": "user", "content": prompt})
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="np", return_dict=True)
    n = inputs["input_ids"].shape[1]
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    out = model.generate(**inputs, max_new_tokens=24, past_key_values=cache, streamer=streamer)
    messages.append({"role": "assistant", "content": tokenizer.decode(out[0, n:], skip_special_tokens=True)})
print(cache.get_seq_length(), "tokens cached")
