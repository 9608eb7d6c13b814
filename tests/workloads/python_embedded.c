/* A program that is not an interpreter and loads one: `python_embedded LIBPYTHON ARGUMENTS...`.
 *
 * Owns: only that. Because: an embedded interpreter runs under another program's name, and its library is loaded late,
 * when thread-local storage is no longer at fixed offsets. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "python_embedded: %s\n", count > 1 ? dlerror() : "no library is named");
        return 2;
    }
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(library, "Py_BytesMain");
    if (run == NULL) {
        fprintf(stderr, "python_embedded: %s\n", dlerror());
        return 2;
    }
    return run(count - 1, arguments + 1);
}
