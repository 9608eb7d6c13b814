//! Recovery: names of kernels that were loaded before the capture began, found in the memory of their processes.
//!
//! Owns: the thread that searches processes, and the queues to and from it. Because: a search reads hundreds of
//! megabytes, and neither records nor snapshots may wait for that. Does not: decide what is a name
//! (`deepctx_symbolizer::cubin`), or what it is used for (the pipeline).

use std::collections::HashMap;
use std::io;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use deepctx_symbolizer::cubin::process::{NamedHandle, ProcessKernels};
use deepctx_symbolizer::cubin::reader::CodeReader;
use deepctx_symbolizer::guard::catch_faults;

use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::supervisor::{Heartbeat, Supervisor};
use deepctx_pipeline::input::{CodeFacts, RecoveredKernel, UnnamedKernel};

/// Capacity of the queues. A request that finds no room is repeated with a later launch.
const REQUESTS_MAX: usize = 64;
/// Handles that are searched for together.
const HANDLES_BATCH: usize = 1024;
/// Most processes whose memory and device code names stay open.
const PROCESSES_MAX: usize = 16;

/// The queues to and from the thread.
#[derive(Debug)]
pub(crate) struct Recovery {
    requests: Sender<Vec<UnnamedKernel>>,
    answers: Receiver<Vec<RecoveredKernel>>,
}

impl Recovery {
    /// Starts the thread. After this is dropped, the thread completes the current search and ends.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn start(supervisor: &Supervisor) -> io::Result<Self> {
        let (requests, requested) = bounded(REQUESTS_MAX);
        let (found, answers) = bounded(REQUESTS_MAX);
        let missing = "kernels that were loaded before have no names";
        supervisor.spawn("recovery", missing, move |heartbeat| search(&requested, &found, heartbeat))?;
        Ok(Self { requests, answers })
    }

    /// One that has found these names, and searches for no others.
    #[cfg(test)]
    pub(crate) fn having_found(kernels: Vec<RecoveredKernel>) -> Self {
        let (found, answers) = bounded(1);
        _ = found.send(kernels);
        Self { requests: bounded(1).0, answers }
    }

    /// Requests names.
    pub(crate) fn request(&self, unnamed: Vec<UnnamedKernel>) {
        for part in unnamed.chunks(HANDLES_BATCH) {
            if let Err(TrySendError::Full(_)) = self.requests.try_send(part.to_vec()) {
                tracing::debug!("too many handles to search for; later launches request them again");
            }
        }
    }

    /// Names found since the last call.
    pub(crate) fn found(&self) -> impl Iterator<Item = Vec<RecoveredKernel>> {
        self.answers.try_iter()
    }
}

/// Handles of kernels, each with the time of the launch that requested its name.
type Handles = HashMap<u64, u64>;

/// Handles without a name so far, by process. A search for others may find theirs.
#[derive(Debug, Default)]
struct UnnamedHandles(HashMap<u32, Handles>);

impl UnnamedHandles {
    fn take(&mut self, pid: u32) -> Handles {
        self.0.remove(&pid).unwrap_or_default()
    }

    /// Keeps the handles of a process, if there is room. Processes that are gone make room.
    fn keep(&mut self, pid: u32, handles: Handles, is_gone: impl Fn(u32) -> bool) {
        if handles.is_empty() || handles.len() > HANDLES_BATCH {
            return;
        }
        if self.0.len() >= PROCESSES_MAX {
            self.0.retain(|other, _| !is_gone(*other));
        }
        if self.0.len() < PROCESSES_MAX {
            self.0.insert(pid, handles);
        }
    }
}

