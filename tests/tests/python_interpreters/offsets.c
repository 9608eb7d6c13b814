/* Prints where this CPython keeps the fields that the layout tables state: one "name offset" per line. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <string.h>
#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#else
#include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#endif
#include <internal/pycore_runtime.h>

#define FIELD(name, type, field) printf("%s %zu\n", name, offsetof(type, field))

/* The words of a code object from one field to another. */
#define WORDS(first, last) \
    printf("code_identity %zu\ncode_identity_words %zu\n", offsetof(PyCodeObject, first), \
           offsetof(PyCodeObject, last) / 8 - offsetof(PyCodeObject, first) / 8 + 1)

static unsigned state_bits(int kind, int compact, int ascii) {
    PyASCIIObject object;
    unsigned bits;
    memset(&object, 0, sizeof object);
    object.state.kind = kind;
    object.state.compact = compact;
    object.state.ascii = ascii;
    memcpy(&bits, &object.state, sizeof bits);
    return bits;
}

int main(void) {
#if PY_VERSION_HEX < 0x030b0000
    FIELD("tstate_frame", PyThreadState, frame);
    FIELD("frame_locals", PyFrameObject, f_localsplus);
    FIELD("frame_code", PyFrameObject, f_code);
    FIELD("frame_previous", PyFrameObject, f_back);
    FIELD("frame_instruction", PyFrameObject, f_lasti);
#elif PY_VERSION_HEX < 0x030d0000
    FIELD("tstate_frame", PyThreadState, cframe);
    FIELD("cframe_current_frame", _PyCFrame, current_frame);
    FIELD("frame_code", _PyInterpreterFrame, f_code);
    FIELD("frame_previous", _PyInterpreterFrame, previous);
    FIELD("frame_instruction", _PyInterpreterFrame, prev_instr);
#else
    FIELD("tstate_frame", PyThreadState, current_frame);
    FIELD("frame_code", _PyInterpreterFrame, f_executable);
    FIELD("frame_previous", _PyInterpreterFrame, previous);
    FIELD("frame_instruction", _PyInterpreterFrame, instr_ptr);
#endif
#if PY_VERSION_HEX >= 0x030c0000
    FIELD("frame_entry_mark", _PyInterpreterFrame, owner);
#elif PY_VERSION_HEX >= 0x030b0000
    FIELD("frame_entry_mark", _PyInterpreterFrame, is_entry);
#endif
#if PY_VERSION_HEX >= 0x030e0000
    printf("entry_value %d\n", FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030c0000
    printf("entry_value %d\n", FRAME_OWNED_BY_CSTACK);
#endif
    FIELD("tstate_thread_id", PyThreadState, thread_id);
    FIELD("code_argcount", PyCodeObject, co_argcount);
    FIELD("code_flags", PyCodeObject, co_flags);
#if PY_VERSION_HEX >= 0x030c0000
    WORDS(co_flags, co_version);
#elif PY_VERSION_HEX >= 0x030b0000
    WORDS(co_argcount, co_linetable);
#elif PY_VERSION_HEX >= 0x030a0000
    WORDS(co_argcount, co_linetable);
#else
    WORDS(co_argcount, co_lnotab);
#endif
    FIELD("code_firstlineno", PyCodeObject, co_firstlineno);
    FIELD("code_filename", PyCodeObject, co_filename);
    FIELD("code_name", PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030b0000
    FIELD("code_qualname", PyCodeObject, co_qualname);
    FIELD("code_bytecode", PyCodeObject, co_code_adaptive);
    FIELD("code_first_traceable", PyCodeObject, _co_firsttraceable);
#endif
#if PY_VERSION_HEX >= 0x030a0000
    FIELD("code_lines", PyCodeObject, co_linetable);
#else
    FIELD("code_lines", PyCodeObject, co_lnotab);
#endif
    FIELD("object_type", PyObject, ob_type);
    FIELD("bytes_size", PyVarObject, ob_size);
    FIELD("bytes_data", PyBytesObject, ob_sval);
    FIELD("str_length", PyASCIIObject, length);
    FIELD("str_state", PyASCIIObject, state);
    printf("str_ascii_data %zu\n", sizeof(PyASCIIObject));
    printf("str_compact_data %zu\n", sizeof(PyCompactUnicodeObject));
    printf("str_kind_bit %u\n", state_bits(1, 0, 0));
    printf("str_compact_bit %u\n", state_bits(0, 1, 0));
    printf("str_ascii_bit %u\n", state_bits(0, 0, 1));
#if PY_VERSION_HEX < 0x030c0000
    FIELD("runtime_tss", _PyRuntimeState, gilstate.autoTSSkey);
    FIELD("runtime_running", _PyRuntimeState, gilstate.tstate_current);
#elif PY_VERSION_HEX < 0x030f0000
    FIELD("runtime_tss", _PyRuntimeState, autoTSSkey);
#endif
#if PY_VERSION_HEX >= 0x030b0000
    FIELD("frame_owner", _PyInterpreterFrame, owner);
    FIELD("frame_locals", _PyInterpreterFrame, localsplus);
#endif
#if PY_VERSION_HEX >= 0x030e0000 && PY_VERSION_HEX < 0x030f0000 && !defined(Py_GIL_DISABLED)
    FIELD("runtime_main", _PyRuntimeState, interpreters.main);
    /* Builds without a JIT have no such field, and another size. */
    if (sizeof(PyInterpreterState) == 225864) {
        FIELD("interpreter_jit", PyInterpreterState, jit);
    }
#endif
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030e0000
    FIELD("frame_tlbc_index", _PyInterpreterFrame, tlbc_index);
    FIELD("code_tlbc", PyCodeObject, co_tlbc);
#endif
    return 0;
}
