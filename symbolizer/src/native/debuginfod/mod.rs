//! Debuginfod: missing debug information, fetched from servers by build-id.
//!
//! Owns: which build-ids were requested, in which order, and with what result. Because: an answer may take minutes or
//! never come while samples wait for names; so a thread requests one file after another, and names arrive later. Does
//! not: choose the files (the caller does), or contact any server unless the user says so.
//!
//! ```text
//!  names                      this thread                      curl: nobody, writes one file
//!  a build-id ──────────────▶ is it kept? ── no ──▶ start ────▶ https://…/buildid/ID/debuginfo
//!  pending … the open file ◀── kept, if it says that it is of this build ◀────── the file
//! ```

mod download;
mod servers;
mod store;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepctx_address_space::NoSymbol;
use deepctx_address_space::elf::BuildId;
use deepctx_address_space::worker::Author;

use crate::cache::BoundedCache;
use download::{NoFile, Terms, download};
pub use servers::{ServerUrl, Servers};
use store::Store;

/// Most waiting builds per author. Further ones are requested later.
const WAITING_MAX: usize = 64;
/// Most builds with a remembered outcome.
const ANSWERS_MAX: usize = 1 << 13;
/// Consecutive failures after which a server is left alone for a while.
const FAILURES_MAX: u32 = 3;
/// For how long: a network that was away for a minute must not cost a capture of weeks its source lines.
const REST: Duration = Duration::from_secs(600);
/// Longest wait for the thread at the end.
const END_MAX: Duration = Duration::from_millis(500);

/// Client of debuginfod servers.
#[derive(Debug)]
pub(super) struct Debuginfod {
    shared: Arc<SharedState>,
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the thread and its client.
#[derive(Debug)]
struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: Queue,
    /// The build being requested.
    current: Option<BuildId>,
    /// An answer that is not a reason is in the store.
    answers: BoundedCache<BuildId, Result<(), NoSymbol>>,
    stopped: bool,
}

/// Waiting builds. Authors take turns, so that one author's thousand files do not delay another's.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Author, BuildId)>,
    last: Option<Author>,
}

impl Queue {
    fn contains(&self, id: &BuildId) -> bool {
        self.waiting.iter().any(|(_, waiting)| waiting == id)
    }

    fn push(&mut self, author: Author, id: BuildId) {
        if self.waiting.iter().filter(|(of, _)| *of == author).count() < WAITING_MAX {
            self.waiting.push_back((author, id));
        }
    }

    fn pop(&mut self) -> Option<BuildId> {
        let others = self.waiting.iter().position(|(author, _)| Some(*author) != self.last);
        let (author, id) = self.waiting.remove(others.unwrap_or(0))?;
        self.last = Some(author);
        Some(id)
    }
}

