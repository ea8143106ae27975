"""Pipelines: a model with its tokenizer or feature extractor, from texts to texts or from recordings to texts."""
import os
import struct
import tempfile
from itertools import islice
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Literal, NamedTuple, Optional, overload

import numpy as np

from . import download
from ._arrays import samples_of
from .configuration import PretrainedConfig
from .devices import accept_device
from .errors import ArgumentError, KvikError, UnsupportedError
from .generation.configuration_utils import merged
from .generation.streamers import readers_told
from .languages import language_names
from .model import AutoModelForCausalLM
from .processing import WhisperFeatureExtractor, WhisperTokenizer
from .speech import AutoModelForSpeechSeq2Seq
from .tokenization import AutoTokenizer
from .utils.logging import notice

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import TextPipelineArguments


# Options that a text pipeline sets where neither the program nor the model does, as in Transformers.
_DEFAULTS = {"max_new_tokens": 256, "do_sample": True, "temperature": 0.7}
# Arguments of a call that go to the tokenizer and to the chat template, not to generate().
_TOKENIZER_TAKES = ("add_special_tokens", "padding", "truncation")
_TEMPLATE_TAKES = ("tools", "documents")
# Arguments that choose between the whole text, the new one, and token ids.
_FORM = ("return_full_text", "return_text", "return_tensors")
_PREFIX = " prefix"  # the tokens of a prefix, among the options of a call
_NO_LIMIT = 10**30  # model_max_length of a tokenizer whose files name none
# Arguments of a pipeline that change nothing here.
_IGNORED = ("framework", "num_workers", "trust_remote_code", "use_fast", "image_processor",
            "video_processor", "binary_output")


def _open(auto: Any, model: Any, kwargs: Dict[str, Any]) -> Any:
    """Returns the model of a pipeline, opened if it came as a name, and takes its arguments out of kwargs."""
    options = dict(kwargs.pop("model_kwargs", None) or {})
    for name in ("dtype", "torch_dtype", "device_map", *download.ARGUMENTS):
        value = kwargs.pop(name, None)
        if value is not None:
            options[name] = value
    device = kwargs.pop("device", None)
    if device != -1:  # -1 means the CPU, any other number a GPU
        accept_device(device)
    for name in _IGNORED:
        kwargs.pop(name, None)
    return auto.from_pretrained(model, **options) if isinstance(model, (str, os.PathLike)) else model


class _Wanted(NamedTuple):
    """The form of the results that a call asks for."""

    full: bool
    tensors: bool
    skip_special: bool
    clean: Optional[bool]
    final: Optional[bool]


