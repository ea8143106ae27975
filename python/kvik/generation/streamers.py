"""Streamers: what receives tokens while generate() runs."""
import asyncio
import ctypes
import threading
from contextlib import contextmanager
from queue import Queue
from typing import Any, AsyncIterator, Iterator, List, Optional, cast

import numpy as np

from .._arrays import integers
from .._lib import address, check, lib, owned


_watched = threading.local()  # ids: the streamers whose readers an outer readers_told() of this thread tells


@contextmanager
def readers_told(streamer: Any) -> Iterator[None]:
    """Hands an exception that a `with` raises to fail() of a streamer as well: a thread that reads the streamer would wait for ever.

    Of nested ones for the same streamer the outermost does it, so that a reader is told once.
    """
    ids = _watched.__dict__.setdefault("ids", set())
    if not hasattr(streamer, "fail") or id(streamer) in ids:
        yield
        return
    ids.add(id(streamer))
    try:
        yield
    except BaseException as e:
        streamer.fail(e)
        raise
    finally:
        ids.discard(id(streamer))


class BaseStreamer:
    """A class with put(ids), which gets the prompt and then each token, and end()."""

    def put(self, value: Any) -> None:
        """Receives ids."""
        raise NotImplementedError

    def end(self) -> None:
        """Is called after the last token."""
        raise NotImplementedError


# Blocks of Unicode whose characters are words.
_WORDS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2CEAF), (0x2F800, 0x2FA1F))


def _ready(text: str) -> int:
    """Returns how many characters of a text can be shown: all after a line or a CJK character, else whole words with their space."""
    if text.endswith("\n") or (text and any(a <= ord(text[-1]) <= b for a, b in _WORDS)):
        return len(text)
    return text.rfind(" ") + 1


