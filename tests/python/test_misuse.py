"""Wrong use gives an exception of Python with the library's sentence, never a crash: threads, fork, signals, garbage."""
import copy
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy as np
from common import PATIENCE, ROOT, kvik, model, model_path
from sound import sound

IDS = np.array([[5, 6, 7, 8, 9]])


class Streamer(kvik.BaseStreamer):
    """Calls a function for each token."""

    def __init__(self, function):
        self.function = function

    def put(self, value):
        self.function(value)

    def end(self):
        pass


class Signals:
    """Ctrl-C after some seconds, and again every five: Python drops one that comes while an object is freed."""

    def __init__(self, seconds):
        self.seconds, self.over = seconds, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.send)
        self.thread.start()

    def send(self):
        wait = self.seconds
        while not self.over.wait(wait):
            os.kill(os.getpid(), signal.SIGINT)
            wait = 5

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Misuse(unittest.TestCase):
    def setUp(self):
        self.model = model("llama-mha")
        self.want = self.model.generate(IDS, max_new_tokens=50, min_new_tokens=50)

    def generate(self, **options):
        return self.model.generate(IDS, max_new_tokens=50, min_new_tokens=50, **options)

    def test_two_threads_one_cache(self):
        cache, inside, go = kvik.DynamicCache(), threading.Event(), threading.Event()

        def wait(value):
            if np.ndim(value) == 1:  # a token: the call has begun
                inside.set()
                go.wait(PATIENCE)

        thread = threading.Thread(target=self.generate, kwargs={"past_key_values": cache, "streamer": Streamer(wait)})
        thread.start()
        self.assertTrue(inside.wait(PATIENCE))
        try:
            for call in (lambda: self.model(IDS, past_key_values=cache), lambda: cache.crop(1), cache.reset, cache.fork,
                         lambda: self.generate(past_key_values=cache)):
                with self.assertRaisesRegex(kvik.BusyError, "in use by a call that has not returned"):
                    call()
        finally:
            go.set()
            thread.join()
        self.assertEqual(cache.get_seq_length(), 54)

    def test_two_threads_two_caches(self):
        out = []
        threads = [threading.Thread(target=lambda: out.append(self.generate(past_key_values=kvik.DynamicCache())))
                   for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(out), 4)
        for ids in out:
            np.testing.assert_array_equal(ids, self.want)

    def test_fork(self):
        cache = kvik.DynamicCache()
        self.model(IDS, past_key_values=cache)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                refused = 0
                for call in (lambda: self.model(IDS, past_key_values=cache), lambda: cache.crop(2), self.generate,
                             lambda: copy.deepcopy(cache)):
                    try:
                        call()
                    except kvik.BusyError:
                        refused += 1
                del cache
                gc.collect()
                again = kvik.AutoModelForCausalLM.from_pretrained(self.model.name_or_path, threads=1, max_sequences=4)
                same = np.array_equal(again.generate(IDS, max_new_tokens=50, min_new_tokens=50), self.want)
                code = 0 if refused == 4 and same else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(cache.get_seq_length(), 5)

    def test_interrupt(self):
        dropped = []  # what ctypes drops when a callback raises before its first statement
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = dropped.append
        cache = kvik.DynamicCache()
        deadline = time.monotonic() + PATIENCE  # an interrupt that is lost is a failure, and not a test without an end
        with Signals(0.3), self.assertRaises(KeyboardInterrupt):
            while time.monotonic() < deadline:
                cache.reset()
                self.model.generate(IDS, max_new_tokens=200, min_new_tokens=200, past_key_values=cache)
        self.assertEqual([d for d in dropped if "__del__" not in repr(d.object)], [])
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        cache.reset()
        np.testing.assert_array_equal(self.generate(past_key_values=cache), self.want)

    def test_exceptions_of_signal_handlers(self):
        """What a handler raises where a callback is entered comes out of the call, and the hook for the rest is back."""
        class Late(Exception):
            pass

        def handler(*_):
            raise Late("of the handler")

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, handler))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        dropped, cache, ids = [], kvik.DynamicCache(), np.tile(IDS, (1, 20))
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = hook = dropped.append
        for options in ({}, {"streamer": Streamer(lambda value: None)}, {"num_beams": 2},
                        {"logits_processor": [lambda ids, scores: scores]}):
            deadline = time.monotonic() + PATIENCE
            with self.subTest(options=options), self.assertRaisesRegex(Late, "of the handler"):
                signal.setitimer(signal.ITIMER_REAL, 0.2, 0.5)
                try:
                    while time.monotonic() < deadline:
                        cache.reset()
                        self.model.generate(ids, max_new_tokens=150, min_new_tokens=150, past_key_values=cache, **options)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)  # on a slow machine a second one may come behind the first
        self.assertIs(sys.unraisablehook, hook)
        self.assertEqual([d for d in dropped if "generation" in d.exc_traceback.tb_frame.f_code.co_filename], [])
        cache.reset()
        np.testing.assert_array_equal(self.generate(past_key_values=cache), self.want)

    def test_transition_scores(self):
        """Sequences and scores that are not of one result are refused: numpy would take other scores."""
        out = self.generate(return_dict_in_generate=True, output_scores=True)
        ids, scores = out.sequences, out.scores
        good = self.model.compute_transition_scores(ids, scores)
        self.assertEqual(good.shape, (1, 50))
        for name, bad, of in (("negative", np.where(np.arange(55) == 54, -1, ids), scores),
                              ("outside", np.where(np.arange(55) == 54, 10**6, ids), scores), ("short", ids[:, -1:], scores),
                              ("empty", ids[:, :0], scores), ("rows", np.repeat(ids, 3, 0), scores), ("no scores", ids, ()),
                              ("None", ids, None), ("flat", ids, [s[0] for s in scores])):
            with self.subTest(name), self.assertRaises(kvik.ArgumentError):
                self.model.compute_transition_scores(bad, of)
        for beams in (np.zeros((1, 51), int), np.full((1, 50), 1), np.zeros((2, 50), int)):
            with self.subTest(beams=beams.shape), self.assertRaises(kvik.ArgumentError):
                self.model.compute_transition_scores(ids, scores, beams)
        np.testing.assert_array_equal(self.model.compute_transition_scores(ids, scores, np.zeros((1, 50), int)), good)

    def test_exceptions_in_callbacks(self):
        def fail(*_):
            raise ZeroDivisionError("of the callback")
        cache = kvik.DynamicCache()
        for options in ({"streamer": Streamer(fail)}, {"logits_processor": [fail]}, {"stopping_criteria": [fail]},
                        {"prefix_allowed_tokens_fn": fail}):
            for past in (None, cache):
                cache.reset()
                with self.assertRaisesRegex(ZeroDivisionError, "of the callback"):
                    self.generate(past_key_values=past, **options)
        with self.assertRaisesRegex(ValueError, "returned 3 scores"):
            self.generate(logits_processor=[lambda ids, scores: scores[:, :3]])
        cache.reset()
        np.testing.assert_array_equal(self.generate(past_key_values=cache), self.want)

    def test_garbage_while_streaming(self):
        """Caches and models that become garbage while a call runs."""
        others = [kvik.DynamicCache() for _ in range(3)]
        for cache in others:
            self.model(IDS, past_key_values=cache)
        del cache

        def collect(_):
            if others:
                others.pop()
            gc.collect()
        np.testing.assert_array_equal(self.generate(streamer=Streamer(collect)), self.want)
        local = kvik.AutoModelForCausalLM.from_pretrained(self.model.name_or_path, threads=1, max_sequences=4)
        holder = [local]
        generate = local.generate
        del local

        def drop(_):
            holder.clear()
            gc.collect()
        out = generate(IDS, max_new_tokens=50, min_new_tokens=50, streamer=Streamer(drop), past_key_values=kvik.DynamicCache())
        np.testing.assert_array_equal(out, self.want)

    def test_calls_in_callbacks(self):
        """A callback can use other caches; the cache of the call refuses."""
        cache, other, seen = kvik.DynamicCache(), kvik.DynamicCache(), []

        def use(value):
            try:
                self.model(IDS, past_key_values=other)
                other.crop(0)
            except kvik.BusyError:
                pass
            if np.ndim(value) == 1:
                try:
                    self.model(IDS, past_key_values=cache)
                except kvik.BusyError:
                    seen.append(cache.get_seq_length())
        np.testing.assert_array_equal(self.generate(past_key_values=cache, streamer=Streamer(use)), self.want)
        self.assertEqual(len(seen), 50)

    def test_result_outlives_all(self):
        local = kvik.AutoModelForCausalLM.from_pretrained(self.model.name_or_path, threads=1, max_sequences=4)
        out = local.generate(IDS, max_new_tokens=4, output_logits=True, return_dict_in_generate=True)
        total = sum(float(step.sum()) for step in out.logits)
        cache = out.past_key_values
        del local, out.past_key_values
        logits = out.logits
        del out
        gc.collect()
        self.assertAlmostEqual(sum(float(step.sum()) for step in logits), total)
        self.assertEqual(cache.fork().get_seq_length(), 8)

    def test_bad_arguments(self):
        for bad in (np.zeros((1, 0), int), np.zeros((1, 2, 3), int), np.array([[2**40]])):
            with self.assertRaises(ValueError):
                self.model.generate(bad)
        with self.assertRaises(TypeError):
            self.model.generate(np.array([[1.5]]))
        for ids in (10**6, -1):
            with self.assertRaises(kvik.KvikError):
                self.model.generate(np.array([[ids]]), max_new_tokens=1)
            with self.assertRaises(kvik.KvikError):
                self.model(np.array([[ids]]))
        for options in ({"attention_mask": np.ones((2, 5))}, {"attention_mask": np.ones((1, 4))}, {"max_new_tokns": 3},
                        {"temperature": -1.0}, {"cache_implementation": "sloding_window"},
                        {"cache_implementation": "static", "past_key_values": kvik.DynamicCache()}):
            with self.assertRaises(kvik.ArgumentError):
                self.model.generate(IDS, **options)
        with self.assertRaisesRegex(kvik.ArgumentError, "did you mean"):
            self.model.generate(IDS, max_new_tokns=3)
        with self.assertRaises(kvik.MissingError):
            kvik.AutoModelForCausalLM.from_pretrained("nobody/no-such-model")
        with self.assertRaises(kvik.KvikError):
            kvik.AutoTokenizer.from_pretrained(self.model.name_or_path)  # the golden models have none

    def test_no_scores(self):
        with self.assertRaisesRegex(TypeError, "must return the scores"):
            self.model.generate(IDS, max_new_tokens=2, logits_processor=[lambda ids, scores: None])

    def test_no_caches(self):
        """What is no cache is named, with what was meant."""
        for wrong, hint in (("static", "cache_implementation='static'"), (kvik.DynamicCache, r"make one: DynamicCache\("), (5, "builtins.int")):
            with self.assertRaisesRegex(TypeError, hint):
                self.model(IDS, past_key_values=wrong)

    def test_streamers_hear_of_it(self):
        """Who reads a streamer in another thread is told when the options are wrong."""
        class Reader(kvik.BaseStreamer):
            told = None

            def fail(self, error):
                self.told = error
        for options in ({"max_new_tokns": 3}, {"temperature": -1.0}, {"num_beams": 2}, {"attention_mask": np.ones((2, 5))},
                        {"custom_generate": "beams"}):
            reader = Reader()
            with self.assertRaises((kvik.ArgumentError, NotImplementedError)) as raised:
                self.model.generate(IDS, streamer=reader, **options)
            self.assertIs(reader.told, raised.exception)

    def test_failure_leaves_rows(self):
        """A failed generate() with several sequences gives the cache back with the rows that it had."""
        def fails(ids, scores):
            raise LookupError("no")
        cache = kvik.DynamicCache()
        both = np.concatenate([IDS, IDS + 7])
        self.model(both, past_key_values=cache)
        want = self.model(both[:, :1], past_key_values=copy.deepcopy(cache)).logits
        several = {"past_key_values": cache, "num_return_sequences": 3, "do_sample": True, "max_new_tokens": 2}
        for error, ids, options in ((kvik.ArgumentError, both[:, :2], {}), (LookupError, both, {"logits_processor": [fails]})):
            with self.assertRaises(error):
                self.model.generate(ids, **several, **options)
            self.assertEqual(cache.max_batch_size, 2)
            cache.crop(5)
            np.testing.assert_array_equal(self.model(both[:, :1], past_key_values=copy.deepcopy(cache)).logits, want)
        self.assertEqual(self.model.generate(both, **several).shape, (6, 7))

    def test_kept_scores(self):
        """What a processor got stays what it was, also when the model is gone."""
        local = kvik.AutoModelForCausalLM.from_pretrained(self.model.name_or_path, threads=1, max_sequences=4)
        kept, copies = [], []

        def keep(ids, scores):
            kept.append(scores)
            copies.append(scores.copy())
            return scores
        local.generate(IDS, max_new_tokens=6, min_new_tokens=6, logits_processor=[keep])
        del local
        gc.collect()
        self.assertEqual(len(kept), 6)
        for scores, copy_of in zip(kept, copies):
            np.testing.assert_array_equal(scores, copy_of)

        def force(ids, scores):
            scores[:] = -np.inf
            scores[:, 7] = 0
            return scores
        self.assertEqual(self.model.generate(IDS, max_new_tokens=3, logits_processor=[force])[0, 5:].tolist(), [7, 7, 7])

    def test_numbers_beyond_a_type(self):
        """A number that a parameter cannot hold is an error; ctypes alone would cut it to another number."""
        rows = np.zeros((1, 2, 3, 4), np.float32)
        for number in (2**32, 2**32 + 5, 2**64 + 3, -2**63 - 1, 10**30):
            for name in ("max_cache_len", "max_sequences", "step_tokens", "snapshots", "threads"):
                with self.subTest(number=number, name=name), self.assertRaisesRegex(kvik.ArgumentError, name):
                    self.model(IDS, past_key_values=kvik.DynamicCache(**{name: number}))
            with self.assertRaises((kvik.ArgumentError, kvik.LimitError, MemoryError)):
                kvik.DynamicCache().update(rows, rows, number)
            cache = kvik.DynamicCache()
            self.model(IDS, past_key_values=cache)
            with self.assertRaises(kvik.KvikError):
                cache.batch_repeat_interleave(number)
            if abs(number) > 2**63:
                with self.assertRaises(kvik.ArgumentError):
                    cache.crop(number)
            self.assertEqual((cache.get_seq_length(), cache.batch_size), (5, 1))
        with self.assertRaisesRegex(kvik.ArgumentError, "cache_memory"):
            self.model(IDS, past_key_values=kvik.DynamicCache(cache_memory=-1))
        cache = kvik.DynamicCache()
        self.model(IDS, past_key_values=cache)
        for bad in ([np.nan], [0.5], [2**40], [-1], np.array([2**63], np.uint64), ["0"], [None]):
            for use in (cache.reorder_cache, cache.batch_select_indices,
                        lambda value: self.model(IDS, position_ids=[list(value) * 5]),
                        lambda value: self.model(IDS, cache_position=list(value) * 5)):
                with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError, kvik.KvikError)):
                    use(bad)
        for bad in ([5], [-6], [2**63], [np.nan], -1):
            with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError)):
                self.model(IDS, logits_to_keep=bad)
        np.testing.assert_array_equal(self.model(IDS, logits_to_keep=[0, -1]).logits, self.model(IDS).logits[:, [0, 4]])

    def test_embeddings(self):
        """Embeddings of a wrong shape or type are refused, and those that are not finite end their row alone."""
        embed = self.model.get_input_embeddings()
        good, hidden = embed(IDS), embed.embedding_dim
        want = self.model.generate(inputs_embeds=good, max_new_tokens=5, min_new_tokens=5)
        np.testing.assert_array_equal(want, self.want[:, 5:10])
        for bad in (good[0], good[:, :0], good[:0], np.zeros((1, 5, hidden + 1)), np.zeros((1, 5)), object(), "text",
                    [[[0.0] * hidden, [0.0]]], good.astype(np.complex64)):
            with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError, kvik.KvikError)):
                self.model.generate(inputs_embeds=bad, max_new_tokens=5)
        for bad in ([2**40], [-1], [0.5], [10**6]):
            with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError)):
                embed(np.array(bad))
        for options in ({"num_beams": 2}, {"attention_mask": np.ones((1, 4))},
                        {"attention_mask": np.zeros((1, 5))}, {"input_ids": np.repeat(IDS, 2, 0)}):
            with self.subTest(options=options), self.assertRaises(kvik.KvikError):
                self.model.generate(inputs_embeds=good, max_new_tokens=5, **options)
        for same in (good.astype(np.float64), np.repeat(good, 2, 1)[:, ::2], np.asfortranarray(good)):
            np.testing.assert_array_equal(self.model.generate(inputs_embeds=same, max_new_tokens=5, min_new_tokens=5), want)
        both = np.concatenate([good, good * np.nan])
        with self.assertWarnsRegex(UserWarning, "not finite"):
            out = self.model.generate(inputs_embeds=both, max_new_tokens=5, min_new_tokens=5, return_dict_in_generate=True)
        np.testing.assert_array_equal(out.sequences[0], want[0])
        for bad in ([-1], [embed.num_embeddings], [0.5], ["a"], None):
            with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError, kvik.KvikError)):
                embed(bad)
        cache = kvik.DynamicCache()
        self.model.generate(inputs_embeds=good, past_key_values=cache, max_new_tokens=3, min_new_tokens=3)
        for call in (lambda: self.model.generate(inputs_embeds=good, past_key_values=cache),
                     lambda: self.model.generate(IDS[:, :2], past_key_values=cache),
                     lambda: self.model(IDS, inputs_embeds=good)):
            with self.assertRaises(kvik.KvikError):
                call()
        self.assertEqual(cache.get_seq_length(), 7)

    def test_labels(self):
        for bad in (IDS[:, :2], IDS + 10**6, IDS * 0 - 5, IDS * 1.5, "text"):
            with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError, kvik.KvikError)):
                self.model(IDS, labels=bad)
        self.assertTrue(np.isfinite(self.model(IDS, labels=IDS).loss))

    def test_texts_with_a_nul(self):
        for call in (lambda: kvik.AutoModelForCausalLM.from_pretrained(self.model.name_or_path + "\0x"),
                     lambda: self.model(IDS, past_key_values=kvik.DynamicCache(spill_dir="/tmp\0x", on_full="offload"))):
            with self.assertRaises((ValueError, OSError)):
                call()


