/*
 * Processes with more executable mappings than the table has room for: `mapping_flood PROCESSES MAPPINGS SMALL FILE`,
 * plus SMALL processes with few mappings, for the room that the others leave. They sleep until killed.
 *
 * Owns: mappings of one page of a file, none adjacent. Because: a profiler keeps the mappings of all processes in one
 * table, and a process can have any number of them. Does not: run any of them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    size_t processes = strtoul(argv[1], NULL, 10), mappings = strtoul(argv[2], NULL, 10);
    size_t small = strtoul(argv[3], NULL, 10);
    int file = open(argv[4], O_RDONLY);
    /* Reserve twice the size: the pages between two mappings stay inaccessible. */
    char *all = mmap(NULL, 2 * mappings * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || all == MAP_FAILED) {
        perror("cannot map");
        return 1;
    }
    for (size_t n = 0; n < mappings; n++)
        if (mmap(all + 2 * n * 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) {
            perror("cannot map");
            return 1;
        }
    for (size_t n = 1; n < processes + small; n++)
        if (fork() == 0) {
            if (n >= processes)
                munmap(all, 2 * mappings * 4096);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
