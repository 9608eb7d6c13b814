// Processes and libraries that come and go: the load of a busy machine on a profiler's tables.
//
// churn PER_SECOND LIBRARY…
//
// Starts PER_SECOND processes per second. Of every four, one runs /bin/true, one opens a library and works for a
// millisecond, two work for a millisecond and end. The program itself opens and closes one of the libraries ten times a
// second. A library that cannot be opened is skipped: the libraries are replaced while this runs. Prints `ready`, and
// once a second `tick STARTED CPU_NS WALL_NS`.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static volatile uint64_t sink;

static void work_a_millisecond(void) {
    int64_t end = nanoseconds(CLOCK_MONOTONIC) + 1000000;
    while (nanoseconds(CLOCK_MONOTONIC) < end) {
        sink = sink * 31 + 7;
    }
}

static void child(uint64_t number, const char *library) {
    switch (number % 4) {
        case 0:
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        case 1:
            dlopen(library, RTLD_NOW);
            break;
        default:
            break;
    }
    work_a_millisecond();
    _exit(0);
}

int main(int arguments, char **argument) {
    int64_t rate = arguments > 2 ? atoll(argument[1]) : 0;
    if (rate <= 0) {
        fprintf(stderr, "churn PER_SECOND LIBRARY...\n");
        return 2;
    }
    printf("ready\n");
    fflush(stdout);
    int64_t began = nanoseconds(CLOCK_MONOTONIC);
    for (uint64_t started = 0;; started++) {
        const char *library = argument[2 + started % (uint64_t)(arguments - 2)];
        pid_t pid = fork();
        if (pid == 0) {
            child(started, library);
        }
        if (started % (uint64_t)(rate >= 10 ? rate / 10 : 1) == 0) {
            void *opened = dlopen(library, RTLD_NOW);
            if (opened != NULL) {
                dlclose(opened);
            }
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        int64_t now = nanoseconds(CLOCK_MONOTONIC);
        if (started % (uint64_t)rate == 0) {
            printf("tick %llu %lld %lld\n", (unsigned long long)started,
                   (long long)nanoseconds(CLOCK_PROCESS_CPUTIME_ID), (long long)now);
            fflush(stdout);
        }
        int64_t next = began + (int64_t)(started + 1) * (1000000000 / rate);
        if (next > now) {
            struct timespec rest = {(next - now) / 1000000000, (next - now) % 1000000000};
            nanosleep(&rest, NULL);
        } else {
            // A machine too busy for the rate does not catch up.
            began += now - next;
        }
    }
}
