"""Mistakes that mypy and pyright both find: one on each line that says so, and none on any other line.  Nothing runs it."""
import kvik
from kvik import AutoModelForCausalLM, AutoModelForSpeechSeq2Seq, AutoTokenizer, DynamicCache, GenerationConfig
from kvik import AutoModelForCasualLM  # mistake: the name of a class
from kvik import LLamaForCausalLM  # mistake: the name of an architecture's class

tokenizer = AutoTokenizer.from_pretrained("model.gguf")
model = AutoModelForCausalLM.from_pretrained("model.gguf", quantise="q4_0")  # mistake: an argument of from_pretrained()
opened = AutoModelForCausalLM.from_pretrained("model.gguf", cache_memory="64M")
inputs = tokenizer("The sea is", return_tensor="np")  # mistake: an argument of a tokenizer
encoded = tokenizer("The sea is", return_tensors="np")
encoded.input_idz  # mistake: an entry of an encoding

opened.generate(**encoded, max_new_token=3)  # mistake: the name of an option
opened.generate(**encoded, max_new_tokens="3")  # mistake: a text for a number
opened.generate(**encoded, top_k=0.9)  # mistake: a fraction for a count
opened.generate(**encoded, early_stopping="always")  # mistake: a choice that there is not
opened.generate(**encoded, stop_strings=2)  # mistake: an id for a text
opened.generate(**encoded, past_key_values=DynamicCache)  # mistake: a class for a cache
opened.generate(**encoded, cache_memori="64M")  # mistake: a setting of a cache
opened.generate(**encoded, generation_config=20)  # mistake: a number for options
opened.genrate(**encoded)  # mistake: the name of a method
opened.generate(**encoded, return_dict_in_generate=True).sequence  # mistake: an entry of a result
opened(**encoded).logit  # mistake: an entry of forward()'s result
opened(**encoded, use_cash=True)  # mistake: an argument of forward()
opened(**encoded).past_key_values.cut(3)  # mistake: a method of a cache

GenerationConfig(temprature=1)  # mistake: an option of a GenerationConfig
opened.generation_config.temprature = 1  # mistake: an option as an attribute
opened.generation_config.do_sample = "yes"  # mistake: a text for a truth value

tokenizer.apply_chat_template([{"role": "user"}], tokenize=False).shape  # mistake: an array's attribute of a text
tokenizer.encode("The sea is").shape  # mistake: an array's attribute of a list

cache = DynamicCache(config=opened.config)
cache.fork().get_seq_len()  # mistake: a method of a fork
cache.fork(True)  # mistake: fork() takes nothing
cache.save()  # mistake: a file without a name
cache.crop("3")  # mistake: a text for a length
cache.memory().bytes  # mistake: an entry of a dictionary as an attribute
DynamicCache(max_sequence=2)  # mistake: a setting of a cache's class
DynamicCache.load("talk.session", opened).frok()  # mistake: a method of a loaded cache
kvik.StaticCache(opened.config, max_cache_length=64)  # mistake: an argument of a static cache
kvik.SinkCache(window_length=64)  # mistake: an argument that is missing
kvik.QuantizedCache("hqq", nbit=4)  # mistake: an argument of a quantized cache
kvik.TopPLogitsWarper("0.9")  # mistake: a text for a probability
kvik.pipeline("text-generation", opened)("The sea is", max_new_token=5)  # mistake: an option of a pipeline
AutoModelForSpeechSeq2Seq.from_pretrained("whisper").transcribe("talk.mp3", langauge="de")  # mistake: an option of speech
kvik.set_seed("1")  # mistake: a text for a seed
