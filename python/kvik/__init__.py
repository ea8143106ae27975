"""kvik: text with language models, and caches that you choose, fork, save and limit.

    from kvik import AutoModelForCausalLM, AutoTokenizer, DynamicCache

    tokenizer = AutoTokenizer.from_pretrained("SmolLM2-135M-Instruct.Q4_1.gguf")
    model = AutoModelForCausalLM.from_pretrained("SmolLM2-135M-Instruct.Q4_1.gguf")
    inputs = tokenizer("The sea is", return_tensors="np")
    ids = model.generate(**inputs, max_new_tokens=20, cache_implementation="quantized")
    print(tokenizer.batch_decode(ids)[0])

Names and arguments are those of Hugging Face Transformers.  numpy arrays go in and out; torch tensors where the program uses
torch.
"""
from importlib import import_module
from typing import Any, List

from . import errors as _errors
from ._lib import lib as _library
from .batch_encoding import BatchEncoding
from .cache_utils import (Cache, DynamicCache, EncoderDecoderCache, HQQQuantizedCache, HybridCache, HybridChunkedCache,
                          HybridMambaAttentionDynamicCache, MambaCache, OffloadedCache, OffloadedHybridCache,
                          OffloadedStaticCache, QuantizedCache, QuantizedCacheConfig, QuantoQuantizedCache, SinkCache,
                          SlidingWindowCache, StaticCache, StaticCacheConfig)
from .configuration import AutoConfig, MambaConfig, PretrainedConfig
from .devices import infer_device
from .errors import (ArgumentError, BusyError, CancelledError, FileError, FormatError, HostMemoryError, KvikError, LimitError,
                     LostError, MissingError, StaleError, UnsupportedError)
from .generation import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from .generation_config import GenerationConfig
from .model import AutoModel, AutoModelForCausalLM, PreTrainedModel
from .pipelines import TextGenerationPipeline, pipeline
from .seq2seq import AutoModelForSeq2SeqLM
from .streamers import BaseStreamer, TextIteratorStreamer, TextStreamer
from .tokenization import AutoTokenizer, PreTrainedTokenizer, PreTrainedTokenizerFast

__version__: str = _library.kvik_version().decode()

_BY_ARCHITECTURE = {
    "LlamaForCausalLM": "llama", "LlamaModel": "llama", "MistralForCausalLM": "mistral", "MistralModel": "mistral",
    "MixtralForCausalLM": "mixtral", "GemmaForCausalLM": "gemma", "GemmaModel": "gemma", "Gemma2ForCausalLM": "gemma2",
    "Gemma2Model": "gemma2", "Gemma3ForCausalLM": "gemma3", "Phi3ForCausalLM": "phi3", "Phi3Model": "phi3",
    "Qwen2ForCausalLM": "qwen2", "Qwen2Model": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3Model": "qwen3",
    "GPT2LMHeadModel": "gpt2", "GPT2Model": "gpt2", "Llama4ForCausalLM": "llama4", "GptOssForCausalLM": "gpt_oss",
    "MambaForCausalLM": "mamba", "MambaModel": "mamba", "Mamba2ForCausalLM": "mamba2", "Mamba2Model": "mamba2",
    "FalconMambaForCausalLM": "falcon_mamba", "JambaForCausalLM": "jamba", "JambaModel": "jamba",
    "Zamba2ForCausalLM": "zamba2", "T5ForConditionalGeneration": "t5",
}


def __getattr__(name: str) -> Any:
    if name == "OutOfMemoryError":  # not in the dictionary, so that it can follow an import of torch
        return _errors.adopt_torch()
    if name in _BY_ARCHITECTURE:
        folder = _BY_ARCHITECTURE[name]
        return getattr(import_module(f"{__name__}.models.{folder}.modeling_{folder}"), name)
    raise AttributeError(f"module 'kvik' has no {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *_BY_ARCHITECTURE, "OutOfMemoryError"})


__all__ = [
    "ArgumentError", "AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoTokenizer", "BaseStreamer", "BatchEncoding",
    "BusyError", "Cache", "CancelledError", "DynamicCache", "EncoderDecoderCache", "FileError", "FormatError",
    "GenerationConfig", "HQQQuantizedCache", "HostMemoryError", "HybridCache", "HybridChunkedCache",
    "HybridMambaAttentionDynamicCache", "KvikError", "LimitError", "LogitsProcessor", "LogitsProcessorList", "LostError",
    "MambaCache", "MambaConfig", "MissingError", "OffloadedCache", "OffloadedHybridCache", "OffloadedStaticCache",
    "OutOfMemoryError", "PreTrainedModel", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "PretrainedConfig",
    "QuantizedCache", "QuantizedCacheConfig", "QuantoQuantizedCache", "SinkCache", "SlidingWindowCache", "StaleError",
    "StaticCache", "StaticCacheConfig", "StoppingCriteria", "StoppingCriteriaList", "TextGenerationPipeline",
    "TextIteratorStreamer", "TextStreamer", "UnsupportedError", "infer_device", "pipeline", *_BY_ARCHITECTURE,
]
