"""A training loop that keeps the loss of every step, and with it the data for its backward pass, until killed.

Because: this is the usual way in which memory grows in PyTorch (docs/memory-grows.md). With the word `number` it keeps
numbers, and does not grow. Prints `ready` before its first step.
"""

import sys
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)

net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
losses = []


def step():
    images = torch.randn(256, 256)
    labels = torch.randint(0, 10, (256,))
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    if "number" in sys.argv:
        losses.append(loss.item())
    else:
        losses.append(loss)
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()


print("ready", flush=True)
while True:
    step()
    time.sleep(0.05)
