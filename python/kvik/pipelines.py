"""pipeline("text-generation"): a model with its tokenizer, from texts to texts."""
from typing import Any, Dict, List, Optional, Union

from .errors import UnsupportedError
from .model import AutoModelForCausalLM
from .tokenization import AutoTokenizer


class TextGenerationPipeline:
    """Continues texts, or chats given as lists of {"role", "content"}."""

    task = "text-generation"

    def __init__(self, model: Any, tokenizer: Any = None, **kwargs: Any) -> None:
        options = dict(kwargs.pop("model_kwargs", None) or {})
        for name in ("dtype", "torch_dtype", "device_map", "revision"):
            if kwargs.get(name) is not None:
                options[name] = kwargs.pop(name)
        if isinstance(model, str) or not hasattr(model, "generate"):
            tokenizer = tokenizer if tokenizer is not None else model
            model = AutoModelForCausalLM.from_pretrained(model, **options)
        if tokenizer is None:
            tokenizer = model.name_or_path
        self.model = model
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer) if isinstance(tokenizer, str) else tokenizer
        kwargs.pop("device", None)
        kwargs.pop("framework", None)
        kwargs.pop("batch_size", None)
        self.defaults = kwargs

    @property
    def device(self) -> Any:
        """The device of the model."""
        return self.model.device

    def __call__(self, text_inputs: Any, return_full_text: Optional[bool] = None, return_text: Optional[bool] = None,
                 return_tensors: Optional[bool] = None, clean_up_tokenization_spaces: bool = False,
                 continue_final_message: Optional[bool] = None, **kwargs: Any) -> Any:
        """Generates for a text, a chat, or a list of them.

        Returns a list of {"generated_text"} with a dictionary for each returned sequence; for a list of inputs, a list of
        such lists.  return_full_text=False gives the new text alone.  A chat gives its messages and the new one.
        Further arguments are options of generate().
        """
        inputs: List[Any] = [text_inputs]
        if isinstance(text_inputs, (list, tuple)) and text_inputs and not _is_chat(text_inputs):
            inputs = list(text_inputs)
        options = {**self.defaults, **kwargs}
        full = True if return_full_text is None else return_full_text
        out = [self._one(item, options, full, bool(return_tensors), clean_up_tokenization_spaces, continue_final_message)
               for item in inputs]
        return out if len(inputs) != 1 or inputs[0] is not text_inputs else out[0]

    def _one(self, item: Any, options: Dict[str, Any], full: bool, tensors: bool, clean: bool,
             final: Optional[bool]) -> List[Dict[str, Any]]:
        chat = _is_chat(item)
        if chat:
            go_on = item[-1]["role"] == "assistant" if final is None else final
            encoded = self.tokenizer.apply_chat_template(item, add_generation_prompt=not go_on, continue_final_message=go_on,
                                                         return_tensors="np", return_dict=True)
        else:
            encoded = self.tokenizer(item, return_tensors="np")
        sequences = self.model.generate(**encoded, **options)
        out = []
        for ids in sequences:
            if tensors:
                out.append({"generated_token_ids": ids})
                continue
            new = self.tokenizer.decode(ids[encoded.input_ids.shape[1]:], True, clean)
            text: Union[str, List[Dict[str, str]]] = new
            if chat and full:
                last = item[-1]
                text = list(item[:-1]) + [{**last, "content": last["content"] + new}] if go_on else \
                    list(item) + [{"role": "assistant", "content": new}]
            elif full:
                text = item + new
            out.append({"generated_text": text})
        return out


def _is_chat(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], dict)


def pipeline(task: Optional[str] = None, model: Any = None, tokenizer: Any = None, **kwargs: Any) -> Any:
    """Makes a pipeline.  task: "text-generation"."""
    if task not in (None, "text-generation"):
        raise UnsupportedError(f"pipeline({task!r}): this version has 'text-generation'")
    if model is None:
        raise ValueError("pipeline() needs a model: a directory, a .gguf file, a hub id in the local cache, or an open model")
    return TextGenerationPipeline(model, tokenizer, **kwargs)
