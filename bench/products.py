"""products.py [THREADS [ROUNDS]] - rates of a prompt's products by type of the weights, in turn, next to float32 of a BLAS.

Each round runs every type once, in a process of its own, so that a machine that slows down slows all of them.  Prints medians in
G multiply-adds a second, and the medians of the ratios of each round: quantized types to q4_1, float types to the BLAS of
NumPy, if that is OpenBLAS, MKL or BLIS.  make bench calls it.  KVIK_REFERENCE_PYTHON names another Python whose NumPy has one, as
that of pip has.
"""
import os
import statistics
import subprocess
import sys

import steady

TOKENS, K, ROWS, MILLISECONDS = 512, 1536, 576, 400
QUANTIZED, FLOATS = ("q4_1", "q4_0", "q8_0", "q4_k", "q6_k"), ("f32", "f16", "bf16")
# In a process of its own, because the number of threads of a BLAS is read when it is loaded.
BLAS = f"""
import re, time, numpy as np
x, w = np.ones(({TOKENS}, {K}), np.float32), np.ones(({ROWS}, {K}), np.float32)
x[:8] @ w.T
found = re.search("openblas|mkl_rt|blis", open("/proc/self/maps").read())
rates, end = [], time.monotonic() + {MILLISECONDS} / 1000
while found and (time.monotonic() < end or len(rates) < 3):
    begun = time.perf_counter()
    x @ w.T
    rates.append({TOKENS * ROWS * K} * 1e-9 / (time.perf_counter() - begun))
print(sorted(rates)[len(rates) // 2] if found else 0, found.group() if found else "none")
"""


def kvik(kind, threads):
    out = subprocess.run(["build/release/bench_mm", "--type", kind, "--threads", threads, "--tokens", str(TOKENS), "--k", str(K),
                          "--rows", str(ROWS), "--rate", str(MILLISECONDS)], check=True, capture_output=True, text=True).stdout
    rate, isa = out.split()
    return float(rate), isa


def blas(threads):
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    python = os.environ.get("KVIK_REFERENCE_PYTHON") or sys.executable
    rate, name = subprocess.run([python, "-c", BLAS], check=True, capture_output=True, text=True,
                                env=dict(os.environ, **dict.fromkeys(names, threads))).stdout.split()
    return float(rate), name


def main():
    threads = sys.argv[1] if len(sys.argv) > 1 else str(os.cpu_count())
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rates, isa, name = {k: [] for k in (*QUANTIZED, *FLOATS, "BLAS")}, "", ""
    for _ in range(rounds):
        for kind in (*QUANTIZED, *FLOATS):
            rate, isa = kvik(kind, threads)
            rates[kind].append(rate)
        rate, name = blas(threads)
        rates["BLAS"].append(rate)
    print(f"{TOKENS} tokens, K {K}, {ROWS} rows, {threads} threads, {isa}; float32 of a BLAS: {name}")
    if name == "none":
        print("this NumPy has no OpenBLAS, MKL or BLIS: apt-get install libopenblas0, or KVIK_REFERENCE_PYTHON=venv/bin/python")
        del rates["BLAS"]
    for kind, own in rates.items():
        base = "q4_1" if kind in QUANTIZED else "BLAS"
        text = f"{kind:<5} {statistics.median(own):6.1f} G multiply-adds/s"
        if base in rates:
            ratios = [a / b for a, b in zip(own, rates[base])]
            text += f", {statistics.median(ratios):.2f} of {base}{steady.mark(ratios)}"
        print(text, flush=True)


main()
