//! Kernel offsets: where the running kernel keeps the few fields that the programs read.
//!
//! Owns: the look-up in the kernel's BTF. Because: the programs are compiled without relocations (rustc emits none),
//! so offsets that differ between kernels are passed to them before they are loaded. Does not: load anything.

use std::ffi::OsStr;

use deepctx_common::config::Config;
use deepctx_common::thread::ThreadFields;
use libbpf_rs::btf::types::{Composite, Enum, MemberAttr};
use libbpf_rs::btf::{Btf, BtfType, HasSize as _, TypeId};

use super::arch::HERE;

/// Why the offsets are unavailable.
#[derive(Debug, thiserror::Error)]
pub enum OffsetsError {
    /// The kernel has no BTF.
    #[error("the kernel offers no type information (/sys/kernel/btf/vmlinux)")]
    NoBtf(#[source] libbpf_rs::Error),
    /// A structure or field is missing.
    #[error("the kernel's type information has no `{0}`")]
    NoField(&'static str),
}

/// Deepest nesting of anonymous structures and of arrays that is followed.
const DEPTH_MAX: usize = 8;

/// Other facts from the kernel's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It can attach one program to many places at once (`uprobe_multi`).
    pub uprobe_multi: bool,
}

/// Sets every kernel offset of `config` from the running kernel's BTF.
pub(crate) fn fill(config: &mut Config) -> Result<Facts, OffsetsError> {
    let btf = Btf::from_vmlinux().map_err(OffsetsError::NoBtf)?;
    fill_from(&btf, config)?;
    Ok(Facts { uprobe_multi: has_uprobe_multi(&btf) })
}

/// Facts from the running kernel's types, without its offsets; `None` if it has no types.
pub(crate) fn facts() -> Option<Facts> {
    let btf = Btf::from_vmlinux().ok()?;
    Some(Facts { uprobe_multi: has_uprobe_multi(&btf) })
}

/// Sets every offset, and returns the fields for the iterator over threads. A missing field stays 0.
pub(crate) fn fill_with_threads(config: &mut Config) -> Result<ThreadFields, OffsetsError> {
    let btf = Btf::from_vmlinux().map_err(OffsetsError::NoBtf)?;
    fill_from(&btf, config)?;
    let offset = |path| find(&btf, path).unwrap_or(0);
    Ok(ThreadFields {
        on_cpu: offset("task_struct.on_cpu"),
        exit_state: offset("task_struct.exit_state"),
        voluntary_switches: offset("task_struct.nvcsw"),
        involuntary_switches: offset("task_struct.nivcsw"),
        arrived: offset("task_struct.sched_info.last_arrival"),
        ran: offset("task_struct.se.sum_exec_runtime"),
        ran_before: offset("task_struct.se.prev_sum_exec_runtime"),
        reserved: 0,
    })
}

fn fill_from(btf: &Btf<'_>, config: &mut Config) -> Result<(), OffsetsError> {
    let offset = |path: &'static str| find(btf, path).ok_or(OffsetsError::NoField(path));
    config.task_thread_pointer = offset(HERE.thread_pointer)?;
    // Renamed in 5.14, when it also became an u32; on little-endian machines its low half is at the same offset.
    config.task_state = offset("task_struct.__state").or_else(|_| offset("task_struct.state"))?;
    config.task_mm = offset("task_struct.mm")?;
    config.task_tgid = offset("task_struct.tgid")?;
    config.task_pid = offset("task_struct.pid")?;
    config.task_comm = offset("task_struct.comm")?;
    config.task_group_leader = offset("task_struct.group_leader")?;
    config.task_signal = offset("task_struct.signal")?;
    config.signal_live = offset("signal_struct.live")?;
    config.task_thread_pid = offset("task_struct.thread_pid")?;
    config.pid_level = offset("pid.level")?;
    config.pid_numbers = offset("pid.numbers")?;
    config.upid_nr = offset("upid.nr")?;
    config.upid_ns = offset("upid.ns")?;
    config.pidns_inum = offset("pid_namespace.ns.inum")?;
    config.upid_size = btf
        .type_by_name::<BtfType<'_>>("upid")
        .and_then(|t| Composite::try_from(t).ok())
        .map(|c| c.size() as u32)
        .ok_or(OffsetsError::NoField("upid"))?;
    fill_displaced(btf, config);
    Ok(())
}

/// Offsets of what the kernel's probes displaced. If the types lack them, stacks below functions with a return probe
/// end there, with a reason.
fn fill_displaced(btf: &Btf<'_>, config: &mut Config) {
    let found = (|| {
        Some([
            find(btf, "task_struct.utask")?,
            find(btf, "uprobe_task.vaddr")?,
            find(btf, "uprobe_task.xol_vaddr")?,
            find(btf, "uprobe_task.return_instances")?,
            find(btf, "return_instance.stack")?,
            find(btf, "return_instance.orig_ret_vaddr")?,
            find(btf, "return_instance.next")?,
            find(btf, "mm_struct.uprobes_state.xol_area")?,
            find(btf, "xol_area.vaddr")?,
        ])
    })();
    let Some([utask, vaddr, xol_vaddr, returns, stack, address, next, area, place]) = found else { return };
    config.task_utask = utask;
    config.utask_vaddr = vaddr;
    config.utask_xol_vaddr = xol_vaddr;
    config.utask_returns = returns;
    config.return_stack = stack;
    config.return_address = address;
    config.return_next = next;
    config.mm_xol_area = area;
    config.xol_address = place;
}

fn has_uprobe_multi(btf: &Btf<'_>) -> bool {
    let kinds = btf.type_by_name::<BtfType<'_>>("bpf_attach_type").and_then(|t| Enum::try_from(t).ok());
    kinds
        .is_some_and(|kinds| kinds.iter().any(|kind| kind.name == Some(OsStr::new("BPF_TRACE_UPROBE_MULTI"))))
}

/// Offset in bytes of `structure.field.field…`.
fn find(btf: &Btf<'_>, path: &str) -> Option<u32> {
    let mut parts = path.split('.');
    let name = parts.next()?;
    let mut ty = composite(btf, name)?;
    let mut bits = 0;
    for part in parts {
        let (offset, id) = member(btf, &ty, OsStr::new(part), 0)?;
        bits += offset;
        ty = match btf.type_by_id::<BtfType<'_>>(id).map(|t| t.skip_mods_and_typedefs()) {
            Some(next) => match Composite::try_from(next) {
                Ok(composite) => composite,
                // A scalar, pointer or array: nothing may follow it in the path.
                Err(_) => return (path.ends_with(part)).then_some(bits / 8),
            },
            None => return None,
        };
    }
    Some(bits / 8)
}

/// The complete structure of that name: forward declarations have no members.
fn composite<'b>(btf: &'b Btf<'_>, name: &str) -> Option<Composite<'b>> {
    btf.type_by_name::<BtfType<'b>>(name).and_then(|t| Composite::try_from(t).ok())
}

/// Offset in bits and type of a member, also within anonymous structures and unions.
fn member(btf: &Btf<'_>, ty: &Composite<'_>, name: &OsStr, depth: usize) -> Option<(u32, TypeId)> {
    if depth > DEPTH_MAX {
        return None;
    }
    for m in ty.iter() {
        let offset = match m.attr {
            MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. } => offset,
        };
        if m.name == Some(name) {
            return Some((offset, m.ty));
        }
        if m.name.is_none_or(OsStr::is_empty)
            && let Some(inner) = btf.type_by_id::<BtfType<'_>>(m.ty).map(|t| t.skip_mods_and_typedefs())
            && let Ok(inner) = Composite::try_from(inner)
            && let Some((inside, id)) = member(btf, &inner, name, depth + 1)
        {
            return Some((offset + inside, id));
        }
    }
    None
}
