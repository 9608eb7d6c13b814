// Kernels of real device code with a line table, launched while a profiler samples instructions.
//
//     gpu_samples [--early]        (compiled with -DCUBIN="PATH")
//
// `_Z5scalePfi` is launched from `launch_here` and from `launch_there`, `_Z3sumPf` from `launch_sum`. It starts when a
// collector is asked for samples. With --early the context exists before that, as in a program that was already
// running.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

asm(".section .rodata\n.balign 8\n.globl cubin_begin\ncubin_begin:\n.incbin \"" CUBIN "\"\n.text\n");
extern "C" const char cubin_begin[];

namespace {

using Handle = void *;

template <typename F>
F function(Handle library, const char *name) {
    void *address = dlsym(library, name);
    if (address == nullptr) {
        std::fprintf(stderr, "no function %s\n", name);
        std::exit(2);
    }
    return reinterpret_cast<F>(address);
}

void check(int result, const char *what) {
    if (result != 0) {
        std::fprintf(stderr, "%s: error %d\n", what, result);
        std::exit(2);
    }
}

int (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
int (*retain)(Handle *, int);
int (*set_current)(Handle);
Handle scale, sum;

void make_context() {
    Handle context;
    check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(set_current(context), "cuCtxSetCurrent");
}

// Waits until the collector is asked for samples, for two minutes at most.
void wait_for_sampler() {
    const char *path = std::getenv("CUDA_INJECTION64_PATH");
    Handle collector = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    auto *samplers = collector ? static_cast<volatile uint16_t *>(dlsym(collector, "deepctx_collector_samplers")) : nullptr;
    for (int i = 0; samplers && *samplers == 0; i++) {
        if (i == 12000) {
            std::fprintf(stderr, "nobody samples\n");
            std::exit(3);
        }
        usleep(10000);
    }
    // The collector polls ten times a second.
    usleep(700000);
}

}  // namespace

extern "C" {
__attribute__((noinline)) void launch_here() {
    check(launch(scale, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), "a launch");
    asm volatile("" ::: "memory");
}
__attribute__((noinline)) void launch_there() {
    check(launch(scale, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), "a launch");
    asm volatile("" ::: "memory");
}
__attribute__((noinline)) void launch_sum() {
    check(launch(sum, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), "a launch");
    asm volatile("" ::: "memory");
}
}

int main(int count, char **words) {
    bool early = false;
    for (int i = 1; i < count; i++) early |= std::strcmp(words[i], "--early") == 0;
    Handle library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    launch = function<decltype(launch)>(library, "cuLaunchKernel");
    retain = function<decltype(retain)>(library, "cuDevicePrimaryCtxRetain");
    set_current = function<decltype(set_current)>(library, "cuCtxSetCurrent");
    check(function<int (*)(unsigned)>(library, "cuInit")(0), "cuInit");
    if (early) make_context();
    wait_for_sampler();
    if (!early) make_context();
    Handle module;
    check(function<int (*)(Handle *, const void *)>(library, "cuModuleLoadData")(&module, cubin_begin), "cuModuleLoadData");
    auto by_name = function<int (*)(Handle *, Handle, const char *)>(library, "cuModuleGetFunction");
    check(by_name(&scale, module, "_Z5scalePfi"), "cuModuleGetFunction");
    check(by_name(&sum, module, "_Z3sumPf"), "cuModuleGetFunction");
    auto synchronize = function<int (*)()>(library, "cuCtxSynchronize");
    uint64_t memory;
    check(function<int (*)(uint64_t *, size_t)>(library, "cuMemAlloc_v2")(&memory, 4096), "cuMemAlloc");
    auto fill = function<int (*)(uint64_t, uint8_t, size_t)>(library, "cuMemsetD8_v2");
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 50; i++) {
            launch_here();
            launch_there();
            launch_sum();
        }
        check(fill(memory, 7, 4096), "cuMemsetD8");
        check(synchronize(), "cuCtxSynchronize");
        // Which kernel a launch ran is known with its activity. Samples of the first round may come before that.
        usleep(round == 0 ? 2000000 : 60000);
    }
    // The profiler reads its code while it is alive.
    std::getchar();
    return 0;
}
