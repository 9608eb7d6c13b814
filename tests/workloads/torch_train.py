"""A training loop with convolutions, layers, an embedding and an autograd function of its own: `torch_train.py CHAINS`.

Writes every chain of operators that torch's own profiler saw in three steps to the file CHAINS, one per line, outermost
first; then prints `ready` and trains until killed.
"""

import sys

import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
torch.set_num_threads(1)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3)
        self.first = torch.nn.Linear(8 * 30 * 30, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.second = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.convolution(x)).flatten(1)
        return self.second(self.norm(torch.nn.functional.gelu(self.first(x))))


net = Net()
embedding = torch.nn.Embedding(1000, 64)
optimizer = torch.optim.Adam(list(net.parameters()) + list(embedding.parameters()))
images = torch.randn(16, 3, 32, 32)
labels = torch.randint(0, 10, (16,))
words = torch.randint(0, 1000, (64,))


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(Square.apply(net(images)), labels)
    loss = loss + embedding(words).sum() * 1e-3
    loss.backward()
    optimizer.step()


def chain(event):
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return ";".join(reversed(names))


# The optimizer's state is made in the first step.
step()
with profile(activities=[ProfilerActivity.CPU]) as seen:
    for _ in range(3):
        step()
with open(sys.argv[1], "w") as chains:
    chains.writelines(f"{line}\n" for line in sorted({chain(event) for event in seen.events()}))
print("ready", flush=True)
while True:
    step()
