/* Two lines hand work to the same threads, the second twice as much; between two parallel regions the threads wait.
 * Prints "ready", then works until killed. */
#include <stdio.h>

static volatile unsigned long sink, done;

static void burn(unsigned long rounds) {
    unsigned long state = 1;
    for (unsigned long n = 0; n < rounds; n++) state = state * 6364136223846793005ul + n;
    sink = state;
}

__attribute__((noinline)) static void light(void) {
#pragma omp parallel for num_threads(2) schedule(static)
    for (int part = 0; part < 2; part++) burn(1000000);
    done++;
}

__attribute__((noinline)) static void heavy(void) {
#pragma omp parallel for num_threads(2) schedule(static)
    for (int part = 0; part < 2; part++) burn(2000000);
    done++;
}

__attribute__((noinline)) static void alone(void) { burn(1000000); }

int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;) {
        light();
        heavy();
        alone();
    }
}
