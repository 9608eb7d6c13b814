// Exceptions of two types, thrown through a few frames and caught, forever: while one is in flight, the C runtime
// overwrites parts of the stack that it unwinds on.

#include <cstdio>
#include <stdexcept>
#include <unistd.h>

static volatile unsigned sink;

__attribute__((noinline)) static void thrower(unsigned n) {
    if (n % 2 == 0) {
        throw std::runtime_error("even");
    }
    throw n;
}

struct Cleaned {
    ~Cleaned() { sink = sink + 1; }
};

__attribute__((noinline)) static unsigned descend(unsigned depth, unsigned n) {
    Cleaned cleaned;
    if (depth == 0) {
        thrower(n);
    }
    unsigned below = descend(depth - 1, n) + depth;
    sink = sink + below;
    return below;
}

__attribute__((noinline)) static unsigned catcher(unsigned n) {
    try {
        return descend(n % 5, n);
    } catch (const std::exception &) {
        return 2;
    } catch (unsigned value) {
        return value;
    }
}

int main() {
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (unsigned n = 0;; n++) {
        sink = sink + catcher(n);
    }
}
