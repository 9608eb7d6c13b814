#!/usr/bin/env python3
"""Python above the C code of its own library, on two threads, with system calls: a profile with frames of every kind.

Needs only Python. Each thread computes for the seconds of CPU time in its first argument: on a busy machine, the same
time of a clock has fewer samples.
"""
import hashlib
import json
import os
import sys
import threading
import time
import zlib


def compress(text):
    return zlib.compress(text, 6)


def digest(text):
    return hashlib.pbkdf2_hmac("sha256", text[:64], b"salt", 300)


def encode(depth, value):
    if depth:
        return encode(depth - 1, [value])
    return json.dumps(value)


def files():
    return [os.stat(name) for name in os.listdir("/proc/self/fd") for name in ("/", "/proc")]


def work(seconds):
    text = os.urandom(4096) * 4
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        compress(text)
        digest(text)
        encode(20, {"key": list(range(200))})
        files()
        sum(n * n for n in range(2000))


seconds = float(sys.argv[1])
helper = threading.Thread(target=work, args=(seconds,), name="helper")
helper.start()
work(seconds)
helper.join()
