"""Streamers: what receives tokens while generate() runs."""
import asyncio
import ctypes
import threading
from contextlib import contextmanager
from queue import Queue
from typing import Any, AsyncIterator, Iterator, List, Optional, cast

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


class TextStreamer(BaseStreamer):
    """Prints the text as it is generated, each character as soon as it is complete.

    skip_prompt: does not print the prompt.  Further arguments, such as skip_special_tokens, are those of decode().
    """

    def __init__(self, tokenizer: Any, skip_prompt: bool = False, **decode_kwargs: Any) -> None:
        self.tokenizer, self.skip_prompt, self.decode_kwargs = getattr(tokenizer, "tokenizer", tokenizer), skip_prompt, decode_kwargs
        self.next_tokens_are_prompt = True
        self._decoder: Optional[ctypes.c_void_p] = None
        self._ids: List[int] = []

    def _open(self) -> ctypes.c_void_p:
        if self._decoder is None:
            decoder, handle = owned("kvik_decoder_close"), getattr(self.tokenizer, "_handle", None)
            if handle is None:
                raise TypeError(f"a streamer of kvik needs a tokenizer of kvik, not {type(self.tokenizer).__name__}; take both from "
                                "one library")
            check(lib.kvik_decoder_open(handle, bool(self.decode_kwargs.get("skip_special_tokens")),
                                        ctypes.byref(decoder)))
            self._decoder = decoder
        return self._decoder

    def put(self, value: Any) -> None:
        """Receives ids of one row, and hands on the characters that they complete."""
        ids = integers(value, "a streamer's value")
        if ids.ndim > 1 and ids.shape[0] > 1:
            raise ValueError("TextStreamer only supports batch size 1")
        ids = ids.ravel()
        if self.skip_prompt and self.next_tokens_are_prompt:
            self.next_tokens_are_prompt = False
            return
        self.next_tokens_are_prompt = False
        text = ctypes.c_void_p()
        n = check(lib.kvik_decoder_put(self._open(), address(ids), ids.size, ctypes.byref(text)))
        piece = ctypes.string_at(text, n).decode("utf-8", "replace")  # which may hold a NUL
        if piece:
            self.on_finalized_text(piece)

    def end(self) -> None:
        """Hands on what was held back."""
        text = ctypes.c_void_p()
        n = check(lib.kvik_decoder_flush(self._open(), ctypes.byref(text)))
        self.next_tokens_are_prompt = True
        self.on_finalized_text(ctypes.string_at(text, n).decode("utf-8", "replace"), stream_end=True)

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
