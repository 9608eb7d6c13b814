"""A rank of a job in which one comes late to collectives: `gpu_straggler.py ROUNDS always|turns`, with RANK, WORLD_SIZE
and JOB (a name of the job) in its environment.

Begins once somebody watches. Because: a rank for which all others wait is a straggler, and ranks that are late by turns
are none (tests/tests/gpu_ranks_live.rs). Ranks begin each round together, as those of a real job do after a collective: the
simulated ones do not wait for each other, so that rank 0 says when all have come.
"""

import os
import socket
import sys
import time

from gpu_ranks import Ranks
from gpu_train import Account, Code, Device

LATE_S = 0.015
# So many that a collective takes longer than a rank is late: the others wait for it in theirs.
ELEMENTS = 1 << 20


class Rounds:
    """Rank 0 answers when every other rank has asked."""

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
        # As long as it takes rank 0 to be watched, too.
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
    # Rank 0 listens once it is watched. Only then the others load their libraries: so do ranks that a launcher starts
    # one after the other, and probes are there before their collectors.
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
    # Who watches names what was seen while the process lives.
    time.sleep(1)


if __name__ == "__main__":
    main()
