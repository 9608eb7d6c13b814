"""Trains with a data loader and names its own parts: `torch_steps.py RECORD STEPS`.

For each of STEPS steps it writes one line to RECORD, in nanoseconds: the time from the end of the previous optimizer
step to the end of its own, and the duration of its range `work`. Then it sleeps until killed.
"""

import contextlib
import sys
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
data = torch.utils.data.TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))


@contextlib.contextmanager
def named(name):
    with torch.profiler.record_function(name):
        yield


def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def work():
    with named("work"):
        busy(0.002)
        with torch.profiler.record_function("inner"):
            busy(0.003)


def train(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()


def batches():
    while True:
        yield from torch.utils.data.DataLoader(data, batch_size=64)


steps = int(sys.argv[2])
lines, before = [], None
print("ready", flush=True)
sys.stdin.readline()
for _, (x, y) in zip(range(steps), batches()):
    train(x, y)
    now = time.monotonic_ns()
    began = time.monotonic_ns()
    work()
    took = time.monotonic_ns() - began
    if before is not None:
        lines.append(f"{now - before} {took}\n")
    before = now
with open(sys.argv[1], "w") as record:
    record.writelines(lines)
print("done", flush=True)
time.sleep(1000)
