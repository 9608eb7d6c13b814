// Threads that end within a call of the given library, one after the other, so that each leaves a call that never
// returns. With 0 threads, a kernel is looked up by its name and launched repeatedly. With the argument `stay`, all
// threads stay in their calls instead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
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

static atomic_long entering;

static void *stay(void *argument) {
    void *kernel;
    entering++;
    // With this module it does not return.
    look_up(&kernel, (void *)1, "stays");
    return argument;
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) {
        return 2;
    }
    int stays = argc == 4;
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
        if (pthread_create(&thread, &small, stays ? stay : leave, NULL) || (!stays && pthread_join(thread, NULL))) {
            return 1;
        }
    }
    while (stays && entering < atol(argv[2])) {
        usleep(1000);
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