class TextGenerationPipeline:
    """Continues texts, or chats given as lists of {"role", "content"}."""

    task = "text-generation"

    def __init__(self, model: Any, tokenizer: Any = None, **kwargs: Any) -> None:
        self.model = model = _open(AutoModelForCausalLM, model, kwargs)
        if not hasattr(model, "generate"):
            raise TypeError(f"a pipeline takes a model or its name, not {type(model).__name__}")
        if getattr(getattr(model, "config", None), "model_type", "") == "whisper":
            raise UnsupportedError(f"{model!r} is a speech model; give pipeline('automatic-speech-recognition', ...)")
        if tokenizer is None:
            tokenizer = model.name_or_path
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer) if isinstance(tokenizer, (str, os.PathLike)) else tokenizer
        if isinstance(kwargs.get("assistant_model"), (str, os.PathLike)):
            kwargs["assistant_model"] = AutoModelForCausalLM.from_pretrained(kwargs["assistant_model"])
        self.defaults = kwargs

    @property
    def device(self) -> Any:
        """The device of the model."""
        return self.model.device

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def __call__(self, text_inputs: Any, return_full_text: Optional[bool] = None, return_text: Optional[bool] = None,
                 return_tensors: Optional[bool] = None, clean_up_tokenization_spaces: Optional[bool] = None,
                 continue_final_message: Optional[bool] = None, **kwargs: "Unpack[TextPipelineArguments]") -> Any:
        """Generates for a text, a chat, or a list of them.

        Returns a list of {"generated_text"} with a dictionary for each returned sequence; for a list of inputs, a list of
        such lists; for a generator, an iterator over them.  Options that the pipeline was made with count where the call
        does not say otherwise.  return_full_text=False gives the new text alone, return_tensors=True
        {"generated_token_ids"}, a list.  A chat gives its messages and the new one.

        skip_special_tokens=False keeps special tokens in the new text.  stop_sequence: a text or a list that ends the answer.
        tools and documents are those of the chat template; add_special_tokens, truncation and tokenizer_encode_kwargs those of
        the tokenizer; prefix stands before the text.  handle_long_generation="hole" cuts the beginning of a text that leaves less
        than max_new_tokens of the tokenizer's model_max_length (if that is not known, of the model's context); None leaves it as
        it is.  Further arguments are options of generate().  Where neither they nor the
        model's generation_config say otherwise, a pipeline draws up to 256 tokens at a temperature of 0.7, as in Transformers.
        batch_size: so many inputs are generated at once, which is faster; greedy tokens stay the same.
        """
        options: Dict[str, Any] = {**self.defaults, **kwargs}
        form: Dict[str, Any] = dict(zip(_FORM, (return_full_text, return_text, return_tensors)))
        if any(value is not None for value in form.values()):  # one choice, so that of the call replaces the pipeline's
            options.update(form)
        for name, value in (("clean_up_tokenization_spaces", clean_up_tokenization_spaces),
                            ("continue_final_message", continue_final_message)):
            if value is not None:
                options[name] = value
        options.pop("num_workers", None)
        size = int(options.pop("batch_size", None) or 1)
        with readers_told(options.get("streamer")):
            wanted = _take_wanted(options)

        def run(items: Iterable[Any]) -> Iterator[List[Dict[str, Any]]]:
            source = iter(items)
            while True:
                some = list(islice(source, max(size, 1)))
                if not some:
                    return
                yield from self._some(some, options, wanted)
        if isinstance(text_inputs, str) or _is_chat(text_inputs):
            return next(run([text_inputs]))
        if isinstance(text_inputs, (list, tuple)):
            return list(run(text_inputs))
        if hasattr(text_inputs, "__next__"):
            return run(text_inputs)
        if _is_data_set(text_inputs):
            return run(text_inputs[i] for i in range(len(text_inputs)))
        raise ValueError(f"a pipeline takes a text, a chat or a list of them, not {type(text_inputs).__name__}")

    def _some(self, items: List[Any], options: Dict[str, Any], wanted: _Wanted) -> List[List[Dict[str, Any]]]:
        """Generates for some inputs at once."""
        with readers_told(options.get("streamer")):
            items = [list(getattr(item, "messages", item)) if _is_chat(item) else item for item in items]
            encoded, rest = [], options
            for item in items:
                rest = dict(options)
                encoded.append(self._encode(item, self._goes_on(item, wanted.final), rest))
            hole = rest.pop("handle_long_generation", None)
            rest = self._options(rest)
            if hole is not None:
                encoded = self._cut(encoded, hole, rest)
            if len(items) > 1 and (self.tokenizer.pad_token_id is None or any(ids is None for ids, _ in encoded)):
                return [self._rows([item], [one], rest, wanted)[0] for item, one in zip(items, encoded)]
            return self._rows(items, encoded, rest, wanted)

    def _rows(self, items: List[Any], encoded: List[Any], options: Dict[str, Any], wanted: _Wanted) -> List[List[Dict[str, Any]]]:
        ids, mask = encoded[0]
        if len(items) > 1:
            batch = self.tokenizer.pad({"input_ids": [i[0] for i, _ in encoded], "attention_mask": [m[0] for _, m in encoded]},
                                       return_tensors="np", padding_side="left")
            ids, mask = batch.input_ids, batch.attention_mask
            options = {"pad_token_id": self.tokenizer.pad_token_id, **options}
        out = self.model.generate(ids, attention_mask=mask, **options)
        sequences = out.sequences if hasattr(out, "keys") else out
        columns = 0 if ids is None else ids.shape[1]
        each = len(sequences) // len(items)
        return [[self._record(item, sequence, columns, wanted) for sequence in sequences[i * each:(i + 1) * each]]
                for i, item in enumerate(items)]

    def _record(self, item: Any, sequence: Any, columns: int, wanted: _Wanted) -> Dict[str, Any]:
        """Returns the result of one sequence; its first columns are those of the prompt."""
        if wanted.tensors:
            return {"generated_token_ids": sequence.tolist()}
        new = self.tokenizer.decode(sequence[columns:], skip_special_tokens=wanted.skip_special,
                                    clean_up_tokenization_spaces=wanted.clean)
        return {"generated_text": self._whole(item, new, wanted.final) if wanted.full else new}

    @staticmethod
    def _goes_on(item: Any, final: Optional[bool]) -> bool:
        """True if the answer continues the last message of a chat."""
        return _is_chat(item) and (item[-1]["role"] == "assistant" if final is None else final)

    def _whole(self, item: Any, new: str, final: Optional[bool]) -> Any:
        """Returns a text with its continuation, or a chat with its answer."""
        if not _is_chat(item):
            return item + new
        if self._goes_on(item, final):
            return item[:-1] + [{**item[-1], "content": item[-1]["content"] + new}]
        return item + [{"role": "assistant", "content": new}]

    def _encode(self, item: Any, final: bool, options: Dict[str, Any]) -> Any:
        """Returns the ids and the mask of an input, None for an empty text, and takes from options what they need."""
        more = {name: options.pop(name) for name in _TOKENIZER_TAKES if name in options}
        if options.get("max_length") is not None and more.get("truncation"):
            more["max_length"] = options["max_length"]  # an option of generate() as well
        more.update(options.pop("tokenizer_encode_kwargs", None) or {})
        given = {name: options.pop(name, None) for name in _TEMPLATE_TAKES}
        prefix = options.pop("prefix", None) or ""
        if prefix:
            options[_PREFIX] = len(self.tokenizer(prefix, add_special_tokens=more.get("add_special_tokens", False)).input_ids)
        if _is_chat(item):
            more.pop("add_special_tokens", None)
            out = self.tokenizer.apply_chat_template(item, add_generation_prompt=not final, continue_final_message=final,
                                                     return_tensors="np", return_dict=True, **given, **more)
        elif isinstance(item, str):
            out = self.tokenizer(prefix + item, return_tensors="np", **more)
        else:
            raise ValueError(f"a pipeline takes a text, a chat or a list of them, not {type(item).__name__}")
        return (out.input_ids, out.attention_mask) if out.input_ids.shape[1] else (None, None)

    def _cut(self, encoded: List[Any], how: str, options: Dict[str, Any]) -> List[Any]:
        """Cuts the beginnings of ids and masks, so that the model has room for the new tokens."""
        if how != "hole":
            raise ValueError(f"handle_long_generation={how!r}: expected None or 'hole'")
        most, known, out = getattr(self.tokenizer, "model_max_length", _NO_LIMIT), self._known(options), []
        if most >= _NO_LIMIT:
            most = getattr(self.model.config, "max_position_embeddings", None) or _NO_LIMIT
        for ids, mask in encoded:
            have = 0 if ids is None else ids.shape[1]
            new = known["max_new_tokens"] if "max_new_tokens" in known else known["max_length"] - have
            if new < 0:
                raise ValueError(f"max_length={known['max_length']} leaves no room for new tokens: the text has {have} tokens")
            if have + new > most and new >= most:
                raise ValueError(f"{new} new tokens leave no room for the text: the model holds {most} tokens")
            out.append((ids[:, new - most:], mask[:, new - most:]) if ids is not None and have + new > most else (ids, mask))
        if "max_new_tokens" not in known:  # what was cut makes no room for more new tokens
            options["max_length"] = min(known["max_length"], most)
        return out

    def _known(self, options: Dict[str, Any]) -> Dict[str, Any]:
        """Returns the options that the call or the model sets."""
        given = {k: v for k, v in options.items() if v is not None and k != "generation_config"}
        values = merged(self.model.generation_config, options.get("generation_config"), given)
        return {k: v for k, v in values.items() if v is not None}

    def _options(self, options: Dict[str, Any]) -> Dict[str, Any]:
        """Returns the options of generate(), with the defaults of a pipeline."""
        stop = options.pop("stop_sequence", None)
        if stop is not None:
            options["stop_strings"] = [stop] if isinstance(stop, str) else list(stop)
        prefix, known = options.pop(_PREFIX, 0), self._known(options)
        for length, new in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")) if prefix else ():
            if length in known and new not in known:  # a length does not count the prefix
                options[length] = known[length] + prefix
        if "max_new_tokens" not in known and "max_length" not in known:
            options["max_new_tokens"] = _DEFAULTS["max_new_tokens"]
        if known.setdefault("do_sample", True):
            options["do_sample"] = True
            if "temperature" not in known:
                options["temperature"] = _DEFAULTS["temperature"]
        return options


