"""Speech models (Whisper): features or recordings to tokens and text."""
import ctypes
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Literal, Optional, Tuple, Union, overload

import numpy as np

from ._arrays import integers, is_torch, like, samples_of, to_numpy
from ._lib import address, call, encode, lib
from .encoder import EncoderInput, encoder_of
from .errors import ArgumentError, UnsupportedError
from .generation.configuration_utils import GenerationConfig, merged, option_names
from .generation.streamers import readers_told
from .hearing import Hearing
from .languages import language_id
from .outputs import ModelOutput
from .progress import Bar
from .seq2seq import Seq2SeqModel
from .store import Settings, settings_of
from .tokenization import AutoTokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from ._typing import Array, Hooks, Options, Past, SpeechArguments, SpeechForward, TranscribeArguments
    from .outputs import Seq2SeqLMOutput

# Options of generate() that the search of the speech interface follows; any other one makes the general search run.
_OWN = {f for f in Settings.__dataclass_fields__} | {"max_new_tokens", "max_length", "seed", "return_dict_in_generate"}
_BEAMS = ("num_beams", "length_penalty", "early_stopping")
_NEUTRAL = {"do_sample": False, "num_return_sequences": 1, "output_scores": False, "output_logits": False,
            "output_attentions": False, "output_hidden_states": False, "use_cache": True}
_OF_SPEECH = ("return_timestamps", "task", "language", "is_multilingual", "condition_on_prev_tokens",
              "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")


class SpeechOutput(ModelOutput):
    """Of generate() of a speech model with return_segments or return_token_timestamps.

    ``sequences`` [rows, tokens]; ``token_timestamps`` f32 [rows, tokens], when each token ends, in seconds; ``segments``: for
    each row a list of ``start``, ``end`` (seconds), ``tokens``, ``text``, ``temperature``, ``avg_logprob``,
    ``compression_ratio``, ``no_speech_prob``, ``level`` (of the fifth loudest frame of 25 ms, in decibels of full scale; nan where only
    features are known) and ``no_speech`` (the level is below -60: nobody speaks, and the text is invented), and with times of tokens ``token_timestamps`` and ``words``.
    """

    _fields = ("sequences", "token_timestamps", "segments")
    if TYPE_CHECKING:
        @property
        def sequences(self) -> Array: ...
        @property
        def token_timestamps(self) -> Array: ...
        segments: List[List[Dict[str, Any]]]


