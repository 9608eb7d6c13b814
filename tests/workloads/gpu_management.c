/* A look-alike of NVIDIA's management library (libnvidia-ml.so.1): its values for two GPUs follow a known sequence. A
 * file `faults` beside it lists failures, one per line:
 *
 *   FUNCTION GPU READING WHAT     from this reading on (0 is the first), a call of this function for this GPU, or for
 *                                 any (-1), does WHAT: returns this number, hangs (`hang`) or aborts (`abort`)
 *
 * `*` stands for every function that reads a value of a GPU. It refuses to start, with code 998, in a process that has
 * privileges or may open a socket: the process that loads it must have dropped them.
 *
 * cc -shared -fPIC -o libnvidia-ml.so.1 gpu_management.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, UNCONFINED = 998, GPUS = 2 };

struct gpu {
    int index;
    /* Readings started: each starts with the utilization. */
    int readings;
};
static struct gpu gpus[GPUS] = {{0, -1}, {1, -1}};

/* The configured fault of this call; 0 if there is none. */
static int fault(const char *function, const struct gpu *gpu) {
    Dl_info here;
    char path[4096];
    if (!dladdr((void *)gpus, &here)) return 0;
    snprintf(path, sizeof path, "%s", here.dli_fname);
    char *name = strrchr(path, '/');
    if (!name) return 0;
    snprintf(name + 1, sizeof path - (name + 1 - path), "faults");
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    char of[128], what[16];
    int index, reading, code = 0;
    while (!code && fscanf(file, "%127s %d %d %15s", of, &index, &reading, what) == 4) {
        int named = strcmp(of, function) == 0 || (gpu && strcmp(of, "*") == 0);
        if (!named || (gpu && ((index != -1 && index != gpu->index) || gpu->readings < reading))) continue;
        if (strcmp(what, "abort") == 0) abort();
        while (strcmp(what, "hang") == 0) pause();
        code = atoi(what);
    }
    fclose(file);
    return code;
}

#define BEGIN(gpu)                                                                                                     \
    int code = fault(__func__, gpu);                                                                                   \
    if (code) return code

int nvmlInit_v2(void) {
    int opened = socket(AF_UNIX, SOCK_STREAM, 0);
    if (geteuid() == 0 || getuid() == 0 || opened >= 0) return UNCONFINED;
    BEGIN(NULL);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN(NULL);
    *count = GPUS;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) {
    if (index >= GPUS) return INVALID_ARGUMENT;
    BEGIN(&gpus[index]);
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned length) {
    BEGIN(gpu);
    int written = snprintf(uuid, length, "GPU-%08x-0000-4000-8000-00000000000%d", 0xabcd0000 + gpu->index, gpu->index);
    return written < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(struct gpu *gpu, struct utilization *rates) {
    gpu->readings++;
    BEGIN(gpu);
    *rates = gpu->index == 0 ? (struct utilization){25, 10} : (struct utilization){gpu->readings % 2 ? 100 : 50, 0};
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory *memory) {
    BEGIN(gpu);
    memory->total = 80ull << 30;
    memory->used = (8ull << 30) * (gpu->index + 1);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* Each reading of the second GPU is one watt above the previous one, so that a repeated or lost reading shows. */
int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *milliwatts) {
    BEGIN(gpu);
    *milliwatts = gpu->index == 0 ? 350000 : 100000 + 1000 * gpu->readings;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, unsigned sensor, unsigned *celsius) {
    BEGIN(gpu);
    if (sensor != 0) return INVALID_ARGUMENT;
    *celsius = 40 + 20 * gpu->index;
    return SUCCESS;
}

/* 1: multiprocessors, 2: memory. */
int nvmlDeviceGetClockInfo(struct gpu *gpu, unsigned of, unsigned *megahertz) {
    BEGIN(gpu);
    if (of != 1 && of != 2) return INVALID_ARGUMENT;
    *megahertz = of == 1 ? 1980 : 2619;
    return SUCCESS;
}

/* The first GPU is at its power limit (0x4). The second one is throttled for heat, by hardware (0x8, 0x40). */
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *reasons) {
    BEGIN(gpu);
    *reasons = gpu->index == 0 ? 0x4 : 0x48;
    return SUCCESS;
}
