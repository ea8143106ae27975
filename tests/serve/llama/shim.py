#!/usr/bin/env python3
"""Starts kvik serve as llama-server's own tests start llama-server: translates the flags that they use.

KVIK_TEST_MODEL is the model; the tests' own models cannot be had, so what depends on their words cannot pass.
"""
import os
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
# Flags with a value: what kvik serve calls them, or None for what it has no use for.
VALUES = {"--port": "--port", "--host": "--host", "--temp": "--temperature", "--seed": "--seed", "--alias": "--alias", "--threads": "--threads",
          "--parallel": "--parallel", "--n-predict": "--max-new-tokens", "--chat-template-file": "--template", "--ctx-size": "ctx",
          "--api-key": "key", "--chat-template": "template", "--slot-save-path": "--slot-save-path", "--media-path": None,
          "--hf-repo": None, "--hf-file": None, "--model": None, "--model-url": None, "--batch-size": None, "--ubatch-size": None,
          "--n-gpu-layers": None, "--pooling": None, "-ctk": None, "-ctv": None, "-fa": None, "--reasoning-format": None, "--reasoning": None,
          "--cache-ram": None, "--tags": None, "--cors-origins": "--cors-origins"}
FLAGS = {"--offline", "--cont-batching", "--kv-unified", "--swa-full", "--slots", "--no-slots", "--metrics", "--jinja", "--no-jinja", "--no-ui",
         "--verbose", "--no-mmproj", "--no-cache-idle-slots", "--backend_sampling"}


def translate(words):
    """Returns the words for kvik serve."""
    out, ctx, slots, key_file = [], 0, 1, None
    words = iter(words)
    for w in words:
        if w in FLAGS:
            continue
        if w not in VALUES:
            sys.exit(f"shim.py: {w} has no translation")
        value, to = next(words), VALUES[w]
        if to == "ctx":
            ctx = int(value)
        elif to == "key":
            fd, key_file = tempfile.mkstemp()
            os.write(fd, value.encode())
            out += ["--api-key-file", key_file]
        elif to == "template":
            if "{" in value or " " in value:
                fd, path = tempfile.mkstemp()
                os.write(fd, value.encode())
                value = path
            out += ["--template", value]
        elif to and (to, value) != ("--max-new-tokens", "-1"):
            slots = int(value) if to == "--parallel" else slots
            out += [to, value]
    if ctx:
        out += ["--max-cache-len", str(ctx // slots)]
    return out


if __name__ == "__main__":
    kvik = os.environ.get("KVIK") or os.path.join(ROOT, "kvik")
    os.execv(kvik, [kvik, "serve", os.environ["KVIK_TEST_MODEL"], "--do-sample", "true", "--cors-origins", "*", *translate(sys.argv[1:])])
