/*
 * Short-lived programs in sequence: `exec_storm PER_SECOND MAPPINGS FOLDER`. Prints `ready` after the first hundred
 * have ended, and continues until killed.
 *
 * Owns: starting new files (copies of this one) as programs that map themselves MAPPINGS times, work for a millisecond
 * and end. Because: the profiler reads the mappings of each new program and builds its unwind table, and neither is of
 * use a millisecond later. Does not: keep more than a few of them at a time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000l + now.tv_nsec;
}

static int program(const char *itself, size_t mappings) {
    int file = open(itself, O_RDONLY);
    char *all = mmap(NULL, 2 * mappings * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t n = 0; n < mappings; n++)
        mmap(all + 2 * n * 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
    long until = nanoseconds() + 1000000;
    while (nanoseconds() < until)
        ;
    return 0;
}

static void start(const char *mappings, const char *folder, unsigned long number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%lu", folder, number % 64);
    unlink(path);
    int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755);
    struct stat is;
    fstat(from, &is);
    for (off_t at = 0; at < is.st_size;)
        if (sendfile(to, from, &at, is.st_size - at) <= 0)
            _exit(1);
    close(to);
    execl(path, path, mappings, NULL);
    _exit(1);
}

int main(int argc, char **argv) {
    if (argc == 2)
        return program(argv[0], strtoul(argv[1], NULL, 10));
    if (argc != 4)
        return 2;
    long interval = 1000000000l / atol(argv[1]), next = nanoseconds();
    for (unsigned long number = 0, running = 0;; number++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            start(argv[2], argv[3], number);
        }
        if (child < 0)
            return 1;
        running++;
        int status;
        /* At most eight at a time on a busy machine. */
        while (running > 0 && waitpid(-1, &status, running < 8 ? WNOHANG : 0) > 0) {
            running--;
            if (status != 0)
                return 1;
        }
        if (number == 100) {
            puts("ready");
            fflush(stdout);
        }
        next += interval;
        long now = nanoseconds();
        if (next > now) {
            struct timespec rest = {0, next - now};
            nanosleep(&rest, NULL);
        } else
            next = now;
    }
}
