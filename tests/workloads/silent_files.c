/*
 * A file system (FUSE) whose one file, `a`, can be opened and mapped but never read, until killed:
 * `silent_files FOLDER USER [mute]`. A mute one answers no request at all, so even a name lookup in it blocks.
 *
 * Owns: mounting it, and answering every request but reads. Because: a process that touches a page of the file blocks
 * forever, as with a hung or malicious server. Does not: unmount; when it ends, blocked processes get an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <signal.h>
#include <unistd.h>

enum { FOLDER = 1, SILENT = 2, SIZE = 65536, FOR_EVER = 3600 };

static int connection, is_mute;

static void answer(const struct fuse_in_header *to, int error, void *body, size_t size) {
    struct fuse_out_header header = {.len = sizeof header + size, .error = error, .unique = to->unique};
    struct iovec parts[] = {{&header, sizeof header}, {body, size}};
    /* The requester may be gone. */
    (void)!writev(connection, parts, 2);
}

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
    found.mode = node == FOLDER ? S_IFDIR | 0777 : S_IFREG | 0777;
    found.size = node == FOLDER ? 0 : SIZE;
    return found;
}

static void serve(const struct fuse_in_header *request) {
    if (is_mute && request->opcode != FUSE_INIT)
        return;
    switch (request->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 65536, .max_write = 65536};
        out.max_background = 12;
        out.congestion_threshold = 10;
        out.time_gran = 1;
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = SILENT, .entry_valid = FOR_EVER, .attr_valid = FOR_EVER};
        out.attr = attributes(SILENT);
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr_valid = FOR_EVER, .attr = attributes(request->nodeid)};
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.fh = 1};
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ:
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(request, -ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv) {
    static _Alignas(struct fuse_in_header) char request[1 << 17];
    char options[200];
    if (argc != 3 && argc != 4)
        return 2;
    is_mute = argc == 4;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    connection = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (connection < 0) {
        perror("/dev/fuse");
        return 1;
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%s,group_id=0,allow_other", connection, argv[2]);
    if (mount("silent", argv[1], "fuse", 0, options) != 0) {
        perror("mount");
        return 1;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) {
        if (read(connection, request, sizeof request) > 0)
            serve((struct fuse_in_header *)request);
        else if (errno != EINTR && errno != ENOENT && errno != EAGAIN)
            return 0;
    }
}
