// A native program with stacks of a known depth: `deep_native DEPTH THREADS SECONDS`.
//
// Owns: recursion with work at the leaf. Because: compiled with -O2 -fomit-frame-pointer it is the simplest case in
// which only unwind rows lead to the start of the thread. SECONDS 0 runs until killed.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

std::atomic<bool> over{false};
std::atomic<std::uint64_t> iterations{0};

__attribute__((noinline)) std::uint64_t leaf(std::uint64_t seed) {
    for (int i = 0; i < 20000; ++i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        seed ^= seed >> 29;
    }
    return seed;
}

__attribute__((noinline)) std::uint64_t descend(long depth, std::uint64_t seed) {
    if (depth <= 1) {
        std::uint64_t sum = seed;
        // Most of the time is spent at the leaf, so that almost every sample has the full depth.
        for (int i = 0; i < 100; ++i) {
            sum ^= leaf(sum);
        }
        return sum;
    }
    std::uint64_t below = descend(depth - 1, seed + static_cast<std::uint64_t>(depth));
    asm volatile("" : "+r"(below));
    return below ^ static_cast<std::uint64_t>(depth);
}

void work(long depth) {
    std::uint64_t seed = 1;
    while (!over.load(std::memory_order_relaxed)) {
        seed = descend(depth, seed);
        iterations.fetch_add(1, std::memory_order_relaxed);
    }
    asm volatile("" ::"r"(seed));
}

}  // namespace

int main(int count, char **arguments) {
    const long depth = count > 1 ? std::atol(arguments[1]) : 50;
    const long threads = count > 2 ? std::atol(arguments[2]) : 1;
    const long seconds = count > 3 ? std::atol(arguments[3]) : 0;
    if (depth < 1 || depth > 100000 || threads < 1 || threads > 256 || seconds < 0) {
        std::fprintf(stderr, "usage: deep_native DEPTH THREADS SECONDS\n");
        return 2;
    }
    std::vector<std::thread> pool;
    for (long i = 0; i < threads; ++i) {
        pool.emplace_back(work, depth);
    }
    std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (seconds == 0 || std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    over = true;
    for (auto &thread : pool) {
        thread.join();
    }
    std::printf("iterations %llu\n", static_cast<unsigned long long>(iterations.load()));
    return 0;
}
