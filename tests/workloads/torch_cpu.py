"""A small training loop on the CPU with torch: forward, backward, optimizer step, until killed.

Owns: only calls into torch. Because: libtorch_cpu has 2.7 million unwind rows, realigned stacks in its vector
kernels, worker threads, and Python frames both above and below native ones (autograd).
"""

import os

import torch


class Block(torch.nn.Module):
    """Two layers with a residual connection."""

    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        """Apply the block."""
        return self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Doubling(torch.autograd.Function):
    """An operator written in Python: its backward is called from native worker code."""

    @staticmethod
    def forward(ctx, x):
        """Twice the input."""
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        """Twice the gradient."""
        return gradient * 2


def step(model, optimizer, x, y):
    """One step of training."""
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(Doubling.apply(model(x)), y)
    loss.backward()
    optimizer.step()
    return loss


def main():
    """Train forever on one batch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Block(128) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.randn(64, 128), torch.randn(64, 128)
    step(model, optimizer, x, y)
    print("ready", os.getpid(), flush=True)
    while True:
        step(model, optimizer, x, y)


if __name__ == "__main__":
    main()
