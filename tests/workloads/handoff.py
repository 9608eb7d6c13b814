#!/usr/bin/env python3
"""Three threads with one waker each: a timer wakes `timed`, `timed` wakes `handed`, a writer to its input wakes `main`.

Prints the ids of the three, then answers each byte of its standard input, after two turns of the others; ends with
its input.
"""
import json
import os
import threading
import time

reading, writing = os.pipe()


def timed():
    while True:
        time.sleep(0.002)
        os.write(writing, b".")


def handed():
    while True:
        os.read(reading, 1)


threads = {"main": threading.get_native_id()}
for work in (timed, handed):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    threads[work.__name__] = thread.native_id
print(json.dumps(threads), flush=True)
while os.read(0, 1):
    time.sleep(0.004)
    os.write(1, b".")
