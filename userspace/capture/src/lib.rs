//! The kernel side of a capture: programs, probes, targets, and the records that the programs write.
//!
//! Owns: loading and attaching the programs, unwind tables in the kernel, and the messages to the pipeline. Because:
//! this is the only place where BPF, perf events and `/proc` meet. Does not: name anything or build profiles.
//!
//! ```text
//!  samplers ─▶ ring ─▶ drain thread ──records──▶ messages ──▶ pipeline
//!                          │ fork, exec, exit, unknown PCs        ▲
//!                          ▼                                      │ mappings
//!                      scan thread ─▶ tables in the kernel ───────┘
//! ```
//!
//! A [`CaptureConfig`] says what to record; [`Capture::start`] begins, or says why it cannot ([`CaptureError`]); what
//! is recorded comes as [`Message`]s, in batches of records that the pipeline decodes.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use deepctx_capture::{Capture, CaptureConfig, CaptureError, Message, ProbeFeature, Targets};
//!
//! let config = CaptureConfig {
//!     targets: vec![Targets::Pids(vec![4711])],
//!     probe: vec![ProbeFeature::Operators],
//!     ..CaptureConfig::default()
//! };
//! let capture = match Capture::start(config) {
//!     Ok(capture) => capture,
//!     Err(CaptureError::NotPrivileged { capabilities }) => panic!("run as root: {capabilities:?} are missing"),
//!     Err(error) => panic!("{error} ({:?})", error.hint()),
//! };
//! let messages = capture.messages();
//! let end = Instant::now() + Duration::from_secs(3);
//! while let Ok(message) = messages.recv_deadline(end) {
//!     match message {
//!         Message::Records(batch) => println!("{} bytes of records", batch.len()),
//!         Message::Space { pid, maps, .. } => println!("{pid} maps {} files", maps.mappings.len()),
//!         Message::Notice(text) => eprintln!("{text}"),
//!         _ => {}
//!     }
//! }
//! // Sampling ends; what is still in the ring comes until the channel is closed.
//! let _counters = capture.stop();
//! let rest = messages.iter().count();
//! println!("{rest} messages after the end");
//! ```
//!
//! The root has the inputs and outputs of a capture. [`config`] has its other inputs, [`counters`] its counters,
//! [`job`] the ranks of distributed programs, [`applicable`] the features for what processes run. [`dump`], [`doctor`]
//! and [`gpus`] work without a capture; [`clock`], [`cost`] and [`supervisor`] serve the program that runs one.

mod allowed_cpus;
pub mod applicable;
mod arch;
mod arena;
mod attach;
mod budget;
mod called_functions;
mod capture;
pub mod clock;
mod column;
pub mod config;
pub mod cost;
mod cpus;
pub mod doctor;
pub mod dump;
mod duty_cycle;
mod error;
mod executables;
mod generated;
pub mod gpus;
pub mod job;
mod kernel_counts;
mod kernel_offsets;
mod last_samples;
mod links;
mod load;
mod message;
#[cfg(target_env = "musl")]
mod musl;
mod named_targets;
mod no_executable;
mod overlayfs;
mod perf_event;
mod prepare;
pub mod priority;
mod probe_counters;
mod probes;
mod processes;
mod programs;
mod refusals;
mod rings;
mod room;
mod rows;
mod scan_job;
mod scan_readers;
mod shared_array;
mod sites;
pub mod supervisor;
mod system;
mod table_error;
mod table_shares;
mod tables;
mod target_map;
mod targets;
mod thread_shares;
mod threads;
mod unsent_notices;
mod unsent_scans;
mod wait_counters;
mod waiting_scans;
mod waiting_threads;

pub use allowed_cpus::allowed_cpus;
pub use budget::{Budget, ProbeHold};
pub use called_functions::CalledFunctionMap;
pub use capture::{Capture, find_job, find_processes, require_capabilities};
pub use config::{CaptureConfig, FrameSource, ProbeFeature};
pub use error::CaptureError;
pub use message::Message;
pub use perf_event::Clock;
pub use probes::{TensorRequests, running_kernel};
pub use tables::PROCESS_MAPPINGS_MAX;
pub use targets::{Targets, parent_of};

/// Counters of the parts of a capture; they come in [`Message`]s.
pub mod counters {
    pub use crate::cpus::CpuCounters;
    pub use crate::gpus::GpuCounters;
    pub use crate::probe_counters::ProbeCounters;
    pub use crate::processes::ScanCounters;
    pub use crate::wait_counters::WaitCounters;
}
