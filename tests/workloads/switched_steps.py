"""Steps of 300 calls of a library function, for as long as a probe is on its `train_step`: `switched_steps.py LIBRARY`.

Prints the median duration of a step, by its own clock, without and with a probe on the function that it calls.
"""

import ctypes
import os
import statistics
import sys
import time

CALLS = 300
# Bytes of the shortest of these functions: another one follows it.
SHORTEST = 6

library = ctypes.CDLL(sys.argv[1])
try:
    # Ahead of other programs, so that a step takes as long on a busy machine; it sleeps most of the time.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    pass


class Watched:
    """A function, and its code as in its file: the probe may be placed before this program looks."""

    def __init__(self, function):
        self.at = ctypes.cast(function, ctypes.c_void_p).value
        with open("/proc/self/maps") as maps:
            for line in maps:
                words = line.split(maxsplit=5)
                begin, end = (int(word, 16) for word in words[0].split("-"))
                if begin <= self.at < end:
                    with open(sys.argv[1], "rb") as file:
                        file.seek(self.at - begin + int(words[2], 16))
                        self.unwatched = file.read(SHORTEST)
                    return
        raise SystemExit("the function is nowhere")

    def has_probe(self):
        return ctypes.string_at(self.at, SHORTEST) != self.unwatched


step, called = Watched(library.train_step), Watched(library.cuProfilerStart)
until = time.monotonic() + 600


def go_on():
    if time.monotonic() > until:
        raise SystemExit("nobody watches, or nobody stops")
    return True


while not step.has_probe() and go_on():
    time.sleep(0.01)
took = {False: [], True: []}
before, had_probe = None, called.has_probe()
while step.has_probe() and go_on():
    time.sleep(0.005)
    for _ in range(CALLS):
        library.cuProfilerStart()
    library.train_step()
    now, has_probe = time.monotonic_ns(), called.has_probe()
    # Steps during which the probe was placed or removed count as neither.
    if before and has_probe == had_probe:
        took[has_probe].append(now - before)
    before, had_probe = now, has_probe
for has_probe, name in [(False, "without"), (True, "with")]:
    print(name, int(statistics.median(took[has_probe])), flush=True)
