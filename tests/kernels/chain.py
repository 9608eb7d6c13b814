"""A chain of three functions whose innermost never ends, and a thread that calls one to sleep again and again: what a guest kernel is tested with."""

import threading
import time


def rest():
    time.sleep(0.05)


def nap():
    while True:
        rest()


def inner():
    n = 0
    while True:
        n = (n * 31 + 7) % 1_000_003


def middle():
    inner()


def outer():
    middle()


threading.Thread(target=nap, daemon=True).start()
print("ready")
outer()
