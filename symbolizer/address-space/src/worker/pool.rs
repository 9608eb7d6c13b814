//! Pool: worker processes, and what happens to one that does not answer.
//!
//! Owns: starting workers, request deadlines, and abandoned workers. Because: nothing ends a process blocked inside
//! the kernel, so it is abandoned and replaced. Does not: know what the requests are, or judge whose fault a timeout
//! is.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use super::deadline::{Deadline, is_past_last_answer};
use super::started;
use crate::cpu_clock::process_cpu_time;
use crate::version::FileVersion;

/// Starts a worker. The pool sets its standard input; its environment is only what the command sets.
pub type Launch = fn() -> Command;

/// The author of a worker's bytes. Who takes it over gets no other author's bytes, and is charged for no other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author {
    user: u32,
    /// A file system whose users may be forged.
    file_system: Option<u64>,
    /// Other users can write it too.
    shared: bool,
}

impl Author {
    /// Memory of this user's processes.
    pub const fn user(user: u32) -> Self {
        Self { user, file_system: None, shared: false }
    }

    /// The user charged for the time of these bytes; `None` if only root can write them, who has no reason to make it
    /// long. Authors on a user's own file system count as one.
    pub const fn charged(&self) -> Option<u32> {
        match self {
            Self { user: 0, file_system: None, shared: false } => None,
            Self { file_system: Some(_), .. } | Self { user: 0, .. } => Some(u32::MAX),
            Self { user, .. } => Some(*user),
        }
    }

    /// The users who control the content of a file.
    pub fn of(version: &FileVersion) -> Self {
        let FileVersion { owner, device, foreign, writable_by_others, .. } = *version;
        Self { user: owner, file_system: foreign.then_some(device), shared: writable_by_others }
    }
}

/// Sent by a worker once it is ready for requests.
const READY: u8 = b'!';
/// Longest wait for that. Its program may come from a slow disk, which is nobody's fault.
const START_MAX: Duration = Duration::from_secs(10);
/// The same for a worker that has work but no CPU: an emulated machine takes this long at times.
const BUSY_START_MAX: Duration = Duration::from_secs(60);
/// Killed workers of a pool that have not ended; with so many, no other one is started. Each holds its memory.
const STUCK_MAX: usize = 64;

/// Notifies the pool that this worker is about to wait for requests.
///
/// # Errors
/// The socket's.
pub fn ready(mut socket: &UnixStream) -> io::Result<()> {
    socket.write_all(&[READY])
}

/// Limits and timeouts of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Most workers at a time.
    pub workers_max: usize,
    /// Longest wait for part of an answer, before [`Worker::is_running`] is checked or the worker is abandoned.
    pub answer_max: Duration,
    /// Longest wait for a free worker.
    pub wait_max: Duration,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It takes too long. The worker was abandoned.
    Silent,
    /// The worker ended; so did the next one.
    Ended,
    /// There is no worker.
    NoWorker,
}

/// Why a worker gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFailure {
    /// It takes too long.
    Silent,
    /// It ended, or sent an invalid answer.
    Ended,
}

/// All workers of one kind.
pub struct Pool {
    launch: Launch,
    terms: Terms,
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Worker>,
    /// Workers that are idle or busy.
    live: usize,
    /// Workers that were killed and may still wait within the kernel.
    stuck: Vec<Child>,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    socket: UnixStream,
    author: Author,
}

impl Pool {
    /// A pool without workers; the first request starts one.
    pub fn new(launch: Launch, terms: Terms) -> Self {
        Self { launch, terms, state: Mutex::default(), free: Condvar::new() }
    }

    /// Number of abandoned workers that have not ended yet.
    pub fn stuck(&self) -> usize {
        let mut state = self.lock();
        state.forget_ended();
        state.stuck.len()
    }

    /// Starts a worker for this author if there is none.
    pub fn warm(&self, author: Author) {
        if let Some(worker) = self.take(author) {
            self.put(worker);
        }
    }

