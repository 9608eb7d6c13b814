"""A task whose awaiter lies in a page of a file, which may never answer: `silent_tasks.py FILE`. It computes until it
is killed, and never touches the page itself.
"""

import asyncio
import ctypes
import gc
import os
import sys

# Offsets after the object header: `fut_awaited_by` (3.14), or `fut_callback0`.
OFFSET = 80 if sys.version_info >= (3, 14) else 8


def mapped(path):
    file = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    read, shared = 1, 1
    page = libc.mmap(None, 65536, read, shared, file, 0)
    assert page is not None and page != ctypes.c_void_p(-1).value
    return page


def spin():
    return sum(range(1000))


async def work(page):
    task = asyncio.current_task()
    ctypes.c_uint64.from_address(id(task) + object.__basicsize__ + OFFSET).value = page
    print("ready", os.getpid(), flush=True)
    while True:
        spin()


if sys.version_info < (3, 11):
    sys.exit("tasks are read from Python 3.11 on")
# It would visit the awaiter.
gc.disable()
asyncio.run(work(mapped(sys.argv[1])))
