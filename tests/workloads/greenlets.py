#!/usr/bin/env python3
"""Greenlets that take turns, started at different stack depths, with gevent if it is installed.

Prints `ready PID` once all run. With the argument `switches` they do nothing but switch; with `functions` there are
two, and each has functions of its own.
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


ONLY_SWITCHES = "switches" in sys.argv


def turns(depth, give_way):
    while True:
        if not ONLY_SWITCHES:
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


def a_inner(partner):
    if not ONLY_SWITCHES:
        sum(range(20000))
    partner.switch()


def a_outer():
    while True:
        # Called from C, the function has an evaluation frame of its own; here and below through different C functions.
        list(map(a_inner, [B]))


def b_inner(partner):
    if not ONLY_SWITCHES:
        sum(range(20000))
    partner.switch()


def b_outer():
    print("ready", os.getpid(), flush=True)
    while True:
        max([A], key=b_inner)


A, B = greenlet.greenlet(a_outer), greenlet.greenlet(b_outer)

if "functions" in sys.argv:
    # `b` is started by `a`, so all of its stack lies below the one to which `a` returns.
    A.switch()
else:
    with_gevent() if gevent else with_greenlets()
