"""Names its parts for NVTX, through PyTorch: `torch_nvtx.py STEPS`. Then it sleeps until killed."""

import sys
import time

import torch


def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def step():
    torch.cuda.nvtx.range_push("step")
    busy(0.002)
    with torch.cuda.nvtx.range("inner"):
        busy(0.003)  # line: inner
    torch.cuda.nvtx.range_pop()


print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    step()
print("done", flush=True)
time.sleep(1000)
