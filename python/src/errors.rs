//! Errors: those of the crates, as Python's exceptions.
//!
//! Owns: which exception an error becomes, and what it carries. Because: a script acts on the kind of an error, and a
//! person needs the source and what helps. Does not: word them; the crates do.

use std::error::Error;
use std::io;

use deepctx_storage::OpenError as Cause;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

pyo3::create_exception!(deepctx, DeepctxError, PyException, "Any error of deepctx.");
pyo3::create_exception!(
    deepctx,
    OpenError,
    DeepctxError,
    "A file cannot be opened as a profile.\n\n`kind` names the reason (`not-found`, `not-a-profile`, `corrupt`, \
     `newer-version`, `older-version`,\n`unreadable`, `not-imported`), `path` is what was to be opened, and `hint` \
     says what helps, or is None.\nThe error of the system or of the parser is its `__cause__`."
);

/// The exception for a path that cannot be opened.
pub(crate) fn open(py: Python<'_>, path: &str, error: &Cause) -> PyErr {
    let hint = error.hint();
    let text = match &hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    };
    let raised = OpenError::new_err(text);
    let value = raised.value(py);
    let set = value
        .setattr("kind", kind(error))
        .and_then(|()| value.setattr("path", path))
        .and_then(|()| value.setattr("hint", hint));
    if let Err(error) = set {
        return error;
    }
    raised.set_cause(py, error.source().map(cause));
    raised
}

fn kind(error: &Cause) -> &'static str {
    match error {
        Cause::NotFound { .. } => "not-found",
        Cause::Corrupt { .. } => "corrupt",
        Cause::NewerMajor { .. } => "newer-version",
        Cause::OlderMajor { .. } => "older-version",
        Cause::Read { .. } => "unreadable",
        Cause::Import { .. } => "not-imported",
        _ => "not-a-profile",
    }
}

/// A system error keeps its number, so that `__cause__` is a `PermissionError` if it was one.
fn cause(source: &(dyn Error + 'static)) -> PyErr {
    match source.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
        Some(number) => io::Error::from_raw_os_error(number).into(),
        None => DeepctxError::new_err(source.to_string()),
    }
}

/// A request that the profile cannot satisfy.
pub(crate) fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// A value as JSON: Python's decoder is faster than creating objects one by one.
pub(crate) fn json<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyString>> {
    let text = serde_json::to_string(value).map_err(failed)?;
    Ok(PyString::new(py, &text))
}
