#!/usr/bin/env python3
"""Functions that constantly call each other, through C and directly: most samples fall where frames come and go.

Every call that may be on a sampled stack is marked on its line: `# -> CALLEE`, with `via SYMBOL` if C code of that name
is in between. A stack is right if each Python frame is on a line marked with the next one, and the native frames
between them are the marked ones. There are no functions other than `<module>` and those below.

usage: python_moving.py      (with python_known in the path; ends with its standard input)
"""
import json
import os
import sys
import threading

import python_known


def small(n):
    return n + 1


def pair(n):
    return small(n) + small(n)  # -> small


def third():
    total = 0
    for n in range(3):
        total += pair(n)  # -> pair
    return total


def second():
    python_known.third(third)  # -> third via via_third
    return sorted((3, 1, 2), key=small)  # -> small


def first():
    small(1)  # -> small
    python_known.second(second)  # -> second via via_second
    one, other = even(), odd()
    python_known.values(even())  # -> even via via_values
    python_known.turns(one, other, quick)  # -> even,odd,quick via via_turns
    one = other = None  # -> even,odd


def quick():
    return None


def even():
    for n in range(0, 6, 2):
        yield small(n)  # -> small


def odd():
    yield from even()  # -> even
    yield 1


def deep(n):
    if n == 0:
        return first()  # -> first
    return deep(n - 1)  # -> deep


def root():
    while True:
        python_known.first(first)  # -> first via via_first
        deep(7)  # -> deep
        python_known.first(third)  # -> third via via_first


def main():
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    root()  # -> root


main()  # -> main