def _take_wanted(options: Dict[str, Any]) -> _Wanted:
    """Takes the form of the results out of options: those of the call, over those that the pipeline was made with."""
    full, text, tensors = (options.pop(name, None) for name in _FORM)
    if full is not None and (text is not None or tensors is not None):
        raise ArgumentError("return_full_text excludes return_text and return_tensors")
    if text is not None and tensors is not None:
        raise ArgumentError("return_text and return_tensors exclude each other")
    return _Wanted(full is not False, bool(tensors), options.pop("skip_special_tokens", None) is not False,
                   options.pop("clean_up_tokenization_spaces", None), options.pop("continue_final_message", None))


def _is_data_set(value: Any) -> bool:
    """True for what has items by number and is no array, text or dictionary."""
    return (hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, (str, bytes, bytearray, memoryview))
            and not any(hasattr(value, name) for name in ("keys", "__array__", "__dlpack__")))


def _is_chat(value: Any) -> bool:
    value = getattr(value, "messages", value)
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], dict)


_BEAMS = 5  # of a speech pipeline where neither the program nor the model says a number, as in Transformers
# How Transformers cuts a recording: arguments that are not needed here.
_WINDOWS = ("batch_size", "chunk_length_s", "stride_length_s", "ignore_warning")


class AutomaticSpeechRecognitionPipeline:
    """Turns recordings into text: files (WAV, FLAC, Ogg, MP3), their bytes, or samples.

    Files are read as a stream, so memory does not grow with their length.
    """

    task = "automatic-speech-recognition"

    def __init__(self, model: Any, tokenizer: Any = None, feature_extractor: Any = None, processor: Any = None,
                 **kwargs: Any) -> None:
        model = _open(AutoModelForSpeechSeq2Seq, model, kwargs)
        if getattr(model, "main_input_name", None) != "input_features":
            raise UnsupportedError(f"{model!r} is no speech model")
        self.model = model
        self._tokenizer, self._extractor = tokenizer, feature_extractor
        if processor is not None:
            self._tokenizer, self._extractor = tokenizer or processor.tokenizer, feature_extractor or processor.feature_extractor
        for name in _WINDOWS:
            kwargs.pop(name, None)
        self.defaults = kwargs

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the model."""
        if self._tokenizer is None or isinstance(self._tokenizer, str):
            self._tokenizer = WhisperTokenizer.from_pretrained(self._tokenizer or self.model.name_or_path)
        return self._tokenizer

    @property
    def feature_extractor(self) -> Any:
        """The feature extractor of the model."""
        if self._extractor is None or isinstance(self._extractor, str):
            self._extractor = WhisperFeatureExtractor.from_pretrained(self._extractor or self.model.name_or_path)
        return self._extractor

    @property
    def device(self) -> Any:
        """The device of the model."""
        return self.model.device

    def __call__(self, inputs: Any, return_timestamps: Any = None, return_language: Optional[bool] = None,
                 generate_kwargs: Optional[Dict[str, Any]] = None, **kwargs: Any) -> Any:
        """Transcribes a recording, a list of them, or a generator or a data set, of which it returns an iterator.

        inputs: the path of a file, its bytes, samples [n] or [channels, n] at 16 000 Hz (numpy or torch), or {"raw" or
        "array": samples, "sampling_rate": rate}, of any rate.  Samples are floats of full scale 1, or int16 or int32, which
        are divided by their full scale; [n, channels] raises ValueError.  return_timestamps: True gives ``chunks``, a list of {"text", "timestamp":
        (start, end)} in seconds, one for each few words; "word" one for each word.  return_language adds "language", the
        name of it, to each chunk.  generate_kwargs, or further arguments: options of generate() that concern speech,
        such as language, task, temperature, num_beams and max_new_tokens, and of a cache.  What they leave open is in
        model.generation_config.  Where neither says otherwise a pipeline searches with 5 beams, as in Transformers;
        num_beams=1 is faster.

        Returns {"text"} with the chunks; a list of those for a list.  Recordings of more than a window (30 seconds) need
        return_timestamps.  chunk_length_s is accepted and not needed.
        """
        if isinstance(inputs, (list, tuple)) and not (inputs and np.isscalar(inputs[0]) and not isinstance(inputs[0], (str, bytes))):
            return [self(item, return_timestamps, return_language, generate_kwargs, **kwargs) for item in inputs]
        items = inputs if hasattr(inputs, "__next__") else (inputs[i] for i in range(len(inputs))) if _is_data_set(inputs) else None
        if items is not None:
            return (self(item, return_timestamps, return_language, generate_kwargs, **kwargs) for item in items)
        made = dict(self.defaults)
        options = {**(made.pop("generate_kwargs", None) or {}), **kwargs, **(generate_kwargs or {})}
        options = {**made, **options}
        for name in _WINDOWS:
            options.pop(name, None)
        timed = return_timestamps if return_timestamps is not None else options.pop("return_timestamps", None)
        options.pop("return_timestamps", None)
        wants_language = options.pop("return_language", None) if return_language is None else return_language
        with readers_told(options.get("streamer")):
            return self._heard(inputs, timed, bool(wants_language), options)

    def _heard(self, inputs: Any, timed: Any, wants_language: bool, options: Dict[str, Any]) -> Dict[str, Any]:
        """Transcribes one recording."""
        if timed not in (None, False, True, "word"):
            raise ArgumentError(f"return_timestamps={timed!r}: expected True, False or 'word'")
        config = options.pop("generation_config", None)
        self.model._take_forced(options, options, config)
        known = {k for k, v in merged(self.model.generation_config, config, options).items() if v is not None}
        if "num_beams" not in known:
            options["num_beams"] = _BEAMS
        if not known & {"max_new_tokens", "max_length"}:
            options["max_new_tokens"] = _DEFAULTS["max_new_tokens"]
        if self.model._general(options, config):
            return self._general(inputs, timed, {**options, "generation_config": config})
        options = self.model._completed(options, config)
        timed = options.get("return_timestamps") if timed is None else timed
        told = self._transcribe(inputs, {**options, "return_timestamps": bool(timed), "word_timestamps": timed == "word"})
        out: Dict[str, Any] = {"text": told["text"] if timed else self._text(told)}
        if timed or wants_language:
            out["chunks"] = self._chunks(told, timed, wants_language)
        return out

    def _transcribe(self, inputs: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        if isinstance(inputs, (str, os.PathLike)):
            return dict(self.model.transcribe(inputs, **options))
        if isinstance(inputs, (bytes, bytearray)):
            return self._by_file(bytes(inputs), options)
        rate: Any = 16000
        if isinstance(inputs, dict):
            given = dict(inputs)
            rate = given.get("sampling_rate")
            inputs = given.get("raw") if given.get("raw") is not None else given.get("array")
            if inputs is None or rate is None:
                raise ValueError('a recording given as a dictionary needs "sampling_rate", and "raw" or "array"')
        samples = _one_channel(inputs)
        if rate != 16000:  # the library resamples files
            return self._by_file(_wav(samples, int(rate)), options)
        return dict(self.model.transcribe(samples, **options))

    def _by_file(self, data: bytes, options: Dict[str, Any]) -> Dict[str, Any]:
        if not data:
            raise ValueError("the recording has no bytes; expected those of a WAV, FLAC, Ogg or MP3 file")
        with tempfile.NamedTemporaryFile(suffix=".audio") as f:
            f.write(data)
            f.flush()
            try:
                return dict(self.model.transcribe(f.name, **options))
            except KvikError as e:  # the caller never saw that file
                raise type(e)(str(e).replace(f.name, "the recording's bytes")) from None

    def _text(self, told: Dict[str, Any]) -> str:
        """Returns the text of all tokens: without times, a segment can end inside a character."""
        ids = [int(i) for s in told["segments"] for i in s["tokens"]]
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _chunks(self, told: Dict[str, Any], timed: Any, language: bool) -> List[Dict[str, Any]]:
        chunks: List[Dict[str, Any]] = []
        if not timed:
            chunks = [{"text": self._text(told)}]
        for segment in told["segments"] if timed else []:
            if timed == "word":
                chunks += [dict(w) for w in segment["words"]]
            else:
                chunks.append({"text": segment["text"], "timestamp": (round(segment["start"], 2), round(segment["end"], 2))})
        if language:
            names = {code: name for name, code in reversed(list(language_names().items()))}
            for chunk in chunks:
                chunk["language"] = names.get(told["language"], told["language"])
        return chunks

    def _general(self, inputs: Any, timed: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        """Uses generate() with options that the search for speech does not follow, such as a repetition penalty."""
        if isinstance(inputs, (str, os.PathLike, bytes, dict)) or timed:
            names = self.model._general(options, options["generation_config"])
            raise UnsupportedError(f"{', '.join(names)}: with this option the pipeline takes samples "
                                   "at 16 000 Hz, and gives no timestamps")
        features = self.feature_extractor(_one_channel(inputs), sampling_rate=16000)
        return {"text": self.tokenizer.batch_decode(self.model.generate(features.input_features, **options),
                                                    skip_special_tokens=True)[0]}


def _one_channel(samples: Any) -> np.ndarray:
    """Returns samples [n] or [channels, n], channels first as torchaudio and Transformers have them, as the channels' mean."""
    samples = samples_of(samples)
    if samples.ndim not in (1, 2):
        raise ValueError(f"samples have the shape {list(samples.shape)}; expected [samples] or [channels, samples]")
    return np.ascontiguousarray(samples.mean(0), np.float32) if samples.ndim == 2 else samples


