"""Trains with batches from two worker processes, evaluates and saves now and then: `torch_loading.py RECORD [METHOD]`,
until killed. METHOD is the start method of the workers (`fork`, `spawn`, `forkserver`).

Every 20 steps it writes to RECORD the nanoseconds of main-thread CPU time that each part has used so far; a starting
worker writes its process id into a file beside it.
"""

import json
import os
import sys
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)


class Made(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        return torch.ones(512), index % 10


net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
took = dict.fromkeys(["forward", "backward", "optimizer", "evaluation"], 0)


def part(name, function):
    began = time.thread_time_ns()
    result = function()
    took[name] += time.thread_time_ns() - began
    return result


class Note:
    def __init__(self, path):
        self.path = path

    def __call__(self, worker):
        with open(self.path, "a") as workers:
            workers.write(f"{os.getpid()}\n")


def evaluate(x):
    with torch.no_grad():
        return net(x)


def main():
    method = sys.argv[2] if len(sys.argv) > 2 else "fork"
    note = Note(sys.argv[1] + ".workers")
    # Workers that are not forked are discovered as they start.
    if method != "fork":
        print("ready", flush=True)
    loader = torch.utils.data.DataLoader(
        Made(), batch_size=32, num_workers=2, prefetch_factor=2, multiprocessing_context=method, worker_init_fn=note
    )
    for step, (x, y) in enumerate(loader):
        out = part("forward", lambda: net(x))
        loss = torch.nn.functional.cross_entropy(out, y)
        part("backward", loss.backward)
        part("optimizer", optimizer.step)
        if step % 4 == 0:
            part("evaluation", lambda: evaluate(x))
        if step % 20 == 0:
            torch.save(net.state_dict(), sys.argv[1] + ".weights")
            with open(sys.argv[1] + ".new", "w") as record:
                json.dump(took, record)
            os.rename(sys.argv[1] + ".new", sys.argv[1])
            if step == 20:
                print("ready", flush=True)


if __name__ == "__main__":
    main()
