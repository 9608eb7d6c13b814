"""Ranks of a distributed job, one of which never reaches the collective that the others wait in.

`ranks.py LATE`: starts four ranks as `torchrun` does, through their environment. Rank LATE waits for its data, the
others wait for each other; all end with the process that started them. Prints `ready` once all of them wait.
"""

import os
import signal
import socket
import subprocess
import sys
import threading

SIZE = 4


def load():
    return os.read(0, 1)


def all_reduce():
    return socket.socket(fileno=0).recv(1)


def step(rank, late):
    if rank == late:
        load()
    all_reduce()


def train(late):
    threading.Thread(target=threading.Event().wait, name="watchdog", daemon=True).start()
    print("there", flush=True)
    step(int(os.environ["RANK"]), late)


def launch(late):
    job = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid())}
    command = [sys.executable, __file__, late, "rank"]
    started = []
    for rank in range(SIZE):
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **job, "RANK": str(rank)}
        process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=subprocess.PIPE)
        started.append((process, ours))
    for process, _ in started:
        process.stdout.readline()
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(int(sys.argv[1]))
    else:
        launch(sys.argv[1])
