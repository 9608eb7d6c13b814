#!/usr/bin/env python3
"""Python above the C code of its own library, on two threads, with system calls: a profile with frames of every kind.

Needs only Python. Runs for the number of seconds in its first argument.
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


def work(until):
    text = os.urandom(4096) * 4
    while time.monotonic() < until:
        compress(text)
        digest(text)
        encode(20, {"key": list(range(200))})
        files()
        sum(n * n for n in range(2000))


until = time.monotonic() + float(sys.argv[1])
helper = threading.Thread(target=work, args=(until,), name="helper")
helper.start()
work(until)
helper.join()
