"""Two functions whose operators run in parallel regions of two threads, and one for which nothing but the main thread
works: the other one waits. Prints "ready", then works until killed.
"""
import torch

torch.set_num_threads(2)
x = torch.rand(1 << 20)


def grow():
    x.mul_(1.0001)


def bend():
    torch.tanh(x)


def alone():
    return sum(range(20000))


grow()
bend()
print("ready", flush=True)
while True:
    grow()
    bend()
    alone()
