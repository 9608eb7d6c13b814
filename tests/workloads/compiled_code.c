/*
 * A program that runs compiled code as frameworks do, until killed: `compiled_code OBJECT LIBRARY`.
 *
 * Owns: placing the function of an object file in anonymous memory and registering it for debuggers, as LLVM does for
 * XLA; and calling `kernel` of a library, as Inductor's wrappers do. Because: the frameworks themselves are too large
 * for every test. Does not: relocate; the function must need no relocation.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct entry {
    struct entry *next, *previous;
    const void *object;
    uint64_t size;
};

struct descriptor {
    uint32_t version, action;
    struct entry *relevant, *first;
};

struct descriptor __jit_debug_descriptor = {1, 0, 0, 0};

__attribute__((noinline)) void __jit_debug_register_code(void) {
    __asm__ volatile("" ::: "memory");
}

typedef void work(volatile uint64_t *);

/* Reads a file. */
static char *read_file(const char *path, long *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        exit(2);
    *size = ftell(file);
    rewind(file);
    char *bytes = malloc(*size);
    if (!bytes || fread(bytes, 1, *size, file) != (size_t)*size)
        exit(2);
    fclose(file);
    return bytes;
}

/* Places the code of an object file and registers it with debuggers. Returns its first function. */
static work *place(const char *path) {
    static struct entry entry;
    long size;
    char *object = read_file(path, &size);
    Elf64_Ehdr *header = (Elf64_Ehdr *)object;
    Elf64_Shdr *sections = (Elf64_Shdr *)(object + header->e_shoff);
    work *function = NULL;
    for (int n = 0; n < header->e_shnum; n++) {
        Elf64_Shdr *section = &sections[n];
        if (!(section->sh_flags & SHF_EXECINSTR) || section->sh_size == 0)
            continue;
        char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(code, object + section->sh_offset, section->sh_size);
        mprotect(code, 4096, PROT_READ | PROT_EXEC);
        section->sh_addr = (uint64_t)code;
        function = (work *)code;
    }
    entry.object = object;
    entry.size = size;
    __jit_debug_descriptor.relevant = __jit_debug_descriptor.first = &entry;
    __jit_debug_descriptor.action = 1;
    __jit_debug_register_code();
    return function;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    work *generated = place(arguments[1]);
    void *library = dlopen(arguments[2], RTLD_NOW);
    work *kernel = library ? (work *)dlsym(library, "kernel") : NULL;
    if (!generated || !kernel)
        return 2;
    puts("ready");
    fflush(stdout);
    volatile uint64_t state = 1;
    for (;;) {
        generated(&state);
        kernel(&state);
    }
}
