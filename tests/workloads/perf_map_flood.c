/*
 * A program that names more generated code than a profiler can keep: `perf_map_flood NAMES BYTES ROUNDS`. Prints
 * `ready` after the first write of its perf map, and runs its generated code until killed.
 *
 * Owns: a perf map of NAMES names of BYTES bytes each, rewritten repeatedly with other names (0 ROUNDS: forever).
 * Because: a reader of these names cannot know how many there will be. Does not: name code that is not there: each
 * name is that of one generated function.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A function that counts down from 4096. */
#if defined(__x86_64__)
static const uint8_t function[] = {0xb9, 0x00, 0x10, 0x00, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
#elif defined(__aarch64__)
static const uint32_t function[] = {0x52820009, 0x71000529, 0x54ffffe1, 0xd65f03c0};
#endif
enum { SIZE = 16 };

static unsigned long names, bytes, rounds;
static char *code;

static void write_map(unsigned long round) {
    char path[64], name[1024];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    if (!map)
        _exit(1);
    memset(name, 'x', sizeof name);
    name[bytes < sizeof name ? bytes : sizeof name - 1] = 0;
    for (unsigned long n = 0; n < names; n++)
        fprintf(map, "%lx %x generated_%lu_%lu%s\n", (unsigned long)(code + n * SIZE), SIZE, round, n, name);
    fclose(map);
}

static void *run(void *unused) {
    for (uint64_t state = 1;; state = state * 6364136223846793005ul + 1442695040888963407ul)
        ((void (*)(void))(code + (state >> 33) % names * SIZE))();
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    names = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10), rounds = strtoul(argv[3], NULL, 10);
    code = mmap(NULL, names * SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || names == 0) {
        perror("cannot map");
        return 1;
    }
    for (unsigned long n = 0; n < names; n++)
        memcpy(code + n * SIZE, function, sizeof function);
    __builtin___clear_cache(code, code + names * SIZE);
    write_map(0);
    puts("ready");
    fflush(stdout);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL))
        return 1;
    for (unsigned long round = 1; rounds == 0 || round < rounds; round++)
        write_map(round);
    pthread_join(thread, NULL);
}
