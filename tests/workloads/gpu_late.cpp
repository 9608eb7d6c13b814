// A program that loads its kernels before a profiler watches, in each of the ways that real programs do: by stubs that
// a compiler generated, with device code in a section of the program (CUDA and HIP), and by handles of modules that a
// compiler generated at run time.
//
//     gpu_late [--hip]        (compiled with -DFATBIN="PATH" -DCUBIN="PATH")
//
// It launches until its standard input ends, or for two minutes, a few hundred times a second from each `launch_…`
// function below. The name of that function is the kernel that must be found below it.

#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

// Device code in the sections that compilers use, for both vendors, with the kernels `gemm(float*, int)` and
// `relu(float*)`.
asm(".section .nv_fatbin,\"a\"\n.balign 8\ndevice_code:\n.incbin \"" FATBIN "\"\n.section .hip_fatbin,\"a\"\n.quad 0\n"
    ".section .rodata\n.balign 8\ncubin_begin:\n.incbin \"" CUBIN "\"\ncubin_end:\n.text\n");
extern "C" const char device_code[], cubin_begin[], cubin_end[];

namespace {

using Handle = void *;

struct Dim3 {
    unsigned x, y, z;
};

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

int (*launch_stub)(const void *, Dim3, Dim3, void **, size_t, Handle);
int (*launch_handle)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
Handle handles[3];

}  // namespace

// The compiler's output for `__global__ void gemm(float *, int)` and `__global__ void relu(float *)`: the stub, and the
// function that the program calls, which has the kernel's name.
void gemm(float *a, int n);
void relu(float *a);

__attribute__((noinline)) static void __device_stub__Z4gemmPfi(float *a, int n) {
    void *arguments[] = {&a, &n};
    check(launch_stub(reinterpret_cast<const void *>(&gemm), {4, 1, 1}, {256, 1, 1}, arguments, 0, nullptr), "a launch by a stub");
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) static void __device_stub__Z4reluPf(float *a) {
    void *arguments[] = {&a};
    check(launch_stub(reinterpret_cast<const void *>(&relu), {4, 1, 1}, {256, 1, 1}, arguments, 0, nullptr), "a launch by a stub");
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) void gemm(float *a, int n) {
    __device_stub__Z4gemmPfi(a, n);
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) void relu(float *a) {
    __device_stub__Z4reluPf(a);
    asm volatile("" ::: "memory");
}

extern "C" {
__attribute__((noinline)) void launch_gemm() {
    gemm(nullptr, 1);
    asm volatile("" ::: "memory");
}
__attribute__((noinline)) void launch_relu() {
    relu(nullptr);
    asm volatile("" ::: "memory");
}
__attribute__((noinline)) void launch_fuse() {
    check(launch_handle(handles[0], 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), "a launch by a handle");
    asm volatile("" ::: "memory");
}
__attribute__((noinline)) void launch_cast() {
    check(launch_handle(handles[1], 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), "a launch by a handle");
    asm volatile("" ::: "memory");
}
// Its code is in no form that can be found.
__attribute__((noinline)) void launch_other() {
    check(launch_handle(handles[2], 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), "a launch by a handle");
    asm volatile("" ::: "memory");
}
}

namespace {

struct Wrapper {
    unsigned magic, version;
    const void *code;
    void *unused;
};

// The compiler-generated code that runs before `main`.
void announce(Handle runtime, const std::string &vendor, unsigned magic) {
    static Wrapper wrapper{magic, 1, device_code, nullptr};
    auto binary = function<Handle (*)(const void *)>(runtime, ("__" + vendor + "RegisterFatBinary").c_str())(&wrapper);
    using Register = void (*)(Handle, const void *, const char *, const char *, int, void *, void *, void *, void *, void *);
    auto announces = function<Register>(runtime, ("__" + vendor + "RegisterFunction").c_str());
    announces(binary, reinterpret_cast<const void *>(&gemm), "_Z4gemmPfi", "_Z4gemmPfi", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    announces(binary, reinterpret_cast<const void *>(&relu), "_Z4reluPf", "_Z4reluPf", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
}

const char OTHER[] = ".version 8.0\n.target sm_90\n.address_size 64\n.entry _Z5otherPf() { ret; }\n";

// Renames a kernel in device code, with a name of the same length, so that it is in no file.
void rename(char *code, size_t size, const char *from, const char *to) {
    for (char *at = code; (at = static_cast<char *>(memmem(at, size - size_t(at - code), from, std::strlen(from)))) != nullptr;)
        std::memcpy(at, to, std::strlen(to));
}

// Acts like a compiler at run time. Keeps no copy of the code.
void load_modules(Handle driver) {
    const size_t size = size_t(cubin_end - cubin_begin);
    char *code = static_cast<char *>(std::malloc(size));
    std::memcpy(code, cubin_begin, size);
    rename(code, size, "_Z4gemmPfi", "_Z4fusePfi");
    rename(code, size, "_Z4reluPf", "_Z4castPf");
    auto load = function<int (*)(Handle *, const void *)>(driver, "cuModuleLoadData");
    auto by_name = function<int (*)(Handle *, Handle, const char *)>(driver, "cuModuleGetFunction");
    Handle module, other;
    check(load(&module, code), "cuModuleLoadData");
    std::memset(code, 0, size);
    std::free(code);
    check(load(&other, OTHER), "cuModuleLoadData");
    check(by_name(&handles[0], module, "_Z4fusePfi"), "cuModuleGetFunction");
    check(by_name(&handles[1], module, "_Z4castPf"), "cuModuleGetFunction");
    check(by_name(&handles[2], other, "_Z5otherPf"), "cuModuleGetFunction");
}

Handle opened(std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (Handle library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
}

}  // namespace

int main(int count, char **words) {
    const bool hip = count > 1 && std::strcmp(words[1], "--hip") == 0;
    void (*sources[5])() = {launch_gemm, launch_relu, launch_fuse, launch_cast, launch_other};
    Handle runtime = hip ? opened({"libamdhip64.so.6"}) : opened({"libcudart.so.13", "libcudart.so.12"});
    launch_stub = function<decltype(launch_stub)>(runtime, hip ? "hipLaunchKernel" : "cudaLaunchKernel");
    announce(runtime, hip ? "hip" : "cuda", hip ? 0x48495046 : 0x466243b1);
    if (!hip) {
        check(function<int (*)(int)>(runtime, "cudaSetDevice")(0), "cudaSetDevice");
        Handle driver = opened({"libcuda.so.1"});
        launch_handle = function<decltype(launch_handle)>(driver, "cuLaunchKernel");
        load_modules(driver);
    }
    std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    timespec begin{}, now{};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pollfd input{0, POLLIN, 0};
    do {
        for (int i = 0; i < (hip ? 2 : 5); i++) sources[i]();
        usleep(3000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (poll(&input, 1, 0) == 0 && now.tv_sec - begin.tv_sec < 120);
    return 0;
}
