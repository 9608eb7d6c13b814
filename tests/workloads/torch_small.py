"""A training loop of small operators on the CPU with torch, stepped by commands.

Prints `ready PID`, then answers each line of its standard input with the nanoseconds of CPU time that one step took:
`run N` runs N steps, `profile N` runs them under torch's own profiler. It measures the cost of a watched operator.
"""

import os
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
inputs, labels = torch.randn(8, 16), torch.randn(8, 4)


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(inputs), labels)
    loss.backward()
    optimizer.step()


def take(steps):
    began = time.process_time_ns()
    for _ in range(steps):
        step()
    return (time.process_time_ns() - began) // steps


take(500)
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    what, steps = line.split()
    if what == "profile":
        with profile(activities=[ProfilerActivity.CPU]):
            taken = take(int(steps))
    else:
        taken = take(int(steps))
    print(taken, flush=True)
