/*
 * Processes that change their user just after they start a program: `changing_user PROCESSES FIRST SECOND`, started as
 * root. It ends when all of them have ended.
 *
 * Owns: programs that start as one user and continue as another, like those of daemons and package managers. Because:
 * work that a profiler does per user must be accounted to the user for whom it began. Does not: keep any privileges.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Processes at a time. */
enum { TOGETHER = 8 };

static int failed(const char *what) {
    perror(what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc == 2) {
        uid_t second = strtoul(argv[1], NULL, 10);
        if (setresuid(second, second, second))
            return failed("cannot change the user");
        execl("/bin/true", "true", NULL);
        return failed("cannot start /bin/true");
    }
    if (argc != 4)
        return 2;
    size_t processes = strtoul(argv[1], NULL, 10);
    uid_t first = strtoul(argv[2], NULL, 10);
    int status, bad = 0;
    for (size_t n = 0; n < processes + TOGETHER; n++) {
        if (n >= TOGETHER && wait(&status) > 0)
            bad |= status;
        if (n < processes && fork() == 0) {
            /* The real uid counts as the owner of a process; the effective uid keeps the right to change it. */
            if (setreuid(first, 0))
                return failed("cannot change the user");
            execl("/proc/self/exe", argv[0], argv[3], NULL);
            return failed("cannot start itself");
        }
    }
    return bad != 0;
}
