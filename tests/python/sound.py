"""A recording for tests and for the programs that write their fixtures."""
import numpy as np


def sound(n):
    """Returns n samples at 16 000 Hz: triangle waves with a rising pitch and noise from an integer generator, exact in
    float32; 4 000 from the middle on are silent."""
    i = np.arange(n, dtype=np.int64)
    wave = np.abs((i * (40 + i // 16)) % 4096 - 2048) - 1024
    x, noise = 12345, np.empty(n, dtype=np.int64)
    for k in range(n):
        x = (x * 1103515245 + 12345) % 2**31
        noise[k] = (x >> 16) % 256 - 128
    out = wave * 8 + noise * (i % 8192 // 64)
    out[n // 2:n // 2 + 4000] = 0
    return (out / 32768.0).astype(np.float32)
