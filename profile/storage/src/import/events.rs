//! Events of traces: the one parse that everything else about a trace comes from.
//!
//! Owns: [`traces`], and which formats have events. Because: tables over time and sums by calling context must be of
//! the same events. Does not: know a format; each has a file beside this one.

use deepctx_profile::trace::Trace;

use super::{
    DecompressedBytes, ImportError, Kind, count_cut, detect, kineto, leave_out_at_zero, perfetto, plain,
    rocprof, xplane,
};

/// The traces of a file, with the ids of their processes if a file has several.
pub type ProcessTraces = Vec<(Option<u32>, Trace)>;

/// Reads the events of a file: one trace, or one per process, with their ids.
///
/// # Errors
/// It is not a trace, is damaged, is too large, or has no event.
pub fn traces(bytes: &[u8]) -> Result<(ProcessTraces, Kind), ImportError> {
    let DecompressedBytes { bytes, is_cut } = plain(bytes)?;
    let kind = detect(&bytes)?;
    let mut traces = of_kind(kind, &bytes)?;
    if traces.iter().all(|(_, trace)| trace.is_empty()) {
        return Err(ImportError::Empty { kind, because: "it has no event".to_owned() });
    }
    if let Some((_, first)) = traces.first_mut().filter(|_| is_cut) {
        count_cut(&mut first.ledger);
    }
    Ok((traces, kind))
}

/// Reads the events of a file in a known format.
pub(super) fn of_kind(kind: Kind, bytes: &[u8]) -> Result<ProcessTraces, ImportError> {
    let mut traces = with_all(kind, bytes)?;
    match kind {
        // Their readers do this, except for deepctx-bpf files, which come back unchanged.
        Kind::Kineto | Kind::Perfetto => {}
        _ => traces.iter_mut().for_each(|(_, trace)| leave_out_at_zero(trace)),
    }
    Ok(traces)
}

fn with_all(kind: Kind, bytes: &[u8]) -> Result<ProcessTraces, ImportError> {
    let trace = match kind {
        Kind::Kineto => return Ok(kineto::read(bytes)?.into_iter().map(|trace| (None, trace)).collect()),
        Kind::Rocprof => return rocprof::read(bytes),
        Kind::XPlane => xplane::read(bytes)?,
        Kind::Perfetto => return perfetto::read(bytes),
        #[cfg(feature = "nsys")]
        Kind::Nsys => {
            let traces = super::nsys::read(bytes)?.into_iter();
            return Ok(traces.map(|(pid, trace)| (Some(pid), trace)).collect());
        }
        #[cfg(not(feature = "nsys"))]
        Kind::Nsys => return Err(super::SQLITE_NOT_BUILT),
        Kind::Pprof | Kind::PerfScript | Kind::Folded => return Err(ImportError::NoEvents { kind }),
    };
    Ok(vec![(None, trace)])
}

#[cfg(test)]
mod tests;
