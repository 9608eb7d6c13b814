"""Calls operators of a look-alike of PyTorch's library, from known Python functions: `torch_called.py LIBRARY`.

From a method that C calls, and from a function that an operator calls; a thread of the library runs operators, too.
Prints `ready`, and continues until killed.
"""

import ctypes
import os
import sys

library = ctypes.CDLL(sys.argv[1])


class Layer:
    def __init__(self, inner):
        self.inner = inner

    # C calls this method when the object is called, in a separate evaluation.
    def __call__(self):
        self.inner()


def forward():
    library.forward()


@ctypes.CFUNCTYPE(None)
def called_back():
    forward()


def through_operator():
    library.call_back(called_back)


library.start_engine()
plain, within = Layer(Layer(forward)), Layer(through_operator)
print("ready", os.getpid(), flush=True)
while True:
    plain()
    within()
