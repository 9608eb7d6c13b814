//! Filter: whether a task is a target.

use aya_ebpf::helpers::generated::bpf_get_current_ancestor_cgroup_id;
use deepctx_common::config::{Config, config_flag};

use crate::maps::TARGETS;

/// True if the running task, of process `pid`, is to be sampled.
#[inline(always)]
pub fn is_target(config: &Config, pid: u32) -> bool {
    if config.flags & config_flag::ALL != 0 {
        return true;
    }
    if config.flags & config_flag::CGROUP != 0 {
        // SAFETY: helper with a scalar argument.
        let id = unsafe { bpf_get_current_ancestor_cgroup_id(config.cgroup_level as i32) };
        if id == config.cgroup_id {
            return true;
        }
    }
    // SAFETY: only the presence of the entry is used.
    unsafe { TARGETS.get(&pid) }.is_some()
}
