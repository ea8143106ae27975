"""generate() of models, and the scores of what it has generated."""
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Callable, List, Literal, Optional, Union, overload

import numpy as np

from .._arrays import ids_2d, is_torch, like, to_numpy
from ..errors import ArgumentError
from ..outputs import (GenerateBeamDecoderOnlyOutput, GenerateBeamEncoderDecoderOutput, GenerateDecoderOnlyOutput,
                       GenerateEncoderDecoderOutput)
from ..progress import Bar
from .call import Call
from .configuration_utils import GenerationConfig
from .loop import log_softmax
from .logits_process import PrefixConstrainedLogitsProcessor
from .streamers import readers_told
from .watched import Watched

if TYPE_CHECKING:
    from typing_extensions import Unpack
    from .._typing import Array, GenerateArguments, Hooks, Options
    from ..outputs import GenerateOutput


def _list(value: Any) -> List[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


class GenerationMixin:
    """generate(), for models."""

    generation_config: GenerationConfig
    _handle: Any

    # The forms differ in one argument, which has a default in each: an argument without one would make pyright take **inputs for
    # it, and then choose no form.
    @overload
    def generate(self, inputs: Any = None, generation_config: "Options" = None, logits_processor: "Hooks" = None,
                 stopping_criteria: "Hooks" = None, *, return_dict_in_generate: Optional[Literal[False]] = None,
                 **kwargs: "Unpack[GenerateArguments]") -> "Array": ...

    @overload
    def generate(self, inputs: Any = None, generation_config: "Options" = None, logits_processor: "Hooks" = None,
                 stopping_criteria: "Hooks" = None, *, return_dict_in_generate: Literal[True] = ...,
                 **kwargs: "Unpack[GenerateArguments]") -> "GenerateOutput": ...

    @overload
    def generate(self, inputs: Any = None, generation_config: "Options" = None, logits_processor: "Hooks" = None,
                 stopping_criteria: "Hooks" = None, *, return_dict_in_generate: Optional[bool] = ...,
                 **kwargs: "Unpack[GenerateArguments]") -> "Union[Array, GenerateOutput]": ...

    def generate(self, inputs: Any = None, generation_config: Any = None, logits_processor: Any = None, stopping_criteria: Any = None,
                 prefix_allowed_tokens_fn: Optional[Callable[[int, Any], Any]] = None,
                 synced_gpus: Optional[bool] = None, assistant_model: Any = None, streamer: Any = None,
                 negative_prompt_ids: Any = None, negative_prompt_attention_mask: Any = None,
                 use_model_defaults: Optional[bool] = None, custom_generate: Any = None, **kwargs: Any) -> Any:
        """Generates text after input_ids [batch, tokens].

        Options are keyword arguments (``max_new_tokens=20``, ``do_sample=True``, ``num_beams=4``, ``stop_strings=["."]``,
        ...; docs/OPTIONS.md), fields of generation_config, or those of the model.  past_key_values continues a cache.
        cache_implementation and cache_config name a strategy; cache_memory and on_full limit its memory.
        inputs_embeds [batch, n, hidden] (see get_input_embeddings) stand for the ids of the prompt: the result then has the new
        tokens alone, or follows input_ids where both are given.  For greedy decoding and sampling; a cache must be empty.

        Returns ids [rows, tokens], the prompt included, int64, in torch if the input was; with
        return_dict_in_generate=True a GenerateOutput.  Raises OutOfMemoryError at cache_memory, ArgumentError for options.
        Ctrl-C ends the generation, and the cache is usable after it.
        """
        if negative_prompt_ids is not None:
            kwargs["negative_prompt_ids"] = negative_prompt_ids
        assistant = None
        with readers_told(streamer), ExitStack() as held:
            if custom_generate is not None:
                raise NotImplementedError("custom_generate is not supported; write a loop over forward()")
            self._check_config()
            processors = _list(logits_processor)
            this = Call(self, inputs, generation_config, kwargs, processors)
            g = this.options.struct
            if streamer is not None and g.num_beams > 1:
                raise ArgumentError("a streamer needs num_beams=1: beams change earlier tokens")
            if prefix_allowed_tokens_fn is not None:
                most = max(g.num_beams, g.num_return_sequences, 1)
                processors.append(PrefixConstrainedLogitsProcessor(prefix_allowed_tokens_fn, most))
            if this.early_exit is not None:
                assistant_model = self._with_layers(this.early_exit)
            if assistant_model is not None:
                helper = assistant_model._handle
                drafts = helper.own_store(assistant_model._defaults) if helper is self._handle else \
                    helper.store(assistant_model._defaults, this.options.sequences(1))
                assistant = held.enter_context(drafts.locked())
            callbacks = Watched(streamer, processors, _list(stopping_criteria), this.torch, g.num_beams > 1,
                                assistant, self._notice, this.texts(), this.vocab())
            callbacks.bar = held.enter_context(Bar("prompt and beams" if g.num_beams > 1 else "prompt", "tokens"))
            if streamer is not None:
                streamer.put(like(callbacks.texts.prompts().astype(np.int64), this.torch))
            out = callbacks.interruptibly(lambda: this.run(callbacks))
            if streamer is not None:
                streamer.end()
            return out

    def compute_transition_scores(self, sequences: Any, scores: Any, beam_indices: Any = None,
                                  normalize_logits: bool = False) -> "Array":
        """Returns the scores of the generated tokens, [rows, new tokens], from the ``sequences`` and ``scores`` of a result.

        beam_indices: those of the result, with beams.  normalize_logits: makes log probabilities of scores.
        """
        ids, steps = ids_2d(sequences, "sequences"), [to_numpy(s, np.float32) for s in scores or ()]
        if not steps or any(s.ndim != 2 or s.shape != steps[0].shape for s in steps):
            raise ArgumentError("scores is a tuple of [rows, vocab] for each new token, as generate() returns it with "
                                "return_dict_in_generate=True and output_scores=True")
        table = np.stack(steps)
        if normalize_logits:
            table = log_softmax(table)
        if beam_indices is None:
            lanes = np.repeat(np.arange(table.shape[1])[:, None], table.shape[0], 1)
        else:
            lanes = ids_2d(beam_indices, "beam_indices")
        n = int((lanes >= 0).sum(1).max(initial=0))
        lanes, made = lanes[:, :n], ids[:, max(ids.shape[1] - n, 0):]
        if lanes.shape != made.shape or n > len(steps) or lanes.max(initial=0) >= table.shape[1]:
            raise ArgumentError(f"sequences {list(ids.shape)}, scores of {len(steps)} steps for {table.shape[1]} rows"
                                f"{'' if beam_indices is None else ' and beam_indices'} are not of one result of generate()")
        if made.size and not 0 <= made.min() <= made.max() < table.shape[2]:
            raise ArgumentError(f"sequences hold a new token outside the vocabulary of {table.shape[2]}")
        out = table[np.arange(n), np.maximum(lanes, 0), made]
        return like(np.where(lanes < 0, np.float32(0), out), is_torch(sequences))  # type: ignore[no-any-return]

    def _check_config(self) -> None:
        """Raises for a configuration that was changed after the model was opened."""

    def _own_options(self) -> GenerationConfig:
        """Returns the options of the model that the library knows."""
        return self.generation_config

    def _with_layers(self, n: int) -> Any:
        """Returns this model with its first n layers alone, for drafts."""
        raise NotImplementedError

    def _notice(self, text: str) -> None:
        raise NotImplementedError


__all__ = ["GenerateBeamDecoderOnlyOutput", "GenerateBeamEncoderDecoderOutput", "GenerateDecoderOnlyOutput",  # as in Transformers
           "GenerateEncoderDecoderOutput", "GenerationMixin", "log_softmax"]
