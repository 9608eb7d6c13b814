/*
 * A program with far more generated code than a profiler can scan: `generated_flood MAPPINGS MIB`. It sleeps until
 * killed.
 *
 * Owns: anonymous executable mappings filled with decodable bytes. Because: a profiler searches generated code for
 * functions, and a process can have any amount of it. Does not: run any of it.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t mappings = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10) << 20;
    uint64_t state = 1;
    for (size_t n = 0; n < mappings; n++) {
        /* Reserve twice the size, so that no two mappings are merged. */
        uint8_t *all = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint8_t *code = all + bytes / 2;
        if (all == MAP_FAILED || mprotect(code, bytes, PROT_READ | PROT_WRITE | PROT_EXEC)) {
            perror("cannot map");
            return 1;
        }
        for (size_t at = 0; at < bytes; at += sizeof state) {
            state = state * 6364136223846793005ul + 1442695040888963407ul;
            *(uint64_t *)(code + at) = state;
        }
        /* Every page starts like a function: endbr64, push rbp, mov rbp, rsp. */
        static const uint8_t prologue[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5};
        for (size_t at = 0; at < bytes; at += 4096)
            __builtin_memcpy(code + at, prologue, sizeof prologue);
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
