"""Inference on the CPU with torch: a small convolutional network over batches, until killed.

Owns: a program without a backward pass, an optimizer, or a data loader. Because: rules for training must find nothing
here.
"""

import torch

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1),
    torch.nn.BatchNorm2d(32),
    torch.nn.ReLU(),
    torch.nn.Conv2d(32, 64, 3, stride=2, padding=1),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(8),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * 64, 10),
).eval()
images = torch.randn(32, 3, 64, 64)


def classify(batch):
    """The most likely class of each image."""
    return model(batch).argmax(dim=1)


print("ready", flush=True)
with torch.inference_mode():
    while True:
        classify(images)
