"""A CPU-bound Python + C++ program with stacks of a known shape.

Owns: recursion through Python, then through the extension `burn`, with the work at the leaf, and a count of
iterations. Because: cost per frame and slowdown can only be measured on a program whose stacks and speed are known.
Runs until killed; every quarter of a second it prints `tick ITERATIONS CPU_NS WALL_NS`.
"""

import argparse
import os
import sys
import time

import burn

TICK_NS = 250_000_000


def descend(depth, native_depth, rounds):
    """`depth` Python frames, then the work."""
    if depth <= 1:
        return work(native_depth, rounds)
    return descend(depth - 1, native_depth, rounds) + 0


def distinct(depth, native_depth, rounds):
    """The same depth, with `depth` different functions."""
    below = work
    for level in range(depth - 1):
        names = {"below": below}
        exec(f"def level_{level}(native_depth, rounds):\n    return below(native_depth, rounds) + 0\n", names)
        below = names[f"level_{level}"]
    below(native_depth, rounds)


def work(native_depth, rounds):
    """The loop in which all the time is spent."""
    spin, clock = burn.spin, time.monotonic_ns
    iterations, next_tick = 0, clock()
    while True:
        spin(native_depth, rounds)
        iterations += 1
        if clock() >= next_tick:
            # A pipe without readers ends the program.
            print("tick", iterations, time.process_time_ns(), clock(), flush=True)
            next_tick += TICK_NS


def main():
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python-depth", type=int, default=28, help="Python frames of the recursion")
    parser.add_argument("--native-depth", type=int, default=28, help="native frames of the recursion")
    parser.add_argument("--rounds", type=int, default=20_000, help="steps of the leaf per call")
    parser.add_argument("--distinct", action="store_true", help="a function of its own for each Python frame")
    options = parser.parse_args()
    sys.setrecursionlimit(max(1_000, options.python_depth + 200))
    print("ready", os.getpid(), flush=True)
    shape = distinct if options.distinct else descend
    shape(options.python_depth, options.native_depth, options.rounds)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
