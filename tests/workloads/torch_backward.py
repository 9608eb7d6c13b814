"""Backward passes of every kind, with the program's account of each node's line: `torch_backward.py FILE STEPS`.

Prints `ready`, waits for a line on its standard input, runs STEPS training steps, writes its account to FILE, prints
`done`. A line of FILE is a count and a chain of `file:line`, outermost first: the Python stack (by torch's anomaly mode)
of the operator that created an autograd node, and how often such a node ran.
"""

import collections
import os
import re
import sys
import threading

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
seen = collections.Counter()
lock = threading.Lock()
FRAME = re.compile(r'File "(.*)", line (\d+), in ')


def note(root, times=1):
    """Records every node that a backward pass from `root` will run."""
    todo, met = [root], set()
    while todo:
        node = todo.pop()
        if node is None or node in met:
            continue
        met.add(node)
        todo.extend(following for following, _ in node.next_functions)
        if type(node).__name__ == "AccumulateGrad":
            continue
        frames = [FRAME.search(entry).groups() for entry in node.metadata["traceback_"]]
        chain = ";".join(f"{os.path.basename(file)}:{line}" for file, line in frames)
        with lock:
            seen[chain] += times


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Again(torch.autograd.Function):
    """Runs its part again in the backward pass, like checkpoints."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return part(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = part(x)
            note(y.grad_fn)
            torch.autograd.backward(y, gradient)
        return x.grad


def part(x):
    x = torch.sin(x)
    return x * torch.cos(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(32, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.second = torch.nn.Linear(64, 8)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = Square.apply(self.norm(x))
        x = Again.apply(x)
        return self.second(x)


def train(net, inputs, steps):
    for _ in range(steps):
        loss = net(inputs).pow(2).mean()
        note(loss.grad_fn)
        loss.backward()


def twice(net, inputs, steps):
    for _ in range(steps):
        loss = net(inputs).abs().sum()
        note(loss.grad_fn, 2)
        loss.backward(retain_graph=True)
        loss.backward()


def main():
    inputs = torch.randn(16, 32)
    nets = [Net(), Net(), Net()]
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        train(nets[0], inputs, 1)
    seen.clear()
    print("ready", flush=True)
    sys.stdin.readline()
    steps = int(sys.argv[2])
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        threads = [
            threading.Thread(target=train, args=(nets[0], inputs, steps)),
            threading.Thread(target=twice, args=(nets[1], inputs, steps)),
        ]
        for thread in threads:
            thread.start()
        train(nets[2], inputs, steps)
        for thread in threads:
            thread.join()
    with open(sys.argv[1], "w") as file:
        file.writelines(f"{count} {chain}\n" for chain, count in sorted(seen.items()))
    print("done", flush=True)
    sys.stdin.readline()


main()