def _wav(samples: np.ndarray, rate: int) -> bytes:
    """Returns samples as a WAV file of 32-bit floats."""
    data = np.ascontiguousarray(samples, "<f4").tobytes()
    form = struct.pack("<HHIIHH", 3, 1, rate, rate * 4, 4, 32)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + \
        struct.pack("<I", len(data)) + data


_TASKS = {"text-generation": TextGenerationPipeline, "automatic-speech-recognition": AutomaticSpeechRecognitionPipeline}


@overload
def pipeline(task: Literal["text-generation"], model: Any = None, config: Any = None, tokenizer: Any = None,
             feature_extractor: Any = None, **kwargs: Any) -> TextGenerationPipeline: ...


@overload
def pipeline(task: Literal["automatic-speech-recognition"], model: Any = None, config: Any = None, tokenizer: Any = None,
             feature_extractor: Any = None, **kwargs: Any) -> AutomaticSpeechRecognitionPipeline: ...


@overload
def pipeline(task: Optional[str] = None, model: Any = None, config: Any = None, tokenizer: Any = None,
             feature_extractor: Any = None, **kwargs: Any) -> Any: ...


def pipeline(task: Optional[str] = None, model: Any = None, config: Any = None, tokenizer: Any = None,
             feature_extractor: Any = None, **kwargs: Any) -> Any:
    """Makes a pipeline.

    task: "text-generation", or "automatic-speech-recognition"; without it, what the model is for.  model: a directory, a
    .gguf file, a hub id in the local cache, or an open model.  tokenizer, feature_extractor: an object, or the name of a
    model whose own it is; without them, those of the model.  config is ignored with a warning.  Further arguments are
    options of the pipeline's calls.
    """
    if model is None:
        raise ValueError("pipeline() needs a model: a directory, a .gguf file, a hub id in the local cache, or an open model")
    if config is not None:
        notice("pipeline() ignores config: the configuration of a model is that of its files")
    if task is None:
        kind = getattr(model, "config", None) or PretrainedConfig.from_pretrained(
            model, **{k: kwargs[k] for k in download.ARGUMENTS if k in kwargs})
        task = "automatic-speech-recognition" if getattr(kind, "model_type", "") == "whisper" else "text-generation"
    if task not in _TASKS:
        raise UnsupportedError(f"pipeline({task!r}): this version has {' and '.join(map(repr, _TASKS))}")
    if feature_extractor is not None:
        kwargs["feature_extractor"] = feature_extractor
    return _TASKS[task](model, tokenizer, **kwargs)
