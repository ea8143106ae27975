"""Chats: messages that a template makes a text of, encoded."""
import ctypes
import json
import re
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union, overload

import numpy as np

from . import _abi
from ._lib import call, encode, lib, sized, text_of, view
from .batch_encoding import BatchEncoding
from .tokenizer_rows import Columns, Fit
from .tool_schema import tool_json
from .utils.logging import notice


class Chats:
    """The chat template of a tokenizer."""

    _handle: Any
    _own_template: Optional[str]
    chat_template: Optional[str]
    @property
    def special_tokens_map(self) -> Dict[str, str]:
        """The special tokens by their roles."""
        raise NotImplementedError

    def _finish(self, columns: Columns, fit: Fit, single: bool, kind: Any) -> BatchEncoding:
        raise NotImplementedError

    def get_chat_template(self, chat_template: Optional[str] = None, tools: Any = None) -> str:
        """Returns the template that apply_chat_template() uses.  Raises ValueError if there is none."""
        found = chat_template or self.chat_template
        if not found:
            raise ValueError("this tokenizer has no chat template; pass chat_template=, or give the model a text in place of messages")
        return str(found)

    @overload
    def apply_chat_template(self, conversation: Sequence[Mapping[str, Any]], tools: Optional[Sequence[Any]] = None, *,
                            tokenize: Literal[False], **kwargs: Any) -> str: ...

    @overload
    def apply_chat_template(self, conversation: Sequence[Sequence[Mapping[str, Any]]], tools: Optional[Sequence[Any]] = None, *,
                            tokenize: Literal[False], **kwargs: Any) -> List[str]: ...

    @overload
    def apply_chat_template(self, conversation: Any, tools: Optional[Sequence[Any]] = None, *, return_dict: Literal[True] = True,
                            tokenize: Literal[True] = True, **kwargs: Any) -> BatchEncoding: ...

    @overload
    def apply_chat_template(self, conversation: Any, tools: Optional[Sequence[Any]] = None, *args: Any, **kwargs: Any) -> Any: ...

    def apply_chat_template(self, conversation: Any, tools: Optional[Sequence[Any]] = None,
                            documents: Optional[Sequence[Dict[str, str]]] = None, chat_template: Optional[str] = None,
                            add_generation_prompt: bool = False, continue_final_message: bool = False,
                            tokenize: bool = True, padding: Union[bool, str] = False,
                            truncation: Union[bool, str] = False, max_length: Optional[int] = None,
                            return_tensors: Optional[str] = None, return_dict: bool = True,
                            return_assistant_tokens_mask: bool = False, tokenizer_kwargs: Optional[Dict[str, Any]] = None,
                            sanitize_control_tokens: Optional[bool] = None, **kwargs: Any) -> Any:
        """Renders messages with the chat template and encodes them.

        conversation: a list of {"role", "content"}, or a list of such lists; what a message without one of them looks like
        is the template's affair.  tools: JSON schemas or functions with type
        hints.  tokenize=False returns the text.  Returns ``input_ids`` and ``attention_mask``, so that
        ``model.generate(**tokenizer.apply_chat_template(messages, return_tensors="np"))`` works; return_dict=False: the ids alone, as
        release 4 of Transformers did.  Further arguments are variables of the template.

        return_assistant_tokens_mask: True adds ``assistant_masks``, 1 for the tokens of {% generation %} blocks, which is where
        templates put the words of the model.

        Special tokens that are spelled inside a message are encoded as plain text, which Transformers does with
        sanitize_control_tokens=True; pass sanitize_control_tokens=False, or allow_special_tokens=True, for its default.
        """
        if sanitize_control_tokens is not None:
            kwargs.setdefault("allow_special_tokens", not sanitize_control_tokens)
        template = self.get_chat_template(chat_template, tools)
        if return_assistant_tokens_mask:
            if not (return_dict and tokenize):
                raise ValueError("return_assistant_tokens_mask=True needs return_dict=True and tokenize=True")
            if continue_final_message:
                raise ValueError("return_assistant_tokens_mask=True and continue_final_message=True exclude each other")
            if template is not None and not re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", template):
                notice("the chat template has no {% generation %}, so assistant_masks holds only zeros")
        conversation = getattr(conversation, "messages", conversation)
        batched = isinstance(conversation, (list, tuple)) and bool(conversation) and (
            isinstance(conversation[0], (list, tuple)) or hasattr(conversation[0], "messages"))
        chats = [getattr(c, "messages", c) for c in (conversation if batched else [conversation])]
        for chat in chats:
            wrong = next((m for m in chat if not hasattr(m, "items")), None) if isinstance(chat, (list, tuple)) else chat
            if wrong is not None:
                raise TypeError('a chat is a list of messages {"role": ..., "content": ...}, or a list of such lists; there is '
                                f"{wrong!r:.40}")
        if not all(chats):
            raise ValueError("a chat without messages has no text; give at least one message")
        # as in Transformers: many templates take a key without a value for a text
        chats = [[{k: v for k, v in m.items() if v is not None} for m in chat] for chat in chats]
        options = dict(kwargs)
        if add_generation_prompt:
            options["add_generation_prompt"] = True
        if continue_final_message:
            options["continue_final_message"] = True
        if tools:
            options["tools"] = [tool_json(t) for t in tools]
        if documents:
            options["documents"] = list(documents)
        if not tokenize:
            texts = [self._render(chat, options, template) for chat in chats]
            return texts if batched else texts[0]
        pairs = [self._encode_chat(chat, options, template, return_assistant_tokens_mask) for chat in chats]
        fit = Fit(self, padding, truncation, max_length, (tokenizer_kwargs or {}).get("padding_side"))
        kept = [fit.kept([len(ids)])[0][0] for ids, _ in pairs]
        columns: Columns = {"input_ids": [[ids[i] for i in at] for (ids, _), at in zip(pairs, kept)]}
        columns["attention_mask"] = [[1] * len(at) for at in kept]
        if return_assistant_tokens_mask:
            columns["assistant_masks"] = [[marked[i] for i in at] for (_, marked), at in zip(pairs, kept)]
        out = self._finish(columns, fit, not batched, return_tensors)
        return out if return_dict else out["input_ids"]

    def encode_message_with_chat_template(self, message: Dict[str, Any], conversation_history: Optional[Sequence[Any]] = None,
                                          **kwargs: Any) -> List[int]:
        """Returns the ids that a message adds to those of the conversation before it, from the first that differs."""
        if "add_generation_prompt" in kwargs:
            raise ValueError("encode_message_with_chat_template() does not take add_generation_prompt")
        before = list(conversation_history or ())
        whole: Any = self.apply_chat_template([*before, message], return_dict=False, **kwargs)
        known: Any = self.apply_chat_template(before, return_dict=False, **kwargs) if before else []
        same = next((i for i, (a, b) in enumerate(zip(known, whole)) if a != b), min(len(known), len(whole)))
        return list(whole[same:])

    def _chat(self, chat: Any, options: Dict[str, Any], template: Optional[str], special: bool = True) -> Any:
        return ctypes.byref(sized(_abi.kvik_chat, json=encode(json.dumps(list(chat))), kwargs=encode(json.dumps(options)),
                                  template_text=encode(template),
                                  special_tokens=encode(json.dumps(self.special_tokens_map)) if special else None))

    def _render(self, chat: Any, options: Dict[str, Any], template: Optional[str]) -> str:
        if template is not None and template != self._own_template:
            return text_of("kvik_chat_render", None, self._chat(chat, options, template))
        return text_of("kvik_chat_render", self._handle, self._chat(chat, options, None, special=False))

    def _encode_chat(self, chat: Any, options: Dict[str, Any], template: Optional[str], marked: bool) -> Any:
        """Returns the ids of a chat, and with marked a flag for each."""
        ids, flags, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        call("kvik_chat_encode", self._handle, self._chat(chat, options, template), ctypes.byref(ids), ctypes.byref(n),
             ctypes.byref(flags) if marked else None)
        try:
            return (view(ids.value, (n.value,), np.int32).tolist(),
                    view(flags.value, (n.value,), np.uint8).tolist() if marked else None)
        finally:
            lib.kvik_free(ids)
            lib.kvik_free(flags)
