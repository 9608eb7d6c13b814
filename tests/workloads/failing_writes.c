/*
 * A disk that fails at some writes of many. Preloaded into a program (`LD_PRELOAD`):
 *
 *     FAILING_WRITES="FIRST COUNT ERRNO FOLDER"    FAILING_WRITES_MARK=FILE    [FAILING_WRITES_BEGIN=FILE]
 *
 * From the FIRST write to files below FOLDER on, by any thread, COUNT writes fail with ERRNO and write nothing. The
 * file of MARK is created at the first failure. Writes are counted once that of BEGIN exists, if it is given.
 *
 * Owns: counting and failing writes. Because: system-call injection counts the writes of each thread to all files alike,
 * sockets and terminals too. Does not: fail any other call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long writes;

static int fails(int file) {
    long first, count;
    int error, folder_at = 0;
    const char *setting = getenv("FAILING_WRITES"), *mark = getenv("FAILING_WRITES_MARK");
    const char *begin = getenv("FAILING_WRITES_BEGIN");
    char link[64], path[4096];
    if (setting == NULL || mark == NULL || sscanf(setting, "%ld %ld %d %n", &first, &count, &error, &folder_at) != 3)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (strncmp(path, setting + folder_at, strlen(setting + folder_at)) != 0)
        return 0;
    if (begin != NULL && access(begin, F_OK) != 0)
        return 0;
    long number = ++writes;
    if (number < first || number >= first + count)
        return 0;
    close(open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    errno = error;
    return 1;
}

ssize_t write(int file, const void *bytes, size_t size) {
    return fails(file) ? -1 : syscall(SYS_write, file, bytes, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    return fails(file) ? -1 : syscall(SYS_writev, file, parts, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    return fails(file) ? -1 : syscall(SYS_pwrite64, file, bytes, size, at);
}
