"""A rank of a job in which one is late for collectives: `gpu_straggler.py ROUNDS always|turns`, with RANK, WORLD_SIZE
and JOB (a name of the job) in its environment.

Starts once a profiler watches. Because: a rank for which all others wait is a straggler; ranks that are late in turn
are none (tests/tests/gpu_ranks_live.rs). Ranks start each round together, like those of a real job after a collective.
Simulated ranks do not wait for each other, so rank 0 announces that all have arrived.
"""

import os
import socket
import sys
import time

from gpu_ranks import Ranks
from gpu_train import Account, Code, Device

LATE_S = 0.015
# So many that a collective takes longer than the delay of a rank: the others wait within theirs.
ELEMENTS = 1 << 20


class Rounds:
    """Rank 0 answers once every other rank has asked."""

    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = f"\0{os.environ['JOB']}"
        if self.rank == 0:
            server = socket.socket(socket.AF_UNIX)
            server.bind(address)
            server.listen(self.size)
            server.settimeout(120)
            self.others = [server.accept()[0] for _ in range(self.size - 1)]
        else:
            self.others = [self.connected(address)]

    @staticmethod
    def connected(address):
        # Until rank 0 is watched, too.
        for _ in range(12000):
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(address)
                return client
            except ConnectionRefusedError:
                client.close()
                time.sleep(0.01)
        raise SystemExit("rank 0 does not listen")

    def begin(self):
        if self.rank == 0:
            self.wait_for_others()
        for other in self.others:
            other.send(b".")
        if self.rank != 0:
            self.wait_for_others()

    def wait_for_others(self):
        for other in self.others:
            if not other.recv(1):
                raise SystemExit("another rank has ended")


def main():
    rounds, always = int(sys.argv[1]), sys.argv[2] == "always"
# Rank 0 listens once it is watched. Only then do the others load their libraries, as if a launcher had started them
# one after the other; probes are there before their collectors.
    together = Rounds() if os.environ["RANK"] != "0" else None
    device = Device(Account(False), False)
    print("ready", flush=True)
    Code().wait_for_attention()
    ranks = Ranks(device)
    together = together or Rounds()
    for number in range(rounds):
        together.begin()
        late = 1 if always else number % together.size
        if together.rank == late:
            time.sleep(LATE_S)
        ranks.all_reduce(ranks.all, ELEMENTS)
        device.synchronize(ranks.stream)
    # The profiler resolves names while the process is alive.
    time.sleep(1)


if __name__ == "__main__":
    main()
