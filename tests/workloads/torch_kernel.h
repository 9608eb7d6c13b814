// Shared by programs and libraries with the names of PyTorch's functions: a tensor, and a kernel of ROUNDS rounds.

#pragma once

#include <cstdint>

namespace at {
struct Tensor {
    std::uint64_t value = 1;
};
}  // namespace at

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY(tensor) asm volatile("" : "+r"((tensor).value))

namespace at::native {
OUT_OF_LINE Tensor gemm(Tensor in) {
    for (int i = 0; i < ROUNDS; ++i) {
        in.value = in.value * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(in.value));
    }
    return in;
}
}  // namespace at::native
