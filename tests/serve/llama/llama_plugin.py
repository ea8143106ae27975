"""A plugin of pytest for llama-server's tests: nothing is downloaded."""
import os
import sys

sys.path.insert(0, os.getcwd())
import utils  # noqa: E402  (of the tests)

utils.ServerPreset.load_all = staticmethod(lambda: None)
