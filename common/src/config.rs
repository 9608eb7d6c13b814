//! Read-only data that the loader sets before it loads the object; names of the maps.

use crate::Plain;

/// Facts about this kernel and this session that the programs need. The only value in section [`CONFIG_SECTION`].
///
/// Kernel offsets are bytes within the named structure, taken from the running kernel's BTF.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Bits of [`config_flag`].
    pub flags: u32,
    /// `task_struct.thread` + `thread_struct.fsbase` (x86-64) or `thread_struct.uw.tp_value` (aarch64).
    pub task_thread_pointer: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.pid`.
    pub task_pid: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
    /// `task_struct.group_leader`.
    pub task_group_leader: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `signal_struct.live`.
    pub signal_live: u32,
    /// `task_struct.thread_pid`.
    pub task_thread_pid: u32,
    /// `pid.level`.
    pub pid_level: u32,
    /// `pid.numbers`.
    pub pid_numbers: u32,
    /// `sizeof(struct upid)`.
    pub upid_size: u32,
    /// `upid.nr`.
    pub upid_nr: u32,
    /// `upid.ns`.
    pub upid_ns: u32,
    /// `pid_namespace.ns.inum`.
    pub pidns_inum: u32,
    /// Inode number of the profiler's pid namespace.
    pub profiler_pidns: u32,
    /// Level of the target cgroup in its hierarchy, with [`config_flag::CGROUP`].
    pub cgroup_level: u32,
    /// Limit on native frames per walk.
    pub frames_max: u32,
    /// `task_struct.__state`.
    pub task_state: u32,
    /// Number of bits of a user-space address. On aarch64 a return address may carry a signature above them.
    pub address_bits: u32,
    /// Limit on stacks of calls per second ([`crate::call`]), over all CPUs; 0 for no stacks,
    /// [`crate::call::ALL_STACKS`] for all.
    pub stacks_per_second: u32,
    /// `task_struct.utask`; 0 if BTF does not describe the state that uprobes keep per task.
    pub task_utask: u32,
    /// `uprobe_task.vaddr`.
    pub utask_vaddr: u32,
    /// `uprobe_task.xol_vaddr`.
    pub utask_xol_vaddr: u32,
    /// `uprobe_task.return_instances`.
    pub utask_returns: u32,
    /// `return_instance.stack`.
    pub return_stack: u32,
    /// `return_instance.orig_ret_vaddr`.
    pub return_address: u32,
    /// `return_instance.next`.
    pub return_next: u32,
    /// `mm_struct.uprobes_state.xol_area`.
    pub mm_xol_area: u32,
    /// `xol_area.vaddr`: address of the page that uprobes put in place of return addresses.
    pub xol_address: u32,
    /// Padding.
    pub reserved: u32,
    /// Id of the target cgroup (inode number of its cgroup v2 directory).
    pub cgroup_id: u64,
}

/// Bits of [`Config::flags`].
pub mod config_flag {
    /// Sample every process, not only those in `TARGETS`.
    pub const ALL: u32 = 1;
    /// Sample the processes of one cgroup and of its descendants.
    pub const CGROUP: u32 = 2;
    /// Record kernel stacks.
    pub const KERNEL: u32 = 4;
    /// Walk native user frames.
    pub const NATIVE: u32 = 8;
    /// Walk Python frames.
    pub const PYTHON: u32 = 16;
    /// The profiler runs in the initial pid namespace: ids need no translation.
    pub const INIT_PIDNS: u32 = 32;
    /// Report the object on which each function in `CALLED` is called.
    pub const OBJECTS: u32 = 64;
    /// Walk only the native user frames that operators are recognized by. Without [`NATIVE`] the walk goes from the
    /// leaf to the first Python evaluation frame; the interpreter's chain gives all Python frames from there on. Such
    /// records carry [`crate::record::sample_flag::OPERATORS`].
    pub const OPERATORS: u32 = 128;
}

/// Section (and, to the loader, read-only map) of the [`Config`].
pub const CONFIG_SECTION: &str = ".rodata.config";

/// Names of the maps in the object.
pub mod map {
    /// Ring buffer of records.
    pub const EVENTS: &str = "EVENTS";
    /// Per-CPU array: [`crate::end::Counter`] → u64.
    pub const COUNTERS: &str = "COUNTERS";
    /// Hash: pid → [`crate::process::Target`].
    pub const TARGETS: &str = "TARGETS";
    /// Hash: pid → [`crate::process::Process`].
    pub const PROCESSES: &str = "PROCESSES";
    /// Array: [`crate::unwind::Mapping`].
    pub const MAPPINGS: &str = "MAPPINGS";
    /// Array: [`crate::unwind::Executable`].
    pub const EXECUTABLES: &str = "EXECUTABLES";
    /// Array: [`crate::unwind::Page`].
    pub const PAGES: &str = "PAGES";
    /// Array: [`crate::unwind::Rule`].
    pub const RULES: &str = "RULES";
    /// Array of maps: shard → array of [`crate::unwind::RowBlock`].
    pub const SHARDS: &str = "SHARDS";
    /// Array: [`crate::python::PythonLayout`].
    pub const PYTHON_LAYOUTS: &str = "PYTHON_LAYOUTS";
    /// Hash: pid → [`crate::python::CalledFunction`].
    pub const CALLED: &str = "CALLED";
    /// Per-CPU array: scratch memory of the programs.
    pub const SCRATCH: &str = "SCRATCH";
    /// Array: cookie of a probe → [`crate::call::Site`].
    pub const SITES: &str = "SITES";
    /// Array: site → number of calls of targets (u64), including calls whose records were lost.
    pub const SITE_COUNTS: &str = "SITE_COUNTS";
    /// Hash: thread → its call whose return is pending.
    pub const IN_FLIGHT: &str = "IN_FLIGHT";
    /// Hash: thread → its most recent launch.
    pub const LAUNCHED: &str = "LAUNCHED";
    /// Hash: processes in which our collector is active.
    pub const COLLECTED: &str = "COLLECTED";
    /// Hash: thread → [`crate::process::Blocked`].
    pub const BLOCKED: &str = "BLOCKED";
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Config {}
