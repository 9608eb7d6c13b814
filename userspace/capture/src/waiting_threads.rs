//! Waiting threads: the kernel programs' state of threads off their CPUs, until they run again.
//!
//! Owns: removing entries above their user's share. Because: the table holds some ten thousand threads of all users,
//! and one user may have more. Does not: record waits.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use deepctx_common::Plain as _;
use deepctx_common::process::Blocked;
use deepctx_symbolizer::{GONE_USER, accountable_user};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::message::Message;
use super::supervisor::{Heartbeat, Supervisor};
use super::thread_shares::{may_be_unfair, over_share};
use super::wait_counters::WaitCounters;

/// How often the table is checked.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Starts the thread that checks the table `BLOCKED`; it ends when the result is dropped.
///
/// # Errors
/// The thread could not be started.
pub(super) fn spawn(
    blocked: MapHandle,
    messages: Sender<Message>,
    supervisor: &Supervisor,
) -> io::Result<Sender<()>> {
    let (ending, end) = bounded(0);
    supervisor.spawn("waits", "one user's waiting threads may fill the table of all", move |heartbeat| {
        run(&blocked, &messages, &end, heartbeat);
    })?;
    Ok(ending)
}

fn run(blocked: &MapHandle, messages: &Sender<Message>, end: &Receiver<()>, heartbeat: &Heartbeat) {
    let (mut counted, mut sent) = (WaitCounters::default(), WaitCounters::default());
    loop {
        heartbeat.idle();
        let ended = end.recv_timeout(SWEEP_EVERY) == Err(RecvTimeoutError::Disconnected);
        heartbeat.beat();
        if ended {
            return;
        }
        counted.over_share += sweep(blocked) as u64;
        // Without room for the message, the total is sent the next time.
        if counted != sent && messages.try_send(Message::Waits(counted)).is_ok() {
            sent = counted;
        }
    }
}

/// Removes what exceeds its user's share; returns how many entries.
fn sweep(blocked: &MapHandle) -> usize {
    let keys: Vec<Vec<u8>> = blocked.keys().collect();
    let room = blocked.max_entries() as usize;
    if !may_be_unfair(keys.len(), room) {
        return 0;
    }
    let mut users: HashMap<u32, u32> = HashMap::new();
    let mut user_of = |key: &[u8]| {
        let value = blocked.lookup(key, MapFlags::ANY).ok()??;
        let pid = Blocked::read_from(&value)?.pid;
        Some(*users.entry(pid).or_insert_with(|| accountable_user(pid).unwrap_or(GONE_USER)))
    };
    let entries: Vec<_> = keys.iter().filter_map(|key| Some((key, user_of(key)?))).collect();
    over_share(&entries, room).into_iter().filter(|key| blocked.delete(key).is_ok()).count()
}
