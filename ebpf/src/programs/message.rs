//! Message: messages of a collector inside a process, and activity records of another tool's collection while that tool
//! reads them.
//!
//! Owns: reading both out of the process. Because: a probe on a function with a pointer needs no socket and no file,
//! and works across containers. Does not: interpret activities.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_probe_read_user, bpf_probe_read_user_str};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use deepctx_common::activity::{Activity, BATCH_MAX, BORROWED_BYTES_MAX, BORROWED_NAME_MAX, probe, state};
use deepctx_common::call::{Correlation, MESSAGE_BYTES_MAX, Message, Site, message_flag, site_flag};
use deepctx_common::config::Config;
use deepctx_common::cupti::{self, of_kernel};
use deepctx_common::end::Counter;
use deepctx_common::record::kind;

use super::call::{fetch_all, registers, site_of};
use crate::maps::{COLLECTED, LAUNCHED, SITE_COUNTS, config};
use crate::task::Ids;
use crate::walk::{self, Scratch, WORDS_MAX};
use crate::{arch, emit, filter, task};

/// Words of a [`Message`] without the bytes that follow.
const HEAD_WORDS: usize = size_of::<Message>() / 8;
const _: () = assert!(HEAD_WORDS + MESSAGE_BYTES_MAX.div_ceil(8) <= WORDS_MAX);
const _: () = assert!(BORROWED_BYTES_MAX + BORROWED_NAME_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(of_kernel::NAME + 8 <= BORROWED_BYTES_MAX && BORROWED_BYTES_MAX.is_power_of_two());

/// A collector sends a message, or a reader of activity records asks for the next one.
#[uprobe]
pub fn message(ctx: ProbeContext) -> u32 {
    let config = config();
    let Some(ids) = task::current_ids(config) else { return 0 };
    if !filter::is_target(config, ids.pid) {
        return 0;
    }
    let (index, Some(site)) = site_of(ctx.as_ptr()) else { return 0 };
    if let Some(count) = SITE_COUNTS.get_ptr_mut(index) {
        emit::add(count, 1);
    }
    // SAFETY: the context of a probe is readable, and consists of the registers.
    let values = arch::arguments(unsafe { &*ctx.regs.cast() });
    if site.flags & site_flag::BORROW != 0 {
        // SAFETY: only the presence of the entry is used.
        if unsafe { COLLECTED.get(&ids.pid) }.is_some() {
            return 0;
        }
    } else if site.event == probe::CORRELATION {
        correlation(ids, values);
        return 0;
    } else if site.event == probe::STATE {
        note_state(ids.pid, values[0]);
    }
    let Some(scratch) = walk::claim() else {
        emit::count(Counter::CallsSeen);
        emit::header(kind::MESSAGE, 0);
        emit::count(Counter::DropScratchBusy);
        return 0;
    };
    // SAFETY: the slot was claimed for this run; nothing else on this CPU touches it until it is released.
    let slot = unsafe { &mut *scratch };
    if site.flags & site_flag::BORROW != 0 {
        borrowed(&ctx, config, ids, site, slot);
    } else {
        said(ids, site.event, values, slot);
    }
    walk::release(scratch);
    0
}

/// Tracks whether the collector of this process is active.
#[inline(always)]
fn note_state(pid: u32, what: u64) {
    if what == state::COLLECTING {
        // If the map is full, records are read twice, and user space distinguishes them by their reporter.
        let _ = COLLECTED.insert(&pid, 1, 0);
    } else if what == state::IDLE {
        let _ = COLLECTED.remove(&pid);
    }
}

/// The last launch of this thread receives a correlation id.
#[inline(always)]
fn correlation(ids: Ids, [id, api, _]: [u64; 3]) {
    // SAFETY: helper without arguments.
    let thread = unsafe { bpf_get_current_pid_tgid() } as u32;
    // SAFETY: the value is copied immediately; only this thread's own calls write it.
    let launched = (unsafe { LAUNCHED.get(&thread) }).copied();
    let _ = LAUNCHED.remove(&thread);
    emit::count(Counter::CallsSeen);
    let size = size_of::<Correlation>() as u32;
    let record = Correlation {
        header: emit::header(kind::CORRELATION, size),
        pid: ids.pid,
        tid: ids.tid,
        call: launched.unwrap_or(0),
        correlation: id as u32,
        api: (api >> 32 << 16) as u32 | (api as u32 & 0xffff),
    };
    // SAFETY: a whole record on the stack.
    unsafe {
        emit::record(&raw const record, size, emit::as_it_fills(record.header.time_ns, emit::OF_CALLS))
    };
}

/// All other messages of a collector.
#[inline(always)]
fn said(ids: Ids, what: u16, values: [u64; 3], slot: &mut Scratch) {
    // Number of elements, their size in bytes, and the limit on their number.
    let (address, count, each, most) = match what {
        probe::ACTIVITIES => (values[0], values[1], size_of::<Activity>() as u64, BATCH_MAX as u64),
        probe::NAME | probe::SAMPLES | probe::DEVICE => (values[1], values[2], 1, MESSAGE_BYTES_MAX as u64),
        _ => (0, 0, 0, 0),
    };
    let mut flags = 0;
    let mut bytes = count * each;
    if count > most {
        flags |= message_flag::CUT;
        bytes = most * each;
    }
    let bytes = core::hint::black_box(bytes as u32);
    if bytes > MESSAGE_BYTES_MAX as u32 {
        return;
    }
    let words = (&raw mut slot.words).cast::<u64>();
    // SAFETY: within `words` (asserted above); the helper checks the source and never faults.
    unsafe {
        // No bytes of an earlier message remain in the padding.
        words.add(HEAD_WORDS + (bytes / 8) as usize).write_volatile(0);
        if bytes > 0 && bpf_probe_read_user(words.add(HEAD_WORDS).cast(), bytes, address as *const _) != 0 {
            flags |= message_flag::UNREAD;
        }
    }
    send(ids, what, flags, bytes, values, slot);
}

/// The record before the requested one: complete, and still in its buffer.
#[inline(always)]
fn borrowed(ctx: &ProbeContext, config: &Config, ids: Ids, site: &Site, slot: &mut Scratch) {
    /// Number of arguments of such a site.
    const ALL: u8 = 3;
    if registers(ctx, config, slot).is_err() || site.arguments != ALL || fetch_all(site, slot) != 0 {
        return;
    }
    let [buffer, bytes, out] = [slot.arguments[0], slot.arguments[1], slot.arguments[2]];
    let record = read_word(out);
    if record == 0 {
        // The first record is requested: there is none before it.
        return;
    }
    let words = (&raw mut slot.words).cast::<u64>();
    let room = buffer.wrapping_add(bytes).wrapping_sub(record);
    let mut flags = 0;
    let mut taken = 0;
    if record >= buffer && room <= bytes {
        taken = if room > BORROWED_BYTES_MAX as u64 { BORROWED_BYTES_MAX as u64 } else { room & !7 };
    }
    let taken = core::hint::black_box(taken as u32);
    if taken > BORROWED_BYTES_MAX as u32 {
        return;
    }
    // SAFETY: within `words` (asserted above); the helper checks the source and never faults.
    let read = taken > 0
        && unsafe { bpf_probe_read_user(words.add(HEAD_WORDS).cast(), taken, record as *const _) } == 0;
    if !read {
        flags |= message_flag::UNREAD;
    }
    let mut name_bytes = 0;
    // SAFETY: as above; words that were not read are left from an earlier record, and not used.
    let (kind, name) = unsafe {
        let at = words.add(HEAD_WORDS);
        (at.read_volatile() as u32, at.add(of_kernel::NAME / 8).read_volatile())
    };
    if read && taken as usize >= of_kernel::NAME + 8 && cupti::kind::KERNELS.contains(&kind) && name != 0 {
        // SAFETY: as above.
        let to = unsafe { words.add(HEAD_WORDS + (taken / 8) as usize) };
        // SAFETY: there is room after the record (asserted above).
        let got = unsafe { bpf_probe_read_user_str(to.cast(), BORROWED_NAME_MAX as u32, name as *const _) };
        if got > 0 {
            name_bytes = got as u32 - 1;
        }
        if got as usize == BORROWED_NAME_MAX {
            flags |= message_flag::CUT;
        }
    }
    let total = core::hint::black_box(taken + name_bytes);
    if total > (BORROWED_BYTES_MAX + BORROWED_NAME_MAX) as u32 {
        return;
    }
    send(ids, probe::BORROWED, flags, total, [u64::from(taken), 0, 0], slot);
}

/// A word of the process; 0 if it cannot be read.
#[inline(always)]
fn read_word(address: u64) -> u64 {
    let mut word = 0u64;
    // SAFETY: destination and size agree; the helper checks the source and never faults.
    let failed = unsafe { bpf_probe_read_user((&raw mut word).cast(), 8, address as *const _) } != 0;
    if failed { 0 } else { word }
}

/// Completes the message whose bytes are in the slot, and emits it.
#[inline(always)]
fn send(ids: Ids, what: u16, flags: u16, bytes: u32, values: [u64; 3], slot: &mut Scratch) {
    emit::count(Counter::CallsSeen);
    let size = size_of::<Message>() as u32 + bytes.next_multiple_of(8);
    let header = emit::header(kind::MESSAGE, size);
    let message = (&raw mut slot.words).cast::<Message>();
    // SAFETY: the words of a claimed slot, aligned to 8 as the structure is.
    unsafe {
        (*message).header = header;
        (*message).pid = ids.pid;
        (*message).tid = ids.tid;
        (*message).what = what;
        (*message).flags = flags;
        (*message).bytes = bytes;
        (*message).values = values;
        emit::record(message, size, emit::as_it_fills(header.time_ns, emit::OF_CALLS));
    }
}
