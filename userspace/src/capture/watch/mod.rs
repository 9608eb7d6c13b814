//! Watch: places in the memory of processes whose use marks steps, by the processor's watchpoints.
//!
//! Owns: the thread that opens and closes them, and what they may cost. Because: each thread of a process needs its own, which
//! takes too long for whoever names functions; and what is called too often must be let go, soon. Does not: know what lies
//! at a place, or read what is told.
//!
//! ```text
//!  Watcher ──watch, end──▶ thread ──▶ a perf event for each thread of the process, which new threads inherit
//!                             │            └─ program `mark` ──▶ calls, as of a probe
//!                             └─ looks at what they counted: more than a second may have, and it is let go
//! ```

mod open;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use deepctx_common::Plain as _;
use deepctx_common::watch::{Watch, WatchPlace};
use deepctx_symbolizer::python::NoEntry;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::Message;
use super::clock::monotonic_ns;
use crate::marks::Function;
pub use open::has_watchpoints;
use open::{Events, NoWatch};

/// Requests that may wait. One that finds no room is made again when the function is named the next time.
const REQUESTS_MAX: usize = 1024;
/// How often what was counted is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Uses of one place in a second that are taken for long: at some eighteen microseconds each, a fiftieth of a CPU.
const USES_PER_SECOND: u64 = 1_000;
/// Uses above that at a time.
const USES_AT_ONCE: u64 = 3_000;

/// What is to be watched.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The process.
    pub pid: u32,
    /// Which of the functions.
    pub function: usize,
    /// Address of its code object.
    pub code: u64,
    /// The byte that each call uses, or the reason why there is none.
    pub address: Result<u64, NoEntry>,
}

#[derive(Debug)]
enum Request {
    Watch(Wanted),
    /// By process and code object.
    End(u32, u64),
    Stop,
}

/// The way to ask.
#[derive(Clone, Debug)]
pub struct Watcher {
    requests: Sender<Request>,
    functions: Arc<[(String, Function)]>,
}

impl Watcher {
    /// The functions that are to be watched.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().map(|(_, function)| function)
    }

    /// Asks for a place to be watched; false when that must be asked for again.
    pub fn watch(&self, wanted: Wanted) -> bool {
        self.requests.try_send(Request::Watch(wanted)).is_ok()
    }

    /// The function of a process is gone.
    pub fn end(&self, pid: u32, code: u64) {
        // Whoever does not listen any more has let all go.
        let _ = self.requests.send(Request::End(pid, code));
    }
}

/// What watches are made with.
pub(super) struct Setup {
    /// The program `mark`.
    pub(super) program: OwnedFd,
    /// `WATCHES`.
    pub(super) watches: MapHandle,
    /// `SITE_COUNTS`. The site of each function has its number.
    pub(super) site_counts: MapHandle,
    /// The functions, by what the user calls them.
    pub(super) functions: Vec<(String, Function)>,
    /// Where notices go.
    pub(super) messages: Sender<Message>,
}

/// Watches at work.
#[derive(Debug)]
pub(super) struct Watches {
    watcher: Watcher,
    thread: JoinHandle<()>,
}

impl Watches {
    /// Starts the thread.
    ///
    /// # Errors
    /// None can be made.
    pub(super) fn start(setup: Setup) -> io::Result<Self> {
        let (sender, requests) = bounded(REQUESTS_MAX);
        let functions: Arc<[_]> = setup.functions.clone().into();
        let unseen = vec![0; functions.len()];
        let at_work = AtWork { setup, watched: Vec::new(), unseen };
        let thread = thread::Builder::new().name("watch".into()).spawn(move || at_work.run(&requests))?;
        Ok(Self { watcher: Watcher { requests: sender, functions }, thread })
    }

    /// A way to ask.
    pub(super) fn watcher(&self) -> Watcher {
        self.watcher.clone()
    }

    /// Lets all go; from then on the counts of their sites are whole.
    pub(super) fn stop(self) {
        if self.watcher.requests.send(Request::Stop).is_ok() && self.thread.join().is_err() {
            tracing::error!("the thread of the watchpoints stopped because of a defect");
        }
    }
}

/// A place that is watched.
struct Watched {
    wanted: Wanted,
    place: WatchPlace,
    events: Events,
    /// Uses when it was last looked at.
    seen: u64,
    allowance: Allowance,
}

/// How many uses are taken just now.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u64,
    at_ns: u64,
}

impl Allowance {
    fn new(now_ns: u64) -> Self {
        Self { left: USES_AT_ONCE, at_ns: now_ns }
    }

    /// Takes this many; false when they are too many.
    fn take(&mut self, uses: u64, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        let more = passed_ns.saturating_mul(USES_PER_SECOND) / 1_000_000_000;
        if more > 0 {
            self.at_ns = now_ns;
            self.left = self.left.saturating_add(more).min(USES_AT_ONCE);
        }
        let enough = uses <= self.left;
        self.left = self.left.saturating_sub(uses);
        enough
    }
}

struct AtWork {
    setup: Setup,
    watched: Vec<Watched>,
    /// Uses that events counted and the program was not told of, by function.
    unseen: Vec<u64>,
}

impl AtWork {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            match requests.recv_timeout(LOOK_EVERY) {
                Ok(Request::Watch(wanted)) => self.watch(wanted),
                Ok(Request::End(pid, code)) => self.end(pid, code),
                Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return self.stop(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look();
        }
    }

