"""What stands before and behind a speech model: features of samples, the tokenizer of Whisper, and the two as a processor."""
import json
import os
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import download, files
from ._arrays import is_torch, like, tensors, to_numpy, want_torch
from ._lib import address, check, lib
from .batch_encoding import BatchEncoding
from .configuration import read_config
from .errors import ArgumentError, MissingError, UnsupportedError
from .languages import language_id, language_names
from .tokenization import TOKENIZERS, PreTrainedTokenizer
from .tokenizer_files import read_object, write_object
from .tokenizer_rows import FIRST, SECOND, Part
from .utils.logging import notice

_HOP, _WINDOW = 160, 400  # samples from one frame of features to the next, and of a frame
_MARK = re.compile(r"<\|\d+\.\d+\|>")
_END = "<|endoftext|>"
_MARKED = ("language", "task", "predict_timestamps")  # what says which marks a text begins with
_PROCESSOR = "processor_config.json"
_FEATURES = (_PROCESSOR, "preprocessor_config.json")  # files that say how features are made


class BatchFeature(BatchEncoding):
    """Features and masks by name: ``f["input_features"]``, ``f.input_features``, ``model.generate(**f)``."""

    def to(self, *args: Any, **kwargs: Any) -> "BatchFeature":
        """Returns itself.  A dtype of torch, ``f.to(device, torch.float16)``, casts tensors of floats; kvik computes in float32."""
        given = [*args, kwargs.get("device"), kwargs.get("dtype")]
        dtype = next((x for x in given if type(x).__name__ == "dtype"), None)
        super().to(next((x for x in given if x is not None and x is not dtype), None))
        for name, value in self.data.items():
            if dtype is not None and is_torch(value) and value.is_floating_point():
                self.data[name] = value.to(dtype)
        return self


def _read(path: str) -> Dict[str, Any]:
    """Returns what a directory says of the features: a file of their own, or the part of the processor's file.

    As in Transformers the processor's file counts where a directory has both.
    """
    for name in _FEATURES:
        file = os.path.join(path, name)
        if files.exists(file):
            values = files.read_object(file)
            found = values.get("feature_extractor", {} if name == _PROCESSOR else values)
            if isinstance(found, dict) and found:
                return found
    return {}


def _no_push(push_to_hub: bool) -> None:
    if push_to_hub:
        raise UnsupportedError("save_pretrained() does not take push_to_hub: kvik does not use the network")


