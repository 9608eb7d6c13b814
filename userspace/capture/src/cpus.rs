//! CPUs: which are online during a capture.
//!
//! Owns: the kernel's list of online CPUs, its uevents when CPUs go offline, and the counters of what was missed.
//! Because: the kernel drops the sampling event of a CPU that goes offline, and a CPU that comes online has none; one
//! that goes and comes back between two polls is in the list both times. Does not: open sampling events.
//!
//! Sources: `Documentation/ABI/testing/sysfs-devices-system-cpu`, `lib/kobject_uevent.c`.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

/// The kernel's list.
pub(super) const ONLINE: &str = "/sys/devices/system/cpu/online";
/// The multicast group of events that the kernel itself sends.
const KERNEL_GROUP: u32 = 1;
/// An event is at most 2 KiB (`UEVENT_BUFFER_SIZE`) and its heading.
const EVENT_BYTES: usize = 4096;
/// Events read at a time; the rest waits for the next call.
const EVENTS_MAX: usize = 10_000;

reasons! {
    class Gap, page "loss.md";
    const LATE = "cpu-came-late",
        "CPUs came online during the capture: what ran there before they were sampled, half a second at most, is missing";
    const NOT_SAMPLED = "cpu-not-sampled",
        "CPUs came online during the capture and cannot be sampled: what ran there is missing",
        helps "see the notice for the system's error";
}

/// Gaps of CPUs that came online during the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// How often a CPU came online, and is sampled since.
    pub late: u64,
    /// How often a CPU came online and could not be sampled.
    pub not_sampled: u64,
}

impl CpuCounters {
    /// What is missing, and how often.
    pub fn gaps(&self) -> [(&'static Reason, u64); 2] {
        [(LATE, self.late), (NOT_SAMPLED, self.not_sampled)]
    }
}

/// The online CPUs.
pub(super) fn online_cpus() -> io::Result<Vec<u32>> {
    read_list(Path::new(ONLINE))
}

fn read_list(path: &Path) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(path)?;
    parse_cpu_list(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("unexpected list {text:?}")))
}

/// Parses a list such as `0-3,8,10-11`.
pub(super) fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    /// More CPUs than any kernel is built for.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Changes to make to the sampling events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CpuChanges {
    /// CPUs whose event is dead.
    pub(super) went: Vec<u32>,
    /// CPUs that need a new one.
    pub(super) came: Vec<u32>,
}

/// Tracks the online CPUs.
#[derive(Debug)]
pub(super) struct OnlineCpus {
    list: PathBuf,
    /// `None` if the kernel sends none: a CPU that goes offline and back between two checks is then not noticed.
    events: Option<CpuEvents>,
    /// CPUs of events that were read, from before the list could be read.
    gone: RemovedCpus,
}

impl OnlineCpus {
    /// Those of this machine. Changes from now on are noticed.
    pub(super) fn new() -> Self {
        let events = CpuEvents::listen();
        if let Err(error) = &events {
            tracing::debug!(%error, "events of CPUs are not received");
        }
        Self { list: PathBuf::from(ONLINE), events: events.ok(), gone: RemovedCpus::Nobody }
    }

    /// Changes for a sampler of `sampled`. Events are read before the list, so the list is never older: a CPU comes
    /// online only after the event of its going offline was sent. Events are sent once: while the list cannot be read,
    /// they are kept.
    pub(super) fn changes(&mut self, sampled: &BTreeSet<u32>) -> CpuChanges {
        let gone = self.events.as_ref().map(CpuEvents::gone).unwrap_or_default();
        let gone = std::mem::take(&mut self.gone).and(gone);
        let Ok(online) = read_list(&self.list) else {
            self.gone = gone;
            return CpuChanges::default();
        };
        changes(sampled, &online.into_iter().collect(), &gone)
    }
}

/// CPUs that went offline since the last check.
#[derive(Debug, Default, PartialEq, Eq)]
enum RemovedCpus {
    /// None.
    #[default]
    Nobody,
    /// These.
    These(BTreeSet<u32>),
    /// Unknown: there were too many events.
    Unknown,
}

impl RemovedCpus {
    /// These, and those that went later.
    fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Nobody, cpus) | (cpus, Self::Nobody) => cpus,
            (Self::These(mut cpus), Self::These(later)) => {
                cpus.extend(later);
                Self::These(cpus)
            }
        }
    }
}

fn changes(sampled: &BTreeSet<u32>, online: &BTreeSet<u32>, gone: &RemovedCpus) -> CpuChanges {
    let is_dead = |cpu: &u32| {
        !online.contains(cpu)
            || match gone {
                RemovedCpus::Nobody => false,
                RemovedCpus::These(cpus) => cpus.contains(cpu),
                RemovedCpus::Unknown => true,
            }
    };
    let went: Vec<u32> = sampled.iter().copied().filter(is_dead).collect();
    let needs_event = |cpu: &u32| !sampled.contains(cpu) || went.contains(cpu);
    let came = online.iter().copied().filter(needs_event).collect();
    CpuChanges { went, came }
}

/// A socket on which the kernel reports CPUs that go offline.
#[derive(Debug)]
struct CpuEvents(OwnedFd);

