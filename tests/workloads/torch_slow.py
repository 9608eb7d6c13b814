"""A training loop that waits for its data: the training process makes the samples, one after the other. Until killed.

Because: this is what a DataLoader does by default (docs/training-is-slow.md). Prints `ready` before its first
step.
"""

import torch

torch.manual_seed(0)
torch.set_num_threads(1)


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return decode(index), index % 10


def decode(index):
    pixels = [(index * 31 + n * 7) % 256 / 255 for n in range(1024)]
    return torch.tensor(pixels)


net = torch.nn.Sequential(torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.Adam(net.parameters())


def step(images, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()


def main():
    print("ready", flush=True)
    for images, labels in torch.utils.data.DataLoader(Images(), batch_size=64):
        step(images, labels)


main()
