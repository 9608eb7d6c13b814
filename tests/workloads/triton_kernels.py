"""A kernel written for Triton, compiled and launched by Triton, through the driver of the process.

Owns: a Triton program without PyTorch: memory and context by the driver's own functions. Because: Triton's compilation,
cache and launch are then real, even on a machine without a device, if the driver's library is the simulated one. Does
not: compute anything in that case.
"""

import ctypes
import time
import warnings

import triton
import triton.language as tl
from triton.backends.nvidia import driver as nvidia
from triton.runtime.driver import driver

COUNT = 4096


@triton.jit
def scale_shift(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # line: kernel
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(y_ptr + at, tl.exp(x) * 2.0 + 1.0, mask=mask)


class Memory:
    """The part of a tensor that a launch needs."""

    dtype = "float32"

    def __init__(self, cuda):
        address = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * COUNT)) == 0
        self.address = address.value

    def data_ptr(self):
        return self.address


class Driver(nvidia.CudaDriver):
    """Triton's own driver, except for its queries of PyTorch."""

    def __init__(self):
        self.utils = nvidia.CudaUtils()
        self.launcher_cls = nvidia.CudaLauncher

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def set_current_device(self, device):
        pass

    def get_device_capability(self, device=0):
        return 9, 0


def main():
    warnings.simplefilter("ignore")
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    driver.set_active(Driver())
    x, y = Memory(cuda), Memory(cuda)
    scale_shift[(4,)](x, y, COUNT, BLOCK=1024)
    print("ready", flush=True)
    while True:
        scale_shift[(4,)](x, y, COUNT, BLOCK=1024)
        time.sleep(0.002)


if __name__ == "__main__":
    main()
