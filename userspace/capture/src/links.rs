//! Links: probes in a file, which the kernel keeps as long as their link is open.
//!
//! Owns: the two methods of attaching them. Because: one call for a whole file takes milliseconds where one call per
//! place takes a second, but only kernels from 6.6 on have it. Does not: know what is at a place.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::libbpf_sys::{
    BPF_F_UPROBE_MULTI_RETURN, BPF_PERF_EVENT, BPF_TRACE_UPROBE_MULTI, bpf_link_create, bpf_link_create_opts,
};

/// The place of a probe, and the number passed to its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSite {
    /// File offset.
    pub offset: u64,
    /// Number passed to the program.
    pub cookie: u64,
    /// File offset of a counter that the kernel increments while the probe is attached, or 0.
    pub counter: u64,
}

/// Which side of a call is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeSide {
    /// When the instruction is reached.
    Instruction,
    /// When the function that begins there returns.
    Return,
}

/// How this kernel attaches probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachMethod {
    /// All places of a file at once (`uprobe_multi`, Linux 6.6).
    Together,
    /// One after another, through a perf event.
    Single {
        /// Its type.
        event: u32,
        /// Bit of its configuration that selects the return.
        return_bit: u32,
    },
}

impl AttachMethod {
    /// The better method of this kernel. `together`: whether it has `uprobe_multi`.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn of_kernel(together: bool) -> io::Result<Self> {
        if together {
            return Ok(Self::Together);
        }
        const FOLDER: &str = "/sys/bus/event_source/devices/uprobe";
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let event = fs::read_to_string(format!("{FOLDER}/type"))?.trim().parse().map_err(|_| invalid())?;
        // "config:0"
        let format = fs::read_to_string(format!("{FOLDER}/format/retprobe"))?;
        let bit = format.trim().strip_prefix("config:").and_then(|bit| bit.parse::<u32>().ok());
        let return_bit = bit.filter(|bit| *bit < u64::BITS).ok_or_else(invalid)?;
        Ok(Self::Single { event, return_bit })
    }
}

/// Probes that were attached, and those that were refused.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Open links; closing them detaches the probes.
    pub links: Vec<OwnedFd>,
    /// Places that the kernel refused, and why.
    pub refused: Vec<(ProbeSite, io::Error)>,
}

/// Attaches `program` to places of the file at `path`, in every process that maps it, now or later.
pub(crate) fn attach(
    method: AttachMethod,
    program: BorrowedFd<'_>,
    path: &Path,
    points: &[ProbeSite],
    side: ProbeSide,
) -> Links {
    let mut links = Links::default();
    if points.is_empty() {
        return links;
    }
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        links.refused = points.iter().map(|p| (*p, io::ErrorKind::InvalidInput.into())).collect();
        return links;
    };
    match method {
        AttachMethod::Together => attach_halves(program, &c_path, points, side, &mut links),
        AttachMethod::Single { event, return_bit } => {
            for point in points {
                match attach_one(program, &c_path, point, side, event, return_bit) {
                    Ok(link) => links.links.push(link),
                    Err(error) => links.refused.push((*point, error)),
                }
            }
        }
    }
    links
}

/// Links that [`close`] has closed so far.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// A number that changes as long as closing links goes on.
pub(crate) fn closed() -> u64 {
    CLOSED.load(Ordering::Relaxed)
}

/// Detaches probes in parallel: for each link the kernel waits some forty milliseconds for threads that are at one of
/// its probes, and the probes of the next link cost meanwhile.
pub(crate) fn close(mut links: Vec<OwnedFd>) {
    /// Most that are closed at once: one of each file. On a busy machine each round takes longer.
    const TOGETHER: usize = 256;
    while !links.is_empty() {
        let some = links.split_off(links.len().saturating_sub(TOGETHER));
        std::thread::scope(|scope| {
            for link in some {
                let close = move || {
                    drop(link);
                    CLOSED.fetch_add(1, Ordering::Relaxed);
                };
                let started = std::thread::Builder::new().name("close".into()).spawn_scoped(scope, close);
                // If no thread can be started, the link is closed here, with the dropped closure.
                if started.is_err() {
                    CLOSED.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

/// Attaches all; if the kernel refuses, each half, until the refused places are isolated.
fn attach_halves(
    program: BorrowedFd<'_>,
    path: &CString,
    points: &[ProbeSite],
    side: ProbeSide,
    links: &mut Links,
) {
    match (attach_together(program, path, points, side), points) {
        (Ok(link), _) => links.links.push(link),
        (Err(error), [point]) => links.refused.push((*point, error)),
        (Err(_), points) => {
            let (left, right) = points.split_at(points.len() / 2);
            attach_halves(program, path, left, side, links);
            attach_halves(program, path, right, side, links);
        }
    }
}

fn attach_together(
    program: BorrowedFd<'_>,
    path: &CString,
    points: &[ProbeSite],
    side: ProbeSide,
) -> io::Result<OwnedFd> {
    let offsets: Vec<libc::c_ulong> = points.iter().map(|point| point.offset).collect();
    let counters: Vec<libc::c_ulong> = points.iter().map(|point| point.counter).collect();
    let cookies: Vec<u64> = points.iter().map(|point| point.cookie).collect();
    let mut options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, ..Default::default() };
    options.__bindgen_anon_1.uprobe_multi.flags =
        if side == ProbeSide::Return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    options.__bindgen_anon_1.uprobe_multi.cnt =
        u32::try_from(points.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    options.__bindgen_anon_1.uprobe_multi.path = path.as_ptr();
    options.__bindgen_anon_1.uprobe_multi.offsets = offsets.as_ptr();
    options.__bindgen_anon_1.uprobe_multi.cookies = cookies.as_ptr();
    if counters.iter().any(|counter| *counter != 0) {
        options.__bindgen_anon_1.uprobe_multi.ref_ctr_offsets = counters.as_ptr();
    }
    create(program.as_raw_fd(), 0, BPF_TRACE_UPROBE_MULTI, &options)
}

/// A perf event on one place, and a link of the program to it; closing the event closes the link.
fn attach_one(
    program: BorrowedFd<'_>,
    path: &CString,
    point: &ProbeSite,
    side: ProbeSide,
    event: u32,
    return_bit: u32,
) -> io::Result<OwnedFd> {
    let event = super::perf_event::open_uprobe(
        event,
        u64::from(side == ProbeSide::Return) << return_bit | point.counter << COUNTER_SHIFT,
        path,
        point.offset,
    )?;
    on_event(program, event.as_fd(), point.cookie)
}

/// A link of a program to a perf event, which it keeps open.
pub(super) fn on_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let mut options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, ..Default::default() };
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    create(program.as_raw_fd(), event.as_raw_fd(), BPF_PERF_EVENT, &options)
}

/// Shift of the counter's offset in the configuration of a uprobe event (`PERF_UPROBE_REF_CTR_OFFSET_SHIFT`,
/// kernel/events/core.c).
const COUNTER_SHIFT: u32 = 32;

fn create(program: RawFd, target: RawFd, kind: u32, options: &bpf_link_create_opts) -> io::Result<OwnedFd> {
    // SAFETY: the options are borrowed for the call, and what they point to outlives it in the callers.
    let link = unsafe { bpf_link_create(program, target, kind, options) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}
