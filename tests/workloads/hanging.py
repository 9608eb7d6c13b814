"""A training run whose loaders and trainer deadlock (docs/hang.md). Prints `ready` once all of them wait."""
import queue
import threading

lock = threading.Lock()
batches = queue.Queue(maxsize=2)


def load():
    while True:
        with lock:
            batches.put([0] * 64)


def train():
    while True:
        with lock:
            batches.get()


loaders = [threading.Thread(target=load, daemon=True) for _ in range(3)]
for loader in loaders:
    loader.start()
# Until one of them waits for room, holding the lock.
while not batches.not_full._waiters:
    pass
print("ready", flush=True)
train()
