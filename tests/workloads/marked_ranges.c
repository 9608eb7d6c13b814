// Three libraries whose functions have the names of NVTX's, roctx's and the driver's, and a program that calls them:
// `-DNVTX`, `-DROCTX` and `-DDRIVER` build the libraries; without them it is the program: `program ROUNDS`.
//
// Owns: nested ranges of each kind, ranges of two domains that end out of order, and a part of the run that is meant to
// be profiled. Because: programs name their parts by these functions. Does not: record anything.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

#define OUT_OF_LINE __attribute__((noinline))
// Functions of vendors' libraries begin with a push.
#define EXPORTED __attribute__((visibility("default"), noinline, optimize("no-omit-frame-pointer")))
#define STAY __asm__ volatile("" ::: "memory")

int nvtxRangePushA(const char *name);
int nvtxRangePushEx(const struct attributes *event);
int nvtxRangePop(void);
int nvtxDomainRangePushEx(void *domain, const struct attributes *event);
int nvtxDomainRangePop(void *domain);
int roctxRangePushA(const char *name);
int roctxRangePop(void);
int cuProfilerStart(void);
int cuProfilerStop(void);
int train_step(void);

#if defined NVTX
EXPORTED int nvtxRangePushA(const char *name) { STAY; return name ? 0 : -1; }
EXPORTED int nvtxRangePushEx(const struct attributes *event) { STAY; return event ? 0 : -1; }
EXPORTED int nvtxRangePop(void) { STAY; return 0; }
EXPORTED int nvtxDomainRangePushEx(void *domain, const struct attributes *event) { STAY; return domain && event ? 0 : -1; }
EXPORTED int nvtxDomainRangePop(void *domain) { STAY; return domain ? 0 : -1; }
#elif defined ROCTX
EXPORTED int roctxRangePushA(const char *name) { STAY; return name ? 0 : -1; }
EXPORTED int roctxRangePop(void) { STAY; return 0; }
#elif defined DRIVER
EXPORTED int cuProfilerStart(void) { STAY; return 0; }
EXPORTED int cuProfilerStop(void) { STAY; return 0; }
// Stands for a program's own function that is called once per step.
EXPORTED int train_step(void) { STAY; return 0; }
#else

// CPU time of the thread: time of other threads does not count as work.
static OUT_OF_LINE void busy(int microseconds) {
    struct timespec from, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < microseconds);
    STAY;
}

static OUT_OF_LINE void round_of(void) {
    static int domain;
    struct attributes own = {.version = 2, .size = sizeof own, .message_type = 1, .message = "within the domain"};
    // A handle from a tool: there is no text behind it.
    struct attributes registered = {.version = 2, .size = sizeof own, .message_type = 3, .message = "not a text"};
    train_step();
    nvtxRangePushA("pushed");
    busy(2000);
    nvtxDomainRangePushEx(&domain, &own);
    busy(1000);
    nvtxRangePop();
    busy(1000);
    nvtxDomainRangePop(&domain);
    nvtxRangePushEx(&registered);
    nvtxRangePop();
    // A pop without a push.
    nvtxRangePop();
    roctxRangePushA("rocked");
    busy(1000);
    roctxRangePop();
    STAY;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    char line[8];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    cuProfilerStart();
    for (int n = 0; n < rounds; n++) round_of();
    cuProfilerStop();
    printf("done\n");
    fflush(stdout);
    pause();
    return 0;
}
#endif
