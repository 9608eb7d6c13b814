// A library whose functions have the names of PyTorch's and launch kernels as its operators do, for gpu_operators.py:
// `libtorch_cpu.so`.
//
// Owns: nested operators, one operator that is called twice from one line, a backward node, and a launch without an
// operator. Because: the stack shows which operator launched a kernel, and the library with the real ones is half a
// gigabyte. Does not: compute anything, or find the driver: the program passes its launch function.

#include <cstdint>

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY asm volatile("" ::: "memory")

namespace {
using Handle = void *;
using Launch = int (*)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                       void **);

Launch driver_launch;
Handle stream, kernels[16];

void launch(int kernel) {
    driver_launch(kernels[kernel], 4, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
    STAY;
}
}  // namespace

namespace at {
struct Tensor {
    std::uint64_t value;
};
enum class RecordScope : std::uint8_t { FUNCTION = 0 };
struct Callbacks {
    std::uint64_t of[12];
    bool any;
};
OUT_OF_LINE Callbacks getStepCallbacksUnlessEmpty(RecordScope scope) {
    Callbacks callbacks{};
    callbacks.any = scope != RecordScope::FUNCTION;
    STAY;
    return callbacks;
}
// Like dispatch: checks whether a profiler listens.
#define DISPATCH                                                              \
    Callbacks callbacks = getStepCallbacksUnlessEmpty(RecordScope::FUNCTION); \
    asm volatile("" : "+m"(callbacks))

namespace _ops {
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
    static Tensor call(const Tensor &in);
};
struct native_layer_norm {
    static Tensor call(const Tensor &in);
};
struct view {
    static Tensor call(const Tensor &in);
};
OUT_OF_LINE Tensor addmm::call(const Tensor &in) {
    DISPATCH;
    launch(0);
    launch(1);
    launch(2);
    return in;
}
OUT_OF_LINE Tensor view::call(const Tensor &in) {
    DISPATCH;
    return in;
}
OUT_OF_LINE Tensor linear::call(const Tensor &in) {
    DISPATCH;
    Tensor out = addmm::call(view::call(in));
    STAY;
    launch(3);
    return out;
}
OUT_OF_LINE Tensor mm::call(const Tensor &in) {
    DISPATCH;
    launch(4);
    launch(4);
    return in;
}
OUT_OF_LINE Tensor relu::call(const Tensor &in) {
    DISPATCH;
    launch(5);
    return in;
}
OUT_OF_LINE Tensor native_layer_norm::call(const Tensor &in) {
    DISPATCH;
    launch(6);
    launch(7);
    launch(6);
    return in;
}
}  // namespace _ops
}  // namespace at

namespace torch::autograd::generated {
struct AddmmBackward0 {
    at::Tensor apply(at::Tensor &&gradient);
};
OUT_OF_LINE at::Tensor AddmmBackward0::apply(at::Tensor &&gradient) {
    at::Tensor out = at::_ops::mm::call(at::_ops::mm::call(gradient));
    STAY;
    return out;
}
}  // namespace torch::autograd::generated

namespace {
at::Tensor tensor{1};
}  // namespace

extern "C" void use_driver(Launch launch_function, Handle of_stream) {
    driver_launch = launch_function;
    stream = of_stream;
}
extern "C" void use_kernel(int number, Handle function) { kernels[number] = function; }
extern "C" void linear() { tensor = at::_ops::linear::call(tensor); }
extern "C" void relu() { tensor = at::_ops::relu::call(tensor); }
// Twice from one line.
extern "C" void layer_norms() {
    for (int i = 0; i < 2; ++i) tensor = at::_ops::native_layer_norm::call(tensor);
    STAY;
}
extern "C" void backward() {
    torch::autograd::generated::AddmmBackward0 node;
    tensor = node.apply(static_cast<at::Tensor &&>(tensor));
}
extern "C" void no_operator() { launch(8); }
