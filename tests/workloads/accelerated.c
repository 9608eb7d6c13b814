/* A process that calls libraries such as those of accelerator.c, by commands on its standard input: one command per
 * line, answered by a line "done …" on completion. Prints "ready PID" first.
 *
 *   open DRIVER      load a driver            launch N [THREADS]  launch kernels: 0, 1, 2 … blocks in x
 *   close            unload it                sync | alloc | free | name TEXT
 *   fork N           launch N in a child      undumpable          hide the process from other processes
 *   collector FILE   load a collector         say                 make the collector send each of its messages once
 *   records FILE N   load CUPTI, read N records: their bytes  map FILE        map a library's code without loading it
 *   call SYMBOL      call a function of the driver with 1, 2, 3
 *   zeros SYMBOL N   call it N times, every argument the address of zeros
 *   take SYMBOL      launch through this function from now on
 *   ask SYMBOL FLAGS launch through the pointer that this function (cuGetProcAddress, or its _v2) returns for
 *                    cuLaunchKernel. Answers 1 if it is the exported function, 2 if its _ptsz, 0 for neither
 *
 * `launch` answers with the driver's code of the last launch: a real driver without a device gives 3 (not initialized).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int Launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static void *driver, *collector;
static Launch *launch;
static char name[4096];

static void *find(void *library, const char *symbol) {
    void *found = dlsym(library, symbol);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return found;
}

static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return library;
}

__attribute__((noinline)) static int train_step(unsigned i) {
    int failed = launch((void *)0x5eed, i, 2, 3, 4, 5, 6, 7, (void *)0x99, NULL, NULL);
    __asm__ volatile("" ::: "memory");
    return failed;
}

__attribute__((noinline)) static void *train(void *count) {
    intptr_t failed = 0;
    for (unsigned i = 0; i < (uintptr_t)count; i++)
        failed = train_step(i);
    __asm__ volatile("" ::: "memory");
    return (void *)failed;
}

static int train_on(unsigned count, unsigned threads) {
    pthread_t others[64];
    for (unsigned i = 1; i < threads && i < 64; i++)
        pthread_create(&others[i], NULL, train, (void *)(uintptr_t)count);
    int failed = (intptr_t)train((void *)(uintptr_t)count);
    for (unsigned i = 1; i < threads && i < 64; i++)
        pthread_join(others[i], NULL);
    return failed;
}

/* The pointer for a program that requests 12.0 at run time, as the runtime does. `_v2` also reports a status. */
static unsigned ask(const char *symbol, unsigned flags) {
    void *found = NULL;
    int why = 0;
    int failed = ((int (*)(const char *, void **, int, uint64_t, int *))find(driver, symbol))(
        "cuLaunchKernel", &found, 12000, flags, &why);
    if (failed || !found) {
        fprintf(stderr, "%s gives nothing: %d, %d\n", symbol, failed, why);
        exit(3);
    }
    launch = (Launch *)found;
    return found == dlsym(driver, "cuLaunchKernel") ? 1 : found == dlsym(driver, "cuLaunchKernel_ptsz") ? 2 : 0;
}

static void say(void) {
    void (*tell[7])(uint64_t, uint64_t, uint64_t);
    const char *names[7] = {"correlation", "activities", "name", "clock", "state", "samples", "device"};
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "deepctx_collector_%s", names[i]);
        tell[i] = find(collector, name);
    }
    uint64_t activities[3 * 14];
    for (int i = 0; i < 3 * 14; i++)
        activities[i] = i;
    train_step(0);
    tell[0](4711, (uint64_t)3 << 32 | 307, 0);
    tell[0](4712, (uint64_t)3 << 32 | 307, 0);
    tell[1]((uint64_t)activities, 3, 0);
    tell[2](42, (uint64_t) "kernel_of_mine", 14);
    tell[3](1000, 2000, 3000);
    tell[4](1, 120000, 0);
    tell[5]((uint64_t)2 << 32 | 7, (uint64_t) "a_reason", 8);
    tell[6](0, (uint64_t) "a_device", 8);
}

/* Writes a kernel record: all versions share the layout up to the name. */
static void record_at(char *at, uint32_t correlation) {
    uint32_t *words = (uint32_t *)at;
    words[0] = 10; /* CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL */
    words[92 / 4] = correlation;
    *(const char **)(at + 104) = "borrowed_kernel";
}

