"""A program without a mistake: mypy --strict and pyright say nothing about it.  Nothing runs it."""
import asyncio
import copy
from typing import Any, Dict, List, Optional, Tuple

import kvik
import numpy as np
from kvik import (AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, AutoProcessor, AutoTokenizer,
                  BatchEncoding, Cache, DynamicCache, GenerationConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessorList,
                  OffloadedCache, QuantizedCache, QuantizedCacheConfig, SinkCache, StaticCache, StoppingCriteria,
                  TemperatureLogitsWarper, TextIteratorStreamer, TextStreamer, pipeline)
from kvik.cache_utils import EncoderDecoderCache
from kvik.models.llama.modeling_llama import LlamaForCausalLM as TheSame  # pyright: ignore[reportMissingImports]

tokenizer = AutoTokenizer.from_pretrained("model.gguf")
model = AutoModelForCausalLM.from_pretrained("model.gguf", quantize="q4_0", cache_memory="64M", threads=2, device_map="auto")
inputs: BatchEncoding = tokenizer(["The sea is", "A"], return_tensors="np", padding=True)
prompt = inputs.input_ids.shape[1]


def texts() -> List[str]:
    """Generates in the usual ways."""
    ids = model.generate(**inputs, max_new_tokens=20, do_sample=True, temperature=0.7, top_k=np.int64(5), seed=3)
    new = ids[:, prompt:]
    total: int = int(new.sum()) + ids.shape[0]
    ids.cpu()  # of a tensor
    for name in ("dynamic", "static", "quantized"):
        model.generate(inputs.input_ids, cache_implementation=name, max_new_tokens=total, eos_token_id=[1, 2])
    model.generate(np.array([[1, 2]]), GenerationConfig(max_new_tokens=2), past_key_values=None, eos_token_id=np.array([1]))
    model.generate([[1, 2]], generation_config={"max_new_tokens": 2}, stop_strings=["."], sequence_bias={(1, 2): -3.0})
    model.generate(**inputs, cache_implementation="quantized", cache_config={"backend": "hqq", "nbits": 4}, on_full="offload")
    model.generate(**inputs, cache_config=QuantizedCacheConfig(nbits=4), early_stopping="never", num_beams=4)
    model.generate(**inputs, streamer=TextStreamer(tokenizer), logits_processor=LogitsProcessorList([TemperatureLogitsWarper(0.5)]))
    return [str(t) for t in tokenizer.batch_decode(ids)]


def results() -> Tuple[Any, ...]:
    """Takes results apart."""
    out = model.generate(**inputs, return_dict_in_generate=True, output_scores=True, output_attentions=True)
    scores = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
    speed: float = out.stats["new_tokens"] / out.stats["decode_seconds"]
    again: Cache = out.past_key_values.fork()
    step = model(**inputs, past_key_values=again, use_cache=True, logits_to_keep=1)
    best = step.logits[:, -1].argmax(-1)
    step.past_key_values.crop(-1)
    logits, past = model(inputs.input_ids, attention_mask=inputs.attention_mask, return_dict=False)[:2]
    asked: Optional[bool] = None if speed else True
    model.generate(inputs.input_ids, return_dict_in_generate=asked)
    hidden = AutoModel.from_pretrained("model.gguf")(**inputs).last_hidden_state.shape
    return scores, best, logits, past, hidden, out.finish_reasons[0].upper(), step["logits"], step[0]


class Stop(StoppingCriteria):
    """A criterion of the program."""

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> bool:
        return bool(input_ids.shape[1] > 5)


def caches(config: LlamaConfig) -> List[Cache]:
    """Makes caches; what a method returns has the class of its object."""
    offloaded: OffloadedCache = OffloadedCache(cache_memory="64M", spill_dir="/var/tmp").fork()
    quantized: QuantizedCache = copy.deepcopy(QuantizedCache("hqq", nbits=4, cache_memory=2**26))
    static: StaticCache = StaticCache.load("talk.session", model, cache_memory="1G")
    sink: SinkCache = SinkCache(window_length=64, num_sink_tokens=4, max_sequences=2)
    pair = EncoderDecoderCache(DynamicCache(), DynamicCache(config=config))
    used: Dict[str, int] = offloaded.memory()
    offloaded.save("talk.session", note=f"{used['bytes']} bytes")
    model.generate(**inputs, past_key_values=sink, stopping_criteria=[Stop()])
    return [offloaded, quantized, static, sink, pair.self_attention_cache, StaticCache(config, 2, 64), StaticCache(config, max_cache_len=8)]


def options() -> GenerationConfig:
    """Sets options."""
    config = model.generation_config
    config.temperature, config.pad_token_id = 0.5, tokenizer.pad_token_id
    config.max_new_tokens = None
    config.forced_decoder_ids = None
    return copy.deepcopy(GenerationConfig(do_sample=True, temperature=(0.0, 0.2), language="de", return_dict_in_generate=True))


def others() -> str:
    """Uses models with an encoder, speech and pipelines."""
    t5 = AutoModelForSeq2SeqLM.from_pretrained("t5")
    out = t5(input_ids=inputs.input_ids, decoder_input_ids=[[0]], output_attentions=True)
    out.cross_attentions[0].mean()
    out.past_key_values.cross_attention_cache.get_seq_length()
    t5.generate(**inputs, return_dict_in_generate=True).past_key_values.self_attention_cache.fork()
    t5.generate(**inputs, encoder_outputs=None, max_new_tokens=3).tolist()
    whisper = AutoModelForSpeechSeq2Seq.from_pretrained("whisper")
    features = AutoProcessor.from_pretrained("whisper")(np.zeros(16000), sampling_rate=16000).input_features
    whisper.generate(features, language="de", temperature=(0.0, 0.2), num_beams=2, max_new_tokens=4)[0].tolist()
    whisper.generate(features, return_segments=True).segments[0][0]["text"].strip()
    with open("talk.wav", "rb") as recording:
        whisper.transcribe(recording, return_timestamps=True, on_segment=lambda segment: print(segment["text"]))
    whisper.transcribe("talk.mp3", language="de", progress=print, word_timestamps=True)["text"].strip()
    llama: LlamaForCausalLM = LlamaForCausalLM.from_pretrained("llama").eval().to("cpu")
    TheSame.from_pretrained("llama").generate(**inputs)
    pipeline("text-generation", llama, tokenizer=tokenizer)("The sea is", max_new_tokens=5, return_full_text=False)
    pipeline("automatic-speech-recognition", "whisper")("talk.mp3", return_timestamps="word")["chunks"]
    pipeline(model="model.gguf")("The sea is")
    try:
        return "".join(TextIteratorStreamer(tokenizer))
    except (kvik.OutOfMemoryError, kvik.KvikError) as e:
        return str(e)


def templates() -> Any:
    """Renders chats."""
    chat = [{"role": "user", "content": "Hello"}]
    tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True).strip()
    [text.strip() for text in tokenizer.apply_chat_template([chat, chat], tokenize=False)]
    first: int = tokenizer.encode("Hello")[0]
    tokenizer.encode("Hello", return_tensors="np").shape[first]
    ids = tokenizer.apply_chat_template(chat, return_tensors="np", return_dict=True)
    return model.generate(**ids)


async def streamed() -> None:
    """Reads a stream."""
    async for text in kvik.AsyncTextIteratorStreamer(tokenizer):
        print(text.strip())

asyncio.run(streamed())
