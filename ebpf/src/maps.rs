//! All maps, with their sizes and the reasons for them.

use aya_ebpf::btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;
use deepctx_common::call::{IN_FLIGHT_MAX, LAUNCHERS_MAX, SITES_MAX, Site};
use deepctx_common::config::Config;
use deepctx_common::end::Counter;
use deepctx_common::process::{BLOCKED_MAX, Blocked, Process, Target};
use deepctx_common::python::{CALLED_MAX, CalledFunction, LAYOUTS_MAX, PythonLayout};
use deepctx_common::thread::ThreadFields;
use deepctx_common::unwind::{
    BLOCKS_PER_SHARD, EXECUTABLES_MAX, Executable, MAPPINGS_MAX, Mapping, PAGES_MAX, PROCESSES_MAX, Page,
    RULES_MAX, RowBlock, Rule, SHARDS_MAX,
};

use crate::programs::{Bucket, InFlight, Limiter};
use crate::walk::{ReadAhead, RuleCache, Scratch};

/// Facts about this kernel and session, set by the loader; constant once the programs are loaded.
///
/// In a section of its own, so that it starts at offset 0 of its map even if other read-only data is added.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.config")]
pub static CONFIG: Config = Config {
    flags: 0,
    task_thread_pointer: 0,
    task_mm: 0,
    task_tgid: 0,
    task_pid: 0,
    task_comm: 0,
    task_group_leader: 0,
    task_signal: 0,
    signal_live: 0,
    task_thread_pid: 0,
    pid_level: 0,
    pid_numbers: 0,
    upid_size: 0,
    upid_nr: 0,
    upid_ns: 0,
    pidns_inum: 0,
    profiler_pidns: 0,
    cgroup_level: 0,
    frames_max: 0,
    task_state: 0,
    address_bits: 0,
    stacks_per_second: 0,
    task_utask: 0,
    utask_vaddr: 0,
    utask_xol_vaddr: 0,
    utask_returns: 0,
    return_stack: 0,
    return_address: 0,
    return_next: 0,
    mm_xol_area: 0,
    xol_address: 0,
    reserved: 0,
    cgroup_id: 0,
};

/// The configuration, read so that the compiler cannot fold in the zeros above.
#[inline(always)]
pub fn config() -> &'static Config {
    // SAFETY: CONFIG is an initialised static; `black_box` only keeps its declared value from being folded in.
    unsafe { &*core::hint::black_box(&raw const CONFIG) }
}

/// Offsets of the fields that only the task iterator reads; in a section of its own for the same reason.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.threads")]
pub static THREAD_FIELDS: ThreadFields = ThreadFields {
    on_cpu: 0,
    exit_state: 0,
    voluntary_switches: 0,
    involuntary_switches: 0,
    arrived: 0,
    ran: 0,
    ran_before: 0,
    reserved: 0,
};

/// The fields, read like [`config`].
#[inline(always)]
pub fn thread_fields() -> &'static ThreadFields {
    // SAFETY: as for CONFIG.
    unsafe { &*core::hint::black_box(&raw const THREAD_FIELDS) }
}

/// Records for user space. The loader sets the real size from the number of CPUs and the frequency.
#[btf_map]
pub static EVENTS: RingBuf<(), { 4 << 20 }> = RingBuf::new();

/// [`Counter`] → count, per CPU.
#[btf_map]
pub static COUNTERS: PerCpuArray<u64, { Counter::ALL.len() }> = PerCpuArray::new();

/// Number of records attempted on this CPU: the sequence number of the last one.
#[btf_map]
pub static SEQUENCE: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Processes to sample; as many as can be walked.
#[btf_map]
pub static TARGETS: HashMap<u32, Target, { PROCESSES_MAX as usize }> = HashMap::new();

/// Processes that can be walked.
#[btf_map]
pub static PROCESSES: HashMap<u32, Process, { PROCESSES_MAX as usize }> = HashMap::new();

/// Functions for whose calls the object is reported, by process.
#[btf_map]
pub static CALLED: HashMap<u32, CalledFunction, { CALLED_MAX as usize }> = HashMap::new();

/// `BPF_F_MMAPABLE`: user space writes elements directly to memory, without a system call for each.
const MMAPABLE: usize = 1 << 10;

