"""Runs an example and compares what it prints with the stored text: examples/python/NAME.out.

usage: example.py examples/python/NAME.py MODEL
"""
import subprocess
import sys

script, model = sys.argv[1:]
got = subprocess.run([sys.executable, "-X", "faulthandler", script, model], stdout=subprocess.PIPE, check=True, text=True).stdout
with open(script[:-3] + ".out", encoding="utf-8") as f:
    want = f.read()
if got != want:
    sys.exit(f"{script} printed:\n{got}\nexpected:\n{want}")
print(f"{script}: {len(got.splitlines())} lines as stored")