    /// Has a worker answer: `ask` sends the request and receives the answer.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn ask<T>(
        &self,
        author: Author,
        mut ask: impl FnMut(&Worker) -> Result<T, WorkerFailure>,
    ) -> Result<T, NoAnswer> {
        if is_past_last_answer() {
            return Err(NoAnswer::Silent);
        }
        // A worker that ended meanwhile (out of memory) is replaced, once.
        for _ in 0..2 {
            let worker = self.take(author).ok_or(NoAnswer::NoWorker)?;
            match ask(&worker) {
                Ok(answer) => {
                    self.put(worker);
                    return Ok(answer);
                }
                Err(WorkerFailure::Silent) => {
                    self.give_up(worker);
                    return Err(NoAnswer::Silent);
                }
                Err(WorkerFailure::Ended) => self.give_up(worker),
            }
        }
        Err(NoAnswer::Ended)
    }

    /// Ends idle workers, with all their state. The next request starts one.
    pub fn end_idle(&self) {
        let mut state = self.lock();
        for worker in std::mem::take(&mut state.idle) {
            state.abandon(worker);
        }
        self.free.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, author: Author) -> Option<Worker> {
        let mut state = self.lock();
        let deadline = Instant::now() + self.terms.wait_max;
        loop {
            if let Some(at) = state.idle.iter().position(|worker| worker.author == author) {
                return Some(state.idle.remove(at));
            }
            // Another author's worker makes room.
            if state.live >= self.terms.workers_max && !state.idle.is_empty() {
                // The least recently used one.
                let worker = state.idle.remove(0);
                state.abandon(worker);
            }
            if state.live < self.terms.workers_max {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.free.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.forget_ended();
        if state.stuck.len() >= STUCK_MAX {
            return None;
        }
        state.live += 1;
        drop(state);
        let Ok(worker) = Worker::start(self.launch, author) else {
            self.lock().live -= 1;
            self.free.notify_one();
            return None;
        };
        if worker.wait_until_ready(self.terms.answer_max).is_err() {
            self.give_up(worker);
            return None;
        }
        Some(worker)
    }

    fn put(&self, worker: Worker) {
        self.lock().idle.push(worker);
        self.free.notify_one();
    }

    fn give_up(&self, worker: Worker) {
        self.lock().abandon(worker);
        self.free.notify_one();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("launch", &self.launch).finish_non_exhaustive()
    }
}

impl State {
    /// Kills a worker. It is forgotten once it has ended.
    fn abandon(&mut self, worker: Worker) {
        self.live -= 1;
        // Otherwise each ended worker would stay as a zombie.
        self.forget_ended();
        self.stuck.push(worker.kill());
    }

    /// Drops abandoned workers that have ended since.
    fn forget_ended(&mut self) {
        self.stuck.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.idle.drain(..).for_each(|worker| drop(worker.kill()));
    }
}

impl Worker {
    /// Starts its process, which is not ready yet.
    fn start(launch: Launch, author: Author) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = launch();
        // Nothing of this process's environment, which may be anybody's, is passed on.
        let set: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command
            .env_clear()
            .envs(set)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(nowhere()?)
            .stderr(nowhere()?);
        // Ctrl-C in a terminal goes to a group: the profiler still needs answers when it finishes.
        command.process_group(0);
        let child = command.spawn()?;
        started::record(child.id());
        // The command is dropped, so that only the worker holds the other end, and its exit is noticed.
        Ok(Self { child, socket, author })
    }

    /// A worker that waits for its own program must not be mistaken for one that waits for a process's memory.
    fn wait_until_ready(&self, answer_max: Duration) -> io::Result<()> {
        let mut said = [0];
        let deadline = Deadline::new(Instant::now(), START_MAX, BUSY_START_MAX);
        self.read_within(&mut said, deadline).map_err(|_| io::ErrorKind::TimedOut)?;
        self.socket.set_read_timeout(Some(answer_max))?;
        if said == [READY] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// The socket for requests and answers. A read returns [`io::ErrorKind::WouldBlock`] after [`Terms::answer_max`],
    /// and [`io::ErrorKind::Interrupted`] after a signal, even one that is ignored: neither says that the worker ended.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Fills `into` before the deadline: byte by byte, an answer could take many times as long.
    ///
    /// # Errors
    /// The deadline passed, or the answer is invalid.
    pub fn read_within(&self, into: &mut [u8], deadline: Deadline) -> Result<(), WorkerFailure> {
        let mut socket = &self.socket;
        let begun = deadline.needs_cpu_time().then(|| self.cpu_time()).flatten();
        let mut left = deadline.look_after(Instant::now());
        loop {
            socket.set_read_timeout(Some(left)).map_err(|_| WorkerFailure::Ended)?;
            match socket.read(into) {
                Ok(read) if read == into.len() => return Ok(()),
                // A signal interrupts a read that has a timeout. So does SIGCHLD, although it is ignored, if it comes
                // while another thread blocks signals to start a worker. The wait goes on, and is no longer for it.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    let used = begun.and_then(|begun| Some(self.cpu_time()?.saturating_sub(begun)));
                    let (now, is_running) = (Instant::now(), self.is_running());
                    if deadline.is_over(now, is_running, used) || is_past_last_answer() {
                        return Err(WorkerFailure::Silent);
                    }
                    left = deadline.look_after(now);
                }
                Ok(_) | Err(_) => return Err(WorkerFailure::Ended),
            }
        }
    }

    /// Whether it has a CPU, or only waits for one.
    pub fn is_running(&self) -> bool {
        is_running(self.child.id())
    }

    /// CPU time of its thread so far; `None` where the kernel does not say.
    fn cpu_time(&self) -> Option<Duration> {
        process_cpu_time(self.child.id())
    }

    /// Kills it, without waiting for its end: a process that waits within the kernel may never end.
    fn kill(self) -> Child {
        let Self { mut child, .. } = self;
        // It may have ended already.
        let _ = child.kill();
        child
    }
}