class TextStreamer(BaseStreamer):
    """Prints the text as it is generated, word by word.

    skip_prompt: does not print the prompt.  Further arguments, such as skip_special_tokens, are those of decode().  on_finalized_text()
    is called once for each put(), with "" while a word is not complete.
    """

    def __init__(self, tokenizer: Any, skip_prompt: bool = False, **decode_kwargs: Any) -> None:
        self.tokenizer, self.skip_prompt, self.decode_kwargs = getattr(tokenizer, "tokenizer", tokenizer), skip_prompt, decode_kwargs
        self.next_tokens_are_prompt = True
        self._decoder: Optional[ctypes.c_void_p] = None
        self._held = ""  # text that waits for the end of its word
        self._ids: List[int] = []  # of a line, for a tokenizer that decodes it as a whole
        self._seen = 0  # characters of that line which are in _held, or were shown

    def _open(self) -> Optional[ctypes.c_void_p]:
        """Returns what decodes token by token; None if decode() does it: of other arguments, or a tokenizer that is written elsewhere."""
        handle = getattr(self.tokenizer, "_handle", None)
        if handle is None and not hasattr(self.tokenizer, "decode"):
            raise TypeError(f"a streamer needs a tokenizer, not {type(self.tokenizer).__name__}")
        if handle is None or any(value for name, value in self.decode_kwargs.items() if name != "skip_special_tokens"):
            return None
        if self._decoder is None:
            decoder = owned("kvik_decoder_close")
            check(lib.kvik_decoder_open(handle, bool(self.decode_kwargs.get("skip_special_tokens")),
                                        ctypes.byref(decoder)))
            self._decoder = decoder
        return self._decoder

    def _more(self, ids: np.ndarray) -> str:
        """Returns the characters that ids add to the text."""
        decoder, text = self._open(), ctypes.c_void_p()
        if decoder is not None:
            n = check(lib.kvik_decoder_put(decoder, address(ids), ids.size, ctypes.byref(text)))
            return ctypes.string_at(text, n).decode("utf-8", "replace")  # which may hold a NUL
        self._ids.extend(ids.tolist())
        line = str(self.tokenizer.decode(self._ids, **self.decode_kwargs))
        if line.endswith("\ufffd"):  # a character that is not complete
            return ""
        more, self._seen = line[self._seen:], len(line)
        if line.endswith("\n"):
            self._ids, self._seen = [], 0
        return more

    def _rest(self) -> str:
        """Returns the characters that come after the last id."""
        decoder, text = self._open(), ctypes.c_void_p()
        if decoder is not None:
            n = check(lib.kvik_decoder_flush(decoder, ctypes.byref(text)))
            return ctypes.string_at(text, n).decode("utf-8", "replace")
        line = str(self.tokenizer.decode(self._ids, **self.decode_kwargs)) if self._ids else ""
        more, self._ids, self._seen = line[self._seen:], [], 0
        return more

    def put(self, value: Any) -> None:
        """Receives ids of one row, and hands on the words that they complete."""
        ids = integers(value, "a streamer's value")
        if ids.ndim > 1 and ids.shape[0] > 1:
            raise ValueError("TextStreamer only supports batch size 1")
        ids = ids.ravel()
        if self.skip_prompt and self.next_tokens_are_prompt:
            self.next_tokens_are_prompt = False
            return
        self.next_tokens_are_prompt = False
        text = self._held + self._more(ids)
        n = _ready(text)
        self._held = text[n:]
        self.on_finalized_text(text[:n])

    def end(self) -> None:
        """Hands on what was held back."""
        text, self._held = self._held + self._rest(), ""
        self.next_tokens_are_prompt = True
        self.on_finalized_text(text, stream_end=True)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Receives text that will not change.  Prints it; subclasses do what they want."""
        print(text, flush=True, end="" if not stream_end else None)


class TextIteratorStreamer(TextStreamer):
    """An iterator over the text, for a generate() that runs in another thread.

    timeout: seconds to wait for the next piece; queue.Empty is raised after it.  If generate() fails, the iterator raises
    its exception.
    """

    def __init__(self, tokenizer: Any, skip_prompt: bool = False, timeout: Optional[float] = None,
                 **decode_kwargs: Any) -> None:
        super().__init__(tokenizer, skip_prompt, **decode_kwargs)
        self.text_queue: "Queue[Any]" = Queue()
        self.stop_signal = None
        self.timeout = timeout

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Puts text into the queue."""
        self.text_queue.put(text, timeout=self.timeout)
        if stream_end:
            self.text_queue.put(self.stop_signal, timeout=self.timeout)

    def fail(self, error: BaseException) -> None:
        """Ends the iterator with an exception."""
        self.text_queue.put(error)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        value = self.text_queue.get(timeout=self.timeout)
        if isinstance(value, BaseException):
            raise value
        if value is self.stop_signal:
            raise StopIteration
        return cast(str, value)


class AsyncTextIteratorStreamer(TextStreamer):
    """An asynchronous iterator over the text, for a generate() that runs in another thread.

    Make it inside a coroutine.  timeout: seconds to wait for the next piece; TimeoutError is raised after it.  If generate()
    fails, the iterator raises its exception.
    """

    def __init__(self, tokenizer: Any, skip_prompt: bool = False, timeout: Optional[float] = None,
                 **decode_kwargs: Any) -> None:
        super().__init__(tokenizer, skip_prompt, **decode_kwargs)
        self.loop = asyncio.get_running_loop()
        self.text_queue: "asyncio.Queue[Any]" = asyncio.Queue()
        self.stop_signal = None
        self.timeout = timeout

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Puts text into the queue, from any thread."""
        self.loop.call_soon_threadsafe(self.text_queue.put_nowait, text)
        if stream_end:
            self.loop.call_soon_threadsafe(self.text_queue.put_nowait, self.stop_signal)

    def fail(self, error: BaseException) -> None:
        """Ends the iterator with an exception."""
        self.loop.call_soon_threadsafe(self.text_queue.put_nowait, error)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        try:
            value = await asyncio.wait_for(self.text_queue.get(), self.timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no text for {self.timeout} seconds") from None
        if isinstance(value, BaseException):
            raise value
        if value is self.stop_signal:
            raise StopAsyncIteration
        return cast(str, value)
