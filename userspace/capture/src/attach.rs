//! Attach: one sampling event per CPU.
//!
//! Owns: which CPUs are sampled. Because: CPUs go offline and come online. Does not: load programs, read events, or
//! find out which CPUs are online.

use std::collections::BTreeMap;
use std::io;

use crossbeam_channel::Sender;
use libbpf_rs::Link;

use super::cpus::{CpuChanges, CpuCounters, OnlineCpus, online_cpus};
use super::load::{LoadError, LoadedPrograms};
use super::message::Message;
use super::perf_event::{Clock, open_sampler};
use super::unsent_notices::UnsentNotices;

/// Why sampling could not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// `perf_event_open` failed.
    #[error("cannot open a sampling event on CPU {cpu} at {frequency} Hz: {source}")]
    PerfEvent {
        /// CPU number.
        cpu: u32,
        /// Requested frequency.
        frequency: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The list of CPUs cannot be read.
    #[error("cannot read the list of online CPUs (/sys/devices/system/cpu/online): {0}")]
    Cpus(io::Error),
    /// The program could not be attached.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Samplers on every CPU; sampling ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Samplers {
    /// By CPU; `None` for a new CPU that cannot be sampled.
    links: BTreeMap<u32, Option<Link>>,
    online: OnlineCpus,
    clock: Clock,
    /// In Hz.
    frequency: u32,
    /// Counts so far, and those already sent.
    missed: CpuCounters,
    sent: CpuCounters,
    notices: UnsentNotices,
    messages: Sender<Message>,
}

impl Samplers {
    /// Number of CPUs sampled.
    pub(crate) fn cpus(&self) -> usize {
        self.links.values().flatten().count()
    }

    /// The event that triggers samples.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// In Hz.
    pub(crate) fn frequency(&self) -> u32 {
        self.frequency
    }

    /// Samples at another frequency from now on. Each sample carries the time it stands for, so sums stay right.
    ///
    /// # Errors
    /// The kernel refuses the frequency: then nothing changes.
    pub(crate) fn set_frequency(
        &mut self,
        loaded: &mut LoadedPrograms,
        frequency: u32,
    ) -> Result<(), AttachError> {
        let before = std::mem::replace(&mut self.frequency, frequency);
        let cpus: Vec<u32> =
            self.links.iter().filter(|(_, link)| link.is_some()).map(|(cpu, _)| *cpu).collect();
        // The kernel checks a frequency when an event is opened, so a refusal at the first CPU changes nothing.
        let set = cpus.iter().try_for_each(|cpu| self.sample(loaded, *cpu).map(drop));
        if set.is_err() {
            self.frequency = before;
            for cpu in cpus {
                self.sample(loaded, cpu)?;
            }
        }
        set
    }

    /// Samples CPUs that came online since the last call, drops those that went offline, and sends the counts.
    pub(crate) fn follow_cpus(&mut self, loaded: &mut LoadedPrograms) {
        let CpuChanges { went, came } = self.online.changes(&self.links.keys().copied().collect());
        for cpu in &went {
            self.links.remove(cpu);
        }
        for cpu in came {
            match self.sample(loaded, cpu) {
                Ok(true) => self.missed.late += 1,
                // It went offline again.
                Ok(false) => {}
                Err(error) => {
                    self.links.insert(cpu, None);
                    self.missed.not_sampled += 1;
                    self.notices.add([format!("CPU {cpu} came online and is not sampled: {error}")]);
                }
            }
        }
        self.notices.send(&self.messages);
        // Not worth waiting for: totals are sent again.
        if self.missed != self.sent && self.messages.try_send(Message::Cpus(self.missed)).is_ok() {
            self.sent = self.missed;
        }
    }

    /// Opens a sampling event on a CPU and attaches the sampler to it; false when the CPU is not online.
    fn sample(&mut self, loaded: &mut LoadedPrograms, cpu: u32) -> Result<bool, AttachError> {
        let frequency = self.frequency;
        let event = match open_sampler(self.clock, cpu, frequency) {
            Ok(event) => event,
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
            Err(source) => return Err(AttachError::PerfEvent { cpu, frequency, source }),
        };
        self.links.insert(cpu, Some(loaded.attach_sampler(event)?));
        Ok(true)
    }
}

/// Opens a sampling event on every online CPU, with a clock and a frequency in Hz, and attaches the sampler to it.
/// Counts of later misses are sent to `messages`.
pub(crate) fn attach_samplers(
    loaded: &mut LoadedPrograms,
    clock: Clock,
    frequency: u32,
    messages: &Sender<Message>,
) -> Result<Samplers, AttachError> {
    let mut samplers = Samplers {
        links: BTreeMap::new(),
        // Created before the list is read, so that no change is missed.
        online: OnlineCpus::new(),
        clock,
        frequency,
        missed: CpuCounters::default(),
        sent: CpuCounters::default(),
        notices: UnsentNotices::default(),
        messages: messages.clone(),
    };
    for cpu in online_cpus().map_err(AttachError::Cpus)? {
        samplers.sample(loaded, cpu)?;
    }
    Ok(samplers)
}
