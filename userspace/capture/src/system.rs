//! System: what the machine does while its programs are sampled.
//!
//! Owns: reading the kernel's totals of CPUs, pressure, memory, disks, networks and of the targets' cgroups, and the
//! thread that sends their increments, together with the latest GPU readings. Because: no stack of a program shows
//! that it waits for a disk, for a CPU that others use, or for the next period of its CPU limit. Does not: know
//! contexts; the pipeline has them.
//!
//! Sources: `Documentation/filesystems/proc.rst` (`stat`, `meminfo`), `Documentation/accounting/psi.rst`,
//! `Documentation/admin-guide/iostats.rst`, `Documentation/admin-guide/cgroup-v2.rst`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use deepctx_pipeline::system::{MACHINE, Metric, SystemSample, SystemValue};

use super::clock::monotonic_ns;
use super::gpus::{GpuCounters, Gpus};
use super::message::Message;
use super::supervisor::{Heartbeat, Supervisor};
use super::unsent_notices::UnsentNotices;

/// Unit of times in `/proc/stat` in nanoseconds: user space sees a hundred ticks a second on every machine.
const TICK_NS: u64 = 10_000_000;
/// A sector of `/proc/diskstats`, whatever the disk's own size is.
const SECTOR_BYTES: u64 = 512;
/// Most disks and network interfaces that are read, each; machines with more aggregate them with their own tools.
const DEVICES_MAX: usize = 64;
/// Longest wait for room for the last interval: the pipeline still drains the channel then.
const LAST_WAIT_MAX: Duration = Duration::from_secs(2);
/// Most cgroups of targets that are read.
const CGROUPS_MAX: usize = 16;

/// Totals by part of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals(BTreeMap<(String, Metric), u64>);

impl Totals {
    fn add(&mut self, resource: &str, metric: Metric, value: u64) {
        let total = self.0.entry((resource.to_owned(), metric)).or_default();
        *total = total.saturating_add(value);
    }

    /// CPUs, from `/proc/stat`.
    fn cpus(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(number) = words.next().and_then(|word| word.strip_prefix("cpu")?.parse::<u32>().ok())
            else {
                continue;
            };
            let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            // user nice system idle iowait irq softirq steal; guests are in `user`, too.
            let of = |places: &[usize]| {
                let ticks = places.iter().filter_map(|place| ticks.get(*place));
                ticks.fold(0u64, |sum, ticks| sum.saturating_add(*ticks)).saturating_mul(TICK_NS)
            };
            let resource = format!("cpu {number}");
            self.add(&resource, Metric::CpuBusyTime, of(&[0, 1, 2, 5, 6]));
            self.add(&resource, Metric::CpuIoWaitTime, of(&[4]));
            self.add(&resource, Metric::CpuStealTime, of(&[7]));
        }
    }

    /// Time in which some task waited, from a file of `/proc/pressure`.
    fn pressure(&mut self, metric: Metric, text: &str) {
        let some = text.lines().find_map(|line| line.strip_prefix("some "));
        let total = some.and_then(|rest| rest.rsplit_once("total=")?.1.trim().parse::<u64>().ok());
        if let Some(microseconds) = total {
            self.add(MACHINE, metric, microseconds.saturating_mul(1000));
        }
    }

    /// Memory in use, from `/proc/meminfo`: what is not available without swapping.
    fn memory(&mut self, text: &str) {
        let kibibytes = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        if let (Some(all), Some(available)) = (kibibytes("MemTotal"), kibibytes("MemAvailable")) {
            self.add(MACHINE, Metric::MemoryUsedBytes, all.saturating_sub(available).saturating_mul(1024));
        }
    }

    /// Whole disks, from `/proc/diskstats`.
    fn disks(&mut self, text: &str, disks: &BTreeSet<String>) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, _, name, _, _, read, _, _, _, written, ..] = words[..] else { continue };
            if disks.contains(name) {
                let bytes = |sectors: &str| sectors.parse::<u64>().unwrap_or(0).saturating_mul(SECTOR_BYTES);
                let resource = format!("disk {name}");
                self.add(&resource, Metric::DiskReadBytes, bytes(read));
                self.add(&resource, Metric::DiskWrittenBytes, bytes(written));
            }
        }
    }

    /// Network interfaces, from `/proc/net/dev`.
    fn networks(&mut self, text: &str, interfaces: &BTreeMap<String, Option<u64>>) {
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(':') else { continue };
            if let Some(megabits) = interfaces.get(name.trim()) {
                let numbers: Vec<u64> =
                    rest.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
                let of = |place: usize| numbers.get(place).copied().unwrap_or(0);
                let resource = format!("network {}", name.trim());
                self.add(&resource, Metric::NetworkReceivedBytes, of(0));
                self.add(&resource, Metric::NetworkSentBytes, of(8));
                if let Some(megabits) = megabits {
                    self.add(&resource, Metric::NetworkLinkMegabits, *megabits);
                }
            }
        }
    }

    /// A cgroup's `cpu.stat`: nothing where it has no limit.
    fn limit(&mut self, resource: &str, text: &str) {
        let number = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
        };
        if let (Some(periods), Some(throttled)) = (number("nr_periods"), number("nr_throttled"))
            && periods > 0
        {
            self.add(resource, Metric::LimitedPeriods, periods);
            self.add(resource, Metric::ThrottledPeriods, throttled);
        }
    }

    /// Increases since `before`; for levels, the values. A total that was not there before began at zero only if it is
    /// a cgroup's, whose periods begin with its limit; any other existed earlier and is skipped.
    fn since(&self, before: &Totals) -> Vec<SystemValue> {
        let grown = |((resource, metric), now): (&(String, Metric), &u64)| {
            let value = match before.0.get(&(resource.clone(), *metric)) {
                _ if metric.is_level() => *now,
                Some(before) => now.saturating_sub(*before),
                None if matches!(metric, Metric::LimitedPeriods | Metric::ThrottledPeriods) => *now,
                None => return None,
            };
            Some(SystemValue { resource: resource.clone(), metric: metric.name().to_owned(), value })
        };
        self.0.iter().filter_map(grown).collect()
    }
}

