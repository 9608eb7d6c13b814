//! Reason: why something has no name, as the pipeline takes it.
//!
//! Owns: the key and the sentence of each. Because: the symbolizer's reasons are types of their own, and a profile
//! keeps text. Does not: decide when a reason holds.

use deepctx_symbolizer::NoSymbol;
use deepctx_symbolizer::python::{NoPythonName, NoTask};

use deepctx_pipeline::symbols::NoName;

/// Of native code.
pub(super) fn no_symbol(reason: NoSymbol) -> NoName {
    NoName { key: reason.key(), sentence: reason.sentence() }
}

/// Of a layer.
pub(super) const NO_LAYER: NoName =
    NoName { key: "layer-unreadable", sentence: "the module that was called could not be read" };
/// Of what awaits a task.
pub(super) const SEVERAL_AWAITERS: NoName =
    NoName { key: "async-several-awaiters", sentence: "more than one task awaits the task below" };
/// The same.
pub(super) const CHAIN_TOO_LONG: NoName = NoName {
    key: "async-chain-too-long",
    sentence: "the chain of awaiting tasks goes on beyond what is read",
};

/// Of a task.
pub(super) fn no_task(reason: NoTask) -> NoName {
    let (key, sentence) = match reason {
        NoTask::Ended => ("async-task-ended", "the task ended before it was read"),
        NoTask::TooMany => ("async-too-many-tasks", "the process has more tasks than are read"),
        NoTask::None | NoTask::Unsupported | NoTask::Unreadable => {
            ("async-unreadable", "the tasks of the process could not be read")
        }
    };
    NoName { key, sentence }
}

/// Of a function of Python.
pub(super) fn no_python(reason: NoPythonName) -> NoName {
    let (key, sentence) = match reason {
        NoPythonName::NotAttached => {
            ("python-not-attached", "the interpreter of the process could not be found")
        }
        NoPythonName::ProcessGone => {
            ("python-process-gone", "the process ended before the Python name was read")
        }
        NoPythonName::Unreadable => ("python-code-unreadable", "a code object could not be read"),
        NoPythonName::Denied => ("python-denied", "reading the memory of the process is not permitted"),
        NoPythonName::NotACodeObject => {
            ("python-code-freed", "a code object was freed before its name was read")
        }
        NoPythonName::Replaced => {
            ("python-code-replaced", "another code object took the place of one before its name was read")
        }
        _ => ("python-code-changed", "a code object changed while it was read"),
    };
    NoName { key, sentence }
}
