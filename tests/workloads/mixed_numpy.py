"""A small numeric service: Python, numpy and a C++ extension on several threads, until killed.

Owns: the kinds of work that real programs mix: numpy with the GIL released, callbacks from C into Python, a C++
extension without frame pointers, plain Python, and a thread that mostly waits. Because: the demo should show all of
them in one profile. Does not: compute anything useful.
"""

import json
import os
import threading
import time

# The workers use two CPUs; BLAS threads would only spin beside them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import burn


def load_batch(generator):
    """Random rows, sorted: numpy's own C code."""
    rows = generator.standard_normal((256, 256))
    rows.sort(axis=1)
    return rows


def normalize(row):
    """Called back from numpy for each row."""
    low, high = row.min(), row.max()
    return (row - low) / (high - low)


def features(rows):
    """Matrix products run in BLAS with the GIL released."""
    scaled = np.apply_along_axis(normalize, 1, rows)
    return np.tanh(scaled @ scaled.T)


def simulate(depth, steps):
    """Python recursion that ends in C++ recursion."""
    if depth == 0:
        return burn.spin(24, steps)
    return simulate(depth - 1, steps) ^ depth


def score(matrix):
    """Result of the extension for the features."""
    return simulate(8, 40_000) % 997 + float(matrix.trace())


def describe(matrix):
    """Plain Python and the standard library's C accelerator."""
    words = {f"row{i}": round(float(value), 3) for i, value in enumerate(matrix[0])}
    return len(json.dumps(words, sort_keys=True))


def serve(seed):
    """One worker."""
    generator = np.random.default_rng(seed)
    while True:
        matrix = features(load_batch(generator))
        score(matrix)
        describe(matrix)


def watch():
    """A thread that is off the CPU nearly all the time."""
    while True:
        time.sleep(0.05)


def main():
    """Start the workers and wait forever."""
    for seed in range(2):
        threading.Thread(target=serve, args=(seed,), name=f"worker-{seed}", daemon=True).start()
    threading.Thread(target=watch, name="watch", daemon=True).start()
    print("ready", os.getpid(), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
