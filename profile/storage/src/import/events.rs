//! Events of traces: the one parse that everything else about a trace comes from.
//!
//! Owns: [`trace`], and which formats have events. Because: tables over time and sums by calling context must be of the
//! same events. Does not: know a format; each has a file beside this one.

use deepctx_profile::trace::Trace;

use super::{ImportError, Kind, detect, kineto, plain, rocprof, xplane};

/// Reads the events of a trace.
///
/// # Errors
/// It is no trace, is damaged, is too large, or holds no event.
pub fn trace(bytes: &[u8]) -> Result<(Trace, Kind), ImportError> {
    let bytes = plain(bytes)?;
    let kind = detect(&bytes)?;
    let trace = of_kind(kind, &bytes)?;
    if trace.is_empty() {
        return Err(ImportError::Empty { kind, because: "it has no event".to_owned() });
    }
    Ok((trace, kind))
}

/// Reads the events of a file whose format is known.
pub(super) fn of_kind(kind: Kind, bytes: &[u8]) -> Result<Trace, ImportError> {
    match kind {
        Kind::Kineto => kineto::read(bytes),
        Kind::Rocprof => rocprof::read(bytes),
        Kind::XPlane => xplane::read(bytes),
        Kind::Pprof | Kind::PerfScript | Kind::Folded => Err(ImportError::NoEvents { kind }),
    }
}

#[cfg(test)]
mod tests;