class WithEncoder(unittest.TestCase):
    """The same for models with an encoder: a text one, and one of speech."""

    OPTIONS = {"max_new_tokens": 30, "min_new_tokens": 30, "do_sample": False}

    def setUp(self):
        self.model = kvik.AutoModelForSeq2SeqLM.from_pretrained(model_path("t5"), dtype="float32", threads=1, max_sequences=8)
        tiny = os.path.join(ROOT, "tests", "fixtures", "speech", "tiny")
        self.speech = kvik.AutoModelForSpeechSeq2Seq.from_pretrained(tiny, dtype="float32", threads=1, max_sequences=8)
        self.want = self.model.generate(IDS, **self.OPTIONS)
        self.sound = sound(48077)

    def hear(self, **options):
        return self.speech.transcribe(self.sound, return_timestamps=True, language="en", **options)["text"]

    def test_garbage_while_streaming(self):
        others = [self.model.generate(IDS, max_new_tokens=2, return_dict_in_generate=True).past_key_values for _ in range(4)]

        def collect(_):
            if others:
                others.pop()
            gc.collect()
        np.testing.assert_array_equal(self.model.generate(IDS, streamer=Streamer(collect), **self.OPTIONS), self.want)
        self.assertFalse(others)
        holder, text = [self.speech], self.hear()
        transcribe = self.speech.transcribe
        self.speech = None

        def drop(seconds, total):
            holder.clear()
            gc.collect()
        self.assertEqual(transcribe(self.sound, drop, return_timestamps=True, language="en")["text"], text)

    def test_threads(self):
        text, out = self.hear(), []

        def run(function):
            try:
                out.append(function())
            except BaseException as e:  # noqa: BLE001 - compared below
                out.append(e)
        cache = self.model.generate(IDS, max_new_tokens=2, return_dict_in_generate=True).past_key_values
        calls = [self.hear, self.hear, lambda: self.model.generate(IDS, **self.OPTIONS).tolist(),
                 lambda: self.model.generate(IDS, past_key_values=kvik.EncoderDecoderCache(kvik.DynamicCache(), kvik.DynamicCache()),
                                             **self.OPTIONS).tolist()] * 2
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(map(str, out)), sorted([text] * 4 + [str(self.want.tolist())] * 4))
        inside, go = threading.Event(), threading.Event()

        def wait(value):
            if np.ndim(value) == 1:
                inside.set()
                go.wait(PATIENCE)
        thread = threading.Thread(target=self.model.generate, kwargs={
            "decoder_input_ids": self.want[:, :3], "past_key_values": cache, "streamer": Streamer(wait), **self.OPTIONS})
        thread.start()
        self.assertTrue(inside.wait(PATIENCE))
        try:
            for call in (lambda: self.model(decoder_input_ids=[[1]], past_key_values=cache), lambda: cache.crop(1), cache.fork,
                         lambda: self.model.generate(decoder_input_ids=self.want[:, :3], past_key_values=cache)):
                with self.assertRaisesRegex(kvik.BusyError, "in use by a call that has not returned"):
                    call()
        finally:
            go.set()
            thread.join()
        self.assertEqual(cache.get_seq_length(), 32)

    def test_fork(self):
        cache = self.model.generate(IDS, max_new_tokens=2, return_dict_in_generate=True).past_key_values
        child = os.fork()
        if child == 0:
            refused = 0
            try:
                for call in (lambda: self.model(decoder_input_ids=[[1]], past_key_values=cache), self.hear,
                             lambda: self.model.generate(IDS, **self.OPTIONS), lambda: copy.deepcopy(cache)):
                    try:
                        call()
                    except kvik.BusyError:
                        refused += 1
            finally:
                os._exit(0 if refused == 4 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(self.hear())

    def test_interrupt(self):
        text = self.hear()
        with Signals(0.2), self.assertRaises(KeyboardInterrupt):
            while True:
                self.hear()
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.assertEqual(self.hear(), text)
        with self.assertRaisesRegex(ZeroDivisionError, "of the callback"):
            self.hear(progress=lambda seconds, total: 1 / 0 if seconds else (_ for _ in ()).throw(ZeroDivisionError("of the callback")))


class Names(unittest.TestCase):
    def test_own_cache(self):
        """A name without a slash is that of a file in kvik's own cache, as for the command."""
        with tempfile.TemporaryDirectory() as home, unittest.mock.patch.dict(
                os.environ, {"XDG_CACHE_HOME": home, "HF_HUB_CACHE": os.path.join(home, "hub")}):
            os.mkdir(os.path.join(home, "kvik"))
            file = os.path.join(home, "kvik", "small.gguf")
            open(file, "wb").close()
            self.assertEqual([kvik.hub.resolve("small"), kvik.hub.resolve("small.gguf")], [file, file])
            with self.assertRaisesRegex(kvik.MissingError, "none of this name in " + os.path.join(home, "kvik")):
                kvik.AutoModelForCausalLM.from_pretrained("large")
            with self.assertRaisesRegex(kvik.MissingError, "Did you mean 'small.gguf'?"):
                kvik.hub.resolve("Small.g")
            with self.assertRaisesRegex(kvik.MissingError, "no .*models--org--small in the local cache of the hub. Give a path"):
                kvik.hub.resolve("org/small")
            for path in ("/no/such", "~/no/such.gguf", "./small", "../org/small", "org/small.gguf", "models/org/small"):
                with self.assertRaises(kvik.MissingError) as raised:  # of a path it says nothing of the hub
                    kvik.hub.resolve(path)
                self.assertEqual(str(raised.exception), f"no model {path!r}: no such file or directory")

    def test_budget_too_small(self):
        """A budget in which no cache can open is an error that names the bytes that are needed."""
        small = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), cache_memory=1000, threads=1)
        for call in (lambda: small.generate(IDS, max_new_tokens=2), lambda: small(IDS),
                     lambda: model("llama-mha").generate(IDS, max_new_tokens=2, cache_memory="1K")):
            with self.assertRaisesRegex(kvik.OutOfMemoryError, r"limit of .* is too small.* KiB are needed"):
                call()

    def test_quantize(self):
        """quantize= gives the weights, and so the ids, that --quantize of the command gives."""
        for kind in ("q8_0", "q4_0", "q4_k"):
            with self.subTest(kind):
                with self.assertWarnsRegex(UserWarning, f"quantized .* to {kind}"):
                    quantized = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), quantize=kind, threads=1)
                run = subprocess.run([os.path.join(ROOT, "kvik"), "generate", model_path("llama-mha"), "--input-ids", "5,6,7,8,9",
                                      "--max-new-tokens", "12", "--quantize", kind, "--json"], capture_output=True, check=True)
                self.assertEqual(quantized.generate(IDS, max_new_tokens=12).tolist(), json.loads(run.stdout)["sequences"])
                self.assertGreater(quantized.describe()["weight_types"].get("q8_0" if kind == "q4_k" else kind, 0), 0)
        with self.assertRaisesRegex(kvik.ArgumentError, "q8_0, q4_0 or q4_k"):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), quantize="q5")

    def test_device(self):
        """device= is the device of kvik; one that is not there is an error, and not the CPU."""
        opened = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), device="cpu", threads=1)
        self.assertEqual(opened.generate(IDS, max_new_tokens=4).tolist(), model("llama-mha").generate(IDS, max_new_tokens=4).tolist())
        with unittest.mock.patch.dict(os.environ, KVIK_CUDA_LIBRARY="/there/is/no/library.so"):
            with self.assertRaisesRegex(kvik.UnsupportedError, "device cuda: .*make cuda"):
                kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), device="cuda")
        with self.assertRaisesRegex(kvik.UnsupportedError, "can be cpu or cuda"):
            kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-mha"), device="tpu")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
    unittest.main()
