#!/usr/bin/env python3
"""Short tasks of two names, one after another at the same addresses: `odd` runs `odd()`, `even` runs `even()`.

A stack that shows another pair got the name of a task that reused the address of the one that ran.

usage: python_async_turns.py      (CPython 3.11 and later; ends with its standard input)
"""
import asyncio
import json
import os
import random
import sys
import threading
import time


def spin():
    end = time.monotonic() + 0.003
    while time.monotonic() < end: pass


def odd():
    spin()


def even():
    spin()


async def work(turn):
    turn()


async def main():
    while True:
        turn = random.choice((odd, even))
        await asyncio.create_task(work(turn), name=turn.__name__)


print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
asyncio.run(main())