/// Where the totals are read.
#[derive(Debug)]
struct Sources {
    /// `/proc`.
    proc: PathBuf,
    disks: BTreeSet<String>,
    /// Network interfaces, and the speed of their links at the start: reading it takes a lock of the kernel.
    interfaces: BTreeMap<String, Option<u64>>,
    /// Folder and name of each cgroup; version 1 has separate ones for CPUs and memory.
    cgroups: BTreeMap<PathBuf, String>,
}

impl Sources {
    /// Sources of this machine, and the cgroups of these processes.
    fn of(pids: &[u32]) -> Self {
        let with_device = |class: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(class).into_iter().flatten().flatten();
            let real = entries.filter(|entry| entry.path().join("device").exists());
            real.filter_map(|entry| entry.file_name().into_string().ok()).take(DEVICES_MAX).collect()
        };
        Self {
            proc: PathBuf::from("/proc"),
            disks: with_device("/sys/block"),
            interfaces: with_device("/sys/class/net").into_iter().map(with_speed).collect(),
            cgroups: first(pids.iter().flat_map(|pid| cgroups_of(*pid)), CGROUPS_MAX),
        }
    }

    /// Reads all that can be read; the rest is left out.
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let of = |name: &str| read(&self.proc.join(name));
        totals.cpus(&of("stat"));
        totals.pressure(Metric::CpuPressureTime, &of("pressure/cpu"));
        totals.pressure(Metric::IoPressureTime, &of("pressure/io"));
        totals.pressure(Metric::MemoryPressureTime, &of("pressure/memory"));
        totals.memory(&of("meminfo"));
        totals.disks(&of("diskstats"), &self.disks);
        totals.networks(&of("net/dev"), &self.interfaces);
        for (folder, resource) in &self.cgroups {
            totals.limit(resource, &read(&folder.join("cpu.stat")));
            let used = ["memory.current", "memory.usage_in_bytes"]
                .iter()
                .find_map(|name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok());
            if let Some(bytes) = used {
                totals.add(resource, Metric::MemoryUsedBytes, bytes);
            }
        }
        totals
    }
}

/// An interface, and its link speed in megabits per second.
fn with_speed(name: String) -> (String, Option<u64>) {
    let text = fs::read_to_string(Path::new("/sys/class/net").join(&name).join("speed"));
    let speed = text.ok().and_then(|text| link_megabits(&text));
    (name, speed)
}

/// The number in `/sys/class/net/*/speed`: -1 or the largest number means a link that is down, or virtual.
fn link_megabits(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|megabits| (1..u64::from(u32::MAX)).contains(megabits))
}

