//! rocprofv3's events in Perfetto's form (`--output-format pftrace`).
//!
//! Owns: [`event`]. Because: its categories are its own, and which device and stream work ran on stands in arguments
//! and in names of tracks that belong to no thread. Does not: read its JSON; see [`crate::import`].
//!
//! Slices of a queue or a stream may overlap, so that an end does not say whose it is: the argument `delta_ns` is the
//! length.
//!
//! | track | holds |
//! |---|---|
//! | `COMPUTE AGENT [4] QUEUE [1] (GPU)` | dispatches of a queue |
//! | `COPY to AGENT [4] THREAD [0] (GPU)` | copies |
//! | `STREAM [3]`, and in quotes | dispatches and copies of a stream, where they are not grouped by queue |
//! | `THREAD 3 (12345)` | calls and ranges of a thread other than the main one |

use crate::import::arguments::{Arguments, NumberOrText};

/// An event as other tools write it.
pub(super) struct RocprofEvent {
    /// Its category there.
    pub(super) category: &'static str,
    /// The device and the stream of work.
    pub(super) row: (Option<u64>, Option<u64>),
}

impl RocprofEvent {
    /// Whether it is joined with others by its id.
    pub(super) fn is_joined(&self) -> bool {
        matches!(self.category, "kernel" | "gpu_memcpy" | "gpu_api")
    }
}

/// The category of other tools for one of rocprofv3's.
pub(super) fn category(own: &str) -> Option<&'static str> {
    Some(match own {
        "kernel_dispatch" => "kernel",
        "memory_copy" => "gpu_memcpy",
        "hip_api" | "hsa_api" => "gpu_api",
        "marker_api" => "user_annotation",
        "rccl_api" | "rocdecode_api" | "rocjpeg_api" => "",
        _ => return None,
    })
}

/// What an event on a track of this name is; `None` if its category is not one of rocprofv3's.
pub(super) fn event(own_category: &str, arguments: &Arguments<'_>, track: &str) -> Option<RocprofEvent> {
    let category = category(own_category)?;
    let target = agent(&arguments.agent).or_else(|| agent_of_track(track));
    let device = target.or_else(|| agent(&arguments.source_agent));
    let stream = number_after(track, "STREAM").or_else(|| number_after(track, "QUEUE"));
    Some(RocprofEvent { category, row: (device, stream) })
}

/// The number of a GPU: a number, or the end of `GPU-0` or `Agent-4`; `None` for the memory of a CPU.
fn agent(of: &NumberOrText<'_>) -> Option<u64> {
    let word = of.word();
    if word.starts_with("CPU") {
        return None;
    }
    of.number().or_else(|| word.rsplit('-').next()?.parse().ok())
}

/// The agent in the name of a track, unless it is a CPU.
fn agent_of_track(track: &str) -> Option<u64> {
    let of = track.strip_prefix("COMPUTE ").or_else(|| track.strip_prefix("COPY to "))?;
    if track.contains("CPU") { None } else { number_after(of, "[") }
}

/// The number in brackets behind a word.
fn number_after(track: &str, word: &str) -> Option<u64> {
    let (_, rest) = track.split_once(word)?;
    let rest = rest.trim_start_matches([' ', '[', '"']);
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
