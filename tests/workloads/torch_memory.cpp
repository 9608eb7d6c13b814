// Two libraries and a program whose functions have the names, and whose probe notes (USDT) have the form, of PyTorch's
// allocators. `-DC10` builds `libc10.so`, `-DC10_CUDA` builds `libc10_cuda.so`; without either it is the program.
//
// Owns: memory on the host that is kept and that is freed elsewhere, and device blocks that are larger than requested,
// through two entry points with a probe note each. Because: the real libraries need half a gigabyte beside them, and a
// device. Does not: allocate anything: addresses are numbers. Notes are like those of `sys/sdt.h`, with a counter.
//
// Prints `ready`, waits for a line on its standard input, does its work once, and waits for another line.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY asm volatile("" ::: "memory")

namespace c10 {
struct Device {
    std::int8_t type;
    std::int8_t index;
};
void reportMemoryUsageToProfiler(void *address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                                 Device device);
struct ProfiledCPUMemoryReporter {
    std::uint64_t allocated = 0;
    void New(void *address, std::size_t bytes);
    void Delete(void *address);
};
namespace cuda {
void *allocate(std::size_t bytes);
void *allocateWithAddress(std::size_t bytes);
void local_raw_delete(void *address, std::size_t bytes);
}  // namespace cuda
}  // namespace c10

#if defined(C10)

namespace c10 {
OUT_OF_LINE void reportMemoryUsageToProfiler(void *, std::int64_t, std::size_t, std::size_t, Device) { STAY; }
OUT_OF_LINE void ProfiledCPUMemoryReporter::New(void *, std::size_t bytes) {
    allocated += bytes;
    STAY;
}
OUT_OF_LINE void ProfiledCPUMemoryReporter::Delete(void *) { STAY; }
}  // namespace c10

#elif defined(C10_CUDA)

#define COUNTER __attribute__((section(".probes"), visibility("hidden"))) volatile std::uint16_t
extern "C" {
COUNTER torch_sdt_semaphore_pytorch_malloc = 0;
COUNTER torch_sdt_semaphore_pytorch_free = 0;
}

#define MARK(name, arguments, ...)                                                                          \
    asm volatile(                                                                                           \
        "990: nop\n"                                                                                        \
        ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                        \
        ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                                                       \
        "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                                         \
        "993: .8byte 990b\n.8byte 0\n.8byte torch_sdt_semaphore_pytorch_" name "\n"                         \
        ".asciz \"pytorch\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n"                               \
        "994: .balign 4\n.popsection\n" ::__VA_ARGS__)

namespace {
constexpr std::size_t BLOCK = 512;
constexpr std::size_t SEGMENT = 2 << 20;
std::uintptr_t next = 0x7f0000000000;
std::size_t allocated = 0;
std::size_t reserved = 0;

std::size_t rounded(std::size_t bytes) { return (bytes + BLOCK - 1) / BLOCK * BLOCK; }

OUT_OF_LINE void *take(std::size_t bytes) {
    void *address = reinterpret_cast<void *>(next);
    next += rounded(bytes);
    allocated += rounded(bytes);
    while (reserved < allocated) {
        reserved += SEGMENT;
    }
    c10::reportMemoryUsageToProfiler(address, static_cast<std::int64_t>(rounded(bytes)), allocated, reserved, {1, 0});
    return address;
}
}  // namespace

namespace c10::cuda {
OUT_OF_LINE void *allocate(std::size_t bytes) {
    void *address = take(bytes);
    std::int8_t device = 0;
    if (torch_sdt_semaphore_pytorch_malloc) {
        MARK("malloc", "-8@%0 -1@%b1 -8@%2 -8@%3", "r"(address), "q"(device), "r"(bytes), "r"(0l));
    }
    return address;
}
OUT_OF_LINE void *allocateWithAddress(std::size_t bytes) {
    void *address = take(bytes);
    volatile std::size_t asked = bytes;
    volatile long stream = 0;
    std::int8_t device = 0;
    if (torch_sdt_semaphore_pytorch_malloc) {
        MARK("malloc", "-8@%0 -1@%b1 -8@%2 -8@%3", "r"(address), "q"(device), "m"(asked), "m"(stream));
    }
    return address;
}
OUT_OF_LINE void local_raw_delete(void *address, std::size_t bytes) {
    if (torch_sdt_semaphore_pytorch_free) {
        MARK("free", "-8@%0", "r"(address));
    }
    allocated -= rounded(bytes);
    c10::reportMemoryUsageToProfiler(address, -static_cast<std::int64_t>(rounded(bytes)), allocated, reserved, {1, 0});
}
}  // namespace c10::cuda

#else

namespace {
c10::ProfiledCPUMemoryReporter reporter;

void *host(std::uintptr_t address, std::size_t bytes) {
    reporter.New(reinterpret_cast<void *>(address), bytes);
    return reinterpret_cast<void *>(address);
}

OUT_OF_LINE void model() {
    for (int n = 0; n < 3; n++) {
        host(0x1000 + 0x1000 * n, 1000);
    }
    STAY;
}
OUT_OF_LINE void *step() {
    void *address = host(0x10000, 4096);
    STAY;
    return address;
}
OUT_OF_LINE void release(void *address) {
    reporter.Delete(address);
    STAY;
}
OUT_OF_LINE void weights() {
    for (int n = 0; n < 2; n++) {
        c10::cuda::allocateWithAddress(1000);
    }
    STAY;
}
OUT_OF_LINE std::vector<void *> activations() {
    std::vector<void *> all;
    for (int n = 0; n < 50; n++) {
        all.push_back(c10::cuda::allocate(2000));
    }
    STAY;
    return all;
}
}  // namespace

int main() {
    std::puts("ready");
    std::fflush(stdout);
    while (std::getchar() != '\n') {
    }
    model();
    for (int n = 0; n < 100; n++) {
        void *address = step();
        if (n % 10 == 0) {
            std::thread(release, address).join();
        } else {
            release(address);
        }
    }
    // Allocated before the profiler watched.
    release(reinterpret_cast<void *>(0x999000));
    weights();
    for (void *address : activations()) {
        c10::cuda::local_raw_delete(address, 2000);
    }
    std::puts("done");
    std::fflush(stdout);
    std::getchar();
}

#endif
