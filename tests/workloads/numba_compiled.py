"""Functions that numba compiles, for the tests of generated code.

LLVM places the code and the frame information of each object anywhere in the address space, and registers both with the
C runtime and with debuggers. `late` is compiled at a line on standard input, next to code that already runs.
"""

import os
import sys
import threading
import time

import numba


@numba.njit
def hot(n):
    total = 0.0
    for i in range(n):
        total = total * 0.999 + (i % 7) ** 0.5
    return total


@numba.njit
def descend(depth, n):
    # The compiler keeps the call of a recursion.
    if depth == 0:
        return hot(n)
    return descend(depth - 1, n) * 0.5 + depth


@numba.njit
def late(depth, n):
    if depth == 0:
        return hot(n) + 1.0
    return late(depth - 1, n) * 0.25 + depth


run = descend


def compile_late():
    global run
    sys.stdin.readline()
    late(10, 10)
    run = late
    print("late", time.monotonic_ns(), flush=True)


descend(10, 10)
threading.Thread(target=compile_late, daemon=True).start()
print("ready", os.getpid(), flush=True)
while True:
    run(10, 200_000)
