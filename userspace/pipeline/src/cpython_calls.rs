//! CPython call chain: the calls that an interpreter makes to get from one Python function to the next.
//!
//! Owns: the names of these C functions, and marking them where they are next to Python frames. Because: one Python
//! call is up to six C calls, none of which adds anything to the Python frames around them; readers want to fold them
//! with the evaluation loop. Does not: hide anything (views do), or mark a function of the same name that only calls
//! native code, or that is another file's.
//!
//! ```text
//!  root ▸ … evaluation loop │ caller.py:f │ PyObject_Vectorcall ▸ _PyFunction_Vectorcall ▸ _PyEval_Vector ▸ evaluation loop │ m.py:g ▸ …
//!                             Python        └──────────────────── call chain ─────────────────────────┘                    Python
//! ```

use deepctx_profile::frame::{Frame, FrameKind, Origin, Role};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;

/// Functions that only pass a call on, as seen in stacks of CPython 3.8 to 3.15: into the evaluation loop, into
/// built-in functions, and into generators. Functions that decide something (a slot, a method, `type.__call__`) are not
/// listed.
const NAMES: &[&str] = &[
    "PyEval_EvalCode",
    "PyEval_EvalCodeEx",
    "PyEval_EvalFrame",
    "PyEval_EvalFrameEx",
    "PyObject_Call",
    "PyObject_CallFunctionObjArgs",
    "PyObject_CallMethodObjArgs",
    "PyObject_CallNoArgs",
    "PyObject_CallOneArg",
    "PyObject_Vectorcall",
    "PyObject_VectorcallDict",
    "PyObject_VectorcallMethod",
    "PyVectorcall_Call",
    "_PyEval_EvalCode",
    "_PyEval_EvalCodeWithName",
    "_PyEval_EvalFrame",
    "_PyEval_Vector",
    "_PyFunction_FastCallDict",
    "_PyFunction_FastCallKeywords",
    "_PyFunction_Vectorcall",
    "_PyObject_Call",
    "_PyObject_CallFunctionVa",
    "_PyObject_CallMethodIdObjArgs",
    "_PyObject_CallNoArg",
    "_PyObject_CallNoArgs",
    "_PyObject_CallNoArgsTstate",
    "_PyObject_Call_Prepend",
    "_PyObject_FastCallDict",
    "_PyObject_FastCallDictTstate",
    "_PyObject_FastCallTstate",
    "_PyObject_MakeTpCall",
    "_PyObject_Vectorcall",
    "_PyObject_VectorcallDictTstate",
    "_PyObject_VectorcallPrepend",
    "_PyObject_VectorcallTstate",
    "_PyVectorcall_Call",
    "_Py_BuiltinCallFastWithKeywords_StackRef",
    "_Py_BuiltinCallFast_StackRef",
    "_Py_CallBuiltinClass_StackRef",
    "_Py_VectorCallInstrumentation_StackRefSteal",
    "_Py_VectorCall_StackRefSteal",
    "call_function",
    "cfunction_call",
    "cfunction_call_varargs",
    "cfunction_vectorcall_FASTCALL",
    "cfunction_vectorcall_FASTCALL_KEYWORDS",
    "cfunction_vectorcall_NOARGS",
    "cfunction_vectorcall_O",
    "do_call_core",
    "function_code_fastcall",
    "gen_iternext",
    "gen_send_ex",
    "gen_send_ex2",
    "method_vectorcall",
    "method_vectorcall_FASTCALL",
    "method_vectorcall_FASTCALL_KEYWORDS",
    "method_vectorcall_NOARGS",
    "method_vectorcall_O",
    "method_vectorcall_VARARGS",
    "method_vectorcall_VARARGS_KEYWORDS",
    "object_vacall",
    "vectorcall_maybe",
    "vectorcall_method",
    "vectorcall_unbound",
];

/// Prefix of opcodes that are functions: since 3.14, the evaluation loop of an interpreter built with clang
/// (`--with-tail-call-interp`) enters the first one, and each jumps to the next (Python/ceval_macros.h).
const TAIL_CALLED: &str = "_TAIL_CALL_";

/// The role of a frame for its neighbors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CallFrameRole {
    /// Nothing.
    #[default]
    Other,
    /// Python, or an interpreter's internal frame: the call chain may follow on either side.
    Python,
    /// The same, of native code in this module.
    Interpreter(StrId),
    /// Part of the call chain: the same frame, marked as internal.
    CallChain(FrameId),
    /// The same, if this module is the interpreter's: the name is that of a static function, and anybody's.
    InterpretersCallChain(FrameId, StrId),
}

/// Marks the frames of CPython's call chain.
#[derive(Debug, Default)]
pub(crate) struct CpythonCalls {
    /// By frame number; shorter than the frame table until learned.
    parts: Vec<CallFrameRole>,
}

impl CpythonCalls {
    /// Records the role of a frame.
    pub(crate) fn learn(&mut self, id: FrameId, profile: &mut Profile) {
        let part = match profile.frames.get(id) {
            Frame::Native { module, role: Role::Interpreter, .. }
            | Frame::NativeUnnamed { module, role: Role::Interpreter, .. }
                if module != StrId::EMPTY =>
            {
                CallFrameRole::Interpreter(module)
            }
            frame if frame.is_interpreter() || frame.kind() == FrameKind::Python => CallFrameRole::Python,
            Frame::Unresolved { origin: Origin::Python, .. } => CallFrameRole::Python,
            Frame::Native { symbol, module, file, line, inlined, .. }
                if is_call_chain(profile.strings.get(symbol)) =>
            {
                let role = Role::Interpreter;
                let is_reserved = is_reserved(profile.strings.get(symbol));
                let twin = profile.frame(Frame::Native { symbol, module, file, line, inlined, role });
                self.set(twin, CallFrameRole::Python);
                match is_reserved {
                    // Extensions have copies of functions that are in CPython's headers.
                    true => CallFrameRole::CallChain(twin),
                    false => CallFrameRole::InterpretersCallChain(twin, module),
                }
            }
            _ => return,
        };
        self.set(id, part);
    }

