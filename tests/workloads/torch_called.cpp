// A library whose functions have the names of PyTorch's, to be called from Python.
//
// Owns: a chain of operators; one that calls back into Python, like operators written in Python; and a thread of its
// own that runs a backward node, like the threads of the engine. Because: operators are recognized by name, and the
// library with the real ones is half a gigabyte. Does not: compute anything.

#include <thread>

#define ROUNDS 2000000
#include "torch_kernel.h"

namespace at::_ops {
struct addmm {
    static Tensor call(const Tensor &in);
};
struct linear {
    static Tensor call(const Tensor &in);
};
struct mm {
    static Tensor call(const Tensor &in);
};
struct relu {
    static Tensor call(const Tensor &in, void (*python)());
};
OUT_OF_LINE Tensor addmm::call(const Tensor &in) {
    Tensor out = native::gemm(in);
    STAY(out);
    return out;
}
OUT_OF_LINE Tensor linear::call(const Tensor &in) {
    Tensor out = addmm::call(in);
    STAY(out);
    return out;
}
OUT_OF_LINE Tensor mm::call(const Tensor &in) {
    Tensor out = native::gemm(in);
    STAY(out);
    return out;
}
OUT_OF_LINE Tensor relu::call(const Tensor &in, void (*python)()) {
    python();
    Tensor out = in;
    STAY(out);
    return out;
}
}  // namespace at::_ops

namespace torch::autograd::generated {
struct MmBackward0 {
    at::Tensor apply(at::Tensor &&gradient);
};
OUT_OF_LINE at::Tensor MmBackward0::apply(at::Tensor &&gradient) {
    at::Tensor out = at::_ops::mm::call(gradient);
    STAY(out);
    return out;
}
}  // namespace torch::autograd::generated

namespace {
at::Tensor tensor;

void engine() {
    at::Tensor gradient;
    for (;;) {
        gradient = torch::autograd::generated::MmBackward0().apply(static_cast<at::Tensor &&>(gradient));
    }
}
}  // namespace

extern "C" void forward() { tensor = at::_ops::linear::call(tensor); }
extern "C" void call_back(void (*python)()) { tensor = at::_ops::relu::call(tensor, python); }
extern "C" void start_engine() { std::thread(engine).detach(); }
