// Events at the maximum rate of two threads: `event_flood FILE` maps and unmaps executable pages of a file. Prints
// `ready`.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

static void *map(void *file) {
    for (;;) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, *(int *)file, 0);
        munmap(page, 4096);
    }
    return file;
}

int main(int argc, char **argv) {
    int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0) {
        perror("usage: event_flood FILE");
        return 2;
    }
    puts("ready");
    fflush(stdout);
    pthread_t thread;
    pthread_create(&thread, NULL, map, &file);
    map(&file);
}
