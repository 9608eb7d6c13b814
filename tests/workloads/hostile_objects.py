"""Interpreters with falsified objects, one process per falsification, until killed. Prints `ready` once all are set up.

Owns: a thread that computes without the GIL, while other code overwrites its frames, its code object and its state.
Because: a profiler reads these objects as the owner of the interpreter left them. Does not: break the interpreter
before it is killed; that thread never returns to the objects.
"""

import asyncio
import ctypes
import gc
import hashlib
import mmap
import os
import random
import sys
import threading
import time

WORD = 8
LENGTH = 2 * WORD  # Of an object with a length: after the reference count and the type.
HUGE = 1 << 31
KEPT = []
WILD = [0, 8, 0x4141414141414140, 0x00007FFFFFFFF000, 0xFFFF888000000000, 0xFFFFFFFFFFFFFFF8]


class Words:
    """Memory from an address on, as words."""

    def __init__(self, address):
        self.address = address

    def __getitem__(self, n):
        return ctypes.c_uint64.from_address(self.address + n * WORD).value

    def __setitem__(self, n, value):
        ctypes.c_uint64.from_address(self.address + n * WORD).value = value & 0xFFFFFFFFFFFFFFFF

    def place_of(self, value, most=64):
        """Index of the first word with this value."""
        return next(n for n in range(most) if self[n] == value)


def compute():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 0x7FFFFFFF)


class Thread:
    """A thread that computes below two functions of its own, and the addresses of its objects."""

    def __init__(self):
        # Private objects, so that nothing else in the interpreter reads them.
        lines = bytes(bytearray(compute.__code__.co_linetable))
        self.code = compute.__code__.replace(co_name=f"spin {os.getpid()}", co_linetable=lines)
        spin = type(compute)(self.code, globals())
        state = []

        def within():
            get = ctypes.pythonapi.PyThreadState_Get
            get.restype = ctypes.c_void_p
            state.append(get())
            spin()

        thread = threading.Thread(target=within, daemon=True)
        thread.start()
        while not self.computes(thread):
            time.sleep(0.01)
        self.state = Words(state[0])
        self.frame = frame_of(self.object)
        self.caller = frame_of(self.object.f_back)

    def computes(self, thread):
        self.object = sys._current_frames().get(thread.ident)
        return self.object is not None and self.object.f_code is self.code


def frame_of(frame):
    """The frame that the interpreter walks: since 3.11 the object points to it, before that it is the object."""
    return Words(Words(id(frame))[3] if sys.version_info >= (3, 11) else id(frame))


def caller_is_itself(thread):
    thread.frame[thread.frame.place_of(thread.caller.address)] = thread.frame.address


def callers_are_a_ring(thread):
    place = thread.frame.place_of(thread.caller.address)
    thread.caller[place] = thread.frame.address


def caller_is_anywhere(thread):
    place = thread.frame.place_of(thread.caller.address)
    while True:
        thread.frame[place] = random.choice(WILD)


def code_is_anywhere(thread):
    place = thread.frame.place_of(id(thread.code))
    while True:
        thread.frame[place] = random.choice(WILD)


def code_is_its_frame(thread):
    thread.frame[thread.frame.place_of(id(thread.code))] = thread.frame.address


def huge(of):
    """Address of a copy of an object with a length of two gigabytes, all of them readable."""
    memory = mmap.mmap(-1, HUGE + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memmove(address, id(of), sys.getsizeof(of))
    Words(address + LENGTH)[0] = HUGE
    KEPT.append(memory)
    return address


def name_is_huge(thread):
    code = Words(id(thread.code))
    code[code.place_of(id(thread.code.co_name))] = huge(thread.code.co_name)


def name_is_its_code(thread):
    code = Words(id(thread.code))
    for text in (thread.code.co_name, thread.code.co_filename):
        code[code.place_of(id(text))] = id(thread.code)


def lines_are_huge(thread):
    code, lines = Words(id(thread.code)), thread.code.co_linetable
    code[code.place_of(id(lines))] = huge(lines)


def code_is_garbage(thread):
    code = Words(id(thread.code))
    words = [code[n] for n in range(2, 22)]
    while True:
        n = random.randrange(2, 22)
        code[n] = random.choice([*WILD, random.getrandbits(64), id(thread.code), words[n - 2]])


def states_are_a_ring(thread):
    thread.state[0] = thread.state[1] = thread.state.address


def state_is_garbage(thread):
    words = [thread.state[n] for n in range(1, 40)]
    while True:
        n = random.randrange(1, 40)
        thread.state[n] = random.choice([*WILD, random.getrandbits(64), thread.state.address, words[n - 1]])


async def waits_for(others):
    await asyncio.gather(*others)


async def spins():
    compute()


async def waits_in_rings(ready):
    """Tasks that wait for each other, and ten thousand that wait for the one that computes."""
    first = asyncio.ensure_future(spins())
    ring = []
    ring.append(asyncio.ensure_future(waits_for_ring(first, ring, 1)))
    ring.append(asyncio.ensure_future(waits_for_ring(first, ring, 0)))
    for _ in range(10000):
        asyncio.ensure_future(waits_for([first]))
    threading.Timer(1, ready).start()
    await first


async def waits_for_ring(first, ring, other):
    await asyncio.gather(first, ring[other])


def of_threads(lie, ready):
    thread = Thread()
    gc.disable()
    ready()
    lie(thread)
    while True:
        time.sleep(3600)


def tasks_are_a_ring(ready):
    asyncio.run(waits_in_rings(ready))


LIES = [
    caller_is_itself,
    callers_are_a_ring,
    caller_is_anywhere,
    code_is_anywhere,
    code_is_its_frame,
    name_is_huge,
    name_is_its_code,
    lines_are_huge,
    code_is_garbage,
    states_are_a_ring,
    state_is_garbage,
]


def main():
    reader, writer = os.pipe()
    for lie in [*LIES, tasks_are_a_ring]:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 9)  # Ends with its parent.
            os.nice(15)

            def ready():
                os.write(writer, b".")

            if lie is tasks_are_a_ring:
                lie(ready)
            of_threads(lie, ready)
    lying = 0
    while lying <= len(LIES):
        lying += len(os.read(reader, 64))
    print("ready", flush=True)
    while True:
        # Processes that ended could not set up their falsification.
        pid, status = os.wait()
        print(f"ended {status}", flush=True)


main()
