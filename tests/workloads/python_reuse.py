#!/usr/bin/env python3
"""Creates functions, runs each for a few milliseconds and drops it: their code objects share addresses.

Function `f<n>` is only ever called by `turn<n % 4>`, so a stack that shows another pair got its name from a code object
that reused the address of the one that ran.

usage: python_reuse.py      (ends with its standard input)
"""
import json
import os
import sys
import threading
import time

SOURCE = "def f%d(until, now):\n    while now() < until:\n        pass\n"


def turn0(function):
    function(time.monotonic() + 0.003, time.monotonic)


def turn1(function):
    function(time.monotonic() + 0.003, time.monotonic)


def turn2(function):
    function(time.monotonic() + 0.003, time.monotonic)


def turn3(function):
    function(time.monotonic() + 0.003, time.monotonic)


def main():
    turns, n = (turn0, turn1, turn2, turn3), 1000
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        scope = {}
        # The same length each time, so that every part may land at the address of the previous one.
        n = n + 1 if n < 9999 else 1000
        exec(compile(SOURCE % n, "<made>", "exec"), scope)
        turns[n % 4](scope["f%d" % n])


main()
