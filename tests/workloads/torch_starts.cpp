// A library and a program whose functions have the names, and whose tensors have the layout, of PyTorch's, for the
// probes at the start of operators. `-DLIBRARY` builds the library (`libtorch_cpu.so`); without it, it is the program:
// `program ROUNDS [BUSY]`, which is busy for BUSY microseconds after each round.
//
// Owns: nested operators, one that starts deeper on the stack than another that has ended, one that is called by a
// handle, and one that is left by an exception. Because: the real library is half a gigabyte. Does not: compute
// anything. The layout is that of 2.15 (`c10/core/TensorImpl.h`, `aten/src/ATen/core/dispatch/OperatorEntry.h`).
//
// It prints `ready`, waits for a line, calls each operator ROUNDS times, and prints `done`.

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY asm volatile("" ::: "memory")

namespace c10 {
struct Scalar {
    double value;
};
struct TensorImpl {
    char before[0x38];
    std::uint64_t rank;
    std::int64_t sizes[5];
    std::int64_t strides[5];
    std::uint64_t offset, elements;
    std::uint16_t type;
    std::uint64_t keys;
};
template <typename T>
struct ArrayRef {
    const T *data;
    std::size_t length;
};
// An array, a boxed list, or a list of references (`ATen/core/IListRef.h`).
template <typename T>
struct IListRef {
    union {
        ArrayRef<T> array;
        const void *other;
    };
    std::uint32_t tag;
};
static_assert(__builtin_offsetof(TensorImpl, keys) == 0xa8 && __builtin_offsetof(TensorImpl, type) == 0xa0);
struct IValue {
    std::uint64_t value;
};
struct OperatorName {
    std::string name, overload;
};
struct OperatorHandle {
    OperatorName *entry;
};
struct Dispatcher {
    void callBoxed(const OperatorHandle &handle, std::vector<IValue> *stack) const;
};
}  // namespace c10

namespace at {
struct Tensor {
    c10::TensorImpl *impl;
    ~Tensor() { STAY; }
};
enum class RecordScope : std::uint8_t { FUNCTION = 0 };
struct Callbacks {
    std::uint64_t of[12];
    bool any;
};
Callbacks getStepCallbacksUnlessEmpty(RecordScope scope);
namespace _ops {
struct addmm {
    static Tensor call(const Tensor &, const Tensor &, const Tensor &, const c10::Scalar &, const c10::Scalar &);
};
struct linear {
    static Tensor call(const Tensor &, const Tensor &, const std::optional<Tensor> &);
};
struct relu_ {
    static Tensor &call(Tensor &);
};
struct embedding {
    static Tensor call(const Tensor &);
};
struct stack {
    static Tensor call(c10::ArrayRef<Tensor>, std::int64_t);
};
struct cat {
    static Tensor call(const c10::IListRef<Tensor> &, std::int64_t);
};
}  // namespace _ops
}  // namespace at

#ifdef LIBRARY

namespace at {
OUT_OF_LINE Callbacks getStepCallbacksUnlessEmpty(RecordScope scope) {
    Callbacks callbacks{};
    callbacks.any = scope != RecordScope::FUNCTION;
    STAY;
    return callbacks;
}
namespace {
// Like dispatch: combines the keys of all tensors, then checks whether a profiler listens.
volatile std::uint64_t keys_seen;
#define DISPATCH(keys)                                                \
    keys_seen = (keys);                                               \
    Callbacks callbacks = getStepCallbacksUnlessEmpty(RecordScope::FUNCTION); \
    asm volatile("" : "+m"(callbacks))
}  // namespace
namespace _ops {
OUT_OF_LINE Tensor addmm::call(const Tensor &bias, const Tensor &a, const Tensor &b, const c10::Scalar &,
                               const c10::Scalar &) {
    DISPATCH(bias.impl->keys | a.impl->keys | b.impl->keys);
    return Tensor{a.impl};
}
OUT_OF_LINE Tensor linear::call(const Tensor &x, const Tensor &weight, const std::optional<Tensor> &bias) {
    DISPATCH(x.impl->keys | weight.impl->keys);
    c10::Scalar one{1};
    return addmm::call(*bias, x, weight, one, one);
}
OUT_OF_LINE Tensor &relu_::call(Tensor &x) {
    DISPATCH(x.impl->keys);
    return x;
}
OUT_OF_LINE Tensor embedding::call(const Tensor &x) {
    DISPATCH(x.impl->keys);
    if (callbacks.any || x.impl->rank > 5) {
        return Tensor{x.impl};
    }
    throw 1;
}
OUT_OF_LINE Tensor stack::call(c10::ArrayRef<Tensor> list, std::int64_t) {
    std::uint64_t keys = 0;
    for (std::size_t at = 0; at < list.length; ++at) {
        keys |= list.data[at].impl->keys;
    }
    DISPATCH(keys);
    return Tensor{list.data->impl};
}
OUT_OF_LINE Tensor cat::call(const c10::IListRef<Tensor> &list, std::int64_t) {
    std::uint64_t keys = 0;
    if (__builtin_expect(list.tag == 1, 0) || __builtin_expect(list.tag == 2, 0) || __builtin_expect(list.tag != 0, 0)) {
        std::abort();
    }
    const Tensor *end = list.array.data + list.array.length;
    for (const Tensor *item = list.array.data; item != end; ++item) {
        keys |= item->impl->keys;
    }
    DISPATCH(keys);
    return Tensor{list.array.data->impl};
}
}  // namespace _ops
}  // namespace at

