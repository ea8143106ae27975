"""kvik eval against a slow computation of its own: tokens are decoded one by one through the package, and numpy computes the numbers.

The command feeds many tokens at once; here each call has one token, and every sum is over the whole vocabulary in double.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from common import ROOT, kvik, model_path

WINDOW, WINDOWS = 96, 2
TEXT = "The harbour has nine cranes, and the oldest lifts no more than a cart. " * 4
CONFIGS = {
    "again": {},
    "quanto": {"backend": "quanto", "nbits": 4, "q_group_size": 16, "residual_length": 8},
    "odd residual": {"backend": "quanto", "nbits": 2, "q_group_size": 16, "residual_length": 7},
    "hqq": {"backend": "hqq", "nbits": 4, "axis_key": 0, "axis_value": 1, "q_group_size": 16, "residual_length": 24},
    "window": {"sliding_window": 20},
}


def log_softmax(logits):
    x = logits.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def windows(ids, lead=()):
    """The tokens of each window: those that begin every text, then a part of this one; and the token behind it."""
    half, body = WINDOW // 2, WINDOW - len(lead)
    return [[*lead, *ids[w * half:w * half + body + 1]] for w in range(WINDOWS)]


def decoded(model, all_windows, config):
    """Log-probabilities after each token of the second half of every window, decoded one by one after a prompt of the first half."""
    half, out = WINDOW // 2, []
    for window in all_windows:
        cache = kvik.Cache(cache_config=config)
        model(np.array([window[:half]]), past_key_values=cache)
        out += [model(np.array([[token]]), past_key_values=cache).logits[0, -1] for token in window[half:-1]]
    return log_softmax(np.array(out))


class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "tiny")
        cls.text = os.path.join(cls.folder.name, "text")
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "cli", "tiny.py"), model_path("llama-bf16-long"), cls.model], check=True)
        with open(cls.text, "w", encoding="utf-8") as f:
            f.write(TEXT)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_eval(self, threads, model=None, configs=tuple(CONFIGS.values())):
        half = WINDOW // 2
        args = [os.path.join(ROOT, "kvik"), "eval", model or self.model, "--text", self.text, "--context", str(WINDOW), "--tokens", str(WINDOWS * half),
                "--threads", str(threads), "--json"]
        for config in configs:
            args += ["--cache-config", json.dumps(config)]
        out = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        return json.loads(out.stdout)

    def test_numbers(self):
        told = self.run_eval(1)
        rows = dict(zip(["dynamic", *CONFIGS], told["caches"]))
        self.assertEqual((told["scored"], told["windows"], told["row_type"]), (WINDOWS * WINDOW // 2, WINDOWS, "bf16"))
        model = kvik.AutoModelForCausalLM.from_pretrained(self.model, threads=1)
        text = windows([b + 5 for b in TEXT.encode()])
        following = np.concatenate([w[WINDOW // 2 + 1:] for w in text])
        p = decoded(model, text, {})
        for name, row in rows.items():
            with self.subTest(name):
                q = decoded(model, text, CONFIGS.get(name, {}))
                kld = np.maximum((np.exp(p) * (p - q)).sum(-1), 0)
                nll = -q[np.arange(len(q)), following].mean()
                self.assertAlmostEqual(row["nll"], nll, delta=1e-9)
                self.assertAlmostEqual(row["perplexity"], np.exp(nll), delta=1e-6)
                self.assertAlmostEqual(row["kld"], kld.mean(), delta=1e-9)
                self.assertAlmostEqual(row["kld_most"], kld.max(), delta=1e-9)
                self.assertAlmostEqual(row["kld_99_9"], np.sort(kld)[int(np.ceil(.999 * len(kld))) - 1], delta=1e-9)
                self.assertAlmostEqual(row["kld_standard_error"], kld.std(ddof=1) / len(kld) ** .5, delta=1e-9)
                self.assertEqual(row["same_top_token"], (p.argmax(-1) == q.argmax(-1)).sum())
                self.assertEqual(row["identical"], bool((p == q).all()))
        self.assertEqual((rows["again"]["kld"], rows["again"]["kld_most"], rows["again"]["identical"]), (0, 0, True))
        self.assertGreater(rows["odd residual"]["kld"], rows["quanto"]["kld"])
        # 4 bits of a value, and two numbers of 16 bits for each group of 16
        self.assertAlmostEqual(rows["quanto"]["bits_per_value"], 6, delta=1e-9)
        self.assertEqual(rows["dynamic"]["bits_per_value"], 16)
        self.assertLess(rows["window"]["cache_bytes"], rows["dynamic"]["cache_bytes"])

    def test_begin(self):
        """Each window begins with the tokens that the tokenizer puts before a text."""
        begun = os.path.join(self.folder.name, "begun")
        shutil.copytree(self.model, begun)
        path = os.path.join(begun, "tokenizer.json")
        with open(path, encoding="utf-8") as f:
            tokenizer = json.load(f)
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(tokenizer, f)
        told = self.run_eval(1, begun, [{}])
        text = windows([b + 5 for b in TEXT.encode()], [1])
        q = decoded(kvik.AutoModelForCausalLM.from_pretrained(begun, threads=1), text, {})
        nll = -q[np.arange(len(q)), np.concatenate([w[WINDOW // 2 + 1:] for w in text])].mean()
        self.assertAlmostEqual(told["caches"][0]["nll"], nll, delta=1e-9)

    def test_threads(self):
        """Not a bit depends on the number of threads."""
        one, three = self.run_eval(1), self.run_eval(3)
        for o in (one, three):
            del o["threads"], o["seconds"]
        self.assertEqual(one, three)


if __name__ == "__main__":
    unittest.main()
