// A Python extension that burns CPU time below a recursion of a given depth.
//
// Owns: one function, `burn.spin(depth, rounds)`. Because: with -O2 and without frame pointers only unwind rows lead
// from the leaf back to the interpreter, and the depth must be known to compare the cost per frame.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace {

__attribute__((noinline)) std::uint64_t leaf(std::uint64_t seed, long rounds) {
    for (long i = 0; i < rounds; ++i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        seed ^= seed >> 29;
    }
    return seed;
}

__attribute__((noinline)) std::uint64_t descend(long depth, std::uint64_t seed, long rounds) {
    if (depth <= 1) {
        return leaf(seed, rounds);
    }
    std::uint64_t below = descend(depth - 1, seed + static_cast<std::uint64_t>(depth), rounds);
    // Work after the call prevents a tail call.
    asm volatile("" : "+r"(below));
    return below ^ static_cast<std::uint64_t>(depth);
}

PyObject *spin(PyObject *, PyObject *arguments) {
    long depth = 1;
    long rounds = 1;
    if (!PyArg_ParseTuple(arguments, "ll", &depth, &rounds)) {
        return nullptr;
    }
    if (depth < 1 || depth > 10000 || rounds < 0) {
        PyErr_SetString(PyExc_ValueError, "depth must be 1 to 10000 and rounds not negative");
        return nullptr;
    }
    return PyLong_FromUnsignedLongLong(descend(depth, 1, rounds));
}

PyMethodDef methods[] = {
    {"spin", spin, METH_VARARGS, "Burn CPU for `rounds` steps below `depth` native frames."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "burn", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_burn() { return PyModule_Create(&module); }