/// Executable mappings: one sorted run per process.
#[btf_map]
pub static MAPPINGS: Array<Mapping, { MAPPINGS_MAX as usize }, MMAPABLE> = Array::new();

/// Executables by id.
#[btf_map]
pub static EXECUTABLES: Array<Executable, { EXECUTABLES_MAX as usize }, MMAPABLE> = Array::new();

/// Pages of text: one run per executable.
#[btf_map]
pub static PAGES: Array<Page, { PAGES_MAX as usize }, MMAPABLE> = Array::new();

/// Unwind rules: one run per executable.
#[btf_map]
pub static RULES: Array<Rule, { RULES_MAX as usize }, MMAPABLE> = Array::new();

/// Unwind rows. All shards have the same size: the kernel inlines a lookup in an inner map of fixed size; one of
/// varying size costs 2.2 to 2.5 times as much.
#[btf_map]
pub static SHARDS: ArrayOfMaps<
    Array<RowBlock, { BLOCKS_PER_SHARD as usize }, MMAPABLE>,
    { SHARDS_MAX as usize },
> = ArrayOfMaps::new();

/// Interpreter layouts by index.
#[btf_map]
pub static PYTHON_LAYOUTS: Array<PythonLayout, { LAYOUTS_MAX as usize }> = Array::new();

/// Scratch slots per CPU: a timer sample may interrupt the walk of another program, and the probe of another task may
/// preempt that walk; deeper nesting is counted as a drop.
pub const SCRATCH_SLOTS: u32 = 4;

/// Threads that are off their CPUs, by id in the initial pid namespace.
#[btf_map]
pub static BLOCKED: HashMap<u32, Blocked, { BLOCKED_MAX as usize }> = HashMap::new();

/// Token bucket of off-CPU stack walks, per CPU.
#[btf_map]
pub static WALKS: PerCpuArray<Bucket, 1> = PerCpuArray::new();

/// When user space was last woken for code unknown to it, `CLOCK_MONOTONIC` nanoseconds.
#[btf_map]
pub static NEWS: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Scratch memory for walks.
#[btf_map]
pub static SCRATCH: PerCpuArray<Scratch, { SCRATCH_SLOTS as usize }> = PerCpuArray::new();

/// Recently found rules, one cache per scratch slot: a program that interrupts a walk uses another slot, so an entry
/// never has two writers.
#[btf_map]
pub static RULE_CACHE: PerCpuArray<RuleCache, { SCRATCH_SLOTS as usize }> = PerCpuArray::new();

/// User memory that was read ahead, per scratch slot for the same reason.
#[btf_map]
pub static AHEAD: PerCpuArray<ReadAhead, { SCRATCH_SLOTS as usize }> = PerCpuArray::new();

/// When user space was last woken because the ring fills, `CLOCK_MONOTONIC` nanoseconds.
#[btf_map]
pub static WOKEN: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Probes, by cookie.
#[btf_map]
pub static SITES: Array<Site, { SITES_MAX as usize }> = Array::new();

/// Calls by site. Not per CPU: that would take 128 KiB per CPU, and a site is rarely called from many CPUs at once.
#[btf_map]
pub static SITE_COUNTS: Array<u64, { SITES_MAX as usize }> = Array::new();

/// Calls whose return is pending: thread (id in the initial pid namespace) << 32 | site.
#[btf_map]
pub static IN_FLIGHT: HashMap<u64, InFlight, { IN_FLIGHT_MAX as usize }> = HashMap::new();

/// The number of the latest launch of each thread (id in the initial pid namespace) that has no correlation id yet.
#[btf_map]
pub static LAUNCHED: HashMap<u32, u64, { LAUNCHERS_MAX as usize }> = HashMap::new();

/// Processes in which our collector is active: it reports the records that it reads itself. As many as can be targets.
#[btf_map]
pub static COLLECTED: HashMap<u32, u32, { PROCESSES_MAX as usize }> = HashMap::new();

/// Limiters of call stacks: 0 is the common one, 1 that of sites with a limit of their own.
#[btf_map]
pub static LIMITER: Array<Limiter, 2> = Array::new();
