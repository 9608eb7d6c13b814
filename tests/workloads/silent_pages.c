/*
 * A program that makes the profiler read a page of a file: `silent_pages FILE`. It runs generated code until it is
 * killed.
 *
 * Owns: the list of generated code for debuggers (GDB's JIT interface), whose first entry lies in the file. Because: a
 * profiler follows that pointer for the name of the code, and the process chooses where it points. Does not: touch the
 * page itself.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct descriptor {
    uint32_t version, action;
    void *relevant, *first;
};

struct descriptor __jit_debug_descriptor = {1, 0, 0, 0};

__attribute__((noinline)) void __jit_debug_register_code(void) {
    __asm__ volatile("" ::: "memory");
}

enum { CODE_BYTES = 256 };

/* Needs no relocation, so that a copy of it runs anywhere. */
__attribute__((noinline, aligned(64))) static void spin(volatile uint64_t *state) {
    for (int n = 0; n < 1000000; n++)
        *state = *state * 6364136223846793005ul + n;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    int file = open(argv[1], O_RDONLY);
    void *page = mmap(NULL, 65536, PROT_READ, MAP_SHARED, file, 0);
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || page == MAP_FAILED || code == MAP_FAILED)
        return 1;
    memcpy(code, (void *)spin, CODE_BYTES);
    __builtin___clear_cache(code, (char *)code + CODE_BYTES);
    __jit_debug_descriptor.action = 1;
    __jit_debug_descriptor.first = page;
    __jit_debug_register_code();
    printf("ready %d\n", getpid());
    fflush(stdout);
    uint64_t state = 1;
    for (;;)
        ((void (*)(volatile uint64_t *))code)(&state);
}
