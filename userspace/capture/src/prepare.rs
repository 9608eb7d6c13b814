//! Prepare: the targets' unwind tables, ready before the first sample.
//!
//! Owns: scanning the targets while the programs are loaded, and making them targets once they are. Because: the first
//! sample of a process must already find its table. Does not: follow processes later (`threads`).

use crossbeam_channel::Sender;
use deepctx_symbolizer::unwind_rows::cache::{Cache, DEFAULT_BYTES};

use super::clock::{log_progress, monotonic_ns};
use super::config::CaptureConfig;
use super::error::CaptureError;
use super::executables::Executables;
use super::message::Message;
use super::processes::{Processes, ScanResult};
use super::tables::Tables;
use super::target_map::TargetMap;
use super::targets::Targets;

/// How long sampling waits for scans. Processes that were not named by pid are scanned after that, fairly among users:
/// see `waiting_scans`.
const PREPARED_NS: u64 = 5_000_000_000;

/// Scanned processes. Their tables wait in user space until they are connected to the programs.
pub(super) struct PreparedProcesses {
    pub(super) processes: Processes,
    began_ns: u64,
    scanned: Vec<ScanResult>,
}

impl PreparedProcesses {
    /// Scans these processes.
    pub(super) fn new(config: &CaptureConfig, pids: &[u32]) -> Result<Self, CaptureError> {
        let began_ns = monotonic_ns();
        let cache = config.cache.as_ref().and_then(|folder| match Cache::open(folder, DEFAULT_BYTES) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "unwind tables are not kept between runs");
                None
            }
        });
        let processes = Processes::new(Tables::default(), Executables::new(cache), config.frames().python);
        let mut prepared = Self { processes, began_ns, scanned: Vec::new() };
        for &pid in pids {
            prepared.scan(config, pid)?;
        }
        log_progress(began_ns, "processes prepared");
        Ok(prepared)
    }

    /// Scans a process. A failure is an error if the user named it; otherwise it is left out.
    fn scan(&mut self, config: &CaptureConfig, pid: u32) -> Result<(), CaptureError> {
        let (now_ns, is_named) = (monotonic_ns(), is_named(config, pid));
        if !is_named && now_ns.saturating_sub(self.began_ns) > PREPARED_NS {
            return Ok(());
        }
        match self.processes.scan(pid) {
            Ok(scan) => self.scanned.push(scan),
            Err(error) if is_named && !error.may_pass() => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "not prepared"),
        }
        Ok(())
    }

    /// Makes the processes targets, with children started meanwhile; returns all of them. The programs follow forks by
    /// now. Processes that ran an exec since their scan are scanned again.
    pub(super) fn add_targets(
        &mut self,
        config: &CaptureConfig,
        named: &[u32],
        map: &TargetMap,
    ) -> Result<Vec<u32>, CaptureError> {
        for &pid in named {
            map.enter(pid)?;
        }
        let (flushed, found) = rayon::join(|| self.processes.tables().flush(), || map.fill(config));
        flushed?;
        let found = found?;
        for &pid in &found {
            if !self.processes.is_scanned(pid) {
                self.processes.exec(pid);
                self.scan(config, pid)?;
            }
        }
        Ok(found)
    }

    /// Number of messages that [`Self::report`] sends.
    pub(super) fn messages(&self) -> usize {
        self.scanned.len() + 1
    }

    /// Sends the results of the scans into a channel that has room for [`Self::messages`].
    pub(super) fn report(self, messages: &Sender<Message>) -> Processes {
        for scan in self.scanned {
            drop(messages.try_send(scan.into()));
        }
        drop(messages.try_send(Message::Scans(self.processes.counters())));
        self.processes
    }
}

/// Whether the user named this process by its pid.
fn is_named(config: &CaptureConfig, pid: u32) -> bool {
    config.targets.iter().any(|target| matches!(target, Targets::Pids(pids) if pids.contains(&pid)))
}
