"""Generation: options, processors of scores, criteria that end a text, and streamers."""
from ..outputs import (GenerateBeamDecoderOnlyOutput, GenerateBeamEncoderDecoderOutput, GenerateDecoderOnlyOutput,
                       GenerateEncoderDecoderOutput)
from .callbacks import Interruptible
from .configuration_utils import CompileConfig, GenerationConfig, GenerationMode
from .logits_process import (EncoderNoRepeatNGramLogitsProcessor, EncoderRepetitionPenaltyLogitsProcessor, EpsilonLogitsWarper,
                             EtaLogitsWarper, ExponentialDecayLengthPenalty, ForcedBOSTokenLogitsProcessor,
                             ForcedEOSTokenLogitsProcessor, InfNanRemoveLogitsProcessor, LogitNormalization, LogitsProcessor,
                             LogitsProcessorList, LogitsWarper, MinLengthLogitsProcessor, MinNewTokensLengthLogitsProcessor,
                             MinPLogitsWarper, NoBadWordsLogitsProcessor, NoRepeatNGramLogitsProcessor,
                             PrefixConstrainedLogitsProcessor, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor,
                             SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor, TemperatureLogitsWarper,
                             TopHLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, TypicalLogitsWarper)
from .options import Options
from .stopping_criteria import (ConfidenceCriteria, EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria, StoppingCriteria,
                                StoppingCriteriaList, StopStringCriteria, validate_stopping_criteria)
from .streamers import AsyncTextIteratorStreamer, BaseStreamer, TextIteratorStreamer, TextStreamer
from .seeds import set_seed
from .utils import GenerationMixin, log_softmax
from .watermark_configs import BaseWatermarkingConfig, SynthIDTextWatermarkingConfig, WatermarkingConfig
from .watermarking import WatermarkDetector, WatermarkDetectorOutput
from .watermarks import SynthIDTextWatermarkLogitsProcessor, WatermarkLogitsProcessor

__all__ = [
    "AsyncTextIteratorStreamer", "BaseStreamer", "BaseWatermarkingConfig", "ConfidenceCriteria", "EncoderNoRepeatNGramLogitsProcessor",
    "EncoderRepetitionPenaltyLogitsProcessor", "EosTokenCriteria", "EpsilonLogitsWarper", "EtaLogitsWarper",
    "GenerateBeamDecoderOnlyOutput", "GenerateBeamEncoderDecoderOutput", "GenerateDecoderOnlyOutput",
    "GenerateEncoderDecoderOutput", "ExponentialDecayLengthPenalty", "ForcedBOSTokenLogitsProcessor", "ForcedEOSTokenLogitsProcessor",
    "CompileConfig", "GenerationConfig", "GenerationMixin", "GenerationMode", "InfNanRemoveLogitsProcessor", "Interruptible", "LogitNormalization",
    "LogitsProcessor", "LogitsProcessorList", "LogitsWarper", "MaxLengthCriteria", "MaxTimeCriteria",
    "MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "MinPLogitsWarper", "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor", "Options", "PrefixConstrainedLogitsProcessor", "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor", "StopStringCriteria", "StoppingCriteria", "StoppingCriteriaList",
    "SuppressTokensAtBeginLogitsProcessor", "SuppressTokensLogitsProcessor", "TemperatureLogitsWarper",
    "TextIteratorStreamer", "TextStreamer", "TopHLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper",
    "SynthIDTextWatermarkLogitsProcessor", "SynthIDTextWatermarkingConfig", "TypicalLogitsWarper", "WatermarkDetector",
    "WatermarkDetectorOutput", "WatermarkLogitsProcessor", "WatermarkingConfig", "log_softmax", "set_seed", "validate_stopping_criteria",
]