impl SharedState {
    /// A panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a build to request; `None` at the end.
    fn next(&self) -> Option<BuildId> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            state.current = state.waiting.pop();
            if state.current.is_some() {
                return state.current;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn answer(&self, id: BuildId, answer: Result<(), NoSymbol>) {
        let mut state = self.lock();
        state.current = None;
        state.answers.insert(id, answer);
    }

    /// Waits for this time, or until the end; returns whether it has come.
    fn stopped(&self, wait: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, wait, |state| !state.stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

impl Debuginfod {
    /// A client of these servers for files of at most this many bytes.
    ///
    /// # Errors
    /// There is no private folder for the files, or no thread can be started.
    pub(super) fn start(servers: Servers, bytes_max: u64) -> io::Result<Self> {
        let store = Arc::new(Store::open(&servers.cache, store::BYTES_MAX)?);
        let state = State {
            waiting: Queue::default(),
            current: None,
            answers: BoundedCache::new(ANSWERS_MAX),
            stopped: false,
        };
        let shared = Arc::new(SharedState { state: Mutex::new(state), changed: Condvar::new() });
        let bytes_max = bytes_max.min(store::BYTES_MAX / 2);
        let terms = Terms { bytes_max, patience: servers.patience, longest: servers.longest };
        let mut asker = Asker {
            shared: Arc::clone(&shared),
            store: Arc::clone(&store),
            servers: servers.urls.into_iter().map(Server::new).collect(),
            terms,
        };
        let builder = std::thread::Builder::new().name("debuginfod".into());
        let thread = builder.spawn(move || asker.serve())?;
        Ok(Self { shared, store, thread: Some(thread) })
    }

    /// The file with the debug information of a build. Never waits for a server.
    ///
    /// # Errors
    /// [`NoSymbol::DebuginfodPending`] while it is being requested, then the reason why there is none.
    pub(super) fn find(&mut self, author: Author, id: BuildId) -> Result<File, NoSymbol> {
        let mut state = self.shared.lock();
        if let Some(Err(reason)) = state.answers.get(id) {
            return Err(reason);
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(NoSymbol::DebuginfodFailed);
        }
        if state.current == Some(id) || state.waiting.contains(&id) {
            return Err(NoSymbol::DebuginfodPending);
        }
        if let Some(file) = self.store.find(&id) {
            return Ok(file);
        }
        state.waiting.push(author, id);
        self.shared.changed.notify_all();
        Err(NoSymbol::DebuginfodPending)
    }
}

impl Drop for Debuginfod {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        // It ends its child process within milliseconds; a hanging disk is not waited for.
        let is_finished = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let deadline = Instant::now() + END_MAX;
        while !is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The requesting thread.
struct Asker {
    shared: Arc<SharedState>,
    store: Arc<Store>,
    servers: Vec<Server>,
    terms: Terms,
}

/// A server, and how it answered recently.
struct Server {
    url: ServerUrl,
    /// Consecutive failures.
    failures: u32,
    /// When it last failed.
    failed: Option<Instant>,
}

impl Server {
    fn new(url: ServerUrl) -> Self {
        Self { url, failures: 0, failed: None }
    }

    /// Whether it is left alone now.
    fn rests(&self, now: Instant) -> bool {
        self.failures >= FAILURES_MAX
            && self.failed.is_some_and(|at| now.saturating_duration_since(at) < REST)
    }

    fn failed(&mut self, now: Instant, reason: NoSymbol) {
        self.failures = self.failures.saturating_add(1);
        self.failed = Some(now);
        if self.failures == FAILURES_MAX {
            let (server, reason, minutes) = (&self.url, reason.key(), REST.as_secs() / 60);
            tracing::warn!(%server, reason, minutes, "a debuginfod server is left alone for some minutes");
        }
    }
}

impl Asker {
    fn serve(&mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(id) = shared.next() {
            let answer = self.ask_all(&id);
            match answer {
                Ok(()) => tracing::info!(build = %id, "a debuginfod server has debug information"),
                Err(reason) => tracing::info!(build = %id, reason = reason.key(), "no debug information"),
            }
            shared.answer(id, answer);
        }
    }

    /// Asks one server after the other until one has the file.
    fn ask_all(&mut self, id: &BuildId) -> Result<(), NoSymbol> {
        let Self { shared, store, servers, terms } = self;
        let mut worst = None;
        let now = Instant::now();
        let all_failed = servers.iter().all(|server| server.rests(now));
        for server in servers.iter_mut().filter(|server| !server.rests(now)) {
            let found = ask(&server.url, id, *terms, store, shared);
            let Err(reason) = found else {
                server.failures = 0;
                return Ok(());
            };
            match reason {
                NoSymbol::DebuginfodFailed | NoSymbol::DebuginfodTooSlow => {
                    server.failed(Instant::now(), reason)
                }
                _ => server.failures = 0,
            }
            if reason != NoSymbol::DebuginfodNotFound {
                worst = worst.or(Some(reason));
            }
        }
        let without_servers =
            if all_failed { NoSymbol::DebuginfodFailed } else { NoSymbol::DebuginfodNotFound };
        Err(worst.unwrap_or(without_servers))
    }
}

fn ask(
    server: &ServerUrl,
    id: &BuildId,
    terms: Terms,
    store: &Store,
    shared: &SharedState,
) -> Result<(), NoSymbol> {
    let temporary = store.begin().map_err(|error| {
        tracing::warn!(%error, "no file can be made for what a debuginfod server sends");
        NoSymbol::DebuginfodFailed
    })?;
    download(server, id, terms, &temporary.file, |wait| shared.stopped(wait)).map_err(
        |error| match error {
            NoFile::NotFound => NoSymbol::DebuginfodNotFound,
            NoFile::TooSlow => NoSymbol::DebuginfodTooSlow,
            NoFile::TooLarge => NoSymbol::DebuginfodTooLarge,
            NoFile::Failed => NoSymbol::DebuginfodFailed,
            NoFile::Stopped => NoSymbol::DebuginfodPending,
        },
    )?;
    temporary.keep(id)
}
