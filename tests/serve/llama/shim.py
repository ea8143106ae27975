#!/usr/bin/env python3
"""Starts kvik serve as llama-server's own tests start llama-server: translates the flags that they use (see llama_plugin.py).

A model of the tests that cannot be had is replaced by one that stands in for it, if it is one of the tiny ones; with others nothing starts.
"""
import os
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
# Flags with a value: what kvik serve calls them; None: it has no use for them.
VALUES = {"--port": "--port", "--host": "--host", "--temp": "--temperature", "--seed": "--seed", "--alias": "names", "--tags": "--tags", "--threads": "--threads",
          "--parallel": "--parallel", "--n-predict": "--max-new-tokens", "--chat-template-file": "--template", "--ctx-size": "ctx",
          "--batch-size": "--prefill-chunk-size", "--api-key": "key", "--chat-template": "template", "--cors-origins": "--cors-origins",
          "--slot-save-path": "--slot-save-path", "--reasoning": "reasoning", "--hf-repo": "model", "--hf-file": None, "--ubatch-size": None, "-ctk": None, "-ctv": None, "-fa": None, "--reasoning-format": None,
          "--cache-ram": None}
FLAGS = {"--offline", "--cont-batching", "--kv-unified", "--swa-full", "--slots", "--no-slots", "--metrics", "--jinja", "--no-jinja", "--no-ui",
         "--verbose"}
STAND_INS = {"ggml-org/test-model-stories260K": "tinyllama-2", "ggml-org/test-model-stories260K-infill": "tinyllama-infill"}


def write(text):
    fd, path = tempfile.mkstemp(dir=os.environ["KVIK_STAND_INS"])
    os.write(fd, text.encode())
    os.close(fd)
    return path


def translate(words):
    """Returns the words for kvik serve."""
    out, ctx, slots, shared, metrics, model = [], 0, 1, False, False, STAND_INS["ggml-org/test-model-stories260K"]
    words = iter(words)
    for w in words:
        if w in FLAGS:
            shared |= w == "--kv-unified"
            metrics |= w == "--metrics"
            out += [w] if w == "--verbose" else []
            continue
        if w not in VALUES:
            sys.exit(f"shim.py: kvik serve has nothing like {w}")
        value, to = next(words), VALUES[w]
        if to == "ctx":
            ctx = int(value)
        elif to == "model":
            model = STAND_INS.get(value) or sys.exit(f"shim.py: {value} cannot be had")
        elif to == "reasoning":
            out += ["--reasoning", "off" if value == "off" else "on"]  # llama-server's "auto" tells templates to reason
        elif to == "names":
            out += ["--alias", ",".join(sorted(value.split(",")))]  # llama-server's model has the first by the alphabet
        elif to == "key":
            out += ["--api-key-file", write(value)]
        elif to == "template":
            out += ["--template", write(value) if "{" in value or " " in value else value]
        elif to and (to, value) != ("--max-new-tokens", "-1"):
            slots = int(value) if to == "--parallel" else slots
            out += [to, value]
    if ctx:
        out += ["--max-cache-len", str(ctx if shared else ctx // slots)]
    out += ["--metrics-compat", "llamacpp" if metrics else "off"]
    # Any page may use llama-server unless it is told otherwise.
    return [os.path.join(os.environ["KVIK_STAND_INS"], model + ".gguf"), "--do-sample", "true", "--cors-origins", "*", *out]


if __name__ == "__main__":
    kvik = os.environ.get("KVIK") or os.path.join(ROOT, "kvik")
    os.execv(kvik, [kvik, "serve", *translate(sys.argv[1:])])
