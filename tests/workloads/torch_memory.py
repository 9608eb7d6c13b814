"""Tensors of known sizes, with the program's and PyTorch's own account of them: `torch_memory.py TRACE LINES`.

Prints `ready`, waits for a line on its standard input, trains a little under PyTorch's profiler, which records each
allocation and free, writes that to TRACE, allocates tensors at known lines, writes to LINES a line `file:line bytes`
for each of them, and waits for another line. The account of PyTorch begins and ends with a tensor of a unique size.
"""

import collections
import os
import sys

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
FIRST, LAST = 1234567, 1234569
said = collections.Counter()


def note(tensor):
    """Records the allocation of the caller's line."""
    frame = sys._getframe(1)
    said[f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"] += tensor.untyped_storage().nbytes()
    return tensor


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 128)
        self.second = torch.nn.Linear(128, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def train(net, optimizer, steps):
    for _ in range(steps):
        inputs = torch.randn(32, 64)
        loss = net(inputs).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def known(kept, rounds):
    for n in range(rounds):
        x = note(torch.empty(1000 + n, dtype=torch.uint8))
        y = note(~x)
        kept.append(note(y.clone()))
        inner(x, kept)


def inner(x, kept):
    kept.append(note(torch.zeros(77, 5)))
    del x
    note(torch.ones(3000).relu_())


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    train(net, optimizer, 2)
    known([], 2)
    said.clear()
    print("ready", flush=True)
    sys.stdin.readline()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        first = torch.empty(FIRST, dtype=torch.uint8)
        train(net, optimizer, 20)
        last = torch.empty(LAST, dtype=torch.uint8)
    profiler.export_chrome_trace(sys.argv[1])
    kept = [first, last]
    known(kept, 30)
    with open(sys.argv[2], "w") as file:
        file.writelines(f"{place} {count}\n" for place, count in sorted(said.items()))
    print("done", flush=True)
    sys.stdin.readline()


main()
