"""device= of from_pretrained(): copies, pickles and models made for drafts compute where the first one does."""
import copy
import os
import pickle
import subprocess
import sys
import unittest

import numpy as np
from common import ROOT, kvik, model_path

IDS = np.array([[5, 6, 7, 8, 9]])
EMULATED = os.path.join(ROOT, "build", "release", "libkvik-cuda-emulated.so")


class Devices(unittest.TestCase):
    def test_kept(self):
        """The variable names a device that this build does not have, so that only a device that was kept can be opened."""
        first = kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), device="cpu", threads=1)
        before = os.environ.get("KVIK_DEVICE")
        os.environ["KVIK_DEVICE"] = "nowhere"
        try:
            with self.assertRaisesRegex(kvik.UnsupportedError, "nowhere"):
                kvik.AutoModelForCausalLM.from_pretrained(model_path("llama-gqa-l3"), threads=1)
            want = first.generate(IDS, max_new_tokens=4).tolist()
            for other in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first), copy.copy(first),
                          pickle.loads(pickle.dumps(copy.deepcopy(first)))):
                self.assertEqual(other.generate(IDS, max_new_tokens=4).tolist(), want)
                self.assertEqual(other.generate(IDS, max_new_tokens=4, assistant_early_exit=1).tolist(), want)
        finally:
            del os.environ["KVIK_DEVICE"]
            if before is not None:
                os.environ["KVIK_DEVICE"] = before

    @unittest.skipUnless(os.path.isfile(EMULATED), "the emulated device is not built")
    def test_emulated(self):
        """A pickle of a model on the emulated GPU is one there, in another process too."""
        program = ("import pickle, sys; sys.path.insert(0, sys.argv[1]); import kvik\n"
                   "m = kvik.AutoModelForCausalLM.from_pretrained(sys.argv[2], device='cuda', threads=1)\n"
                   "again = pickle.loads(pickle.dumps(m))\n"
                   "print(again._handle.device, m.generate([[5, 6, 7]], max_new_tokens=3).tolist() == again.generate([[5, 6, 7]], max_new_tokens=3).tolist())\n")
        out = subprocess.run([sys.executable, "-W", "ignore", "-c", program, os.path.dirname(os.path.dirname(kvik.__file__)),
                              model_path("llama-gqa-l3")], env={**os.environ, "KVIK_CUDA_LIBRARY": EMULATED}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(out.stdout, "cuda True\n")


if __name__ == "__main__":
    unittest.main()
