// A program whose functions have the names of PyTorch's, nested as its operators nest, until killed.
//
// Owns: one chain, linear → addmm → a kernel, and its backward node. Because: operators are recognized by name, and the
// library with the real ones is half a gigabyte. Does not: compute anything.

#include <cstdio>

#define ROUNDS 200000
#include "torch_kernel.h"

namespace at::_ops {
struct addmm {
    static Tensor call(const Tensor &in);
    static Tensor redispatch(int keys, const Tensor &in);
};
struct linear {
    static Tensor call(const Tensor &in);
};
struct add__Tensor {
    static Tensor call(const Tensor &in);
};
}  // namespace at::_ops

namespace torch::autograd::VariableType {
namespace {
OUT_OF_LINE at::Tensor addmm(int keys, const at::Tensor &in) {
    at::Tensor out = at::_ops::addmm::redispatch(keys, in);
    STAY(out);
    return out;
}
}  // namespace
}  // namespace torch::autograd::VariableType

namespace at::_ops {
OUT_OF_LINE Tensor addmm::redispatch(int, const Tensor &in) {
    Tensor out = native::gemm(in);
    STAY(out);
    return out;
}
OUT_OF_LINE Tensor addmm::call(const Tensor &in) {
    Tensor out = torch::autograd::VariableType::addmm(1, in);
    STAY(out);
    return out;
}
OUT_OF_LINE Tensor linear::call(const Tensor &in) {
    Tensor out = addmm::call(in);
    STAY(out);
    return out;
}
OUT_OF_LINE Tensor add__Tensor::call(const Tensor &in) {
    Tensor out = native::gemm(in);
    STAY(out);
    return out;
}
}  // namespace at::_ops

namespace torch::autograd::generated {
struct AddmmBackward0 {
    at::Tensor apply(at::Tensor &&gradient);
};
OUT_OF_LINE at::Tensor AddmmBackward0::apply(at::Tensor &&gradient) {
    at::Tensor out = at::_ops::add__Tensor::call(gradient);
    STAY(out);
    return out;
}
}  // namespace torch::autograd::generated

int main() {
    std::puts("ready");
    std::fflush(stdout);
    at::Tensor tensor;
    torch::autograd::generated::AddmmBackward0 node;
    for (;;) {
        tensor = at::_ops::linear::call(tensor);
        tensor = node.apply(static_cast<at::Tensor &&>(tensor));
    }
}