/// The first `most` distinct ones.
fn first(cgroups: impl Iterator<Item = (PathBuf, String)>, most: usize) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for (folder, name) in cgroups {
        found.insert(folder, name);
        if found.len() == most {
            break;
        }
    }
    found
}

/// The cgroups that limit a process's CPUs and memory, without the root, which has no limit, and without those outside
/// our cgroup namespace, which have no folder here.
fn cgroups_of(pid: u32) -> BTreeMap<PathBuf, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let of = |controller| {
        let cgroup = path_of(&text, controller)?;
        let is_here = cgroup.path != "/" && cgroup.path.split('/').all(|part| part != "..");
        is_here.then(|| (cgroup.folder(controller), format!("cgroup {}", cgroup.path)))
    };
    ["cpu", "memory"].into_iter().filter_map(of).collect()
}

/// A cgroup as `/proc/PID/cgroup` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CgroupPath<'t> {
    path: &'t str,
    /// The controller has its own hierarchy (version 1).
    own_hierarchy: bool,
}

impl CgroupPath<'_> {
    fn folder(self, controller: &str) -> PathBuf {
        let base = Path::new("/sys/fs/cgroup");
        let base = if self.own_hierarchy { base.join(controller) } else { base.to_owned() };
        base.join(self.path.trim_start_matches('/'))
    }
}

/// The cgroup of a controller, from the text of `/proc/PID/cgroup`.
fn path_of<'t>(text: &'t str, controller: &str) -> Option<CgroupPath<'t>> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let own = lines().find(|(of, _)| of.split(',').any(|name| name == controller));
    own.map(|(_, path)| CgroupPath { path, own_hierarchy: true }).or_else(|| {
        let unified = lines().find(|(of, _)| of.is_empty());
        unified.map(|(_, path)| CgroupPath { path, own_hierarchy: false })
    })
}

/// Sends machine metrics, including GPUs if `with_gpus`, until the result is dropped.
///
/// # Errors
/// A thread could not be started.
pub(super) fn spawn(
    interval: Duration,
    pids: &[u32],
    with_gpus: bool,
    messages: Sender<Message>,
    supervisor: &Supervisor,
) -> std::io::Result<Sender<()>> {
    let (ending, end) = bounded(0);
    let gpus = if with_gpus { Gpus::start(supervisor)? } else { None };
    let (sources, counted, notices) = (Sources::of(pids), GpuCounters::default(), UnsentNotices::default());
    let mut thread = Thread { sources, gpus, counted, notices, messages };
    // A restart begins a new interval.
    supervisor.spawn_restartable("system", "what the machine does is not recorded", move |heartbeat| {
        thread.run(interval, &end, heartbeat);
    })?;
    Ok(ending)
}

/// The state of the thread.
struct Thread {
    sources: Sources,
    gpus: Option<Gpus>,
    /// Counts of missing readings, as last sent.
    counted: GpuCounters,
    notices: UnsentNotices,
    messages: Sender<Message>,
}

