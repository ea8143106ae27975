"""cache_quality.py MODEL THREADS IDS SCORED FOLDER NAME=PROGRAM=CACHES... - the table of scripts/bench-quality.sh.

PROGRAM is bench_rates or a program with its command line.  It writes the logits of SCORED tokens to a file in FOLDER, and prints the bytes
of a token and the tokens a second.  CACHES is a list with spaces; f16 is measured first, and the others are compared with it.
"""
import os
import subprocess
import sys

import numpy as np

import plan
from divergence import divergence, log_softmax

PIECE = 64  # positions at a time


def measure(program, cache, settings, path):
    """Runs a program; returns the bytes of a token and the tokens a second, or None if it fails, as some types do with some models."""
    model, threads, ids, scored = settings
    ran = subprocess.run([program, model, threads, cache, ids, path, str(scored)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode:
        print(f"{program} {cache} ended with {ran.returncode}: {ran.stderr[-300:]}", file=sys.stderr)
        return None
    found = dict(line.split(",") for line in ran.stdout.split() if "," in line)
    return float(found["bytes"]), float(found["decode"])


def compare(reference, other, scored):
    """Returns the KL divergence of each position, and at how many the most likely token is the same."""
    a, b = (np.memmap(path, np.float32, "r").reshape(scored, -1) for path in (reference, other))
    kld, same = [], 0
    for i in range(0, scored, PIECE):
        some, alike = divergence(log_softmax(a[i:i + PIECE]), log_softmax(b[i:i + PIECE]))
        kld.append(some)
        same += alike
    return np.concatenate(kld), same


def main():
    model, threads, ids, scored, folder, *programs = sys.argv[1:]
    settings, scored = (model, threads, ids, int(scored)), int(scored)
    print(f"{os.path.basename(model)}, {threads} threads, {scored} tokens after {plan.QUALITY}, each a step of its own\n")
    print("| program | cache | bytes a token | bits a value | mean KLD from its f16 | 99.9 % | same token | tokens/s, in f16's |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    reference, other = (os.path.join(folder, f"quality-{which}") for which in ("f16", "other"))
    for text in programs:
        name, program, caches = text.split("=")
        first = measure(program, "f16", settings, reference)
        if not first:
            print(f"| {name} | f16 | failed |", flush=True)
            continue
        raw, speed = first
        print(f"| {name} | f16 | {raw:.0f} | 16.00 | - | - | - | {speed:.0f}, 1.00 |", flush=True)
        for cache in caches.split():
            found = measure(program, cache, settings, other)
            if not found:
                print(f"| {name} | {cache} | failed |", flush=True)
                continue
            held, steps = found
            kld, same = compare(reference, other, scored)
            print(f"| {name} | {cache} | {held:.0f} | {16 * held / raw:.2f} | {kld.mean():.2g} ± {kld.std() / scored ** 0.5:.1g} | "
                  f"{np.quantile(kld, 0.999):.2g} | {100 * same / scored:.1f} % | {steps:.0f}, {steps / speed:.2f} |", flush=True)
        for path in (reference, other):
            if os.path.exists(path):
                os.remove(path)


if __name__ == "__main__":
    main()
