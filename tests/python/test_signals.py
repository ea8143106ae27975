"""A signal's handler that raises at any instruction of a call leaves no hook, no lock and no memory behind."""
import ctypes
import gc
import os
import signal
import sys
import threading
import unittest
import unittest.mock

import numpy as np
from common import PATIENCE, ROOT, kvik, model
from sound import sound

from kvik.generation.callbacks import Interruptible

LONG = bool(os.environ.get("KVIK_TEST_LONG"))
IDS = np.array([[5, 6, 7, 8, 9]])
PACKAGE = os.path.dirname(kvik.__file__)


class Late(Exception):
    """What the handler raises."""


class Injection:
    """For the time of a `with`, raises Late at the n-th instruction of the functions that `wanted` chooses.  n None: counts them."""

    def __init__(self, wanted, n=None):
        self.wanted, self.n, self.seen = wanted, n, 0

    def __enter__(self):
        sys.settrace(self.call)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def call(self, frame, event, argument):
        if not self.wanted(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return self.step

    def step(self, frame, event, argument):
        if event == "opcode":
            self.seen += 1
            if self.seen - 1 == self.n:
                raise Late("of the handler")
        return self.step


def of_hooks(code):
    """True for the functions that change hooks, and those that call them."""
    return code in (Interruptible.__enter__.__code__, Interruptible.__exit__.__code__, Interruptible._restore.__code__,
                    Interruptible.interruptibly.__code__)


def of_package(code):
    return code.co_filename.startswith(PACKAGE)


def allocated():
    """Returns the bytes that the C library has given out."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = type("mallinfo2", (ctypes.Structure,), {"_fields_": [(n, ctypes.c_size_t) for n in "abcdefghij"]})
    said = libc.mallinfo2()
    return said.h + said.e  # uordblks, hblkhd


class Handlers(unittest.TestCase):
    def setUp(self):
        self.model = model("llama-mha")
        self.want = self.model.generate(IDS, max_new_tokens=3)
        self.hook = sys.unraisablehook
        self.addCleanup(setattr, sys, "unraisablehook", self.hook)
        self.dropped = []
        sys.unraisablehook = self.tell = self.dropped.append

    def assert_as_before(self):
        self.assertIs(sys.unraisablehook, self.tell)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.assertEqual(self.dropped, [])

    def assert_interruptible(self):
        """Ctrl-C ends a call, as it did before."""
        with self.assertRaises(KeyboardInterrupt):
            self.model.generate(IDS, max_new_tokens=200, min_new_tokens=200,
                                stopping_criteria=[lambda *_: os.kill(os.getpid(), signal.SIGINT)])

    def inject(self, wanted, use, step=1):
        """Calls use() with an exception at each step-th instruction, until one call has no more."""
        n = 0
        while True:
            try:
                with Injection(wanted, n) as injection:
                    use()
            except Late:
                pass
            finally:
                sys.settrace(None)
            with self.subTest(n=n):
                self.assert_as_before()
            if injection.seen <= n:
                return n // step
            n += step

    def test_every_instruction_of_the_hooks(self):
        cache = kvik.DynamicCache()

        def use():
            cache.reset()
            self.model.generate(IDS, max_new_tokens=3, past_key_values=cache)
        self.assertGreater(self.inject(of_hooks, use), 30)
        self.assert_interruptible()
        cache.reset()
        np.testing.assert_array_equal(self.model.generate(IDS, max_new_tokens=3, past_key_values=cache), self.want)

    def test_every_instruction_of_the_hooks_of_speech(self):
        speech = kvik.AutoModelForSpeechSeq2Seq.from_pretrained(os.path.join(ROOT, "tests", "fixtures", "speech", "tiny"),
                                                                dtype="float32", threads=1, max_sequences=8)
        waves = sound(16000)
        text = speech.transcribe(waves, language="en")["text"]
        self.assertGreater(self.inject(of_hooks, lambda: speech.transcribe(waves, language="en"), 1 if LONG else 5), 5)
        self.assertEqual(speech.transcribe(waves, language="en")["text"], text)

    def test_instructions_of_a_call(self):
        """Hooks, locks and memory after an exception anywhere in a call: all of its instructions, or a sample of them."""
        cache = kvik.DynamicCache()

        def use():
            cache.reset()
            self.model.generate(IDS, max_new_tokens=3, past_key_values=cache, return_dict_in_generate=True, output_logits=True)
            self.model.generate(np.repeat(IDS, 2, 0), num_beams=2, max_new_tokens=3)
        use()
        gc.collect()
        before, made = allocated(), self.inject(of_package, use, 1 if LONG else 29)
        gc.collect()
        self.assertGreater(made, 50)
        self.assertLess(allocated() - before, 2**20 + 64 * made)
        cache.reset()
        np.testing.assert_array_equal(self.model.generate(IDS, max_new_tokens=3, past_key_values=cache), self.want)
        self.assert_interruptible()

    def test_real_signals(self):
        """Signals whose handler raises, at whatever instruction they come."""
        def handler(*_):
            raise Late("of the handler")

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, handler))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        cache, met = kvik.DynamicCache(), 0
        self.model = kvik.AutoModelForCausalLM.from_pretrained(self.model.name_or_path, threads=1)  # whose locks no other test took
        for i in range(4000 if LONG else 400):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + (i % 100) * 2e-5)
                    for _ in range(3):
                        cache.reset()
                        self.model.generate(IDS, max_new_tokens=1, past_key_values=cache, return_dict_in_generate=True)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                met += 1
            with self.subTest(i=i):
                self.assertIs(sys.unraisablehook, self.tell)
                self.assertEqual([d for d in self.dropped if "kvik" in repr(d.object)], [])
        ids = []  # what is still locked lets no other thread in
        thread = threading.Thread(target=lambda: ids.append((cache.reset(), self.model.generate(
            IDS, max_new_tokens=3, past_key_values=cache))[1]), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        self.assertTrue(ids)
        np.testing.assert_array_equal(ids[0], self.want)
        self.assertGreater(met, 0)
        self.assert_interruptible()

    def test_left(self):
        """A cache that a thread has left without letting it go is free; one in a call is not."""
        cache, got = kvik.DynamicCache(), []
        cache._guard["thread"] = threading.get_ident()  # as a handler leaves it that raises where a call ends

        def use():
            try:
                cache.reset()
                got.append("free")
            except kvik.BusyError:
                got.append("busy")

        def run():
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
        run()
        with cache._use():
            self.model.generate(IDS, max_new_tokens=1, stopping_criteria=[lambda ids, scores: bool(run())])
        self.assertEqual(got, ["free", "busy"])

    def test_objects_that_are_freed(self):
        """No Python runs where a result, options or a cache are freed: no exception of a handler vanishes there."""
        def use():
            cache = kvik.DynamicCache()
            out = self.model.generate(IDS, max_new_tokens=2, past_key_values=cache, return_dict_in_generate=True, output_logits=True)
            return out.logits[0]
        ran = []
        kept = use()
        with unittest.mock.patch.object(sys, "unraisablehook", self.dropped.append):
            sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_name))
            try:
                del kept
                gc.collect()
            finally:
                sys.setprofile(None)
        self.assertNotIn("__del__", ran)

    def test_stop_iteration(self):
        """A StopIteration of a callback comes out as it is."""
        def stop(*_):
            raise StopIteration("of the callback")
        for options in ({"logits_processor": [stop]}, {"stopping_criteria": [stop]}):
            for past in (None, kvik.DynamicCache()):
                with self.subTest(options=options, past=past), self.assertRaisesRegex(StopIteration, "of the callback"):
                    self.model.generate(IDS, max_new_tokens=3, past_key_values=past, **options)


if __name__ == "__main__":
    unittest.main()
