// Training steps that stop: `-DLIBRARY` builds the library whose function ends a step; without it, it is the program:
// `program ROUNDS`.
//
// Owns: ROUNDS steps of 20 ms for each line of input, and a wait for the next line, in which no step ends. Because: a
// flight recorder detects a hang by the steps before it. Does not: train.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STAY __asm__ volatile("" ::: "memory")

int train_step(void);

#if defined LIBRARY
// Functions of libraries begin with a push.
__attribute__((visibility("default"), noinline, optimize("no-omit-frame-pointer"))) int train_step(void) {
    STAY;
    return 0;
}
#else

static __attribute__((noinline)) void compute(void) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < 20);
    STAY;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    char line[8];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (int n = 0; n < rounds; n++) {
            compute();
            train_step();
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
#endif
