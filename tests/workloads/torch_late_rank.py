"""Two ranks of PyTorch's Gloo backend, one of which never joins the collective that the other waits in.

`torch_late_rank.py FILE`: the ranks meet through FILE. Prints `ready` just before rank 0 joins the collective; rank 1
reads its input, which ends with the process that started it.
"""

import subprocess
import sys

import torch
import torch.distributed


def train(rank, meeting):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    if rank == 1:
        sys.stdin.read()
        return
    print("ready", flush=True)
    torch.distributed.all_reduce(torch.ones(1))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(1, sys.argv[1])
    else:
        late = subprocess.Popen([sys.executable, __file__, sys.argv[1], "late"], stdin=subprocess.PIPE)
        train(0, sys.argv[1])
