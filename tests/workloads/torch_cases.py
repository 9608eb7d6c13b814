"""Training loops with one defect each, and their twins without it: `torch_cases.py FOLDER`.

Waits for a line on its input, then runs each loop below `defect` and below `twin`, one after the other; prints `done`
after the last. Files go to FOLDER. The loop with many workers continues until a file `workers-seen` exists there: on a
busy machine the profiler may see each worker process only seconds after its start.

Because: a rule must fire on the defect, at its line, and not in the twin (tests/tests/torch/defects.rs). Loops end
after a fixed CPU time, so that a busy machine takes the same number of samples.
"""

import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)

FOLDER = sys.argv[1]
# CPU time of the training thread: some hundred samples at 499 Hz.
CPU_SECONDS = 1.5
# Steps with a batch: a worker needs far less time for a batch than a step takes.
STEPS = 100


class Made(Dataset):
    """Samples that take this long to read; one of them may never arrive."""

    def __init__(self, seconds, stuck=None):
        self.seconds = seconds
        self.stuck = stuck

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if index == self.stuck:
            os.read(os.pipe()[0], 1)  # line: stuck-sample
        if self.seconds:
            time.sleep(self.seconds)
        return torch.ones(256), index % 10


class Trainer:
    def __init__(self, optimizer):
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
        self.optimizer = optimizer(self.net.parameters())

    def step(self, images, labels):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.net(images), labels).backward()
        self.optimizer.step()


def fused(parameters):
    return torch.optim.Adam(parameters, fused=True)


def share():
    """A function that says whether a loop, from now on, has used its share of CPU time."""
    end = time.thread_time() + CPU_SECONDS
    return lambda: time.thread_time() >= end


def batch():
    return torch.ones(128, 256), torch.zeros(128, dtype=torch.long)


def slow_loader(defect):
    trainer = Trainer(fused)
    # Two seconds per batch, where the steps with one take a quarter: slower than the steps on a busy machine, too.
    loader = DataLoader(Made(0.03 if defect else 0), batch_size=64, num_workers=1, prefetch_factor=4)
    enough = share()
    for images, labels in loader:  # line: slow_loader
        for _ in range(STEPS):
            trainer.step(images, labels)
        if enough():
            break


def many_workers(defect):
    trainer = Trainer(fused)
    workers = 4 * os.cpu_count() if defect else 1
    # Each of many workers makes about fifteen batches in that time.
    steps = STEPS // 5 if defect else STEPS
    loader = DataLoader(Made(0), batch_size=64, num_workers=workers, prefetch_factor=4)
    enough = share()
    for images, labels in loader:  # line: many_workers
        for _ in range(steps):
            trainer.step(images, labels)
        if enough() and (not defect or os.path.exists(os.path.join(FOLDER, "workers-seen"))):
            break


def stuck_worker(defect):
    trainer = Trainer(fused)
    loader = DataLoader(Made(0, 64 * 5 if defect else None), batch_size=64, num_workers=1, timeout=5)
    enough = share()
    try:
        for images, labels in loader:  # line: stuck_worker
            for _ in range(STEPS):
                trainer.step(images, labels)
            if not defect and enough():
                break
    except RuntimeError:
        # The loader gave up its worker.
        pass


def checkpoints(defect):
    trainer = Trainer(fused)
    path = os.path.join(FOLDER, "weights")
    enough = share()
    while not enough():
        trainer.step(*batch())
        if defect:
            torch.save(trainer.net.state_dict(), path)  # line: checkpoints


def layouts(defect):
    layout = torch.contiguous_format if defect else torch.channels_last
    convolution = torch.nn.Conv2d(16, 16, 3).to(memory_format=torch.channels_last)
    images = torch.ones(8, 16, 64, 64).contiguous(memory_format=layout)
    enough = share()
    with torch.no_grad():
        while not enough():
            convolution(images.contiguous(memory_format=torch.channels_last))  # line: layouts


def optimizers(defect):
    net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)))
    optimizer = torch.optim.Adam(net.parameters(), foreach=False, fused=not defect)
    inputs = torch.ones(64, 64)
    enough = share()
    while not enough():
        optimizer.zero_grad()
        net(inputs).sum().backward()
        optimizer.step()  # line: optimizers


def defect(case):
    case(True)


def twin(case):
    case(False)


def main():
    # The imports of the first optimizer belong to no loop.
    Trainer(fused)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for case in [slow_loader, many_workers, stuck_worker, checkpoints, layouts, optimizers]:
        for kind in [defect, twin]:
            began = time.monotonic()
            kind(case)
            print(case.__name__, kind.__name__, f"{time.monotonic() - began:.1f} s", flush=True)
    print("done", flush=True)


main()