namespace c10 {
OUT_OF_LINE void Dispatcher::callBoxed(const OperatorHandle &handle, std::vector<IValue> *stack) const {
    const OperatorName *volatile entry = handle.entry;
    stack->push_back({entry->name.size()});
    at::Callbacks callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    asm volatile("" : "+m"(callbacks));
    stack->pop_back();
}
}  // namespace c10

#else

namespace {
c10::TensorImpl tensor(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, std::uint16_t type) {
    c10::TensorImpl impl{};
    impl.rank = sizes.size();
    for (std::size_t at = 0; at < strides.size() && at < 5; ++at) {
        impl.strides[at] = strides[at];
    }
    for (std::size_t at = 0; at < sizes.size() && at < 5; ++at) {
        impl.sizes[at] = sizes[at];
    }
    impl.type = type;
    return impl;
}

// Deeper on the stack than the previous operator, and not within it.
OUT_OF_LINE void deeper(at::Tensor &x, volatile char *above) {
    volatile char room[2000];
    room[0] = above[0];
    at::_ops::relu_::call(x);
    STAY;
}

OUT_OF_LINE void round(at::Tensor &x, at::Tensor &weight, const std::optional<at::Tensor> &bias,
                       const c10::OperatorHandle &handle) {
    volatile char above[1] = {0};
    at::_ops::linear::call(x, weight, bias);
    deeper(x, above);
    try {
        at::_ops::embedding::call(weight);
    } catch (int) {
    }
    deeper(x, above);
    std::vector<c10::IValue> stack;
    c10::Dispatcher().callBoxed(handle, &stack);
    const at::Tensor four[4] = {{x.impl}, {weight.impl}, {x.impl}, {x.impl}};
    at::_ops::stack::call({four, 4}, 0);
    c10::IListRef<at::Tensor> list{{{four, 2}}, 0};
    at::_ops::cat::call(list, 0);
    STAY;
}
}  // namespace

int main(int count, char **arguments) {
    c10::TensorImpl of_x = tensor({32, 64}, {64, 1}, 6), of_weight = tensor({64, 128}, {1, 64}, 6);
    c10::TensorImpl of_bias = tensor({128}, {1}, 5);
    c10::OperatorName name{"mylib::twice", "out"};
    c10::OperatorHandle handle{&name};
    at::Tensor x{&of_x}, weight{&of_weight};
    std::optional<at::Tensor> bias(at::Tensor{&of_bias});
    const long busy = count > 2 ? std::atol(arguments[2]) : 0;
    std::setvbuf(stdin, nullptr, _IONBF, 0);
    std::puts("ready");
    std::fflush(stdout);
    // ROUNDS rounds per line of input; `r`: rounds until the next input; `o`: other tensors from then on.
    for (int word; (word = std::getchar()) != EOF;) {
        pollfd input{0, POLLIN, 0};
        while (word == 'r' && poll(&input, 1, 0) == 0) {
            round(x, weight, bias, handle);
        }
        if (word == 'o') {
            of_x.sizes[0] = 33;
            of_weight.sizes[1] = 129;
        }
        if (word != '\n') {
            continue;
        }
        for (long n = count > 1 ? std::atol(arguments[1]) : 1; n > 0; --n) {
            round(x, weight, bias, handle);
            const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(busy);
            while (std::chrono::steady_clock::now() < until) {
            }
        }
        std::puts("done");
        std::fflush(stdout);
    }
}

#endif
