"""A training whose loaders and trainer wait for each other for good (docs/hang.md). Says `ready` once they all do."""
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
# Until one of them waits for room, with the lock.
while not batches.not_full._waiters:
    pass
print("ready", flush=True)
train()
