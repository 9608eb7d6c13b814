// Events that measure the cost of a program: an empty one, or the profiler's own sampler, once or twice in a row, so
// that its second run finds all its data in the caches. Events of one thread: other processes pay nothing.
//
//   empty_program sample PID HZ                   an empty program at the timer of this thread
//   empty_program loaded PID HZ PROGRAM_ID TIMES  a loaded program at the timer of this thread, once or twice
//   empty_program call FILE OFFSET                an empty program where this byte of the file is executed
//
// Prints `ready PID` once it is ready, and runs until its input ends. Needs root.

#define _GNU_SOURCE
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int checked(const char *what, long result) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return (int)result;
}

static long bpf(int command, union bpf_attr *attributes) {
    return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

/// A program of this kind that returns immediately.
static int empty(enum bpf_prog_type kind) {
    const struct bpf_insn instructions[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr attributes = {0};
    attributes.prog_type = kind;
    attributes.insns = (uintptr_t)instructions;
    attributes.insn_cnt = sizeof instructions / sizeof *instructions;
    attributes.license = (uintptr_t) "GPL";
    return checked("an empty program", bpf(BPF_PROG_LOAD, &attributes));
}

static int loaded(uint32_t id) {
    union bpf_attr attributes = {0};
    attributes.prog_id = id;
    return checked("the program", bpf(BPF_PROG_GET_FD_BY_ID, &attributes));
}

/// A timer event of a thread; a group starts together, so its timers fire together.
static int timer(int thread, uint64_t frequency, int group) {
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attributes,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_freq = frequency,
        .freq = 1,
        .disabled = group < 0,
    };
    long event = syscall(SYS_perf_event_open, &attributes, thread, -1, group, PERF_FLAG_FD_CLOEXEC);
    return checked("an event of the timer", event);
}

/// An event at a location in a file.
static int place(const char *path, uint64_t offset) {
    FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    unsigned kind = 0;
    if (!file || fscanf(file, "%u", &kind) != 1) checked("uprobes", -1);
    fclose(file);
    struct perf_event_attr attributes = {
        .type = kind,
        .size = sizeof attributes,
        .config1 = (uintptr_t)path,
        .config2 = offset,
    };
    return checked("a probe", syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC));
}

static void attach(int event, int program) {
    checked("attaching", ioctl(event, PERF_EVENT_IOC_SET_BPF, program));
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[1], "sample")) {
        int event = timer(atoi(words[2]), strtoull(words[3], NULL, 10), -1);
        attach(event, empty(BPF_PROG_TYPE_PERF_EVENT));
        checked("the start", ioctl(event, PERF_EVENT_IOC_ENABLE, 0));
    } else if (count == 6 && !strcmp(words[1], "loaded")) {
        int thread = atoi(words[2]), program = loaded((uint32_t)strtoul(words[4], NULL, 10));
        int first = timer(thread, strtoull(words[3], NULL, 10), -1);
        attach(first, program);
        if (!strcmp(words[5], "2")) attach(timer(thread, strtoull(words[3], NULL, 10), first), program);
        checked("the start", ioctl(first, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP));
    } else if (count == 4 && !strcmp(words[1], "call")) {
        int event = place(words[2], strtoull(words[3], NULL, 10));
        attach(event, empty(BPF_PROG_TYPE_KPROBE));
        checked("the start", ioctl(event, PERF_EVENT_IOC_ENABLE, 0));
    } else {
        fprintf(stderr, "expected: sample PID HZ, loaded PID HZ PROGRAM_ID TIMES, or call FILE OFFSET\n");
        return 2;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (char byte; read(STDIN_FILENO, &byte, 1) > 0;);
    return 0;
}
