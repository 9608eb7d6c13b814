/*
 * A well-behaved program: `innocent SECONDS`. Prints `ready`, waits for a line, computes for SECONDS of CPU time,
 * prints `done`, and waits for the end of its input.
 *
 * Owns: a known stack (`main`, `outer`, `middle`, `innermost`) and a known amount of CPU time. Because: the effect of
 * other programs on a capture shows in the samples of a program that always does the same. Does not: call into other
 * libraries while it computes, except for the clock.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

__attribute__((noinline)) static unsigned long innermost(unsigned long rounds) {
    volatile unsigned long sum = 0;
    for (unsigned long n = 0; n < rounds; n++)
        sum += n;
    return sum;
}

/* The statement after each call prevents a tail call. */
__attribute__((noinline)) static unsigned long middle(unsigned long rounds) { return innermost(rounds) + 1; }

__attribute__((noinline)) static unsigned long outer(double seconds) {
    double until = used() + seconds;
    unsigned long sum = 0;
    while (used() < until)
        sum += middle(1000000);
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    puts("ready");
    fflush(stdout);
    int read = getchar();
    if (read == EOF || outer(atof(argv[1])) == 0)
        return 1;
    puts("done");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
