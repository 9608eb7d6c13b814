#!/usr/bin/env python3
"""Tasks of asyncio that await each other in every usual way, each of which prints its awaiters and then spins.

Every task that spins prints one JSON line when it first does:
    {"leaf": NAME, "chain": [TEXT, ...]}       root first, from the outermost awaiting task to the leaf's functions
A text is `[task NAME]`, `[task]` for a task that asyncio named by counting, or `file:function:line` as in folded
stacks. The chain is the program's own account: the parent of each task is recorded when the task is created, and lines
are those of the waiting frames. The last line is {"ready": true, "pid"}. Ends with its standard input.

usage: python_async.py        (CPython 3.11 and later)
"""
import asyncio
import json
import os
import sys
import threading
import time

FILE = os.path.basename(__file__)
# Task → the task that awaits it.
awaited_by = {}
reported = set()
LEAVES = 10


def say(what):
    # In one write: two threads print.
    os.write(1, json.dumps(what).encode() + b"\n")


def label(task):
    name = task.get_name()
    return "[task]" if name.startswith("Task-") and name[5:].isdigit() else f"[task {name}]"


def waiting(coroutine):
    """The frames of a waiting coroutine, and of those that it waits for, outermost first."""
    texts = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            break
        name = getattr(coroutine, "__qualname__", coroutine.cr_code.co_name)
        texts.append(f"{os.path.basename(frame.f_code.co_filename)}:{name}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return texts


def tell(leaf):
    """Prints the chain of the running task once, without the frames that run."""
    if leaf in reported:
        return
    task = asyncio.current_task()
    chain = [label(task)]
    while task in awaited_by:
        task = awaited_by[task]
        chain[:0] = [label(task), *waiting(task.get_coro())]
    say({"leaf": leaf, "chain": chain})
    reported.add(leaf)


def spin(leaf):
    tell(leaf)
    end = time.monotonic() + 0.02
    while time.monotonic() < end: pass


async def work(leaf):
    while True:
        await asyncio.sleep(0)
        spin(leaf)


async def named(leaf):
    await work(leaf)


def made(coroutine, name=None):
    """A task that the running one will await."""
    task = asyncio.create_task(coroutine) if name is None else asyncio.create_task(coroutine, name=name)
    awaited_by[task] = asyncio.current_task()
    return task


async def directly():
    await made(named("direct"), "größe: direct")


async def counted():
    await made(named("counted"))


async def gathered():
    await asyncio.gather(made(named("gather-1"), "gather-1"), made(named("gather-2"), "gather-2"))


async def grouped():
    async with asyncio.TaskGroup() as group:
        for leaf in ("group-1", "group-2"):
            task = group.create_task(named(leaf), name=leaf)
            awaited_by[task] = asyncio.current_task()


async def shielded():
    await asyncio.shield(made(named("shield"), "shield"))


async def waited():
    await asyncio.wait([made(named("wait"), "wait")])


async def limited():
    await asyncio.wait_for(made(named("limit"), "limit"), 1e6)


async def deep(levels):
    if levels:
        await made(deep(levels - 1), f"level-{levels}")
    await named("deep")


async def main():
    ways = [directly(), counted(), gathered(), grouped(), shielded(), waited(), limited(), deep(5)]
    asyncio.current_task().set_name("main")
    await asyncio.gather(*(made(way, way.__name__) for way in ways))


def ready():
    while len(reported) < LEAVES:
        time.sleep(0.01)
    say({"ready": True, "pid": os.getpid()})
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=ready, daemon=True).start()
asyncio.run(main())
