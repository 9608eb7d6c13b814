"""A kernel compiled at run time, with line information (see gpu_check.py): reads, computes for a while, and writes."""

import triton
import triton.language as tl


@triton.jit
def deepctx_scale(pointer, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(pointer + at)
    for _ in range(16):
        value = value * by + tl.sqrt(value)
    tl.store(pointer + at, value * 0.5)
