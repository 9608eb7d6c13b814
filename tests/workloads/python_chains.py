#!/usr/bin/env python3
"""Threads with known Python stacks, each of which says what its stack is and then stays there.

For every scenario one JSON line is printed:
    {"scenario", "state": "spinning" | "sleeping", "tid", "ident" (pthread_self), "tstate" (PyThreadState),
     "frames": [{"code", "name", "qualname", "file", "line", "first_line"}, ...]}     leaf first
A sub-interpreter has "outer" besides, the frames of the interpreter that called it, and no "tstate".
The frames are what sys._getframe gave at `announce`; the line of the leaf is the next one, on which the thread then
stays. After the last comes {"ready": true, "pid"}. The program ends when its standard input does, or after
--duration seconds.

usage: python_chains.py [--duration SECONDS] [--only NAME[,NAME...]] [--list]
Runs on CPython 3.6 and later; needs nothing but the standard library.
"""
import argparse
import asyncio
import ctypes
import functools
import importlib.util
import json
import os
import sys
import threading
import time

go = True
announced = 0
printing = threading.Lock()
pythonapi_state = ctypes.pythonapi.PyGILState_GetThisThreadState
pythonapi_state.restype = ctypes.c_void_p


def chain(frame):
    """The frames of a stack, in the printed form."""
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append({
            "code": id(code),
            "name": code.co_name,
            "qualname": getattr(code, "co_qualname", code.co_name),
            "file": code.co_filename,
            "line": frame.f_lineno,
            "first_line": code.co_firstlineno,
        })
        frame = frame.f_back
    return frames


def announce(state):
    """Prints the stack of the caller, which stays on the line after this call."""
    global announced
    frames = chain(sys._getframe(1))
    frames[0]["line"] += 1
    thread = threading.current_thread()
    line = json.dumps({
        "scenario": thread.name,
        "state": state,
        "tid": threading.get_native_id() if hasattr(threading, "get_native_id") else 0,
        "ident": thread.ident,
        "tstate": pythonapi_state(),
        "frames": frames,
    })
    with printing:
        announced += 1
        print(line, flush=True)


def spin(*_):
    announce("spinning")
    while go: pass
    return 0


def sleep(*_):
    announce("sleeping")
    time.sleep(1e6)


# --- Python calls Python -------------------------------------------------------------------------------------------

def recursion(depth):
    return spin() if depth == 0 else recursion(depth - 1)


def closure():
    def inner():
        return (lambda: spin())()
    return inner()


def comprehension():
    return [spin() for _ in range(1)]


def generator_leaf():
    yield spin()


def generators():
    def middle():
        yield from generator_leaf()

    return next(value for value in middle())


def decorated():
    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)
        return wrapper

    @decorator
    @decorator
    def target():
        spin()

    target()


def context_and_exception():
    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            spin()
            return True

    with Manager():
        raise ValueError


def finalizer():
    class Dying:
        def __del__(self):
            spin()

    thing = Dying()
    del thing


def coroutines():
    async def leaf():
        await asyncio.sleep(0)
        spin()

    async def middle():
        return await leaf()

    async def outer():
        await asyncio.gather(middle())

    loop = asyncio.new_event_loop()
    loop.run_until_complete(outer())


# --- C calls Python ------------------------------------------------------------------------------------------------

def sort_key():
    sorted([2, 1], key=spin)


def sort_compare():
    class Item:
        def __lt__(self, other):
            return spin()

    sorted([Item(), Item()])


def reduce_and_map():
    return functools.reduce(lambda a, b: list(map(spin, [b])), [1, 2])


def quicksort():
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    array = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(array, ctypes.c_size_t(2), ctypes.c_size_t(4), compare(lambda a, b: spin()))


def nested_callbacks(depth=20):
    return spin() if depth == 0 else max([depth], key=lambda d: nested_callbacks(d - 1))


def property_and_getattr():
    class Outer:
        @property
        def value(self):
            return self.missing

        def __getattr__(self, name):
            return spin()

    return getattr(Outer(), "value")


def module_import():
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "deepctx_no_such_module":
                sleep()

    sys.meta_path.insert(0, Finder())
    try:
        import deepctx_no_such_module  # noqa: F401
    except ImportError:
        pass


# --- Names and files -----------------------------------------------------------------------------------------------

def größe_λ():
    class Ünïcode:
        def メソッド(self):
            spin()

    Ünïcode().メソッド()


def executed():
    source = "def f():\n    g()\n\n\ndef g(): spin()\n\n\nf()\n"
    exec(compile(source, "/tmp/файл 🙀;é.py", "exec"), {"spin": spin})


def executed_string():
    eval("(lambda: spin())()", {"spin": spin})


def long_line_table():
    body = "".join("    x = (%d +\n         1)\n\n" % i for i in range(3000))
    scope = {"spin": spin}
    exec(compile("def long():\n" + body + "    spin()\n", "<long>", "exec"), scope)
    scope["long"]()


