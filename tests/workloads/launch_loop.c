/* Launches kernels through a driver, below a stack of native frames, with work in between; prints the time this took.
 * Built as a library for launch_bound.py. */
#include <stdint.h>
#include <time.h>

typedef int Launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* CPU time of the thread: includes probes, excludes other threads on its CPU. */
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Keeps the CPU busy without memory or system calls. */
static void work(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++)
        __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static uint64_t loop(Launch *launch, unsigned launches, unsigned rounds) {
    uint64_t begin = now();
    for (unsigned i = 0; i < launches; i++) {
        work(rounds);
        launch((void *)0x5eed, i, 2, 3, 4, 5, 6, 7, (void *)0x99, 0, 0);
    }
    return now() - begin;
}

/* Nanoseconds for `launches` launches with `rounds` rounds of work before each, `depth` frames further in. */
__attribute__((noinline)) uint64_t launch_below(Launch *launch, unsigned launches, unsigned rounds, unsigned depth) {
    uint64_t took =
        depth == 0 ? loop(launch, launches, rounds) : launch_below(launch, launches, rounds, depth - 1);
    __asm__ volatile("" : "+r"(took)::"memory");
    return took;
}