/// Output that nobody reads. Memory takes it where a container mounts no `/dev`.
fn nowhere() -> io::Result<Stdio> {
    match File::options().write(true).open("/dev/null") {
        Ok(null) => Ok(null.into()),
        Err(_) => Ok(memfd_create("output", MemfdFlags::CLOEXEC)?.into()),
    }
}

/// Whether a process has a CPU, or only waits for one.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let name_end = stat.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    stat.get(name_end..).is_some_and(|rest| rest.starts_with(b") R"))
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Signal, kill_process};

    use super::super::signalled::while_signalled;
    use super::*;

    const TERMS: Terms =
        Terms { workers_max: 2, answer_max: Duration::from_millis(100), wait_max: Duration::from_secs(1) };

    fn script(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]);
        command
    }

    /// Neither answers nor ends.
    fn mute() -> Command {
        script("printf ! >&0; exec sleep 1000")
    }

    /// Echoes requests.
    fn echo() -> Command {
        script("printf ! >&0; exec cat >&0")
    }

    /// Ends at every request.
    fn fragile() -> Command {
        script("printf ! >&0; exec head -c 1 >/dev/null")
    }

    /// Takes longer to start than any answer may take.
    fn slow_to_start() -> Command {
        script("sleep 0.3; printf ! >&0; exec cat >&0")
    }

    fn ends_at_once() -> Command {
        Command::new("/bin/true")
    }

    fn missing() -> Command {
        Command::new("/nonexistent")
    }

    /// Requests one byte; returns the worker's pid.
    fn ask(pool: &Pool, author: Author) -> Result<u32, NoAnswer> {
        pool.ask(author, |worker| {
            worker.socket().write_all(b"?").map_err(|_| WorkerFailure::Ended)?;
            // One that still becomes its program has work.
            let deadline = Deadline::new(Instant::now(), TERMS.answer_max, BUSY_START_MAX);
            worker.read_within(&mut [0], deadline).map(|()| worker.child.id())
        })
    }

    #[track_caller]
    fn wait_until_none_is_stuck(pool: &Pool) {
        let begun = Instant::now();
        while pool.stuck() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} have not ended", pool.stuck());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_silent_worker_is_given_up_and_replaced() {
        let pool = Pool::new(mute, TERMS);
        for _ in 0..2 {
            assert_eq!(ask(&pool, Author::user(0)), Err(NoAnswer::Silent));
        }
        // It is killed; nothing keeps these from ending.
        wait_until_none_is_stuck(&pool);
        assert_eq!(pool.lock().live, 0);
    }

    #[test]
    fn signals_neither_end_nor_prolong_a_wait() {
        let answer = while_signalled(|| ask(&Pool::new(mute, TERMS), Author::user(0)));
        assert_eq!(answer, Err(NoAnswer::Silent));
    }

    #[test]
    fn without_a_worker_there_is_no_answer() {
        for (launch, expect) in [
            (fragile as Launch, NoAnswer::Ended),
            (ends_at_once, NoAnswer::NoWorker),
            (missing, NoAnswer::NoWorker),
        ] {
            let pool = Pool::new(launch, TERMS);
            assert_eq!(ask(&pool, Author::user(0)), Err(expect));
            assert_eq!(pool.lock().live, 0);
        }
    }

    #[test]
    fn starting_is_not_silence() {
        let pool = Pool::new(slow_to_start, TERMS);
        assert!(ask(&pool, Author::user(0)).is_ok());
    }

    #[test]
    fn a_worker_serves_one_author_only() {
        let pool = Pool::new(echo, TERMS);
        let root = ask(&pool, Author::user(0)).unwrap();
        assert_eq!(ask(&pool, Author::user(0)), Ok(root), "it is used again");
        let user = ask(&pool, Author::user(7)).unwrap();
        assert_ne!(user, root);
        // Both places are taken: an idle worker is ended.
        let other = ask(&pool, Author::user(8)).unwrap();
        assert!(other != user && other != root && pool.lock().live == 2);
    }

    #[test]
    fn a_worker_is_listed_as_started() {
        let pid = ask(&Pool::new(echo, TERMS), Author::user(0)).unwrap();
        let (_, started) = started::started_after(0).unwrap();
        assert!(started.iter().any(|worker| worker.pid == pid));
    }

    #[test]
    fn a_worker_has_no_environment_but_its_own() {
        let launch = || {
            let mut command =
                script("[ -z \"$HOME\" ] && [ \"$GIVEN\" = here ] && printf ! >&0; exec cat >&0");
            command.env("GIVEN", "here").env_remove("PATH");
            command
        };
        assert!(ask(&Pool::new(launch, TERMS), Author::user(0)).is_ok());
    }

    #[test]
    fn idle_workers_are_ended_and_started_again() {
        let pool = Pool::new(echo, TERMS);
        let first = ask(&pool, Author::user(0)).unwrap();
        pool.end_idle();
        assert_eq!(pool.lock().live, 0);
        assert_ne!(ask(&pool, Author::user(0)).unwrap(), first);
    }

    #[test]
    fn nobody_waits_for_a_worker_that_was_stopped() {
        // As the user `nobody` may do at any time.
        let stopped = |pool: &Pool, author| {
            let pid = i32::try_from(ask(pool, author).unwrap()).unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        };
        let pool = Pool::new(echo, TERMS);
        stopped(&pool, Author::user(0));
        pool.end_idle();
        assert!(ask(&pool, Author::user(0)).is_ok());
        // Another author's worker makes room.
        stopped(&pool, Author::user(1));
        stopped(&pool, Author::user(2));
        assert!(ask(&pool, Author::user(3)).is_ok());
        // Nothing keeps these from ending, since they are killed.
        wait_until_none_is_stuck(&pool);
    }

    #[test]
    fn workers_that_cannot_be_killed_are_few() {
        let pool = Pool::new(echo, TERMS);
        let unkilled = || Command::new("sleep").arg("1000").spawn().unwrap();
        pool.lock().stuck.extend((0..STUCK_MAX).map(|_| unkilled()));
        let answer = ask(&pool, Author::user(0));
        // Before anything can fail, so that none stays behind.
        pool.lock().stuck.iter_mut().for_each(|child| child.kill().unwrap());
        assert_eq!(answer, Err(NoAnswer::NoWorker));
        wait_until_none_is_stuck(&pool);
        assert!(ask(&pool, Author::user(0)).is_ok());
    }

    #[test]
    fn workers_that_ended_are_forgotten_with_the_next() {
        let pool = Pool::new(echo, TERMS);
        for _ in 0..20 {
            // Each request costs two.
            let ends: Result<(), NoAnswer> = pool.ask(Author::user(0), |worker| {
                worker.socket().shutdown(std::net::Shutdown::Both).unwrap();
                Err(WorkerFailure::Ended)
            });
            assert_eq!(ends, Err(NoAnswer::Ended));
        }
        // Workers of the last requests may still be ending.
        assert!(pool.lock().stuck.len() < 20, "{}", pool.lock().stuck.len());
    }

    #[test]
    fn authors_differ_where_somebody_else_has_a_say() {
        let file = tempfile::tempfile().unwrap();
        let own =
            FileVersion { foreign: false, writable_by_others: false, ..FileVersion::of(&file).unwrap() };
        assert_eq!(Author::of(&own), Author::user(own.owner));
        let others = [
            FileVersion { owner: own.owner + 1, ..own },
            FileVersion { foreign: true, ..own },
            FileVersion { foreign: true, device: own.device + 1, ..own },
            FileVersion { writable_by_others: true, ..own },
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(Author::of(other), Author::of(&own));
            assert!(others[..at].iter().all(|earlier| Author::of(earlier) != Author::of(other)));
        }
        assert_eq!(Author::of(&FileVersion { device: own.device + 1, ..own }), Author::of(&own));
    }

    #[test]
    fn only_files_of_root_alone_are_not_charged() {
        let root = Author::user(0);
        assert_eq!((root.charged(), Author::user(7).charged()), (None, Some(7)));
        for other in [Author { shared: true, ..root }, Author { file_system: Some(3), ..root }] {
            assert_eq!(other.charged(), Some(u32::MAX));
        }
    }

    #[test]
    fn a_process_that_sleeps_is_not_running() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        // It runs until it sleeps.
        while is_running(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_running(std::process::id()) || !is_running(u32::MAX));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