class SpeechSeq2SeqModel(Seq2SeqModel):
    """A model that turns recordings into text: the encoder reads input_features [batch, bins, frames]."""

    main_input_name = "input_features"

    @overload  # type: ignore[override]
    def forward(self, input_features: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,
                decoder_attention_mask: Any = None, encoder_outputs: Optional[EncoderInput] = None,
                past_key_values: "Past" = None, *, return_dict: Optional[Literal[True]] = None,
                **kwargs: "Unpack[SpeechForward]") -> "Seq2SeqLMOutput": ...

    @overload
    def forward(self, input_features: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,
                decoder_attention_mask: Any = None, encoder_outputs: Optional[EncoderInput] = None,
                past_key_values: "Past" = None, *, return_dict: Literal[False],
                **kwargs: "Unpack[SpeechForward]") -> Tuple[Any, ...]: ...

    def forward(self, input_features: Any = None, attention_mask: Any = None, decoder_input_ids: Any = None,  # pyright: ignore[reportIncompatibleMethodOverride]
                decoder_attention_mask: Any = None, encoder_outputs: Any = None, past_key_values: Any = None, **kwargs: Any) -> Any:
        """As forward() of a model with an encoder, with input_features f32 [batch, bins, frames] of one window.

        attention_mask is accepted and not used: every window is read whole, as Transformers reads it.
        """
        return super().forward(None, None, decoder_input_ids, decoder_attention_mask, encoder_outputs, past_key_values,
                               input_features=input_features, **kwargs)

    if TYPE_CHECKING:
        __call__ = forward  # type: ignore[assignment]

    # -- what the model's files say

    def _says(self, name: str) -> Any:
        value = getattr(self.generation_config, name, None)
        return value if value is not None else getattr(self.config, name, None)

    def _window(self) -> int:
        e = encoder_of(self._handle)
        return int(e.rows * e.stride)

    def detect_language(self, input_features: Any = None, encoder_outputs: Any = None, generation_config: Any = None,
                        num_segment_frames: Optional[int] = None) -> "Array":
        """Returns the token id of the language of each row, [batch] int64: the likeliest of the model's languages.

        input_features: [batch, bins, frames]; the first window is heard.  Raises ArgumentError for a model of one language.
        """
        languages = self._says("lang_to_id")
        if not languages:
            raise ArgumentError("generation_config.json has no lang_to_id, so the model knows no languages to choose from")
        if input_features is None and encoder_outputs is None:
            raise ArgumentError("give either input_features or encoder_outputs")
        if input_features is not None:
            input_features = input_features[:, :, :self._window()]
        given: Any = encoder_outputs if encoder_outputs is not None else input_features
        rows = given.rows if isinstance(given, EncoderInput) else len(given)
        begin = np.full((rows, 1), self._start(), np.int64)
        logits = self(input_features=input_features, encoder_outputs=encoder_outputs, decoder_input_ids=begin,
                      use_cache=False, return_dict=True).logits[:, -1]
        ids = np.array(sorted(languages.values()), np.int64)
        return like(ids[logits[:, ids].argmax(-1)], is_torch(input_features))  # type: ignore[no-any-return]

    def _start(self) -> int:
        start = self._says("decoder_start_token_id")
        return int(start if start is not None else encoder_of(self._handle).decoder_start_token_id)

    def _prompt_text(self, prompt_ids: Any) -> Optional[str]:
        if prompt_ids is None:
            return None
        ids = integers(prompt_ids, "prompt_ids").ravel().tolist()
        if ids and ids[0] == self._says("prev_sot_token_id"):
            ids = ids[1:]
        return str(AutoTokenizer.from_pretrained(self.name_or_path).decode(ids))

    # -- generate

    @overload  # type: ignore[override]
    def generate(self, input_features: Any = None, generation_config: "Options" = None, logits_processor: "Hooks" = None,
                 stopping_criteria: "Hooks" = None, *, return_segments: Literal[False] = False,
                 return_token_timestamps: Optional[Literal[False]] = None,
                 return_dict_in_generate: Optional[Literal[False]] = None, **kwargs: "Unpack[SpeechArguments]") -> "Array": ...

    @overload
    def generate(self, input_features: Any = None, generation_config: "Options" = None, logits_processor: "Hooks" = None,
                 stopping_criteria: "Hooks" = None, *, return_segments: bool = False,
                 return_token_timestamps: Optional[bool] = None, return_dict_in_generate: Optional[bool] = None,
                 **kwargs: "Unpack[SpeechArguments]") -> "Union[SpeechOutput, Any]": ...

    def generate(self, input_features: Any = None, generation_config: Any = None,  # pyright: ignore[reportIncompatibleMethodOverride]
                 logits_processor: Any = None, stopping_criteria: Any = None, prefix_allowed_tokens_fn: Any = None,
                 synced_gpus: Optional[bool] = None, return_timestamps: Optional[bool] = None, task: Optional[str] = None,
                 language: Any = None, is_multilingual: Optional[bool] = None, prompt_ids: Any = None,
                 prompt_condition_type: Optional[str] = None, condition_on_prev_tokens: Optional[bool] = None,
                 temperature: Any = None, compression_ratio_threshold: Any = None, logprob_threshold: Any = None,
                 no_speech_threshold: Any = None,
                 num_segment_frames: Optional[int] = None, attention_mask: Any = None, time_precision: float = 0.02,
                 time_precision_features: float = 0.01, return_token_timestamps: Optional[bool] = None,
                 return_segments: bool = False, return_dict_in_generate: Optional[bool] = None,
                 force_unique_generate_call: Optional[bool] = None, monitor_progress: Any = None, **kwargs: Any) -> Any:
        """Transcribes input_features f32 [batch, bins, frames], as a processor makes them.

        One window (30 seconds: 3000 frames), or more of them with return_timestamps=True and, for several rows, the
        attention_mask [batch, frames] of the processor.  language: "German", "de", or a list with one for each row; default:
        the language that is heard.  task: "transcribe" or "translate".  temperature: a number, or several that are tried
        in turn until a text passes compression_ratio_threshold, logprob_threshold and no_speech_threshold.
        prompt_ids: of processor.get_prompt_ids().  condition_on_prev_tokens shows each window the text before it.
        max_new_tokens is the limit of each pass over a window; so is max_length, which counts new tokens too
        (Transformers raises it by the length of the prompt with each further window).  A window whose text has time marks,
        which a model may write unasked, is heard again from the last of them, so the result can have more tokens.  Without a
        task kvik transcribes; Transformers leaves the token of the task out where neither a language nor a task is known.

        Returns the new token ids [rows, tokens], int64, padded at the right, without the prompt and the end-of-sequence
        token.  With return_token_timestamps or return_segments a SpeechOutput.  num_beams, length_penalty and
        early_stopping search each window with beams at temperature 0, and judge its best text; higher temperatures draw
        one text.  do_sample, num_return_sequences, processors, streamers, a cache object and return_dict_in_generate work
        for one window without timestamps; the result then is that of generate() of a model with an encoder, and the
        prompt of its sequences is part of them where return_dict_in_generate asks for a dictionary.

        Raises ArgumentError for features of another shape, for an unknown language and for more than one window without
        timestamps; UnsupportedError where options cannot go together.
        """
        with readers_told(kwargs.get("streamer")):
            values = merged(self.generation_config, generation_config, kwargs)
            said = {"task": task, "language": language, "is_multilingual": is_multilingual,
                    "return_timestamps": return_timestamps, "condition_on_prev_tokens": condition_on_prev_tokens,
                    "compression_ratio_threshold": compression_ratio_threshold, "logprob_threshold": logprob_threshold,
                    "no_speech_threshold": no_speech_threshold}
            options = {name: value if value is not None else values.get(name) for name, value in said.items()}
            self._take_forced(options, kwargs, generation_config)
            if options["task"] not in (None, "transcribe", "translate"):
                raise ArgumentError(f"task {options['task']!r}: 'transcribe' and 'translate' are supported")
            if num_segment_frames not in (None, self._window()):
                raise UnsupportedError(f"num_segment_frames={num_segment_frames}: windows of this model have {self._window()} frames")
            general = self._general(kwargs, generation_config)
            general.update({k: v for k, v in (("logits_processor", logits_processor), ("stopping_criteria", stopping_criteria),
                                              ("prefix_allowed_tokens_fn", prefix_allowed_tokens_fn)) if v is not None})
            timed = options["return_timestamps"] or return_token_timestamps or return_segments
            want_dict = return_dict_in_generate if return_dict_in_generate is not None else values.get("return_dict_in_generate")
            if want_dict and not timed:
                general["return_dict_in_generate"] = True
            if general or self._says("no_timestamps_token_id") is None:
                if timed:
                    raise UnsupportedError(f"timestamps and {', '.join(general) or 'this model'} do not go together; leave out "
                                           "one of them")
                if prompt_ids is not None or temperature not in (None, 0, 1):
                    general.setdefault("temperature", temperature)
                if np.ndim(input_features) == 3 and np.shape(input_features)[2] > self._window():
                    why = f"{', '.join(general)} hear one window at a time" if general else \
                        "a model without no_timestamps_token_id in its generation_config.json hears one"
                    raise UnsupportedError(f"input_features has {np.shape(input_features)[2]} frames and a window {self._window()}: "
                                           f"{why}; give the windows one by one" + (", or leave these options out" if general else ""))
                return self._decode(input_features, options, generation_config, general, kwargs, prompt_ids, bool(want_dict))
            source = EncoderInput(self._handle, features=input_features)
            most = values.get("max_new_tokens") or self._given(kwargs, generation_config, "max_length")
            options.update(temperature=temperature, prompt=self._prompt_text(prompt_ids), seed=kwargs.get("seed"),
                           word_timestamps=bool(return_token_timestamps), max_new_tokens=most,
                           **{name: values.get(name) for name in _BEAMS})
            if prompt_condition_type == "all-segments" and not options["condition_on_prev_tokens"]:
                raise ArgumentError("prompt_condition_type='all-segments' needs condition_on_prev_tokens=True")
            texts = self._hear(source, options, attention_mask, kwargs, monitor_progress)
            return self._answer(texts, source.torch, bool(return_token_timestamps), bool(return_segments or want_dict))

    def _take_forced(self, options: Dict[str, Any], kwargs: Dict[str, Any], config: Any) -> None:
        """Takes forced_decoder_ids, [(position, id), ...], for a language and a task where options have neither.

        Older programs say them so, in kwargs, in a generation_config, or in model.config.  Raises ArgumentError for other tokens.
        """
        given = kwargs.pop("forced_decoder_ids", None) or merged(None, config, {}).get("forced_decoder_ids")
        if options.get("language") is not None or options.get("task") is not None:
            return
        known = {i: ("language", token[2:-2]) for token, i in (self._says("lang_to_id") or {}).items()}
        known.update({i: ("task", name) for name, i in (self._says("task_to_id") or {}).items()})
        if given is not None and not isinstance(given, (list, tuple)):
            raise ArgumentError(f"forced_decoder_ids={given!r:.40}: expected a list of (position, id)")
        for entry in given or self._says("forced_decoder_ids") or ():
            token = entry[1] if isinstance(entry, (list, tuple)) and len(entry) == 2 else entry
            if isinstance(token, (int, np.integer)) and token in known:
                name, value = known[token]
                options[name] = value
            elif given and token is not None and token != self._says("no_timestamps_token_id"):
                raise ArgumentError(f"forced_decoder_ids has {entry!r}, which is no language and no task of the model; use language= "
                                    "and task=")

    def _completed(self, options: Dict[str, Any], config: Any = None) -> Dict[str, Any]:
        """Returns the options of a transcript with what the call does not say: of a generation_config, else of the model's own."""
        values = merged(self.generation_config, config, {k: v for k, v in options.items() if v is not None})
        self._take_forced(values, options, config)
        values["max_new_tokens"] = values.get("max_new_tokens") or self._given(options, config, "max_length")
        return {**options, **{n: values[n] for n in (*_OF_SPEECH, *_BEAMS, "max_new_tokens") if values.get(n) is not None}}

    def _given(self, kwargs: Dict[str, Any], config: Any, name: str) -> Any:
        """Returns an option that the caller gave, as an argument or in an object that differs from the model's own."""
        value = kwargs.get(name)
        if value is None and config is not None:
            value = (config if isinstance(config, dict) else config.to_dict()).get(name)
            value = None if value == self.generation_config.to_dict().get(name) else value
        return value

    def _general(self, kwargs: Dict[str, Any], config: Any) -> Dict[str, Any]:
        """Returns the options that the search for speech does not follow."""
        given = {} if config is None else config if isinstance(config, dict) else config.to_dict()
        own = self.generation_config.to_dict()
        found = {k: v for k, v in given.items() if k in option_names() and v is not None and own.get(k) != v}
        found.update({k: v for k, v in kwargs.items() if v is not None})
        return {k: v for k, v in found.items() if k not in _OWN and k not in _OF_SPEECH and k not in _BEAMS
                and not (k in _NEUTRAL and _NEUTRAL[k] == v)}

    def _hear(self, source: EncoderInput, options: Dict[str, Any], mask: Any, kwargs: Dict[str, Any],
              monitor: Any) -> List[Dict[str, Any]]:
        assert source.features is not None
        rows, _, frames = source.features.shape
        window = self._window()
        if frames > window and options["return_timestamps"] is False:
            raise ArgumentError(f"input_features has {frames} frames and a window {window}; more than one window needs "
                                "return_timestamps=True")
        if frames > window:
            options["return_timestamps"] = True
            if rows > 1 and mask is None:
                raise ArgumentError("several rows of more than one window need attention_mask, as processor(..., "
                                    "return_attention_mask=True) gives it")
        heard = [0] * rows if mask is None else [int(n) for n in (to_numpy(mask) != 0).sum(-1)]
        if len(heard) != rows:
            raise ArgumentError(f"attention_mask has {len(heard)} rows, input_features {rows}")
        languages = self._languages(options["language"], rows)
        state = np.array([[0, n or frames] for n in heard], np.int64)
        out = []
        for i in range(rows):
            def progress(seconds: float, total: float, i: int = i) -> None:
                state[i, 0] = round(seconds * 100)
                if monitor is not None:
                    monitor(like(state.copy(), source.torch))
            features = source.features[i]
            out.append(self._transcribe({**options, "language": languages[i]}, kwargs, progress, "kvik_transcribe_features",
                                        address(features), frames, heard[i]))
        return out

    def _languages(self, language: Any, rows: int) -> List[Optional[str]]:
        if language is None or isinstance(language, str):
            return [language] * rows
        if len(language) != rows or any(x is None for x in language):
            raise ArgumentError(f"language has {len(language)} entries for {rows} rows; give one name for each row, or one for all")
        return list(language)

    def _transcribe(self, options: Dict[str, Any], kwargs: Dict[str, Any], progress: Any, function: str, *args: Any,
                    on_segment: Any = None, read: Any = None) -> Dict[str, Any]:
        """Calls one of the library's functions for transcripts in a store.  read: what kvik_transcribe_stream reads with."""
        settings = settings_of({k: v for k, v in kwargs.items() if v is not None}).over(self._defaults)
        if settings.cache_implementation in ("static", "offloaded_static") and not settings.max_cache_len:
            settings = replace(settings, max_cache_len=int(lib.kvik_model_context(self._handle.pointer)))
        bar = Bar("recording", "s")
        hearing = Hearing(options, bar.beside(progress), on_segment, read)
        if read is not None:
            args = (hearing.on_sound, *args)
        with bar, self._handle.using(settings, max(8, hearing.struct.num_beams + 1)) as store:
            return hearing.run(lambda out: call(function, store.pointer, *args, ctypes.byref(hearing.struct), out))

    def transcribe(self, recording: Any, progress: Optional[Callable[[float, float], Any]] = None,
                   on_segment: Optional[Callable[[Dict[str, Any]], Any]] = None,
                   **arguments: "Unpack[TranscribeArguments]") -> Dict[str, Any]:
        """Transcribes a recording of any length: the path of a WAV, FLAC, Ogg or MP3 file, samples at 16 000 Hz
        (floats of full scale 1, or int16 or int32), or a binary file object such as the standard output of a recorder.

        on_segment(segment) receives each segment as soon as it is known.  A file object gives a WAV recording with integer or
        float samples as it comes; its segments are known when the sound of their window is there.  Quiet speech before a
        loud part can then get another text than from a file, see kvik_transcribe_stream.  Memory does not grow with the length of a file.  options: those of generate() that concern speech (language, task,
        return_timestamps, temperature, the thresholds, condition_on_prev_tokens, max_new_tokens, seed, num_beams,
        length_penalty, early_stopping), ``prompt`` (a text), ``word_timestamps``, and those of a cache.  What they leave open
        is in model.generation_config, as for generate(), but for return_timestamps: without times (``return_timestamps=False``) a
        recording can be one window long, so the model writes times unless it has none.  progress(seconds, total) is called for each window.

        Returns ``text``, ``language``, ``seconds`` and ``segments``, see SpeechOutput.  Of kvik.
        """
        options = self._completed({**arguments})
        if arguments.get("return_timestamps") is None:  # the files of published models turn them off, for generate()
            options["return_timestamps"] = self._says("no_timestamps_token_id") is not None
        if isinstance(recording, (str, os.PathLike)):
            if "://" in os.fspath(recording):
                raise ArgumentError(f"{os.fspath(recording)}: kvik downloads nothing; fetch the recording first, and give its path")
            return self._transcribe(options, options, progress, "kvik_transcribe", encode(os.fspath(recording)), on_segment=on_segment)
        if callable(getattr(recording, "read", None)):
            name = str(getattr(recording, "name", "the recording"))
            return self._transcribe(options, options, progress, "kvik_transcribe_stream", encode(name), on_segment=on_segment,
                                    read=getattr(recording, "read1", recording.read))
        samples = samples_of(recording)
        if samples.ndim != 1:
            raise ArgumentError(f"samples have the shape {list(samples.shape)}; expected [n], one channel")
        return self._transcribe(options, options, progress, "kvik_transcribe_samples", address(samples), samples.size,
                                on_segment=on_segment)

    def _answer(self, texts: List[Dict[str, Any]], torch: bool, times: bool, segments: bool) -> Any:
        pad = self._says("pad_token_id")
        pad = int(pad if pad is not None else 0)
        rows = [_joined(t["segments"], "tokens", np.int64) for t in texts]
        sequences = like(_padded(rows, pad), torch)
        if not times and not segments:
            return sequences
        more: Dict[str, Any] = {}
        if times:
            more["token_timestamps"] = like(_padded([_joined(t["segments"], "token_timestamps", np.float32) for t in texts], 0.0), torch)
        if segments:
            more["segments"] = [[{k: like(v, torch) if isinstance(v, np.ndarray) else v for k, v in s.items()}
                                 for s in t["segments"]] for t in texts]
        return SpeechOutput(sequences=sequences, **more)

    # -- the general search

    def _decode(self, features: Any, options: Dict[str, Any], config: Any, general: Dict[str, Any], kwargs: Dict[str, Any],
                prompt_ids: Any, want_dict: bool) -> Any:
        rest = {**kwargs, **general}
        rest.pop("return_dict_in_generate", None)
        encoded = rest.pop("encoder_outputs", None)
        begin, made = rest.pop("decoder_input_ids", None), False
        rows = encoded.rows if isinstance(encoded, EncoderInput) else len(features) if features is not None else 0
        if begin is None:
            begin, made = self._begin(features, encoded, options, rows, prompt_ids), True
            if not merged(self.generation_config, config, kwargs).get("max_new_tokens"):
                most = self._says("max_target_positions") or lib.kvik_model_context(self._handle.pointer)
                limit = rest.get("max_length") or self._given({}, config, "max_length") or self._says("max_length")
                rest["max_length"] = min(limit + begin.shape[1], most) if limit else most
        elif prompt_ids is not None:
            raise UnsupportedError("prompt_ids and decoder_input_ids do not go together")
        own = {k: v for k, v in merged(None, config, {}).items() if k in option_names()}
        out = super().generate(generation_config=GenerationConfig(**own), input_features=features, encoder_outputs=encoded,
                               decoder_input_ids=begin, return_dict_in_generate=want_dict, **rest)
        if want_dict or not made:
            return out
        return out[:, begin.shape[1]:]

    def _begin(self, features: Any, encoded: Any, options: Dict[str, Any], rows: int, prompt_ids: Any) -> np.ndarray:
        """Returns the tokens that the texts begin with: the prompt, the start, the language, the task, no timestamps."""
        languages, tasks = self._says("lang_to_id"), self._says("task_to_id")
        columns: List[Any] = [np.full(rows, self._start())]
        if self._says("is_multilingual") is not False and languages:
            if options["language"] is None:
                columns.append(to_numpy(self.detect_language(features, encoded)))
            else:
                columns.append([language_id(languages, str(name)) for name in self._languages(options["language"], rows)])
            if tasks and tasks.get(options["task"] or "transcribe") is not None:
                columns.append(np.full(rows, tasks[options["task"] or "transcribe"]))
        elif options["language"] is not None or options["task"] == "translate":
            raise ArgumentError("the model knows one language only; leave out the language and the task")
        if self._says("no_timestamps_token_id") is not None:
            columns.append(np.full(rows, self._says("no_timestamps_token_id")))
        begin = np.stack([np.asarray(c, np.int64) for c in columns], 1)
        if prompt_ids is not None:
            prompt = integers(prompt_ids, "prompt_ids").astype(np.int64).ravel()
            begin = np.concatenate([np.repeat(prompt[None], rows, 0), begin], 1)
        return begin

    def _own_options(self) -> GenerationConfig:
        known = set(option_names())
        return GenerationConfig(**{k: v for k, v in self.generation_config.to_dict().items() if k in known})


def _joined(segments: List[Dict[str, Any]], name: str, dtype: Any) -> np.ndarray:
    parts: Tuple[np.ndarray, ...] = tuple(s[name] for s in segments)
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _padded(rows: List[np.ndarray], pad: Any) -> np.ndarray:
    out = np.full((len(rows), max((len(r) for r in rows), default=0)), pad, rows[0].dtype if rows else np.int64)
    for i, row in enumerate(rows):
        out[i, :len(row)] = row
    return out


class AutoModelForSpeechSeq2Seq(SpeechSeq2SeqModel):
    """Opens any model that turns recordings into text."""


__all__: List[str] = ["AutoModelForSpeechSeq2Seq", "SpeechOutput", "SpeechSeq2SeqModel"]
