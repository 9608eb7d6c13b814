/* Look-alikes of accelerator libraries: exported names, calling convention, and function entries of the same form (a
 * comparison, over which a probe must single-step, then a jump, which the kernel emulates). One source; -DNAME selects
 * the library: DRIVER (libcuda.so.1), CUPTI (libcupti.so.12), COLLECTOR (libdeepctx_collector.so). */
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define ENTRY(name)                                                                                                    \
    __asm__(".globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n"                                \
            "cmpl $0x321cba00, ready(%rip)\nje 1f\njmp real_" #name "\n1: mov $3,%eax\nret\n"                          \
            ".cfi_endproc\n.size " #name ",.-" #name)

HIDDEN unsigned ready = 1;

#ifdef DRIVER
HIDDEN int real_cuLaunchKernel(void *function, unsigned grid_x) { return function == NULL && grid_x == 0; }
/* Waits as a driver does: it polls first, then sleeps. */
HIDDEN int real_cuStreamSynchronize(void *stream) {
    for (volatile unsigned i = 0; i < 2000000; i++) {}
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
    return stream == NULL;
}
HIDDEN int real_cuMemAlloc_v2(uint64_t *out, size_t bytes) { return *out = 0x7000000000 + bytes, 0; }
HIDDEN int real_cuMemFree_v2(uint64_t address) { return address == 0; }
HIDDEN int real_cuModuleGetFunction(uint64_t *out, void *module, const char *name) {
    return *out = 0x5000 + strlen(name), module == NULL;
}
ENTRY(cuLaunchKernel);
ENTRY(cuStreamSynchronize);
ENTRY(cuMemAlloc_v2);
ENTRY(cuMemFree_v2);
ENTRY(cuModuleGetFunction);
#endif

#ifdef CUPTI
/* Returns the records in the buffer: 160 bytes each, the size of a kernel record since CUDA 11. */
HIDDEN int real_cuptiActivityGetNextRecord(char *buffer, size_t bytes, char **record) {
    *record = *record ? *record + 160 : buffer;
    return *record + 160 <= buffer + bytes ? 0 : 12;
}
ENTRY(cuptiActivityGetNextRecord);
#endif

#ifdef COLLECTOR
__attribute__((section(".probes"))) volatile uint16_t deepctx_collector_listeners = 0;
__attribute__((section(".probes"))) volatile uint16_t deepctx_collector_samplers = 0;
#define MESSAGE(name)                                                                                                  \
    __asm__(".globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\nnop\nret\n.cfi_endproc\n.size "  \
            #name ",.-" #name)
MESSAGE(deepctx_collector_correlation);
MESSAGE(deepctx_collector_activities);
MESSAGE(deepctx_collector_name);
MESSAGE(deepctx_collector_clock);
MESSAGE(deepctx_collector_state);
MESSAGE(deepctx_collector_node);
MESSAGE(deepctx_collector_samples);
MESSAGE(deepctx_collector_device);
#endif
