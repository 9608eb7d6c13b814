/*
 * Processes that change their user while they map code: `changing_user PROCESSES MAPPINGS FIRST SECOND FILE`, begun as
 * root. They compute until the first of them is killed.
 *
 * Owns: users that change faster than a process with so many mappings is read. Because: what a profiler does for each
 * user in turn must end for the user for whom it began. Does not: keep any rights but the one to change its user.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void become(uid_t user) {
    if (seteuid(0) || setresuid(user, user, 0)) {
        perror("cannot change the user");
        exit(1);
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 2;
    size_t processes = strtoul(argv[1], NULL, 10), mappings = strtoul(argv[2], NULL, 10);
    uid_t users[] = {strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10)};
    int file = open(argv[5], O_RDONLY);
    /* Twice the room: pages between two mappings stay without access. */
    char *all = mmap(NULL, 2 * mappings * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || all == MAP_FAILED) {
        perror("cannot map");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    pid_t first = getpid();
    for (size_t n = 1; n < processes; n++)
        if (fork() == 0)
            break;
    /* The kernel forgets with each change of user that it was to end them with their parent. */
    for (size_t n = 0; getpid() == first || getppid() == first; n++) {
        char *at = all + 2 * (n % mappings) * 4096;
        become(users[n % 2]);
        if (mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) {
            perror("cannot map");
            return 1;
        }
        for (double until = now() + 0.002; now() < until;)
            ;
    }
    return 0;
}
