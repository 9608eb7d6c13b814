#!/usr/bin/env python3
"""Threads that compute in C with the GIL released, each of which first prints its Python stack.

Prints the lines that python_chains.py prints: one per thread, {"scenario", "state", "tid", "frames"} with the
leaf first, then {"ready": true}. Ends when its standard input does.
"""
import hashlib
import json
import os
import sys
import threading

printing = threading.Lock()
started = threading.Semaphore(0)


def announce():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        qualname = getattr(code, "co_qualname", code.co_name)
        frames.append({"code": id(code), "line": frame.f_lineno, "qualname": qualname})
        frame = frame.f_back
    frames[0]["line"] += 1
    line = {"scenario": threading.current_thread().name, "state": "computing"}
    with printing:
        print(json.dumps({**line, "tid": threading.get_native_id(), "frames": frames}), flush=True)
    started.release()


def key_derivation(depth):
    if depth:
        return key_derivation(depth - 1)
    announce()
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2_000_000_000)


THREADS = {"pbkdf2": lambda: key_derivation(0), "pbkdf2 deep": lambda: key_derivation(300)}

for name, body in THREADS.items():
    threading.Thread(target=body, name=name, daemon=True).start()
for _ in THREADS:
    started.acquire()
with printing:
    print(json.dumps({"ready": True}), flush=True)
sys.stdin.read()
os._exit(0)
