//! Device code: names of kernels and lines of device code, read from target processes in the background.
//!
//! Owns: starting the threads that read, once there is something to read. Because: most targets need neither. Does
//! not: read ([`crate::recovery`] and [`crate::cubins`] do), or use the results (the pipeline does).

use std::time::Duration;

use deepctx_capture::supervisor::Supervisor;
use deepctx_pipeline::input::{CubinLines, RecoveredKernel, UnnamedKernel, UnreadCubin};

use crate::cubins::Cubins;
use crate::recovery::Recovery;

/// The readers of device code. Each is started by the first request to it.
#[derive(Debug)]
pub(crate) struct DeviceCode {
    recovery: Option<Recovery>,
    cubins: Option<Cubins>,
    supervisor: Supervisor,
}

impl DeviceCode {
    /// Readers not started yet; `supervisor` will start their threads.
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self { recovery: None, cubins: None, supervisor }
    }

    /// Requests the names of kernels that were launched without one.
    pub(crate) fn request_names(&mut self, unnamed: Vec<UnnamedKernel>) {
        if unnamed.is_empty() {
            return;
        }
        if self.recovery.is_none() {
            self.recovery = Recovery::start(&self.supervisor)
                .inspect_err(|error| tracing::warn!(%error, "cannot search for names of kernels"))
                .ok();
        }
        if let Some(recovery) = &self.recovery {
            recovery.request(unnamed);
        }
    }

    /// Names found since the last call.
    pub(crate) fn names(&self) -> Vec<Vec<RecoveredKernel>> {
        self.recovery.iter().flat_map(Recovery::found).collect()
    }

    /// Requests the lines of device code. They are read at once: the process may end any time.
    pub(crate) fn request_lines(&mut self, unread: Vec<UnreadCubin>) {
        if unread.is_empty() {
            return;
        }
        if self.cubins.is_none() {
            self.cubins = Cubins::start(&self.supervisor)
                .inspect_err(|error| tracing::warn!(%error, "cannot read lines of device code"))
                .ok();
        }
        if let Some(cubins) = &mut self.cubins {
            cubins.request(unread);
        }
    }

    /// Lines read since the last call; waits at most `longest` for those being read.
    pub(crate) fn lines(&mut self, longest: Duration) -> Vec<CubinLines> {
        self.cubins.as_mut().map_or_else(Vec::new, |cubins| cubins.read(longest))
    }
}
