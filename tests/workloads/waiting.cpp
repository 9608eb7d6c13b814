// Threads that wait, each kind for something else: for dumps of all threads of a process.
//
// usage: waiting THREADS. THREADS threads wait at a barrier that is never completed; one each for a mutex, a condition
// variable, the end of a thread, a pipe, a timeout; one spins. Prints "ready PID" once all threads wait (per /proc),
// and runs until killed.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static pthread_barrier_t barrier;
static std::mutex mutex;
static std::mutex of_condition;
static std::condition_variable condition;
static int ends[2];
static std::atomic<unsigned long> spins;

#define NEVER_INLINE __attribute__((noinline))

NEVER_INLINE void meet_at_barrier() {
    pthread_barrier_wait(&barrier);
    spins++;
}

NEVER_INLINE void wait_for_mutex() {
    mutex.lock();
    spins++;
}

NEVER_INLINE void wait_for_condition() {
    std::unique_lock<std::mutex> lock(of_condition);
    condition.wait(lock);
    spins++;
}

NEVER_INLINE void read_pipe() {
    char byte;
    if (read(ends[0], &byte, 1) > 0) spins++;
}

NEVER_INLINE void sleep_long() {
    timespec day{86400, 0};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &day, nullptr);
    spins++;
}

NEVER_INLINE void spin() {
    for (;;) spins.fetch_add(1, std::memory_order_relaxed);
}

static void start(const char *name, void (*run)(), std::vector<std::thread> &threads) {
    threads.emplace_back([name, run] {
        pthread_setname_np(pthread_self(), name);
        run();
    });
}

// Number of threads that sleep, according to the kernel.
static int asleep() {
    int count = 0;
    for (const auto &thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream stat(thread.path() / "stat");
        std::string text((std::istreambuf_iterator<char>(stat)), {});
        auto end = text.rfind(')');
        count += end != std::string::npos && text.compare(end, 3, ") S") == 0;
    }
    return count;
}

int main(int count, char **arguments) {
    int parties = count > 1 ? atoi(arguments[1]) : 10;
    pthread_barrier_init(&barrier, nullptr, parties + 1);
    if (pipe(ends) != 0) return 1;
    mutex.lock();
    std::vector<std::thread> threads;
    for (int n = 0; n < parties; n++) start("barrier", meet_at_barrier, threads);
    start("mutex", wait_for_mutex, threads);
    start("condition", wait_for_condition, threads);
    start("pipe", read_pipe, threads);
    start("sleep", sleep_long, threads);
    while (asleep() < parties + 4) usleep(1000);
    start("spin", spin, threads);
    printf("ready %d\n", getpid());
    fflush(stdout);
    threads[0].join();
}
