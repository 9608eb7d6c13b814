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

use super::clock::monotonic_ns;
use super::message::Message;
use super::supervisor::{Heartbeat, Supervisor};
use super::thread_shares::{keys, may_be_unfair, over_share};
use super::wait_counters::WaitCounters;

/// How often the table is checked.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Waits that began this recently stay.
const YOUNG_NS: u64 = 1_000_000_000;

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
    // Totals, which a restart must not begin anew.
    let mut counters = Counters::default();
    let missing = "one user's waiting threads may fill the table of all";
    supervisor.spawn_restartable("waits", missing, move |heartbeat| {
        run(&blocked, &messages, &end, heartbeat, &mut counters);
    })?;
    Ok(ending)
}

/// The counters so far, and as last sent.
#[derive(Default)]
struct Counters {
    counted: WaitCounters,
    sent: WaitCounters,
}

fn run(
    blocked: &MapHandle,
    messages: &Sender<Message>,
    end: &Receiver<()>,
    heartbeat: &Heartbeat,
    Counters { counted, sent }: &mut Counters,
) {
    loop {
        heartbeat.idle();
        let ended = end.recv_timeout(SWEEP_EVERY) == Err(RecvTimeoutError::Disconnected);
        heartbeat.beat();
        if ended {
            return;
        }
        counted.over_share += sweep(blocked) as u64;
        // Without room for the message, the total is sent the next time.
        if counted != sent && messages.try_send(Message::Waits(*counted)).is_ok() {
            *sent = *counted;
        }
    }
}

/// Removes what exceeds its user's share, the longest waits first; returns how many entries.
fn sweep(blocked: &MapHandle) -> usize {
    let room = blocked.max_entries() as usize;
    let keys = keys(blocked);
    if !may_be_unfair(keys.len(), room) {
        return 0;
    }
    let mut users: HashMap<u32, u32> = HashMap::new();
    let mut wait_of = |key: Vec<u8>| {
        let value = blocked.lookup(&key, MapFlags::ANY).ok()??;
        let Blocked { began_ns, pid, .. } = Blocked::read_from(&value)?;
        let user = *users.entry(pid).or_insert_with(|| accountable_user(pid).unwrap_or(GONE_USER));
        Some((began_ns, key, user))
    };
    let mut waits: Vec<(u64, Vec<u8>, u32)> = keys.into_iter().filter_map(&mut wait_of).collect();
    waits.sort_unstable();
    let entries: Vec<_> = waits.iter().map(|(began_ns, key, user)| ((*began_ns, key), *user)).collect();
    let removed = over_share(&entries, room).into_iter();
    // The kernel programs may be writing to one that has just begun.
    let begun_before = monotonic_ns().saturating_sub(YOUNG_NS);
    removed.filter(|(began_ns, key)| *began_ns < begun_before && blocked.delete(key).is_ok()).count()
}
