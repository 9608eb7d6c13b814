//! Wrappers: frames that only forward a call.
//!
//! Owns: [`is_wrapper`], by the names of functions of runtimes and frameworks. Because: every call of a layer passes
//! three of them, every thread begins with four, and none says what the program does. Does not: know values, or leave
//! anything out.

use super::FrameKind;

/// Native functions that start a process or thread, or pass a call on: complete names.
const NATIVE: &[&str] = &[
    // The start of a process or thread.
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "start_thread",
    "thread_start",
    "execute_native_thread_routine",
    "ret_from_fork",
    // CPython's own start.
    "Py_BytesMain",
    "Py_RunMain",
    "pymain_main",
    "pymain_run_python",
    "pymain_run_file",
    "pymain_run_file_obj",
    "pymain_run_module",
    "pymain_run_command",
    "_PyRun_SimpleFile",
    "_PyRun_SimpleFileObject",
    "_PyRun_AnyFileObject",
    "PyRun_StringFlags",
    "pyrun_file",
    "run_mod",
    "run_eval_code_obj",
    "PyEval_EvalCode",
    "pythread_wrapper",
    "thread_run",
    // CPython's calls.
    "slot_tp_call",
    "_PyObject_Call",
    "PyObject_Call",
    "PyObject_CallObject",
    "PyObject_Vectorcall",
    "_PyObject_MakeTpCall",
    "_PyObject_Call_Prepend",
    "_PyObject_FastCallDictTstate",
    "_PyVectorcall_Call",
];

/// Prefixes of native functions, followed by template arguments and parameters.
const NATIVE_BEGINNINGS: &[&str] = &[
    "__libc_start_main@",
    "at::internal::invoke_parallel",
    "at::parallel_for",
    "at::TensorIteratorBase::for_each",
    "at::TensorIteratorBase::serial_for_each",
    "invoke_parallel",
    "void at::internal::invoke_parallel",
    "void at::parallel_for",
    "std::_Function_handler<",
    // CPython's calls, with one function for each form of arguments.
    "method_vectorcall",
    "cfunction_vectorcall",
    "std::rt::lang_start",
    // The engine of torch's backward passes, between `backward()` and the nodes.
    "torch::autograd::Engine::",
    "torch::autograd::Node::operator()",
    "torch::autograd::python::PythonEngine::",
    "THPEngine_run_backward",
    "std::sys::backtrace::__rust_begin_short_backtrace",
];

/// Parts of the names by which the C++ library begins a thread and calls a function object.
const NATIVE_PARTS: &[&str] = &["thread::_Invoker<", "thread::_State_impl<", " std::__invoke"];

/// Functions of Python, each with its module.
const PYTHON: &[&str] = &[
    "module.py:Module._wrapped_call_impl",
    "module.py:Module._call_impl",
    "graph.py:_engine_run_backward",
    "threading.py:Thread._bootstrap",
    "threading.py:Thread._bootstrap_inner",
    "threading.py:Thread.run",
    "process.py:BaseProcess._bootstrap",
    "process.py:BaseProcess.run",
    "popen_fork.py:Popen._launch",
    "<frozen runpy>:_run_module_as_main",
    "<frozen runpy>:_run_code",
    "runpy.py:_run_module_as_main",
    "runpy.py:_run_code",
    "<frozen importlib._bootstrap>:_call_with_frames_removed",
];

/// Names that decorators give to their wrapper functions.
const DECORATORS: &[&str] = &[
    "<locals>.wrapper",
    "<locals>.wrapped",
    "<locals>.inner_wrapper",
    "<locals>.decorate_context",
    "<locals>._use_grad",
    "<locals>._fn",
    "<locals>.maybe_fallback",
];

/// Whether a frame only passes a call on. `label` may have a line at its end.
pub fn is_wrapper(kind: FrameKind, label: &str) -> bool {
    match kind {
        FrameKind::Python => is_python_wrapper(label),
        FrameKind::Native | FrameKind::Unresolved if is_unnamed_in_library(label) => true,
        FrameKind::Native => {
            // Clones made by compilers: `invoke_parallel [clone ._omp_fn.0]`, `pymain_run_python.constprop.0`.
            let name = label.split([' ', '.']).next().unwrap_or_default();
            NATIVE.contains(&name)
                || NATIVE_BEGINNINGS.iter().any(|begins| label.starts_with(begins))
                || NATIVE_PARTS.iter().any(|part| label.contains(part))
                || label.starts_with("std::function<") && label.contains(">::operator()(")
        }
        _ => false,
    }
}

/// Unnamed code in a library that only begins threads and calls what it is given: those of C and of C++.
fn is_unnamed_in_library(label: &str) -> bool {
    let library = label.split_once("+0x").map_or("", |(library, _)| library);
    library == "libc.so.6" || library.starts_with("libstdc++.so.6")
}

fn is_python_wrapper(label: &str) -> bool {
    let is_line = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match label.rsplit_once(':') {
        Some((name, line)) if is_line(line) => name,
        _ => label,
    };
    PYTHON.contains(&name) || DECORATORS.iter().any(|ends| name.ends_with(ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_known_by_their_names() {
        use FrameKind::{Kernel, Native, Python};
        let check = |kind, label: &str, expect: bool| assert_eq!(is_wrapper(kind, label), expect, "{label}");
        check(Python, "module.py:Module._wrapped_call_impl", true);
        check(Python, "module.py:Module._call_impl:1790", true);
        check(Python, "optimizer.py:Optimizer.profile_hook_step.<locals>.wrapper", true);
        check(Python, "threading.py:Thread._bootstrap_inner", true);
        check(Python, "threading.py:Thread.join", false);
        check(Python, "t.py:Module._call_impl", false);
        check(Python, "t.py:wrapper", false);
        check(Native, "slot_tp_call", true);
        check(Native, "pymain_run_python.constprop.0", true);
        check(Native, "invoke_parallel<at::parallel_for<void> >(long, long) [clone ._omp_fn.0]", true);
        check(Native, "at::TensorIteratorBase::for_each(c10::function_ref<void (char**)>, long)", true);
        check(Native, "at::TensorIteratorBase::build(at::TensorIteratorConfig&)", false);
        check(
            Native,
            "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
            true,
        );
        check(Native, "main", false);
        check(Native, "start", false);
        check(Native, "", false);
        check(Kernel, "clone", false);
        check(Native, "clone3", true);
        check(Native, "libc.so.6+0x891f4", true);
        check(Native, "libstdc++.so.6.0.30+0xd4490", true);
        check(Native, "std::function<void ()>::operator()() const", true);
        check(Native, "std::_Function_handler<void (), void (*)()>::_M_invoke(std::_Any_data const&)", true);
        check(
            Native,
            "std::enable_if<true, void>::type std::__invoke_r<void, void (*&)()>(void (*&)())",
            true,
        );
        check(Native, "main::{lambda()#1}::operator()() const", false);
        check(Native, "method_vectorcall_FASTCALL_KEYWORDS", true);
        check(Native, "libcrypto.so.3+0x891f4", false);
    }
}
