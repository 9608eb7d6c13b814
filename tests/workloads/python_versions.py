#!/usr/bin/env python3
"""Stays in `stay_N` of CPython 3.N, below `main`; starts other interpreters likewise, or becomes another one.

usage: python_versions.py                       stays until its standard input ends
       python_versions.py --spawn PROGRAM...    starts each of these interpreters with this program, then stays
       python_versions.py --exec PROGRAM FILE   stays until the first byte of the file is 1, then becomes this interpreter
                                                with this program
Prints {"ready": true, "pid"} once all started processes have. Runs on CPython 3.6 and later.
"""
import functools
import json
import mmap
import operator
import os
import subprocess
import sys
import threading
import time

SOURCE = """
def stay_%d(until, now):
    while now() < until:
        pass
"""


def environment():
    # The library paths of this interpreter are wrong for another one.
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}


def spawned(program):
    child = subprocess.Popen(
        [program, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    child.stdout.readline()
    return child


def main():
    mode, programs = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    children = [spawned(program) for program in programs] if mode == "--spawn" else []
    scope = {}
    exec(compile(SOURCE % sys.version_info[1], __file__, "exec"), scope)
    stay = scope["stay_%d" % sys.version_info[1]]
    os.write(1, json.dumps({"ready": True, "pid": os.getpid()}).encode() + b"\n")
    if mode == "--exec":
        with open(programs[1], "rb") as file:
            flag = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
        # Not a Python function, which would be a frame.
        stay(1, functools.partial(operator.getitem, flag, 0))
        os.execve(programs[0], [programs[0], __file__], environment())
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    stay(time.time() + 1e6, time.time)
    return children


main()
