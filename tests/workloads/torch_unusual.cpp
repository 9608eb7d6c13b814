// A program that loads look-alikes of PyTorch's libraries (`torch_starts.cpp`), and calls them as no correct program
// does: `program ROUNDS PROCESSES LIBRARY…`.
//
// Owns: several copies in one process, forked children that also call, invalid tensors and handles. Because: memory
// read from a process may contain anything. Does not: look like PyTorch itself.
//
// It prints `ready`, waits for a line, forks, and calls two operators of each library ROUNDS times.

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
// Stands in for the address and length of a name and of an overload.
struct Handle {
    const std::uint64_t *entry;
};
using Relu = Tensor &(*)(Tensor &);
using CallBoxed = void (*)(const void *dispatcher, const Handle &, std::vector<std::uint64_t> *);

void call(Relu relu, CallBoxed call_boxed) {
    // The number of dimensions (0x38) and the beginning of the sizes; everything else is zero.
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
    // An operator's entry begins with its name and overload, each an address, a length and 16 more bytes.
    const auto *code = reinterpret_cast<const std::uint64_t *>(&call);
    static const char no_operator[] = "no operator", no_name[] = "aten::\x01\xff";
    const std::uint64_t text = reinterpret_cast<std::uint64_t>(no_operator);
    const std::uint64_t bytes = reinterpret_cast<std::uint64_t>(no_name);
    const std::uint64_t nothing[8] = {}, unmapped[8] = {0x10, 10}, of_code[8] = {reinterpret_cast<std::uint64_t>(code), 12};
    const std::uint64_t of_text[8] = {text, sizeof no_operator - 1}, of_bytes[8] = {bytes, sizeof no_name - 1};
    const std::uint64_t endless[8] = {text, ~0ull};
    const std::uint64_t *entries[] = {garbage, nothing, unmapped, of_code, of_text, of_bytes, endless, code};
    for (const std::uint64_t *entry : entries) {
        call_boxed(&dispatcher, {entry}, &stack);
    }
    asm volatile("" : : "m"(sound), "m"(garbage), "m"(nothing), "m"(unmapped), "m"(of_code) : "memory");
    asm volatile("" : : "m"(of_text), "m"(of_bytes), "m"(endless) : "memory");
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
    std::puts("done");
    std::fflush(stdout);
    // At the end of the test the input is at its end for children, too.
    std::getchar();
    std::getchar();
}