    fn set(&mut self, id: FrameId, part: CallFrameRole) {
        // Bounded, since frames are.
        if self.parts.len() <= id.index() {
            self.parts.resize(id.index() + 1, CallFrameRole::Other);
        }
        self.parts[id.index()] = part;
    }

    /// Marks the call chain in a path as internal, from both sides of each run of Python frames.
    pub(crate) fn mark(&self, path: &mut [FrameId]) {
        self.mark_after_python(path.iter_mut());
        self.mark_after_python(path.iter_mut().rev());
    }

    fn mark_after_python<'a>(&self, path: impl Iterator<Item = &'a mut FrameId>) {
        let (mut after, mut interpreter) = (false, None);
        for frame in path {
            let twin = match self.parts.get(frame.index()).copied().unwrap_or_default() {
                CallFrameRole::Python => {
                    after = true;
                    continue;
                }
                CallFrameRole::Interpreter(module) => {
                    (after, interpreter) = (true, Some(module));
                    continue;
                }
                CallFrameRole::CallChain(twin) => Some(twin),
                CallFrameRole::InterpretersCallChain(twin, module) => {
                    Some(twin).filter(|_| interpreter.is_none_or(|of| of == module))
                }
                CallFrameRole::Other => None,
            };
            match twin.filter(|_| after) {
                Some(twin) => *frame = twin,
                None => after = false,
            }
        }
    }
}

/// Compilers append suffixes to functions they transform (`.part.0`, `.lto_priv.1`).
fn is_call_chain(symbol: &str) -> bool {
    let name = symbol.split('.').next().unwrap_or(symbol);
    NAMES.binary_search(&name).is_ok() || name.starts_with(TAIL_CALLED)
}

/// Whether only CPython has names like this.
fn is_reserved(symbol: &str) -> bool {
    ["Py", "_Py", TAIL_CALLED].iter().any(|prefix| symbol.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
    }

    /// Letters: `p` Python, `e` evaluation loop; a word is native code, `module:word` in this module. Marked frames
    /// come back with a `*`.
    #[track_caller]
    fn check(path: &str, expect: &str) {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut calls = CpythonCalls::default();
        let mut frames: Vec<FrameId> = path
            .split(' ')
            .map(|word| {
                let (module, word) = word.split_once(':').unwrap_or(("", word));
                let (text, module) = (profile.text(word), profile.text(module));
                let native = |role| Frame::Native {
                    symbol: text,
                    module,
                    file: StrId::EMPTY,
                    line: None,
                    inlined: false,
                    role,
                };
                let frame = match word {
                    "p" => Frame::Python {
                        function: text,
                        file: StrId::EMPTY,
                        line: None,
                        first_line: None,
                        role: Role::Code,
                    },
                    "e" => native(Role::Interpreter),
                    _ => native(Role::Code),
                };
                let id = profile.frame(frame);
                calls.learn(id, &mut profile);
                id
            })
            .collect();
        calls.mark(&mut frames);
        let marked: Vec<String> = frames
            .iter()
            .map(|id| {
                let frame = profile.frames.get(*id);
                let label = frame.label(&profile.strings, false);
                if frame.is_interpreter() && label != "e" { format!("{label}*") } else { label }
            })
            .collect();
        assert_eq!(marked.join(" "), expect);
    }

    #[test]
    fn call_forwarding_frames_between_python_frames_are_marked() {
        check(
            "main PyEval_EvalCode _PyEval_Vector e p PyObject_Vectorcall _PyFunction_Vectorcall.part.0 e p",
            "main PyEval_EvalCode* _PyEval_Vector* e p PyObject_Vectorcall* _PyFunction_Vectorcall.part.0* e p",
        );
        // A function that decides something stays; those that pass the call to it and from it are marked.
        check(
            "e p cfunction_vectorcall_O list_sort PyObject_CallOneArg _PyEval_Vector e p",
            "e p cfunction_vectorcall_O* list_sort PyObject_CallOneArg* _PyEval_Vector* e p",
        );
        // With tail calls, each opcode is a function.
        check(
            "e p _TAIL_CALL_CALL.llvm.7 PyObject_Vectorcall list_sort e p _TAIL_CALL_LOAD_FAST",
            "e p _TAIL_CALL_CALL.llvm.7* PyObject_Vectorcall* list_sort e p _TAIL_CALL_LOAD_FAST*",
        );
    }

    #[test]
    fn functions_of_other_files_with_such_names_stay() {
        check("py:e p py:cfunction_call ext:call_function f", "e p cfunction_call* call_function f");
        check(
            "py:e p ext:g ext:call_function py:_PyEval_Vector py:e p",
            "e p g call_function _PyEval_Vector* e p",
        );
        check("py:e p py:call_function py:e p", "e p call_function* e p");
        // An extension's copy of a function from CPython's headers.
        check("py:e p ext:_PyObject_CallNoArgs py:e p", "e p _PyObject_CallNoArgs* e p");
    }

    #[test]
    fn calls_of_native_code_by_native_code_stay() {
        check(
            "e p array_sort PyObject_Vectorcall cfunction_call compare",
            "e p array_sort PyObject_Vectorcall cfunction_call compare",
        );
        check("main PyObject_Vectorcall f", "main PyObject_Vectorcall f");
        check("e p PyObject_VectorcallX f", "e p PyObject_VectorcallX f");
    }
}