class WhisperFeatureExtractor:
    """Makes log-mel features of samples, as Whisper reads them.

    Attributes, from preprocessor_config.json: ``feature_size`` (bins), ``sampling_rate`` (16 000), ``chunk_length`` (seconds of
    a window), ``hop_length`` (160), ``n_fft`` (400), ``padding_value``, ``padding_side`` ("right"), ``dither`` (0),
    ``return_attention_mask``; ``n_samples`` and ``nb_max_frames`` of a window follow from them.
    """

    model_input_names = ["input_features"]

    def __init__(self, feature_size: int = 80, sampling_rate: int = 16000, hop_length: int = 160, chunk_length: int = 30,
                 n_fft: int = 400, padding_value: float = 0.0, dither: float = 0.0, return_attention_mask: bool = False,
                 padding_side: str = "right", **kwargs: Any) -> None:
        if (hop_length, n_fft, sampling_rate) != (_HOP, _WINDOW, 16000) or dither:
            raise UnsupportedError(f"features with hop_length={hop_length}, n_fft={n_fft}, sampling_rate={sampling_rate} and "
                                   f"dither={dither}; kvik computes those of Whisper: 160, 400, 16000 and 0")
        for name, value in (("feature_size", feature_size), ("chunk_length", chunk_length)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"{name}={value!r}: expected an integer above 0")
        if padding_side != "right":
            raise UnsupportedError(f"padding_side={padding_side!r}: recordings are padded on the right")
        self.feature_size, self.sampling_rate, self.hop_length = feature_size, sampling_rate, hop_length
        self.chunk_length, self.n_fft, self.padding_value = chunk_length, n_fft, padding_value
        self.return_attention_mask, self.padding_side, self.dither = return_attention_mask, padding_side, dither
        self.n_samples = chunk_length * sampling_rate
        self.nb_max_frames = self.n_samples // hop_length

    @classmethod
    def from_pretrained(cls, name: Any, **kwargs: Any) -> "WhisperFeatureExtractor":
        """Reads processor_config.json or preprocessor_config.json of a model's directory or hub id.

        Without both, the number of bins and the length of a window are those of the model.
        """
        path = download.take(name, kwargs)
        values = _read(path)
        if not values:
            config = read_config(path)
            bins = config.get("num_mel_bins")
            if not bins:
                raise MissingError(f"{path} has neither preprocessor_config.json nor processor_config.json, so it is no speech model")
            values = {"feature_size": bins, "chunk_length": config.get("max_source_positions", 1500) // 50}
        known = cls.__init__.__code__.co_varnames
        return cls(**{k: v for k, v in {**values, **kwargs}.items() if k in known and k not in ("self", "kwargs")})

    def to_dict(self) -> Dict[str, Any]:
        """Returns the attributes, and the name of the class as ``feature_extractor_type``."""
        return {**self.__dict__, "feature_extractor_type": type(self).__name__}

    def to_json_string(self) -> str:
        """Returns to_dict() as JSON."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def save_pretrained(self, save_directory: Union[str, "os.PathLike[str]"], push_to_hub: bool = False, **_: Any) -> List[str]:
        """Writes preprocessor_config.json, as Transformers does, into a directory, which it makes; returns its path in a list."""
        _no_push(push_to_hub)
        os.makedirs(save_directory, exist_ok=True)
        return [write_object(save_directory, _FEATURES[1], dict(sorted(self.to_dict().items())))]

    def __call__(self, raw_speech: Any, truncation: bool = True, pad_to_multiple_of: Optional[int] = None,
                 return_tensors: Optional[str] = None, return_attention_mask: Optional[bool] = None,
                 padding: Any = "max_length", max_length: Optional[int] = None, sampling_rate: Optional[int] = None,
                 do_normalize: Optional[bool] = None, device: Any = None, **_: Any) -> BatchFeature:
        """Computes the features of one recording or of several: samples of one channel, full scale 1.

        raw_speech: an array or a tensor [n] or [batch, n], a list of numbers, or a list of arrays.  padding: "max_length"
        (to max_length samples, default a window), "longest", or False.  truncation cuts at max_length.  For recordings of
        more than a window: truncation=False, padding="longest", return_attention_mask=True.

        Returns ``input_features`` f32 [batch, feature_size, samples / 160] (numpy, or torch with return_tensors="pt"), and with
        return_attention_mask ``attention_mask`` int32 [batch, frames], 1 for frames of the recording.  The values are those
        of Transformers within 1e-4.  Raises ValueError for another sampling rate, for integers (Transformers takes
        them as they are, which gives features of another loudness), or for several channels.
        """
        if sampling_rate is None:
            notice("features without sampling_rate: the samples are taken for 16 000 a second")
        elif sampling_rate != self.sampling_rate:
            raise ValueError(f"the samples have a sampling rate of {sampling_rate}; the model hears {self.sampling_rate}. "
                             "Resample them first, or give the file to pipeline('automatic-speech-recognition')")
        rows = _rows_of(raw_speech)
        limit = max_length or self.n_samples
        if truncation:
            rows = [row[:limit] for row in rows]
        lengths = [row.size for row in rows]
        width = max(lengths)
        if padding == "max_length":
            width = max(width, limit)
        elif padding not in (True, "longest", False, None, "do_not_pad"):
            raise ValueError(f"padding={padding!r}: expected 'max_length', 'longest' or False")
        elif padding in (False, None, "do_not_pad") and len(set(lengths)) > 1:
            raise ValueError("the recordings have different lengths, so they make no tensor; pass padding='longest'")
        if pad_to_multiple_of:
            width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
        samples = np.full((len(rows), width), self.padding_value, np.float32)
        for i, row in enumerate(rows):
            samples[i, :row.size] = _normal(row) if do_normalize else row
        frames = max(width, _WINDOW) // _HOP
        out = np.empty((len(rows), self.feature_size, frames), np.float32)
        for i in range(len(rows)):
            check(lib.kvik_speech_features(address(samples[i]), width, self.feature_size, address(out[i])))
        torch = getattr(return_tensors, "value", return_tensors) == "pt" and want_torch() is not None
        values = {"input_features": like(out, torch)}
        if self.return_attention_mask if return_attention_mask is None else return_attention_mask:
            mask = (np.arange(frames)[None] * _HOP < np.array(lengths)[:, None]).astype(np.int32)
            values["attention_mask"] = like(mask, torch)
        return BatchFeature(values)

    def __repr__(self) -> str:
        return f"WhisperFeatureExtractor(feature_size={self.feature_size}, chunk_length={self.chunk_length})"


def _rows_of(speech: Any) -> List[np.ndarray]:
    several = isinstance(speech, (list, tuple)) and bool(speech) and not np.isscalar(speech[0])
    rows = [to_numpy(row) for row in speech] if several else [to_numpy(speech)]
    for row in rows:
        if row.ndim == 2 and row.shape[0] > row.shape[1]:
            raise ValueError(f"samples have the shape {list(row.shape)}; expected [batch, samples] of one channel each")
        if row.dtype.kind in "iub" and row.size:  # Transformers takes them as they are, and the features are others
            raise ValueError(f"samples of the type {row.dtype}; expected floats of full scale 1: divide int16 by 32768")
    rows = [to_numpy(row, np.float32) for row in rows]
    if len(rows) == 1 and not several and rows[0].ndim == 2:
        rows = list(rows[0])
    for row in rows:
        if row.ndim != 1:
            raise ValueError(f"a recording of the shape {list(row.shape)}; expected samples of one channel, [n]")
        if not row.size:
            raise ValueError("a recording has no samples")
    if not rows:
        raise ValueError("no recording was given")
    return rows


def _normal(row: np.ndarray) -> np.ndarray:
    return np.asarray((row - row.mean()) / np.sqrt(row.var() + 1e-7))


class WhisperTokenizer(PreTrainedTokenizer):
    """The tokenizer of a speech model, with marks for languages, tasks and times.

    ``language``, ``task`` and ``predict_timestamps`` (or set_prefix_tokens) say with which marks an encoded text begins.
    """

    _kept = (*PreTrainedTokenizer._kept, *_MARKED)

    def __init__(self, path: str, **kwargs: Any) -> None:
        saved = read_object(path, "tokenizer_config.json")
        own = {k: kwargs.pop(k, None) for k in _MARKED}
        own = {k: saved.get(k) if v is None else v for k, v in own.items()}
        self.language, self.task = own["language"], own["task"]  # before the rest, which may ask what a text begins with
        self.predict_timestamps = bool(own["predict_timestamps"])
        super().__init__(path, **kwargs)
        self._processor_class: Optional[str] = self.init_kwargs.get("processor_class")
        for role in ("bos_token", "eos_token", "unk_token"):  # what files leave out, as in Transformers
            if getattr(self, role) is None and self._mark(_END) >= 0:
                setattr(self, role, _END)

    def _saved(self) -> Dict[str, Any]:
        return {**{name: getattr(self, name) for name in _MARKED}, "tokenizer_class": "WhisperTokenizer",
                "processor_class": self._processor_class}

    def _mark(self, text: str) -> int:
        found = self._id(text)
        return -1 if found is None else found

    @property
    def timestamp_begin(self) -> int:
        """The id of the time 0.00; ids from it on are times, 0.02 seconds apart."""
        return self._mark("<|notimestamps|>") + 1

    def set_prefix_tokens(self, language: Optional[str] = None, task: Optional[str] = None,
                          predict_timestamps: Optional[bool] = None) -> None:
        """Sets the language, the task, and whether times are written; None leaves one as it is.  Raises ArgumentError."""
        before = self.language, self.task, self.predict_timestamps
        self.language = self.language if language is None else language
        self.task = self.task if task is None else task
        self.predict_timestamps = self.predict_timestamps if predict_timestamps is None else predict_timestamps
        try:
            self.prefix_tokens
        except ArgumentError:
            self.language, self.task, self.predict_timestamps = before
            raise

    @property
    def prefix_tokens(self) -> List[int]:
        """The ids that a text begins with: the start, the language, the task, and the mark of a text without times."""
        ids = [self._mark("<|startoftranscript|>")]
        if self.language is not None:
            codes = set(language_names().values())
            known = {f"<|{c}|>": self._mark(f"<|{c}|>") for c in codes if self._mark(f"<|{c}|>") >= 0}
            ids.append(language_id(known, self.language))
        if self.task is not None:
            if self.task not in ("transcribe", "translate"):
                raise ArgumentError(f"task {self.task!r}: 'transcribe' and 'translate' are supported")
            ids.append(self._mark(f"<|{self.task}|>"))
        if not self.predict_timestamps:
            ids.append(self._mark("<|notimestamps|>"))
        return ids

    def get_decoder_prompt_ids(self, task: Optional[str] = None, language: Optional[str] = None,
                               no_timestamps: bool = True) -> List[Tuple[int, int]]:
        """Returns the marks behind the start as [(position, id)], as forced_decoder_ids has them."""
        self.set_prefix_tokens(language, task, not no_timestamps)
        return [(i + 1, token) for i, token in enumerate(self.prefix_tokens[1:])]

    def get_prompt_ids(self, text: str, return_tensors: Optional[str] = "np") -> Any:
        """Returns the ids of a text that a recording may continue, [n], for ``prompt_ids=`` of generate()."""
        ids = self._ids(" " + text.strip())
        for i in ids:
            if not self.decode([i], True) and super().decode([i]):
                raise ArgumentError(f"the prompt spells the special token {super().decode([i])}")
        ids = [self._mark("<|startofprev|>"), *ids]
        return ids if return_tensors is None else tensors([ids], return_tensors)[0]

    def _layout(self, pair: bool, special: bool = True) -> List[Part]:
        texts = [Part(FIRST, 0), Part(SECOND, 1)][:1 + pair]
        if not special:
            return texts
        end = self.eos_token_id if self.eos_token_id is not None else self._mark(_END)
        return [*(Part(i, 0) for i in self.prefix_tokens), *texts, Part(end, int(pair))]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: Optional[bool] = None,
               output_offsets: bool = False, time_precision: float = 0.02, decode_with_timestamps: bool = False,
               normalize: bool = False, basic_normalize: bool = False, remove_diacritics: bool = False, **_: Any) -> Any:
        """Returns the text of ids.  Times are left out, unless decode_with_timestamps writes them as "<|1.08|>".

        skip_special_tokens leaves out the prompt as well.  output_offsets returns {"text", "offsets"}: the text and the
        beginning and end, in seconds, of each part between two times.  Times of several windows in one row count on.
        Raises UnsupportedError for the normalizers of texts.
        """
        if normalize or basic_normalize or remove_diacritics:
            raise UnsupportedError("kvik has no normalizers of texts; decode without normalize and basic_normalize")
        array = np.atleast_1d(to_numpy(token_ids))
        if array.ndim > 1:
            return self.batch_decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces,
                                     output_offsets=output_offsets, time_precision=time_precision,
                                     decode_with_timestamps=decode_with_timestamps)
        ids = [int(i) for i in array]
        if skip_special_tokens:
            ids = self._without_prompt(ids)
        parts = self._parts(ids, time_precision) if decode_with_timestamps or output_offsets else []
        if decode_with_timestamps:
            text = "".join(f"<|{p:.2f}|>" if isinstance(p, float) else
                           super(WhisperTokenizer, self).decode(p, skip_special_tokens, clean_up_tokenization_spaces) for p in parts)
        else:
            first = self.timestamp_begin or 2**31
            text = super().decode([i for i in ids if i < first], skip_special_tokens, clean_up_tokenization_spaces)
            text = _MARK.sub("", text)
        return {"text": text, "offsets": self._offsets(parts)} if output_offsets else text

    def _without_prompt(self, ids: List[int]) -> List[int]:
        if not ids or ids[0] != self._mark("<|startofprev|>"):
            return ids
        start = self._mark("<|startoftranscript|>")
        return ids[ids.index(start):] if start in ids else []

    def _parts(self, ids: Sequence[int], precision: float) -> List[Any]:
        """Returns times (float) and the lists of ids between them.  A time that goes back begins a new window, which begins
        where the one before it ended: at its last pair of times, or, behind a single one, at its end."""
        first = self.timestamp_begin or 2**31
        window = 30.0 if precision == 0.02 else 1500 * precision
        parts: List[Any] = []
        base, last, single = 0.0, 0.0, False
        for k, token in enumerate(ids):
            if token < first:
                if not parts or isinstance(parts[-1], float):
                    parts.append([])
                parts[-1].append(token)  # pyright: ignore[reportAttributeAccessIssue]
                continue
            time = (token - first) * precision
            if time < last:
                base += window if single else last
            single = k == 0 or ids[k - 1] < first
            last = time
            parts.append(float(base + time))
        return parts

    def _offsets(self, parts: List[Any]) -> List[Dict[str, Any]]:
        out = []
        for i in range(1, len(parts) - 1):
            if isinstance(parts[i], list) and isinstance(parts[i - 1], float) and isinstance(parts[i + 1], float):
                out.append({"text": super().decode(parts[i], False), "timestamp": (round(parts[i - 1], 2), round(parts[i + 1], 2))})
        return out


WhisperTokenizerFast = WhisperTokenizer


TOKENIZERS["<|startoftranscript|>"] = WhisperTokenizer


class WhisperProcessor:
    """A feature extractor and a tokenizer: ``processor(samples, sampling_rate=16000, return_tensors="np")``.

    Attributes: ``feature_extractor``, ``tokenizer``.  What the tokenizer has (decode, batch_decode, get_prompt_ids,
    get_decoder_prompt_ids), the processor has.
    """

    def __init__(self, feature_extractor: Any, tokenizer: Any) -> None:
        self.feature_extractor, self.tokenizer = feature_extractor, tokenizer

    @classmethod
    def from_pretrained(cls, name: Any, **kwargs: Any) -> "WhisperProcessor":
        """Opens both of a directory, or of a hub id in the local cache."""
        path = download.take(name, kwargs)
        own = {k: kwargs[k] for k in _MARKED if k in kwargs}
        return cls(WhisperFeatureExtractor.from_pretrained(path), WhisperTokenizer.from_pretrained(path, **own))

    def to_dict(self) -> Dict[str, Any]:
        """Returns what processor_config.json holds: ``feature_extractor``, its attributes, and ``processor_class``."""
        return {"feature_extractor": dict(sorted(self.feature_extractor.to_dict().items())), "processor_class": type(self).__name__}

    def save_pretrained(self, save_directory: Union[str, "os.PathLike[str]"], push_to_hub: bool = False, **_: Any) -> List[str]:
        """Writes the files of the tokenizer and processor_config.json into a directory, which it makes, as Transformers does.

        Both AutoProcessor of kvik and that of Transformers open the directory.  Returns the path of processor_config.json in a list.
        """
        _no_push(push_to_hub)
        self.tokenizer._processor_class = type(self).__name__
        self.tokenizer.save_pretrained(save_directory)
        return [write_object(save_directory, _PROCESSOR, self.to_dict())]

    def __call__(self, audio: Any = None, *args: Any, text: Any = None, sampling_rate: Optional[int] = None,
                 **kwargs: Any) -> Any:
        """Computes the features of audio, see WhisperFeatureExtractor, or encodes text; with both, ``labels`` are its ids."""
        if audio is None and text is None:
            raise ValueError("a processor needs audio or text")
        if audio is None:
            return self.tokenizer(text, **kwargs)
        out = self.feature_extractor(audio, *args, sampling_rate=sampling_rate, **kwargs)
        if text is not None:
            out["labels"] = self.tokenizer(text, return_tensors=kwargs.get("return_tensors"))["input_ids"]
        return out

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        """As decode() of the tokenizer."""
        return self.tokenizer.decode(*args, **kwargs)

    def batch_decode(self, *args: Any, **kwargs: Any) -> Any:
        """As batch_decode() of the tokenizer."""
        return self.tokenizer.batch_decode(*args, **kwargs)

    def get_decoder_prompt_ids(self, task: Optional[str] = None, language: Optional[str] = None,
                               no_timestamps: bool = True) -> List[Tuple[int, int]]:
        """As get_decoder_prompt_ids() of the tokenizer."""
        return list(self.tokenizer.get_decoder_prompt_ids(task=task, language=language, no_timestamps=no_timestamps))

    def get_prompt_ids(self, text: str, return_tensors: Optional[str] = "np") -> Any:
        """As get_prompt_ids() of the tokenizer."""
        return self.tokenizer.get_prompt_ids(text, return_tensors=return_tensors)

    def __repr__(self) -> str:
        return f"WhisperProcessor({self.feature_extractor!r}, {self.tokenizer!r})"


def _is_whisper(path: str) -> bool:
    """True if a directory has a model of this kind, or what save_pretrained() of its processor has written."""
    if files.exists(os.path.join(path, "config.json")) or not os.path.isdir(path):
        return bool(read_config(path).get("model_type") == "whisper")
    return any(read_object(path, name).get("processor_class") == "WhisperProcessor" for name in _FEATURES)


class AutoProcessor:
    """Opens the processor of a speech model, and the tokenizer of any other."""

    def __init__(self) -> None:
        raise ArgumentError("AutoProcessor is not made directly; call AutoProcessor.from_pretrained(name)")

    @staticmethod
    def from_pretrained(name: Any, **kwargs: Any) -> Any:
        """Opens the processor of a directory, or of a hub id in the local cache."""
        path = download.take(name, kwargs)
        return (WhisperProcessor if _is_whisper(path) else PreTrainedTokenizer).from_pretrained(path, **kwargs)


class AutoFeatureExtractor:
    """Opens the feature extractor of a speech model."""

    def __init__(self) -> None:
        raise ArgumentError("AutoFeatureExtractor is not made directly; call AutoFeatureExtractor.from_pretrained(name)")

    from_pretrained = WhisperFeatureExtractor.from_pretrained


__all__ = ["AutoFeatureExtractor", "AutoProcessor", "BatchFeature", "WhisperFeatureExtractor", "WhisperProcessor",
           "WhisperTokenizer", "WhisperTokenizerFast"]
