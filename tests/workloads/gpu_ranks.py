"""A rank of a job that exchanges data: `gpu_ranks.py ROUNDS`, with RANK and WORLD_SIZE in its environment.

Starts once a profiler watches. Because: their calls must show which collectives of several ranks belong together
(tests/tests/gpu_ranks_live.rs). Each round has one collective of all ranks, one of those with the same parity, two in a
group, and a message to itself, which is no collective. Needs no package, and no device if the libraries are the
simulated ones, whose ranks do not wait for each other.
"""

import ctypes
import os
import sys

from gpu_train import Account, Code, Device, stay_until_named

FLOAT, SUM = 7, 0


class UniqueId(ctypes.Structure):
    """ncclUniqueId: rank 0 creates it and passes it to all others."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


class Ranks:
    def __init__(self, device):
        self.check, self.library = device.check, ctypes.CDLL("libnccl.so.2")
        self.stream, self.memory = device.stream(), device.allocate(4096)
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.all = ctypes.c_void_p()
        # Long enough, like the random bytes of a real one, to be unique in its first bytes.
        unique = UniqueId(b"a job of %d ranks" % size)
        self.check(self.library.ncclCommInitRank(ctypes.byref(self.all), size, unique, rank))
        self.parity = ctypes.c_void_p()
        self.check(self.library.ncclCommSplit(self.all, rank % 2, rank, ctypes.byref(self.parity), None))

    def all_reduce(self, communicator, count):
        arguments = self.memory, self.memory, ctypes.c_size_t(count), FLOAT, SUM, communicator, self.stream
        self.check(self.library.ncclAllReduce(*arguments))

    def broadcast(self, communicator, count):
        arguments = self.memory, self.memory, ctypes.c_size_t(count), FLOAT, 0, communicator, self.stream
        self.check(self.library.ncclBroadcast(*arguments))

    def send(self, communicator, count):
        self.check(self.library.ncclSend(self.memory, ctypes.c_size_t(count), FLOAT, 0, communicator, self.stream))

    def round(self):
        self.all_reduce(self.all, 100)
        self.all_reduce(self.parity, 50)
        self.send(self.all, 10)
        self.check(self.library.ncclGroupStart())
        self.broadcast(self.all, 25)
        self.all_reduce(self.all, 5)
        self.check(self.library.ncclGroupEnd())


def main():
    device = Device(Account(False), False)
    print("ready", flush=True)
    Code().wait_for_attention()
    ranks = Ranks(device)
    for _ in range(int(sys.argv[1])):
        ranks.round()
        device.synchronize(ranks.stream)
    stay_until_named()


if __name__ == "__main__":
    main()
