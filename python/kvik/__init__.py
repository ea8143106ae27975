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
import sys as _sys
from typing import TYPE_CHECKING, Any, List, Type

from . import errors as _errors
from ._lib import lib as _library
from .batch_encoding import BatchEncoding
from .cache_utils import (Cache, DynamicCache, EncoderDecoderCache, HQQQuantizedCache, HybridCache, HybridChunkedCache,
                          HybridMambaAttentionDynamicCache, MambaCache, OffloadedCache, OffloadedHybridCache,
                          OffloadedStaticCache, QuantizedCache, QuantizedCacheConfig, QuantoQuantizedCache, SinkCache,
                          SlidingWindowCache, StaticCache, StaticCacheConfig)
from . import utils
from .configuration import AutoConfig, BitsAndBytesConfig, HqqConfig, PreTrainedConfig, PretrainedConfig, QuantoConfig
from .devices import infer_device
from .errors import (ArgumentError, BusyError, CancelledError, FileError, FormatError, HostMemoryError, KvikError, LimitError,
                     LostError, MissingError, StaleError, UnsupportedError)
from .generation import (AsyncTextIteratorStreamer, BaseStreamer, ConfidenceCriteria, EncoderNoRepeatNGramLogitsProcessor,
                        EncoderRepetitionPenaltyLogitsProcessor, EosTokenCriteria, EpsilonLogitsWarper, EtaLogitsWarper,
                        ExponentialDecayLengthPenalty, ForcedBOSTokenLogitsProcessor, ForcedEOSTokenLogitsProcessor, GenerationMixin,
                        InfNanRemoveLogitsProcessor, LogitNormalization, LogitsProcessor, LogitsProcessorList, LogitsWarper,
                        MaxLengthCriteria, MaxTimeCriteria, MinLengthLogitsProcessor, MinNewTokensLengthLogitsProcessor,
                        MinPLogitsWarper, NoBadWordsLogitsProcessor, NoRepeatNGramLogitsProcessor,
                        PrefixConstrainedLogitsProcessor, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor,
                        StopStringCriteria, StoppingCriteria, StoppingCriteriaList, SuppressTokensAtBeginLogitsProcessor,
                        SuppressTokensLogitsProcessor, TemperatureLogitsWarper, TextIteratorStreamer, TextStreamer,
                        SynthIDTextWatermarkingConfig, SynthIDTextWatermarkLogitsProcessor, TopHLogitsWarper, TopKLogitsWarper,
                        TopPLogitsWarper, TypicalLogitsWarper, WatermarkDetector, WatermarkingConfig, WatermarkLogitsProcessor,
                        validate_stopping_criteria, set_seed)
from .generation.configuration_utils import CompileConfig, GenerationConfig
from .model import AutoModel, AutoModelForCausalLM, PreTrainedModel
from .models import CLASSES as _CLASSES, CONFIGS as _CONFIGS, class_named as _class_named, config_named as _config_named
from .pipelines import AutomaticSpeechRecognitionPipeline, TextGenerationPipeline, pipeline
from .prefix_store import PrefixStore
from .processing import (AutoFeatureExtractor, AutoProcessor, BatchFeature, WhisperFeatureExtractor, WhisperProcessor,
                         WhisperTokenizer, WhisperTokenizerFast)
from .seq2seq import AutoModelForSeq2SeqLM
from .speech import AutoModelForSpeechSeq2Seq
from .tokenization import AutoTokenizer, PreTrainedTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from .tokenizer_files import AddedToken
from .tokenizer_parts import CharSpan, TokenSpan
from .utils import logging
from .utils.generic import TensorType
from .utils.import_utils import is_torch_available, is_vision_available

__version__: str = _library.kvik_version().decode()

# Tokenizers of single architectures: the files say what a tokenizer does.
_TOKENIZERS = tuple(prefix + suffix for suffix in ("Tokenizer", "TokenizerFast") for prefix in (
    "Bart", "Gemma", "GPT2", "GPTNeoX", "Llama", "MBart", "Qwen2", "T5"))
