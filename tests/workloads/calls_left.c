// Threads that end within a call of the given library, one after the other, so that each leaves a call that never
// returns. With 0 threads, a kernel is looked up by its name and launched repeatedly.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int (*look_up)(void **, void *, const char *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);

static void *leave(void *argument) {
    void *kernel;
    // Without a module the look-alike ends its thread.
    look_up(&kernel, NULL, "left");
    return argument;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    look_up = (int (*)(void **, void *, const char *))dlsym(library, "cuModuleGetFunction");
    launch = (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **))dlsym(library, "cuLaunchKernel");
    printf("loaded\n");
    fflush(stdout);
    // Waits for a line.
    if (getchar() == EOF) {
        return 1;
    }
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    for (long left = atol(argv[2]); left > 0; left--) {
        pthread_t thread;
        if (pthread_create(&thread, &small, leave, NULL) || pthread_join(thread, NULL)) {
            return 1;
        }
    }
    if (atol(argv[2]) > 0) {
        printf("left\n");
        fflush(stdout);
    }
    while (atol(argv[2]) == 0) {
        void *kernel = NULL;
        look_up(&kernel, library, "found_by_name");
        launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        usleep(10000);
    }
    for (;;) {
        pause();
    }
}
