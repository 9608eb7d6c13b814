//! Device code: names of kernels and lines of device code, read from target processes in the background.
//!
//! Owns: starting the threads that read, once there is something to read. Because: most targets need neither. Does
//! not: read ([`crate::recovery`] and [`crate::cubins`] do), or use the results (the pipeline does).

use std::io;
use std::time::{Duration, Instant};

use deepctx_capture::supervisor::Supervisor;
use deepctx_pipeline::input::{CubinLines, RecoveredKernel, UnnamedKernel, UnreadCubin};

use crate::cubins::Cubins;
use crate::recovery::Recovery;

/// Starts of a reader that may fail: a machine without threads for minutes will not have any later either.
const STARTS_MAX: u32 = 8;
/// Pause after the first failed start; after each further one it is twice as long.
const START_AGAIN: Duration = Duration::from_secs(1);

/// The readers of device code.
#[derive(Debug)]
pub(crate) struct DeviceCode {
    recovery: OnRequest<Recovery>,
    cubins: OnRequest<Cubins>,
    supervisor: Supervisor,
}

/// A reader that is started by the first request to it.
#[derive(Debug)]
struct OnRequest<R> {
    reader: Option<R>,
    /// Starts that failed.
    failed: u32,
    /// When it may be started again.
    again: Option<Instant>,
}

impl<R> OnRequest<R> {
    fn new(reader: Option<R>) -> Self {
        Self { reader, failed: 0, again: None }
    }

    /// The reader, if it runs or can be started. `without`: what is printed if not.
    fn get(&mut self, now: Instant, start: impl FnOnce() -> io::Result<R>, without: &str) -> Option<&mut R> {
        let may_start = self.failed < STARTS_MAX && self.again.is_none_or(|again| now >= again);
        if self.reader.is_none() && may_start {
            match start() {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => {
                    tracing::warn!(%error, "{without}");
                    self.again = Some(now + START_AGAIN * (1 << self.failed));
                    self.failed += 1;
                }
            }
        }
        self.reader.as_mut()
    }
}

impl DeviceCode {
    /// Readers not started yet; `supervisor` will start their threads.
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self { recovery: OnRequest::new(None), cubins: OnRequest::new(None), supervisor }
    }

    /// One that has found these names.
    #[cfg(test)]
    pub(crate) fn having_found(kernels: Vec<RecoveredKernel>) -> Self {
        let recovery = OnRequest::new(Some(Recovery::having_found(kernels)));
        Self { recovery, ..Self::new(Supervisor::default()) }
    }

    /// Requests the names of kernels that were launched without one.
    pub(crate) fn request_names(&mut self, unnamed: Vec<UnnamedKernel>) {
        if unnamed.is_empty() {
            return;
        }
        let (now, without) = (Instant::now(), "cannot search for names of kernels");
        if let Some(recovery) = self.recovery.get(now, || Recovery::start(&self.supervisor), without) {
            recovery.request(unnamed);
        }
    }

    /// Names found since the last call.
    pub(crate) fn names(&self) -> Vec<Vec<RecoveredKernel>> {
        self.recovery.reader.iter().flat_map(Recovery::found).collect()
    }

    /// Requests the lines of device code. They are read at once: the process may end any time.
    pub(crate) fn request_lines(&mut self, unread: Vec<UnreadCubin>) {
        if unread.is_empty() {
            return;
        }
        let (now, without) = (Instant::now(), "cannot read lines of device code");
        if let Some(cubins) = self.cubins.get(now, || Cubins::start(&self.supervisor), without) {
            cubins.request(unread);
        }
    }

    /// Lines read since the last call; waits at most `longest` for those being read.
    pub(crate) fn lines(&mut self, longest: Duration) -> Vec<CubinLines> {
        self.cubins.reader.as_mut().map_or_else(Vec::new, |cubins| cubins.read(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_cannot_be_started_is_given_up() {
        let (mut reader, began, mut starts) = (OnRequest::<()>::new(None), Instant::now(), Vec::new());
        for second in 0..1000 {
            let start = || {
                starts.push(second);
                Err(io::ErrorKind::WouldBlock.into())
            };
            assert!(reader.get(began + Duration::from_secs(second), start, "no lines").is_none());
        }
        assert_eq!(starts, [0, 1, 3, 7, 15, 31, 63, 127]);
    }

    #[test]
    fn a_reader_is_started_once_that_is_possible() {
        let (mut reader, began) = (OnRequest::new(None), Instant::now());
        assert!(reader.get(began, || Err(io::ErrorKind::WouldBlock.into()), "no lines").is_none());
        assert_eq!(reader.get(began, || Ok(7), "no lines"), None, "it is too early");
        assert_eq!(reader.get(began + START_AGAIN, || Ok(8), "no lines"), Some(&mut 8));
        assert_eq!(reader.get(began + START_AGAIN, || Ok(9), "no lines"), Some(&mut 8));
    }
}
