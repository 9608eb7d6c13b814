#!/usr/bin/env python3
"""Calls one function again and again, and says when it did.

The first line is {"ready": true, "pid"}. It ends with SIGTERM, after a line for each call and one more {"ready": true}:
    {"tid": THREAD, "ns": CLOCK_MONOTONIC within the call}
Each tenth call is made by the youngest of some threads, which begin one after another and never end.
"""
import json
import os
import queue
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
        # That is read, but not called; another one has its name.
        assert Trainer.step.__code__.co_code

        def step():
            return self

        return step()


def work(trainer, asked, done):
    while asked.get():
        trainer.step(0.001)
        done.put(True)


def main():
    trainer = Trainer()
    asked, done = None, queue.Queue()
    # What interpreters rewrite at first is rewritten by now.
    for _ in range(1100):
        trainer.step(0)
    calls.clear()
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    n = 0
    while not ended:
        n += 1
        if n % 100 == 50 and n < 1000:
            asked = queue.Queue()
            threading.Thread(target=work, args=(trainer, asked, done), daemon=True).start()
        if n % 10 == 0 and asked:
            asked.put(True)
            done.get()
        else:
            trainer.step(0.001)
        trainer.other()
        time.sleep(0.01)
    for tid, ns in calls:
        print(json.dumps({"tid": tid, "ns": ns}))
    print(json.dumps({"ready": True}), flush=True)
    # Without the end of threads, for which some interpreters want a library that is not everywhere.
    os._exit(0)


main()
