// Functions whose first call happens again and again: the dynamic linker resolves each anew, because the table that it
// writes results into is restored to its initial state. Prints `ready PID`.
//
// With LIBRARY it is the library that contains the functions, otherwise the program, which is linked without `-z now`.

#define EIGHT(what, n) what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) what(n##6) what(n##7)
#define ALL(what)                                                                                                      \
    EIGHT(what, 0) EIGHT(what, 1) EIGHT(what, 2) EIGHT(what, 3)                                                        \
    EIGHT(what, 4) EIGHT(what, 5) EIGHT(what, 6) EIGHT(what, 7)
#define DEFINE(n)                                                                                                      \
    unsigned f##n(unsigned x) { return x * 31 + 0x##n; }
#define DECLARE(n) unsigned f##n(unsigned);
#define CALL(n) x = f##n(x);

#ifdef LIBRARY
ALL(DEFINE)
#else
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ALL(DECLARE)

// Its first three words belong to the linker; one per function of the procedure linkage table follows.
extern void *_GLOBAL_OFFSET_TABLE_[] __attribute__((visibility("hidden")));
enum { RESERVED = 3, FUNCTIONS = 64 };

__attribute__((noinline)) unsigned call_all(unsigned x) {
    ALL(CALL)
    return x;
}

int main(void) {
    void *unbound[FUNCTIONS];
    memcpy(unbound, _GLOBAL_OFFSET_TABLE_ + RESERVED, sizeof unbound);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (unsigned x = 0;;) {
        memcpy(_GLOBAL_OFFSET_TABLE_ + RESERVED, unbound, sizeof unbound);
        x = call_all(x);
        __asm__ volatile("" : "+r"(x));
    }
}
#endif