    fn watch(&mut self, wanted: Wanted) {
        let place = WatchPlace { address: wanted.address.unwrap_or(0), pid: wanted.pid, reserved: 0 };
        let opened = wanted.address.map_err(NoWatch::Function).and_then(|_| self.open(&wanted, place));
        match &opened {
            Ok(events) => {
                tracing::debug!(
                    pid = wanted.pid,
                    threads = events.threads(),
                    "watched: {}",
                    self.name(&wanted)
                );
                if events.incomplete {
                    self.notice(
                        &wanted,
                        "calls in some threads are not told: threads came faster than they could be watched",
                    );
                }
            }
            Err(because) => self.notice(&wanted, &format!("its calls are not told: {because}")),
        }
        if let Ok(events) = opened {
            let allowance = Allowance::new(monotonic_ns());
            self.watched.push(Watched { wanted, place, events, seen: 0, allowance });
        }
    }

    fn open(&self, wanted: &Wanted, place: WatchPlace) -> Result<Events, NoWatch> {
        let watch = Watch { object: wanted.code, hits: 0, site: wanted.function as u32, reserved: 0 };
        let told = self.setup.watches.update(place.as_bytes(), watch.as_bytes(), MapFlags::NO_EXIST);
        told.map_err(|_| NoWatch::TooMany)?;
        Events::open(&self.setup.program, wanted.pid, place.address).inspect_err(|_| self.forget(place))
    }

    fn forget(&self, place: WatchPlace) {
        if let Err(error) = self.setup.watches.delete(place.as_bytes()) {
            tracing::warn!(%error, "a watched place is not forgotten");
        }
    }

    /// What the program counted at a place.
    fn hits(&self, place: WatchPlace) -> u64 {
        let watch = self.setup.watches.lookup(place.as_bytes(), MapFlags::ANY).ok().flatten();
        watch.and_then(|bytes| Watch::read_from(&bytes)).map_or(0, |watch| watch.hits)
    }

    fn end(&mut self, pid: u32, code: u64) {
        let is_it = |watched: &Watched| watched.wanted.pid == pid && watched.wanted.code == code;
        while let Some(at) = self.watched.iter().position(is_it) {
            let watched = self.watched.swap_remove(at);
            self.close(watched);
        }
    }

    /// Lets a place go, and notes what its events counted beyond what was told.
    fn close(&mut self, watched: Watched) {
        let Watched { wanted, place, events, .. } = watched;
        let counted = events.close();
        let unseen = counted.saturating_sub(self.hits(place));
        self.forget(place);
        if let Some(all) = self.unseen.get_mut(wanted.function) {
            *all += unseen;
        }
        tracing::debug!(pid = wanted.pid, counted, unseen, "let go: {}", self.name(&wanted));
    }

    fn look(&mut self) {
        let now_ns = monotonic_ns();
        let mut too_many = Vec::new();
        for at in 0..self.watched.len() {
            let hits = self.hits(self.watched[at].place);
            let watched = &mut self.watched[at];
            let uses = hits.saturating_sub(watched.seen);
            watched.seen = hits;
            if !watched.allowance.take(uses, now_ns) {
                too_many.push(at);
            }
        }
        // From behind, so that places stay.
        for at in too_many.into_iter().rev() {
            let watched = self.watched.swap_remove(at);
            let wanted = watched.wanted;
            self.close(watched);
            let words = format!(
                "its calls are told no more: they are more than {USES_PER_SECOND} in a second, and each costs the program some twenty microseconds"
            );
            self.notice(&wanted, &words);
        }
    }

    fn stop(mut self) {
        for watched in std::mem::take(&mut self.watched) {
            self.close(watched);
        }
        // Nobody else counts there any more.
        for (site, unseen) in self.unseen.iter().enumerate().filter(|(_, unseen)| **unseen > 0) {
            let key = (site as u32).to_ne_bytes();
            let counts = &self.setup.site_counts;
            let counted = counts.lookup(&key, MapFlags::ANY).ok().flatten();
            let counted = counted.and_then(|bytes| u64::read_from(&bytes)).unwrap_or(0);
            if let Err(error) = counts.update(&key, (counted + unseen).as_bytes(), MapFlags::ANY) {
                tracing::warn!(%error, unseen, "calls of a function were lost, and are not accounted for");
            }
        }
    }

    fn name(&self, wanted: &Wanted) -> &str {
        self.setup.functions.get(wanted.function).map_or("", |(name, _)| name)
    }

    fn notice(&self, wanted: &Wanted, words: &str) {
        let text = format!("--step-marker {} in process {}: {words}", self.name(wanted), wanted.pid);
        tracing::warn!("{text}");
        let _ = self.setup.messages.try_send(Message::Notice(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses at each tenth of a second → after how many of them they are too many.
    fn check(per_look: u64, looks: u64, expect: Option<u64>) {
        let mut allowance = Allowance::new(0);
        let too_many = (1..=looks).find(|n| !allowance.take(per_look, n * 100_000_000));
        assert_eq!(too_many, expect, "{per_look}");
    }

    #[test]
    fn what_is_used_too_often_is_let_go_the_sooner_the_more() {
        check(100, 100_000, None);
        check(0, 100, None);
        check(101, 100_000, Some(2_901));
        check(400, 100, Some(10));
        check(5_000, 100, Some(1));
    }

    #[test]
    fn a_burst_is_taken_and_what_was_not_used_does_not_add_up() {
        let mut allowance = Allowance::new(0);
        assert!(allowance.take(USES_AT_ONCE, 3_600_000_000_000));
        assert!(!allowance.take(1, 3_600_000_000_000));
        assert!(allowance.take(1, 3_600_100_000_000));
    }
}
