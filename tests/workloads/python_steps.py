#!/usr/bin/env python3
"""Calls one function again and again, and says when it did.

The first line is {"ready": true, "pid"}. It ends with SIGTERM, after a line for each call and one more {"ready": true}:
    {"tid": THREAD, "ns": CLOCK_MONOTONIC within the call}
Each tenth call is made by a thread of its own.
"""
import json
import os
import signal
import threading
import time

calls = []
ended = []


class Trainer:
    def step(self, seconds):
        calls.append((threading.get_native_id(), time.monotonic_ns()))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass

    def other(self):
        # Has the same name as the one that is watched.
        def step():
            return self

        return step()


def main():
    trainer = Trainer()
    # What interpreters rewrite at first is rewritten by now.
    for _ in range(50):
        trainer.step(0)
    calls.clear()
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    n = 0
    while not ended:
        n += 1
        if n % 10 == 0:
            thread = threading.Thread(target=trainer.step, args=(0.001,))
            thread.start()
            thread.join()
        else:
            trainer.step(0.001)
        trainer.other()
        time.sleep(0.01)
    for tid, ns in calls:
        print(json.dumps({"tid": tid, "ns": ns}))
    print(json.dumps({"ready": True}), flush=True)


main()
