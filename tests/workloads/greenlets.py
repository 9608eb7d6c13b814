#!/usr/bin/env python3
"""Greenlets that take turns, started at different stack depths, with gevent if it is installed.

Prints `ready PID` once all run. With the argument `switches` they do nothing but switch.
"""
import os
import sys

try:
    import gevent
except ImportError:
    gevent = None
import greenlet


def burn(depth):
    if depth:
        return burn(depth - 1) + 1
    return len(sorted(range(2000), key=lambda x: -x))


def started_below(depth, start):
    return started_below(depth - 1, start) if depth else start()


def turns(depth, give_way):
    only_switches = sys.argv[1:] == ["switches"]
    while True:
        if not only_switches:
            burn(depth)
        give_way()


def with_greenlets():
    hub = greenlet.getcurrent()
    workers = [greenlet.greenlet(turns) for _ in range(20)]
    for n, worker in enumerate(workers):
        # `map` calls from C, so that native frames are in between.
        list(map(lambda _: started_below(n, lambda: worker.switch(5 + n, hub.switch)), [0]))
    print("ready", os.getpid(), flush=True)
    while True:
        for worker in workers:
            worker.switch()


def with_gevent():
    workers = [gevent.spawn(turns, 5 + 3 * n, gevent.sleep) for n in range(20)]
    gevent.sleep(0)
    print("ready", os.getpid(), flush=True)
    gevent.joinall(workers)


with_gevent() if gevent else with_greenlets()
