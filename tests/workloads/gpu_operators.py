"""Operators that launch kernels: `gpu_operators.py LIBRARY ROUNDS`, where LIBRARY is gpu_operators.cpp, compiled.

Starts once a profiler watches. Because: the kernels of each operator have unique names, so the device's own account
shows what each operator launched (tests/tests/gpu_operators_live.rs). Needs no package, and no device if the
libraries are the simulated ones, whose kernels take as long as their names state.
"""

import ctypes
import sys

from gpu_train import Account, Code, Device, stay_until_named

KERNELS = [
    "addmm_gemm_18us",
    "addmm_split_5us",
    "addmm_bias_2us",
    "linear_copy_3us",
    "mm_gemm_17us",
    "relu_4us",
    "norm_moments_6us",
    "norm_scale_3us",
    "no_operator_5us",
]


def block(library):
    library.linear()
    library.relu()
    library.layer_norms()


def head(library):
    library.linear()


def step(library):
    block(library)
    head(library)
    library.backward()
    library.no_operator()


def main():
    device = Device(Account(False), False)
    functions = device.load(KERNELS)
    stream = device.stream()
    library = ctypes.CDLL(sys.argv[1])
    for number, name in enumerate(KERNELS):
        library.use_kernel(number, functions[name])
    library.use_driver(device.driver.cuLaunchKernel, stream)
    print("ready", flush=True)
    Code().wait_for_attention()
    for _ in range(int(sys.argv[2])):
        step(library)
        device.synchronize(stream)
    stay_until_named()


if __name__ == "__main__":
    main()