# Where Transformers has the names of these modules.
_MODULES = {"configuration_utils": "configuration", "modeling_outputs": "outputs", "modeling_utils": "model",
            "processing_utils": "processing", "tokenization_utils": "tokenization", "tokenization_utils_base": "tokenization"}
for _name, _module in _MODULES.items():
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _sys.modules[f"{__name__}.{_module}"]


if TYPE_CHECKING:
    from .models._classes import *
    OutOfMemoryError: Type[_errors.OutOfMemoryError]
else:
    def __getattr__(name: str) -> Any:
        if name == "OutOfMemoryError":  # not in the dictionary, so that it can follow an import of torch
            return _errors.adopt_torch()
        if name in _CLASSES:
            return _class_named(name)
        if name in _CONFIGS:
            return _config_named(name)
        if name in _TOKENIZERS:
            return PreTrainedTokenizer
        raise AttributeError(f"module 'kvik' has no {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *_CLASSES, *_CONFIGS, *_TOKENIZERS, "OutOfMemoryError"})


__all__ = [
    "AddedToken", "ArgumentError", "AsyncTextIteratorStreamer", "AutoConfig", "AutoFeatureExtractor", "AutoModel",
    "AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq", "AutoProcessor", "AutoTokenizer",
    "AutomaticSpeechRecognitionPipeline", "BaseStreamer", "BatchEncoding", "BatchFeature", "BitsAndBytesConfig", "BusyError", "Cache",
    "CancelledError", "CharSpan", "CompileConfig", "ConfidenceCriteria", "DynamicCache", "EncoderDecoderCache",
    "EncoderNoRepeatNGramLogitsProcessor", "EncoderRepetitionPenaltyLogitsProcessor", "EosTokenCriteria",
    "EpsilonLogitsWarper", "EtaLogitsWarper", "ExponentialDecayLengthPenalty", "FileError",
    "ForcedBOSTokenLogitsProcessor", "ForcedEOSTokenLogitsProcessor", "FormatError", "GenerationConfig", "GenerationMixin",
    "HQQQuantizedCache", "HqqConfig", "HostMemoryError", "HybridCache", "HybridChunkedCache", "HybridMambaAttentionDynamicCache",
    "InfNanRemoveLogitsProcessor", "KvikError", "LimitError", "LogitNormalization", "LogitsProcessor",
    "LogitsProcessorList", "LogitsWarper", "LostError", "MambaCache", "MaxLengthCriteria", "MaxTimeCriteria",
    "MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "MinPLogitsWarper", "MissingError",
    "NoBadWordsLogitsProcessor", "NoRepeatNGramLogitsProcessor", "OffloadedCache", "OffloadedHybridCache",
    "OffloadedStaticCache", "OutOfMemoryError", "PreTrainedConfig", "PreTrainedModel", "PreTrainedTokenizer",
    "PreTrainedTokenizerBase", "PreTrainedTokenizerFast", "PrefixConstrainedLogitsProcessor", "PrefixStore", "PretrainedConfig",
    "QuantizedCache", "QuantizedCacheConfig", "QuantoConfig", "QuantoQuantizedCache", "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor", "SinkCache", "SlidingWindowCache", "StaleError", "StaticCache", "StaticCacheConfig",
    "StopStringCriteria", "StoppingCriteria", "StoppingCriteriaList", "SuppressTokensAtBeginLogitsProcessor",
    "SuppressTokensLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor", "SynthIDTextWatermarkingConfig", "TemperatureLogitsWarper", "TensorType", "TextGenerationPipeline", "TextIteratorStreamer",
    "TextStreamer", "TokenSpan", "TopHLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "TypicalLogitsWarper",
    "UnsupportedError", "WatermarkDetector", "WatermarkLogitsProcessor", "WatermarkingConfig", "WhisperFeatureExtractor", "WhisperProcessor", "WhisperTokenizer", "WhisperTokenizerFast",
    "infer_device", "is_torch_available", "is_vision_available", "logging", "pipeline", "set_seed", "utils", "validate_stopping_criteria", *_CLASSES, *_CONFIGS,
    *_TOKENIZERS,
]