impl CpuEvents {
    fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Self(socket))
    }

    /// CPUs that went offline since the last time.
    fn gone(&self) -> RemovedCpus {
        let mut cpus = BTreeSet::new();
        let mut event = [0; EVENT_BYTES];
        for _ in 0..EVENTS_MAX {
            match recvfrom(&self.0, &mut event[..], RecvFlags::DONTWAIT) {
                // Others may send to the group; only the kernel is believed.
                Ok((_, bytes, from)) => {
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    let is_kernel = from.is_some_and(|from| from.pid() == 0);
                    cpus.extend(gone_cpu(event.get(..bytes).unwrap_or_default()).filter(|_| is_kernel));
                }
                Err(Errno::NOBUFS) => return RemovedCpus::Unknown,
                Err(_) => break,
            }
        }
        if cpus.is_empty() { RemovedCpus::Nobody } else { RemovedCpus::These(cpus) }
    }
}

/// The CPU of an event such as `offline@/devices/system/cpu/cpu1`, whose further lines end with zeros.
fn gone_cpu(event: &[u8]) -> Option<u32> {
    let heading = event.split(|byte| *byte == 0).next()?;
    let number = std::str::from_utf8(heading).ok()?.strip_prefix("offline@/devices/system/cpu/cpu")?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_ranges_and_singles() {
        let check = |text: &str, expect: Option<&[u32]>| {
            assert_eq!(parse_cpu_list(text).as_deref(), expect, "{text}")
        };
        check("0", Some(&[0]));
        check("0-3", Some(&[0, 1, 2, 3]));
        check("0-1,4,6-7", Some(&[0, 1, 4, 6, 7]));
        check("", Some(&[]));
        check("3-1", None);
        check("0-99999999", None);
        check("a", None);
    }

    #[test]
    fn only_events_of_cpus_that_go_name_one() {
        let check =
            |event: &str, expect: Option<u32>| assert_eq!(gone_cpu(event.as_bytes()), expect, "{event:?}");
        check("offline@/devices/system/cpu/cpu12\0ACTION=offline\0SEQNUM=7\0", Some(12));
        check("online@/devices/system/cpu/cpu12\0ACTION=online\0", None);
        check("offline@/devices/system/memory/memory12\0", None);
        check("offline@/devices/system/cpu/cpu\0", None);
        check("libudev\0offline@/devices/system/cpu/cpu1\0", None);
        check("", None);
    }

    #[test]
    fn cpus_that_go_and_come_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("online");
        let mut cpus = OnlineCpus { list: list.clone(), events: None, gone: RemovedCpus::Nobody };
        let mut check = |online: &str, sampled: &[u32], went: &[u32], came: &[u32]| {
            std::fs::write(&list, online).unwrap();
            let found = cpus.changes(&sampled.iter().copied().collect());
            assert_eq!(found, CpuChanges { went: went.into(), came: came.into() }, "{online:?}");
        };
        check("0-3\n", &[0, 1, 2, 3], &[], &[]);
        check("0-3\n", &[0, 1], &[], &[2, 3]);
        check("0,2\n", &[0, 1, 2], &[1], &[]);
        check("0,3\n", &[0, 1], &[1], &[3]);
        // A list that cannot be read is no reason to stop sampling.
        check("what?\n", &[0, 1], &[], &[]);
    }

    #[test]
    fn cpus_that_went_are_remembered_while_the_list_is_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("online");
        let gone = RemovedCpus::These(BTreeSet::from([1]));
        let mut cpus = OnlineCpus { list: list.clone(), events: None, gone };
        let both = BTreeSet::from([0, 1]);
        assert_eq!(cpus.changes(&both), CpuChanges::default());
        std::fs::write(&list, "0-1\n").unwrap();
        assert_eq!(cpus.changes(&both), CpuChanges { went: vec![1], came: vec![1] });
        assert_eq!(cpus.changes(&both), CpuChanges::default());
    }

    #[test]
    fn cpus_that_went_at_different_times_add_up() {
        let these = |cpus: &[u32]| RemovedCpus::These(cpus.iter().copied().collect());
        assert_eq!(these(&[1]).and(these(&[2])), these(&[1, 2]));
        assert_eq!(these(&[1]).and(RemovedCpus::Nobody), these(&[1]));
        assert_eq!(RemovedCpus::Nobody.and(these(&[2])), these(&[2]));
        assert_eq!(these(&[1]).and(RemovedCpus::Unknown), RemovedCpus::Unknown);
        assert_eq!(RemovedCpus::Unknown.and(RemovedCpus::Nobody), RemovedCpus::Unknown);
    }

    #[test]
    fn a_cpu_that_was_away_needs_another_event() {
        let both = BTreeSet::from([0, 1]);
        let check = |gone: RemovedCpus, expect: &[u32]| {
            assert_eq!(changes(&both, &both, &gone), CpuChanges { went: expect.into(), came: expect.into() });
        };
        check(RemovedCpus::Nobody, &[]);
        check(RemovedCpus::These(BTreeSet::from([1, 7])), &[1]);
        check(RemovedCpus::Unknown, &[0, 1]);
    }

    #[test]
    fn the_kernel_is_listened_to() {
        let events = CpuEvents::listen().unwrap();
        assert_ne!(events.gone(), RemovedCpus::Unknown);
    }
}
