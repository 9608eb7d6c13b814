#!/usr/bin/env python3
"""Trains a model of nested modules, and writes which module calls which, in PyTorch's terms.

Writes one chain per line to FILE, outermost first, separated by `;`: `Net` for the outermost module, `Net.PATH (CLASS)`
with the names of `named_modules`, `(CLASS)` for modules that are in no other and contain none. Then prints `ready` and
trains until killed.

usage: torch_layers.py FILE
"""
import sys

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True), 2, enable_nested_tensor=False
        )
        self.mixers = nn.ModuleList(
            Residual(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())) for _ in range(3)
        )
        self.tied = nn.Linear(width, width)
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 8), "b": self.tied})

    def forward(self, x):
        x = self.encoder(x)
        for mixer in self.mixers:
            x = mixer(x)
        x = self.heads["b"](self.tied(x))
        return nn.Softmax(dim=-1)(self.heads["a"](x))


def chains(net, loss, step):
    """Which module calls which, as seen by hooks."""
    paths = {id(module): path for path, module in net.named_modules()}
    seen, running = [], []

    def label(module):
        kind = type(module).__name__
        if id(module) not in paths:
            return f"({kind})"
        path = paths[id(module)]
        return f"Net.{path} ({kind})" if path else "Net"

    def enter(module, _):
        running.append(label(module))
        seen.append(";".join(running))

    def leave(module, _, __):
        running.pop()

    hooks = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave),
    ]
    step()
    for hook in hooks:
        hook.remove()
    return sorted(set(seen))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, loss = Net(), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, y = torch.randn(8, 32, 64), torch.randn(8, 32, 8)

    def step():
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    step()
    with open(sys.argv[1], "w") as file:
        file.write("".join(chain + "\n" for chain in chains(net, loss, step)))
    print("ready", flush=True)
    while True:
        step()


if __name__ == "__main__":
    main()
