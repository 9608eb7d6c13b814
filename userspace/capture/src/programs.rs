//! Programs: their configuration for this kernel, and the size of their ring buffer.
//!
//! Owns: the parts of a [`CaptureConfig`] that the kernel programs need before they are loaded. Because: their
//! configuration is read-only once they run. Does not: load them (`load`) or attach anything.

use std::os::unix::fs::MetadataExt as _;

use deepctx_common::config::{Config, config_flag};
use deepctx_common::process::WAITS_WALKED_PER_SECOND;

use super::arch;
use super::clock::{log_progress, monotonic_ns};
use super::config::CaptureConfig;
use super::cpus::online_cpus;
use super::error::CaptureError;
use super::kernel_offsets::{self, Facts};
use super::links::AttachMethod;
use super::load::{LoadedPrograms, MapSizes};
use super::targets::{self, Targets};

/// Calls a second that the ring is sized for, if there may be any: twice the rate of training that launches without a
/// pause is rare, and the ring is drained twenty times a second, and whenever it fills.
const CALLS_PER_SECOND: u32 = 4_000;

/// Most native frames of one walk.
pub(super) const FRAMES_MAX: u32 = 512;

/// Inode number of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INIT_PIDNS: u64 = 0xEFFF_FFFC;

/// The loaded programs.
pub(super) struct Programs {
    pub(super) loaded: LoadedPrograms,
    /// How probes are attached; `None`: nothing is probed, or this kernel has no uprobes.
    pub(super) attach_method: Option<AttachMethod>,
}

impl Programs {
    /// Configures and loads the programs.
    pub(super) fn load(config: &CaptureConfig) -> Result<Self, CaptureError> {
        let began_ns = monotonic_ns();
        let (kernel, facts) = kernel_config(config)?;
        log_progress(began_ns, "kernel types read");
        let attach_method = match config.has_probes().then(|| AttachMethod::of_kernel(facts.uprobe_multi)) {
            Some(Ok(method)) => Some(method),
            Some(Err(error)) => {
                tracing::warn!(%error, "this kernel has no probes in user space: accelerators are not watched");
                None
            }
            None => None,
        };
        let asked = config.ring.and_then(|ring| u32::try_from(ring.0).ok());
        let ring_bytes = asked.unwrap_or_else(|| {
            let waits = if config.off_cpu { WAITS_WALKED_PER_SECOND } else { 0 };
            let calls = if attach_method.is_some() { CALLS_PER_SECOND } else { 0 };
            let cpus = online_cpus().map_or(1, |cpus| cpus.len());
            ring_bytes(cpus, config.frequency.0.saturating_add(waits), calls)
        });
        let sizes = MapSizes { ring_bytes, off_cpu: config.off_cpu, probes: attach_method.is_some() };
        let loaded = LoadedPrograms::new(kernel, sizes).map_err(CaptureError::load)?;
        log_progress(began_ns, "programs loaded");
        Ok(Self { loaded, attach_method })
    }
}

/// The programs' configuration for this kernel, and other facts from its types.
fn kernel_config(config: &CaptureConfig) -> Result<(Config, Facts), CaptureError> {
    let mut kernel =
        Config { frames_max: FRAMES_MAX, address_bits: arch::address_bits(), ..Config::default() };
    let frames = config.frames();
    let flags = [
        (config.targets.contains(&Targets::All), config_flag::ALL),
        (frames.kernel, config_flag::KERNEL),
        (frames.native, config_flag::NATIVE),
        (frames.operators_alone, config_flag::OPERATORS),
        (frames.python, config_flag::PYTHON),
        (frames.modules, config_flag::OBJECTS),
    ];
    kernel.flags = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag).sum();
    kernel.stacks_per_second = if config.has_probes() { config.launch_stacks.per_second() } else { 0 };
    let facts = kernel_offsets::fill(&mut kernel)?;
    set_namespace(&mut kernel);
    if let Some(cgroup) = targets::selected_cgroup(&config.targets)? {
        kernel.flags |= config_flag::CGROUP;
        kernel.cgroup_id = cgroup.id;
        kernel.cgroup_level = cgroup.level;
    }
    Ok((kernel, facts))
}

/// Sets the pid namespace of ids in the programs' configuration.
pub(super) fn set_namespace(kernel: &mut Config) {
    kernel.profiler_pidns = pid_namespace() as u32;
    if in_first_pid_namespace() {
        kernel.flags |= config_flag::INIT_PIDNS;
    }
}

/// Whether ids of processes and threads are those that the kernel programs see by default.
pub(super) fn in_first_pid_namespace() -> bool {
    pid_namespace() == INIT_PIDNS
}

fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).unwrap_or(INIT_PIDNS)
}

/// Size of the ring buffer: what all CPUs may write in a second at 1 KiB a sample (60 mixed frames), plus `calls` a
/// second in all, so that a reader delayed by a second loses nothing. Between 1 and 64 MiB; a power of two, as the
/// kernel requires: the smaller of the two around the wanted size if it holds three quarters of a second. Its pages are
/// locked from the start.
fn ring_bytes(cpus: usize, frequency_hz: u32, calls: u32) -> u32 {
    const SAMPLE_BYTES: u64 = 1 << 10;
    let wanted = (cpus as u64 * u64::from(frequency_hz) + u64::from(calls)) * SAMPLE_BYTES;
    (wanted * 3 / 4).next_power_of_two().clamp(1 << 20, 64 << 20) as u32
}

#[cfg(test)]
mod tests {
    use super::ring_bytes;

    #[test]
    fn the_ring_holds_three_quarters_of_a_second() {
        for (cpus, frequency_hz, calls, expect) in [
            (2, 99, 0, 1 << 20),
            (2, 99, 4000, 4 << 20),
            (8, 999, 0, 8 << 20),
            (64, 99, 4000, 8 << 20),
            (512, 999, 4000, 64 << 20),
        ] {
            let bytes = ring_bytes(cpus, frequency_hz, calls);
            assert_eq!(bytes, expect, "{cpus} CPUs at {frequency_hz} Hz, {calls} calls a second");
        }
    }
}