/* The length of such a record depends on the version: with the right length, two records are read. 0 if none is read:
   later versions of CUPTI require a driver. */
static size_t record_bytes(int (*next)(char *, size_t, char **)) {
    for (size_t bytes = 144; bytes <= 320; bytes += 8) {
        char *buffer = calloc(2, bytes), *record = NULL;
        record_at(buffer, 1);
        record_at(buffer + bytes, 2);
        int two = next(buffer, 2 * bytes, &record) == 0 && next(buffer, 2 * bytes, &record) == 0;
        two = two && record == buffer + bytes && next(buffer, 2 * bytes, &record) != 0;
        free(buffer);
        if (two) return bytes;
    }
    return 0;
}

static size_t records(const char *path, unsigned count) {
    static size_t bytes;
    int (*next)(char *, size_t, char **) = find(load(path), "cuptiActivityGetNextRecord");
    if (!bytes) bytes = record_bytes(next);
    char *buffer = calloc(count + 1, bytes + 1), *record = NULL;
    for (unsigned i = 0; bytes && i < count; i++) record_at(buffer + bytes * i, 100 + i);
    while (bytes && next(buffer, bytes * count, &record) == 0) {}
    free(buffer);
    return bytes;
}

/* More arguments than any function takes; each may be a handle, a number, or a structure that is read or written. */
static void zeros(const char *symbol, unsigned count) {
    static char zero[1 << 16];
    int (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *) =
        find(driver, symbol);
    for (unsigned i = 0; i < count; i++) {
        memset(zero, 0, sizeof zero);
        function(zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero);
    }
}

/* Maps the code of a library as a loader does, without running it: its dependencies are missing here. */
static void map(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(3);
    }
    void *code = mmap(NULL, (size_t)ftell(file), PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
    if (code == MAP_FAILED) exit(3);
    fclose(file);
}

int main(void) {
    char line[8192], word[32];
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char text[4096] = "";
        unsigned count = 0, threads = 1;
        uint64_t out = 0;
        sscanf(line, "%31s %4095s %u", word, text, &threads);
        count = strtoul(text, NULL, 10);
        if (!strcmp(word, "open")) {
            driver = load(text);
            launch = find(driver, "cuLaunchKernel");
        } else if (!strcmp(word, "close")) {
            dlclose(driver);
        } else if (!strcmp(word, "launch")) {
            out = train_on(count, threads);
        } else if (!strcmp(word, "take")) {
            launch = (Launch *)find(driver, text);
        } else if (!strcmp(word, "ask")) {
            out = ask(text, threads);
        } else if (!strcmp(word, "sync")) {
            ((int (*)(void *))find(driver, "cuStreamSynchronize"))((void *)0x99);
        } else if (!strcmp(word, "alloc")) {
            int (*allocate)(uint64_t *, size_t) = find(driver, "cuMemAlloc_v2");
            for (unsigned i = 0; i < threads; i++) allocate(&out, count);
        } else if (!strcmp(word, "free")) {
            ((int (*)(uint64_t))find(driver, "cuMemFree_v2"))(0x7000001000);
        } else if (!strcmp(word, "name")) {
            ((int (*)(uint64_t *, void *, const char *))find(driver, "cuModuleGetFunction"))(&out, (void *)1, text);
        } else if (!strcmp(word, "fork")) {
            pid_t child = fork();
            if (child == 0) {
                train_on(count, 1);
                _exit(0);
            }
            waitpid(child, NULL, 0);
            out = child;
        } else if (!strcmp(word, "undumpable")) {
            prctl(PR_SET_DUMPABLE, 0);
        } else if (!strcmp(word, "collector")) {
            collector = load(text);
        } else if (!strcmp(word, "listeners")) {
            out = *(volatile uint16_t *)find(collector, "deepctx_collector_listeners");
        } else if (!strcmp(word, "samplers")) {
            out = *(volatile uint16_t *)find(collector, "deepctx_collector_samplers");
        } else if (!strcmp(word, "say")) {
            say();
        } else if (!strcmp(word, "records")) {
            out = records(text, threads);
        } else if (!strcmp(word, "map")) {
            map(text);
        } else if (!strcmp(word, "zeros")) {
            zeros(text, threads);
        } else if (!strcmp(word, "call")) {
            ((int (*)(uint64_t, uint64_t, uint64_t))find(driver, text))(1, 2, 3);
        }
        printf("done %lu\n", (unsigned long)out);
        fflush(stdout);
    }
    return 0;
}
