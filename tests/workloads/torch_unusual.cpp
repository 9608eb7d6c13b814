// A program that loads libraries that look like PyTorch's (`torch_starts.cpp`), and calls them as no sound program does:
// `program ROUNDS PROCESSES LIBRARY…`.
//
// Owns: several copies in one process, children that are forked and call too, tensors and handles that are garbage. Because: what
// is read of a process may be anything. Does not: look like PyTorch itself.
//
// It says `ready`, waits for a line, forks, and calls two operators of each library as often as it is told.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>
#include <vector>

namespace {
struct Tensor {
    const std::uint64_t *impl;
};
// Instead of a name's address and length, and an overload's.
struct Handle {
    const std::uint64_t *entry;
};
using Relu = Tensor &(*)(Tensor &);
using CallBoxed = void (*)(const void *dispatcher, const Handle &, std::vector<std::uint64_t> *);

void call(Relu relu, CallBoxed call_boxed) {
    // Where the number of dimensions is (0x38) and its sizes begin; all else is zero.
    std::uint64_t sound[64] = {}, garbage[64] = {};
    sound[7] = 1, sound[8] = 12, sound[13] = 1, sound[20] = 6;
    for (std::uint64_t &word : garbage) {
        word = 0xdeadbeefdeadbeef;
    }
    Tensor one{sound}, other{garbage};
    std::uint64_t dispatcher = 0;
    std::vector<std::uint64_t> stack;
    relu(one);
    relu(other);
    call_boxed(&dispatcher, {garbage}, &stack);
    asm volatile("" : : "m"(sound), "m"(garbage) : "memory");
}
}  // namespace

int main(int count, char **arguments) {
    std::vector<std::pair<Relu, CallBoxed>> libraries;
    for (int at = 3; at < count; ++at) {
        void *library = dlopen(arguments[at], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            std::puts(dlerror());
            return 1;
        }
        libraries.emplace_back(
            reinterpret_cast<Relu>(dlsym(library, "_ZN2at4_ops5relu_4callERNS_6TensorE")),
            reinterpret_cast<CallBoxed>(dlsym(
                library, "_ZNK3c1010Dispatcher9callBoxedERKNS_14OperatorHandleEPSt6vectorINS_6IValueESaIS5_EE")));
    }
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    for (int child = std::atoi(arguments[2]); child > 1; --child) {
        if (fork() == 0) {
            break;
        }
    }
    for (long n = std::atol(arguments[1]); n > 0; --n) {
        for (auto [relu, call_boxed] : libraries) {
            call(relu, call_boxed);
        }
    }
    // The input is at its end for children, too, when the test is over.
    std::getchar();
    std::getchar();
}
