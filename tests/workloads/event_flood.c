// Events as fast as two threads can cause them: `event_flood calls LIBRARY` launches by a library named as NVIDIA's
// driver, `event_flood mappings FILE` maps and unmaps executable pages of a file. Prints `ready`.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);

static void *call(void *argument) {
    for (;;) {
        launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    return argument;
}

static void *map(void *file) {
    for (;;) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, *(int *)file, 0);
        munmap(page, 4096);
    }
    return file;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    int file = -1;
    int calls = strcmp(argv[1], "calls") == 0;
    if (calls) {
        void *library = dlopen(argv[2], RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        *(void **)&launch = dlsym(library, "cuLaunchKernel");
    } else if ((file = open(argv[2], O_RDONLY)) < 0) {
        perror(argv[2]);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    pthread_t thread;
    pthread_create(&thread, NULL, calls ? call : map, &file);
    (calls ? call : map)(&file);
}