impl Thread {
    fn run(&mut self, interval: Duration, end: &Receiver<()>, heartbeat: &Heartbeat) {
        let (mut before, mut from_ns) = (self.sources.totals(), monotonic_ns());
        loop {
            heartbeat.idle();
            let ended = end.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected);
            heartbeat.beat();
            let (now, to_ns) = (self.sources.totals(), monotonic_ns());
            let mut values = now.since(&before);
            if let Some(gpus) = &mut self.gpus {
                gpus.take();
                values.extend(gpus.values(to_ns.saturating_sub(from_ns)));
            }
            let message = Message::System(SystemSample { from_ns, to_ns, values });
            let wait = if ended { LAST_WAIT_MAX } else { Duration::ZERO };
            match self.messages.send_timeout(message, wait) {
                Ok(()) => {
                    (before, from_ns) = (now, to_ns);
                    self.gpus.iter_mut().for_each(Gpus::used);
                }
                Err(SendTimeoutError::Timeout(_)) if ended => {
                    tracing::warn!("there was no room for what the machine did last")
                }
                // The next sample will include it.
                Err(SendTimeoutError::Timeout(_)) => {}
                Err(SendTimeoutError::Disconnected(_)) => return,
            }
            self.go_on_with_gpus(ended);
            if ended {
                return;
            }
        }
    }

    /// Sends notices about GPUs, and requests the readings of the next interval.
    fn go_on_with_gpus(&mut self, ended: bool) {
        let Some(gpus) = &mut self.gpus else { return };
        if ended {
            gpus.finish();
        } else {
            gpus.ask();
        }
        self.notices.add(gpus.take_notices());
        self.notices.send(&self.messages);
        let counters = gpus.counters();
        // Not worth waiting for: totals are sent again.
        if counters != self.counted && self.messages.try_send(Message::Gpus(counters)).is_ok() {
            self.counted = counters;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of reading a text: `part metric=value`, in order.
    #[track_caller]
    fn check(read: impl FnOnce(&mut Totals), expect: &[&str]) {
        let mut totals = Totals::default();
        read(&mut totals);
        let found = totals.0.iter().map(|((resource, metric), value)| format!("{resource} {metric}={value}"));
        assert_eq!(found.collect::<Vec<_>>(), expect);
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn cpus_are_busy_waiting_for_disks_or_stolen() {
        let text = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 1 1\ncpu12 1 0 0\nintr 5\ncpux 1\n";
        check(
            |totals| totals.cpus(text),
            &[
                "cpu 0 system:cpu-busy-time=190000000",
                "cpu 0 system:cpu-io-wait-time=50000000",
                "cpu 0 system:cpu-steal-time=80000000",
                "cpu 12 system:cpu-busy-time=10000000",
                "cpu 12 system:cpu-io-wait-time=0",
                "cpu 12 system:cpu-steal-time=0",
            ],
        );
    }

    #[test]
    fn pressure_is_the_time_in_which_some_task_waited() {
        let text = "some avg10=1.69 avg60=2.75 avg300=3.11 total=99745553\nfull avg10=0.00 total=7\n";
        check(
            |totals| totals.pressure(Metric::CpuPressureTime, text),
            &["machine system:cpu-pressure-time=99745553000"],
        );
        check(|totals| totals.pressure(Metric::CpuPressureTime, "some total=x\n"), &[]);
    }

    #[test]
    fn memory_in_use_is_what_is_not_available() {
        let text = "MemTotal:       100 kB\nMemFree: 1 kB\nMemAvailable:   30 kB\n";
        check(|totals| totals.memory(text), &["machine system:memory-used-bytes=71680"]);
        check(|totals| totals.memory("MemTotal: 100 kB\n"), &[]);
    }

    #[test]
    fn whole_disks_and_interfaces_count_bytes() {
        let text = "254 0 vda 10 0 20 0 5 0 40 0 0\n254 1 vda1 1 1 1 1 1 1 1 1 1\n7 0 loop0 1\nnonsense\n";
        check(
            |totals| totals.disks(text, &names(&["vda", "loop0"])),
            &["disk vda system:disk-read-bytes=10240", "disk vda system:disk-written-bytes=20480"],
        );
        let text =
            "Inter-|   Receive\n face |bytes\n    lo: 1 1 1 1 1 1 1 1 1\n  eth0:270 1 0 0 0 0 0 0 406 9\n";
        check(
            |totals| totals.networks(text, &[("eth0".to_owned(), None)].into()),
            &["network eth0 system:network-received-bytes=270", "network eth0 system:network-sent-bytes=406"],
        );
        check(
            |totals| totals.networks(text, &[("eth0".to_owned(), Some(25_000))].into()),
            &[
                "network eth0 system:network-received-bytes=270",
                "network eth0 system:network-sent-bytes=406",
                "network eth0 system:network-link-megabits=25000",
            ],
        );
        for (text, expect) in [
            ("10000\n", Some(10_000)),
            ("-1\n", None),
            ("0\n", None),
            ("4294967295\n", None),
            ("18446744073709551616", None),
            ("", None),
        ] {
            assert_eq!(link_megabits(text), expect, "{text:?}");
        }
    }

    #[test]
    fn a_cgroup_without_a_limit_has_no_periods() {
        let limited = "usage_usec 9\nnr_periods 40\nnr_throttled 30\nthrottled_usec 5\n";
        check(
            |totals| totals.limit("cgroup /a", limited),
            &["cgroup /a system:limited-periods=40", "cgroup /a system:throttled-periods=30"],
        );
        check(|totals| totals.limit("cgroup /a", "nr_periods 0\nnr_throttled 0\n"), &[]);
        check(|totals| totals.limit("cgroup /a", "usage_usec 9\n"), &[]);
    }

    #[test]
    fn cgroups_are_found_in_both_versions() {
        let hybrid = "9:name=systemd:/x\n4:memory:/jobs/m\n1:cpu,cpuacct:/jobs/c\n0::/unified\n";
        let own = CgroupPath { path: "/jobs/c", own_hierarchy: true };
        assert_eq!(path_of(hybrid, "cpu"), Some(own));
        let unified = CgroupPath { path: "/user.slice/a:b", own_hierarchy: false };
        assert_eq!(path_of("0::/user.slice/a:b\n", "memory"), Some(unified));
        assert_eq!(path_of("", "cpu"), None);
        assert_eq!(own.folder("cpu"), Path::new("/sys/fs/cgroup/cpu/jobs/c"));
        assert_eq!(unified.folder("cpu"), Path::new("/sys/fs/cgroup/user.slice/a:b"));
        let many = ["a", "a", "a", "b", "c"].map(|name| (PathBuf::from(name), name.to_owned()));
        assert_eq!(first(many.into_iter(), 2).into_values().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn sums_grow_and_levels_stay() {
        let totals = |busy, used| {
            let mut totals = Totals::default();
            totals.add("cpu 0", Metric::CpuBusyTime, busy);
            totals.add(MACHINE, Metric::MemoryUsedBytes, used);
            totals
        };
        let (before, mut now) = (totals(10, 7), totals(25, 5));
        now.add("cpu 1", Metric::CpuBusyTime, 1_000);
        now.add("cgroup /a", Metric::LimitedPeriods, 4);
        let grown: Vec<_> = now.since(&before).into_iter().map(|it| (it.resource, it.value)).collect();
        let expect = [("cgroup /a", 4), ("cpu 0", 15), (MACHINE, 5)];
        assert_eq!(grown, expect.map(|(resource, value)| (resource.to_owned(), value)));
        assert_eq!(totals(3, 5).since(&before)[0].value, 0, "a counter that began anew has not grown");
    }

    #[test]
    fn files_of_a_cgroup_are_read_below_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("cpu.stat", "nr_periods 20\nnr_throttled 16\nthrottled_time 1278036442\n");
        write("memory.usage_in_bytes", "4096\n");
        write("stat", "cpu0 1 0 0\n");
        let cgroups = [(folder.path().to_owned(), "cgroup /job".to_owned())].into();
        let (disks, interfaces) = (BTreeSet::new(), BTreeMap::new());
        let sources = Sources { proc: folder.path().to_owned(), disks, interfaces, cgroups };
        check(
            |totals| *totals = sources.totals(),
            &[
                "cgroup /job system:limited-periods=20",
                "cgroup /job system:throttled-periods=16",
                "cgroup /job system:memory-used-bytes=4096",
                "cpu 0 system:cpu-busy-time=10000000",
                "cpu 0 system:cpu-io-wait-time=0",
                "cpu 0 system:cpu-steal-time=0",
            ],
        );
    }

    #[test]
    fn the_last_interval_waits_for_room() {
        let folder = tempfile::tempdir().unwrap();
        let (disks, interfaces, cgroups) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let sources = Sources { proc: folder.path().to_owned(), disks, interfaces, cgroups };
        let (messages, received) = bounded(1);
        messages.send(Message::CallsEnd(0)).unwrap();
        let (ending, end) = bounded::<()>(0);
        drop(ending);
        let (counted, notices) = (GpuCounters::default(), UnsentNotices::default());
        let mut thread = Thread { sources, gpus: None, counted, notices, messages };
        let body = move |heartbeat: &Heartbeat| thread.run(Duration::from_secs(3600), &end, heartbeat);
        let thread = Supervisor::default().spawn("system", "nothing", body).unwrap();
        // Long enough to find no room.
        std::thread::sleep(Duration::from_millis(100));
        assert!(matches!(received.recv().unwrap(), Message::CallsEnd(0)));
        thread.join().unwrap();
        assert!(matches!(received.recv().unwrap(), Message::System(_)));
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let totals = Sources::of(&[std::process::id()]).totals();
        let has = |resource: &str, metric| {
            totals.0.get(&(resource.to_owned(), metric)).is_some_and(|value| *value > 0)
        };
        assert!(has("cpu 0", Metric::CpuBusyTime) && has(MACHINE, Metric::MemoryUsedBytes), "{totals:?}");
    }
}
