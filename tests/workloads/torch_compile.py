"""A network compiled by torch.compile, trained until killed: `torch_compile.py`.

The lines that tests look for end in a comment with their name. Prints `ready` once it is compiled.
"""

import torch

torch.manual_seed(0)
torch.set_num_threads(2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 2048)
        self.down = torch.nn.Linear(2048, 64)

    def forward(self, x):
        h = self.up(x)
        h = torch.tanh(h) * torch.sigmoid(h)  # line: gate
        return self.down(h)


net = Net()
compiled = torch.compile(net)
x = torch.randn(256, 64)


def step():
    with torch.no_grad():
        return compiled(x)  # line: call


step()
print("ready", flush=True)
while True:
    step()
