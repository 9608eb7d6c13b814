/* An extension through which Python calls Python, and which computes without the GIL.
 *
 * Owns: functions with unique names on the C stack. Because: the function between two Python frames shows whether
 * native and Python frames were paired correctly. Built against the stable interface of 3.8, so that one file serves
 * every later version; a build without a GIL has no such interface and gets a build of its own. */
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x03080000
#endif
#include <Python.h>

#define KEPT __attribute__((noinline, visibility("default")))

static PyObject *called(PyObject *function) {
    PyObject *result = PyObject_CallObject(function, NULL);
    /* Work after the call prevents a tail call. */
    __asm__ volatile("" : "+r"(result));
    return result;
}

KEPT PyObject *via_first(PyObject *module, PyObject *function) {
    (void)module;
    return called(function);
}

KEPT PyObject *via_second(PyObject *module, PyObject *function) {
    (void)module;
    return called(function);
}

KEPT PyObject *via_third(PyObject *module, PyObject *function) {
    (void)module;
    return called(function);
}

/* Consumes an iterator. */
KEPT PyObject *via_values(PyObject *module, PyObject *iterator) {
    PyObject *value;
    (void)module;
    while ((value = PyIter_Next(iterator)) != NULL) {
        Py_DECREF(value);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Alternates between two iterators, and calls a function in between. */
KEPT PyObject *via_turns(PyObject *module, PyObject *three) {
    PyObject *one = NULL, *other = NULL, *function = NULL, *value;
    int more = 1;
    (void)module;
    if (!PyArg_UnpackTuple(three, "turns", 3, 3, &one, &other, &function)) {
        return NULL;
    }
    while (more) {
        PyObject *results[3];
        results[0] = PyIter_Next(one);
        results[1] = called(function);
        results[2] = PyIter_Next(other);
        for (int i = 0; i < 3; i++) {
            value = results[i];
            more &= value != NULL;
            Py_XDECREF(value);
        }
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

KEPT PyObject *released(PyObject *module, PyObject *nothing) {
    volatile unsigned long turns = 0;
    (void)module;
    (void)nothing;
    PyThreadState *state = PyEval_SaveThread();
    /* Until the process ends. */
    while (turns != ~0UL) {
        turns++;
    }
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"first", via_first, METH_O, "Call a function."},
    {"second", via_second, METH_O, "Call a function."},
    {"third", via_third, METH_O, "Call a function."},
    {"values", via_values, METH_O, "Take all values of an iterator."},
    {"turns", via_turns, METH_VARARGS, "Take the values of two iterators by turns, and call a function in between."},
    {"released", released, METH_NOARGS, "Compute without the GIL until the process ends."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "python_known", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_python_known(void) { return PyModuleDef_Init(&module); }