fn search(
    requested: &Receiver<Vec<UnnamedKernel>>,
    found: &Sender<Vec<RecoveredKernel>>,
    heartbeat: &Heartbeat,
) {
    // Never urgent. If the priority cannot be lowered, the work is done anyway.
    let _ = rustix::process::setpriority_process(None, 19);
    let mut processes: HashMap<u32, ProcessKernels> = HashMap::new();
    let mut reader = CodeReader::default();
    let mut unnamed_before = UnnamedHandles::default();
    while let Ok(unnamed) = requested.recv() {
        let mut by_pid: HashMap<u32, Handles> = HashMap::new();
        for UnnamedKernel { pid, handle, asked_ns } in unnamed {
            by_pid.entry(pid).or_default().insert(handle, asked_ns);
        }
        for (pid, mut handles) in by_pid {
            heartbeat.beat();
            for (handle, asked_ns) in unnamed_before.take(pid) {
                handles.entry(handle).or_insert(asked_ns);
            }
            let began_ns = monotonic_ns();
            let named = catch_faults(|| recovered(&mut processes, &mut reader, pid, &handles))
                .unwrap_or_else(|fault| {
                    tracing::warn!(pid, ?fault, "the search for names of kernels failed; they stay unknown");
                    processes.remove(&pid);
                    Vec::new()
                });
            tracing::debug!(
                pid,
                handles = handles.len(),
                named = named.len(),
                milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6,
                "searched for names of kernels"
            );
            for kernel in &named {
                handles.remove(&kernel.handle);
            }
            let is_gone = |other: u32| processes.get(&other).is_none_or(ProcessKernels::is_gone);
            unnamed_before.keep(pid, handles, is_gone);
            heartbeat.idle();
            if !named.is_empty() && found.send(named).is_err() {
                return;
            }
        }
    }
}

/// The kernels of these handles, each with the launch that requested it.
fn recovered(
    processes: &mut HashMap<u32, ProcessKernels>,
    reader: &mut CodeReader,
    pid: u32,
    handles: &Handles,
) -> Vec<RecoveredKernel> {
    if processes.get(&pid).is_some_and(ProcessKernels::is_gone) {
        processes.remove(&pid);
    }
    if !processes.contains_key(&pid) {
        processes.retain(|_, process| !process.is_gone());
        if processes.len() >= PROCESSES_MAX {
            processes.clear();
        }
        match ProcessKernels::open(pid) {
            Ok(process) => _ = processes.insert(pid, process),
            Err(error) => {
                tracing::debug!(pid, %error, "cannot search for names of kernels");
                return Vec::new();
            }
        }
    }
    let Some(process) = processes.get_mut(&pid) else { return Vec::new() };
    let wanted: Vec<u64> = handles.keys().copied().collect();
    let kernels = process.identify(&wanted, reader);
    let read_ns = monotonic_ns();
    let kernel = |NamedHandle { handle, name, facts }| {
        let static_shared = facts.static_shared.and_then(|bytes| u32::try_from(bytes).ok());
        let code = CodeFacts { arch: facts.arch, registers: facts.registers, static_shared };
        let asked_ns = *handles.get(&handle)?;
        Some(RecoveredKernel { pid, handle, asked_ns, read_ns, name, code })
    };
    kernels.into_iter().filter_map(kernel).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_supervisor_sees_that_a_process_is_searched() {
        let supervisor = Supervisor::default();
        let recovery = Recovery::start(&supervisor).unwrap();
        let unnamed = || vec![UnnamedKernel { pid: std::process::id(), handle: 0x10, asked_ns: 0 }];
        let deadline = Instant::now() + Duration::from_secs(20);
        while !supervisor.newly_stalled(Duration::ZERO).iter().any(|stall| stall.thread == "recovery") {
            assert!(Instant::now() < deadline, "its work is not seen");
            // Without room, enough is to be searched.
            recovery.request(unnamed());
        }
    }

    #[test]
    fn handles_of_processes_that_are_gone_make_room() {
        let handles = |number: u64| Handles::from([(number, 7)]);
        let mut unnamed = UnnamedHandles::default();
        unnamed.keep(99, Handles::new(), |_| false);
        for pid in 0..PROCESSES_MAX as u32 {
            unnamed.keep(pid, handles(pid.into()), |_| false);
        }
        unnamed.keep(100, handles(100), |_| false);
        assert_eq!(unnamed.take(100), Handles::new(), "all of them run");
        unnamed.keep(101, handles(101), |pid| pid == 3);
        assert_eq!(unnamed.take(101), handles(101));
        assert_eq!((unnamed.take(3), unnamed.take(15)), (Handles::new(), handles(15)));
    }
}