# --- The GIL is released -------------------------------------------------------------------------------------------

def sleeping():
    recursion_asleep(10)


def recursion_asleep(depth):
    return sleep() if depth == 0 else recursion_asleep(depth - 1)


def locked():
    lock = threading.Lock()
    lock.acquire()
    announce("sleeping")
    lock.acquire()


def reading():
    end, _ = os.pipe()
    announce("sleeping")
    os.read(end, 1)


def foreign_sleep():
    nap = ctypes.CDLL(None).sleep
    announce("sleeping")
    nap(1000000)


def extension():
    # Built by the tests; see python_known.c.
    import python_known
    announce("spinning")
    python_known.released()


def numpy_sort():
    import numpy
    numbers = numpy.random.default_rng(1).random(1 << 20)
    # A method in C: the function numpy.sort has a Python frame of its own.
    announce("spinning")
    while go: numbers.sort()


# --- Sub-interpreters ----------------------------------------------------------------------------------------------

# Up to 3.12 a thread that spins in one interpreter never yields to those of another, so it reports itself when all is
# ready, and the program must be killed.
INSIDE = """
import json, os, sys, _thread

def announce(outer):
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append({"code": id(code), "name": code.co_name, "qualname": getattr(code, "co_qualname", code.co_name),
                       "file": code.co_filename, "line": frame.f_lineno, "first_line": code.co_firstlineno})
        frame = frame.f_back
    frames[0]["line"] += 1
    line = json.dumps({"scenario": "sub-interpreter", "state": "spinning", "tid": getattr(_thread, "get_native_id", int)(),
                       "ident": _thread.get_ident(), "frames": frames, "outer": outer})
    ready = json.dumps({"ready": True, "pid": os.getpid()})
    os.write(1, line.encode() + b"\\n" + ready.encode() + b"\\n")

def within(depth):
    if depth: return within(depth - 1)
    announce(OUTER)
    while True: pass

max([3], key=within)
"""


def sub_interpreter():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    # With a separate memory allocator, the interpreters of 3.12 and 3.13 crash when a thread creates them.
    own = {12: {"isolated": False}, 13: {"config": "legacy"}}.get(sys.version_info[1], {})
    inner = interpreters.create(**own)
    outer = chain(sys._getframe())
    outer[0]["line"] += 3
    script = INSIDE.replace("OUTER", repr(outer))
    interpreters.run_string(inner, script)


SCENARIOS = {
    "recursion-5": lambda: recursion(5),
    "recursion-900": lambda: recursion(900),
    "closure": closure,
    "comprehension": comprehension,
    "generators": generators,
    "decorated": decorated,
    "context": context_and_exception,
    "finalizer": finalizer,
    "coroutines": coroutines,
    "sort-key": sort_key,
    "sort-compare": sort_compare,
    "reduce": reduce_and_map,
    "quicksort": quicksort,
    "nested-callbacks": nested_callbacks,
    "property": property_and_getattr,
    "import": module_import,
    "non-ascii": größe_λ,
    "executed": executed,
    "executed-string": executed_string,
    "long-line-table": long_line_table,
    "sub-interpreter": sub_interpreter,
    "extension-released": extension,
    "numpy-released": numpy_sort,
    "sleeping": sleeping,
    "locked": locked,
    "reading": reading,
    "foreign-sleep": foreign_sleep,
}


NEEDS = {"extension-released": "python_known", "numpy-released": "numpy"}
# Scenarios that import modules when they run, with the modules.
IMPORTED = {"extension-released": "python_known", "numpy-released": "numpy.random"}


def possible(name):
    """Among the others a sub-interpreter waits too long for its turn: it runs only if it is named."""
    if name == "sub-interpreter":
        return False
    return name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None


def arrived():
    """Whether every thread is on the line after its announcement."""
    inside = {announce.__code__, threading.Thread.start.__code__}
    return not any(frame.f_code in inside for frame in sys._current_frames().values())


def main():
    global go
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--duration", type=float, help="seconds; without it, until standard input ends")
    parser.add_argument("--only", help="comma-separated names of scenarios")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(filter(possible, SCENARIOS))
    if arguments.list:
        print("\n".join(SCENARIOS))
        return
    sys.setrecursionlimit(5000)
    # Up to 3.11 a thread that stays within an import keeps others from importing anything.
    for name in filter(IMPORTED.get, names):
        importlib.import_module(IMPORTED[name])
    # Threads that already spin would keep the others from getting there.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    for name in names:
        threading.Thread(target=SCENARIOS[name], name=name, daemon=True).start()
    while announced < len(names) or not arrived():
        time.sleep(0.01)
    sys.setswitchinterval(interval)
    with printing:
        print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    if arguments.duration is None:
        sys.stdin.read()
    else:
        time.sleep(arguments.duration)
    go = False
    os._exit(0)


if __name__ == "__main__":
    main()
