//! Call: a probe on a library function in a target, at its entry and at its return.
//!
//! Owns: fetching arguments by a site's recipes, choosing the calls that get a stack, and pairing calls with their
//! returns. Because: every call costs the target's own time, so whatever can be decided in advance is stored in the
//! site. Does not: know the purpose of a function.

use core::ffi::c_void;
use core::intrinsics::{AtomicOrdering, atomic_xchg};

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{
    bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_get_prandom_u32, bpf_ktime_get_ns,
    bpf_probe_read_user, bpf_probe_read_user_str,
};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use deepctx_common::call::{
    ALL_STACKS, ARGUMENTS_MAX, Call, Fetch, Return, Site, TEXT_MAX, call_flag, fetch_base, return_flag,
    site_flag,
};
use deepctx_common::config::{Config, config_flag};
use deepctx_common::end::{Counter, KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::record::{StackSample, kind};

use super::state::{InFlight, Limiter};
use crate::emit::{self, Urgency};
use crate::maps::{IN_FLIGHT, LAUNCHED, LIMITER, SITE_COUNTS, SITES, config};
use crate::task::Ids;
use crate::walk::{self, Scratch, TAIL_WORDS, WORDS_MAX};
use crate::{arch, filter, stack, task};

/// Length of a draw period, after which the chance is computed anew.
const DRAW_NS: u64 = 100_000_000;
/// Limit on stacks per draw period, as a multiple of the stacks due, for periods with many more calls than the one
/// before.
const DRAW_EXCESS: u64 = 2;

impl Limiter {
    /// Draws for one call. Several CPUs may run this at a time: the numbers stay sums, and only one CPU replaces the
    /// chance.
    #[inline(always)]
    fn wins(limiter: *mut Self, limit: u32, now: u64) -> bool {
        // SAFETY: a map value, of which only numbers are read and written.
        unsafe {
            let limit = u64::from(limit);
            emit::add(&raw mut (*limiter).seen, 1);
            if now.wrapping_sub((*limiter).began_ns) >= DRAW_NS {
                let began =
                    atomic_xchg::<u64, { AtomicOrdering::Relaxed }>(&raw mut (*limiter).began_ns, now);
                let tenths = now.wrapping_sub(began) / DRAW_NS;
                if tenths > 0 {
                    let seen = atomic_xchg::<u64, { AtomicOrdering::Relaxed }>(&raw mut (*limiter).seen, 0);
                    (*limiter).taken = 0;
                    let due = limit * if tenths > 10 { 10 } else { tenths } / 10;
                    (*limiter).chance = if seen <= due { 1 << 32 } else { (due << 32) / seen };
                }
            }
            u64::from(bpf_get_prandom_u32()) < (*limiter).chance
                && emit::add(&raw mut (*limiter).taken, 1) <= limit * DRAW_EXCESS / 10
        }
    }
}

/// The site of the current probe, unless it is muted.
#[inline(always)]
pub(super) fn site_of(context: *mut c_void) -> (u32, Option<&'static Site>) {
    // SAFETY: helper with the program's own context.
    let index = unsafe { bpf_get_attach_cookie(context) } as u32;
    (index, SITES.get(index).filter(|site| site.flags & site_flag::MUTE == 0))
}

/// A probed function is entered.
#[uprobe]
pub fn call(ctx: ProbeContext) -> u32 {
    let config = config();
    let Some(ids) = task::current_ids(config) else { return 0 };
    if !filter::is_target(config, ids.pid) {
        return 0;
    }
    let (index, Some(site)) = site_of(ctx.as_ptr()) else { return 0 };
    // Counted before the record can be lost.
    if let Some(count) = SITE_COUNTS.get_ptr_mut(index) {
        emit::add(count, 1);
    }
    emit::count(Counter::CallsSeen);
    let Some(scratch) = walk::claim() else {
        // Uses up a sequence number, so that user space sees the gap too.
        emit::header(kind::CALL, 0);
        emit::count(Counter::DropScratchBusy);
        return 0;
    };
    // SAFETY: the slot was claimed for this run; nothing else on this CPU touches it until it is released.
    let slot = unsafe { &mut *scratch };
    take(&ctx, config, ids, index, site, slot);
    walk::release(scratch);
    0
}

/// Fills the record in `slot` and emits it.
#[inline(always)]
fn take(ctx: &ProbeContext, config: &Config, ids: Ids, index: u32, site: &Site, slot: &mut Scratch) {
    stack::begin(slot, ids, 0, 0);
    // The time of entry, not that of the walk. Time and number stay in the record: anything kept across the walk would
    // need stack space beside it.
    slot.sample.header = emit::header(kind::CALL, 0);
    slot.sample.period = u64::from(slot.sample.header.cpu) << 48 | slot.sample.header.sequence;
    slot.sample.kernel_end = KernelEnd::Complete as u8;
    let registers = registers(ctx, config, slot);
    let mut call = Call { site: index, event: site.event, ..Call::default() };
    call.arguments = u16::from(site.arguments);
    if call.arguments > ARGUMENTS_MAX as u16 {
        call.arguments = ARGUMENTS_MAX as u16;
    }
    call.unread = fetch_all(site, slot);
    if site.flags & site_flag::STACK == 0 {
        call.flags |= call_flag::STACK_UNWANTED;
        no_stack(slot);
    } else if has_stack(config, site, slot.sample.header.time_ns) {
        let whole = if site.flags & site_flag::WHOLE != 0 { config_flag::NATIVE } else { 0 };
        stack::user(config, config.flags | whole, ids.pid, 0, registers, slot);
    } else {
        call.flags |= call_flag::STACK_LIMITED;
        no_stack(slot);
    }
    let words = stack::finish(slot, 0);
    let argument = |slot: &Scratch, number: u8| {
        let number = core::hint::black_box(usize::from(number));
        if number < ARGUMENTS_MAX { slot.arguments[number] } else { 0 }
    };
    let [first, second] = halves(&call);
    let text = argument(slot, site.text);
    send(slot, words, first, second, text);
    if site.flags & (site_flag::RETURN | site_flag::LAUNCH) != 0 {
        remember(index, u32::from(site.flags), slot.sample.period, argument(slot, site.out));
    }
}

/// Takes the registers at the probe.
#[inline(always)]
pub(super) fn registers(ctx: &ProbeContext, config: &Config, slot: &mut Scratch) -> Result<(), WalkEnd> {
    // SAFETY: the context of a probe is readable, and consists of the registers.
    arch::copy(&mut slot.regs, unsafe { &*ctx.regs.cast() });
    stack::take_registers(config, slot)
}

/// Fetches the arguments into the slot. Returns a bit per argument that could not be read.
#[inline(always)]
pub(super) fn fetch_all(site: &Site, slot: &mut Scratch) -> u32 {
    fetch_arguments(slot, site)
}

/// [`fetch_all`] as a separate function, so that the kernel does not verify the code after it once per path.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fetch_arguments(scratch: *mut Scratch, site: *const Site) -> u32 {
    if scratch.is_null() || site.is_null() {
        return u32::MAX;
    }
    // SAFETY: the caller passes a claimed slot and a site.
    let (slot, site) = unsafe { (&mut *scratch, &*site) };
    let mut unread = 0;
    for i in 0..ARGUMENTS_MAX as u32 {
        if i >= u32::from(site.arguments) {
            break;
        }
        let recipe = &site.fetches[i as usize];
        if recipe.reads == 0 {
            // Most arguments are in registers, and a call costs more than this.
            let value = arch::register(&slot.walk.registers, &slot.regs, recipe.base);
            slot.arguments[i as usize] = cut(value >> (recipe.offsets[0] & 63), recipe);
        } else {
            unread |= fetch(slot, &raw const *recipe, i, site.frame) << i;
        }
    }
    unread
}

/// True if this call gets a stack.
#[inline(always)]
fn has_stack(config: &Config, site: &Site, now: u64) -> bool {
    let own = site.stacks_per_second != 0;
    let limit = if own { site.stacks_per_second } else { config.stacks_per_second };
    if limit == ALL_STACKS {
        return true;
    }
    if limit == 0 {
        return false;
    }
    draw(own as u32, limit, now) != 0
}

/// Draws for one call with this limiter; 1 if it gets a stack. Separate for the same reason as [`remember`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn draw(limiter: u32, limit: u32, now: u64) -> u32 {
    LIMITER.get_ptr_mut(limiter).is_some_and(|limiter| Limiter::wins(limiter, limit, now)) as u32
}

#[inline(always)]
fn no_stack(slot: &mut Scratch) {
    slot.walk.words = 0;
    slot.walk.native_frames = 0;
    slot.walk.python_frames = 0;
    slot.walk.stop_pc = 0;
    slot.walk.native_end = WalkEnd::NotWalked as u32;
    slot.walk.python_end = PythonEnd::NotWalked as u32;
}

/// Stores the data that the return, or the launch's future correlation id, is joined with. Called last, so that the
/// measured time is the function's own.
///
/// A separate function: the map values would be on the stack beside the walk, and kernels before 6.13 have 512 bytes
/// for both.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn remember(index: u32, flags: u32, call: u64, out: u64) -> u32 {
    let flags = flags as u16;
    // SAFETY: helpers without arguments.
    let (thread, entered_ns) = unsafe { (bpf_get_current_pid_tgid() as u32, bpf_ktime_get_ns()) };
    if flags & site_flag::RETURN != 0
        && IN_FLIGHT.insert(&in_flight_key(thread, index), InFlight { call, entered_ns, out }, 0).is_err()
    {
        emit::count(Counter::ReturnsUntracked);
    }
    if flags & site_flag::LAUNCH != 0 && LAUNCHED.insert(&thread, call, 0).is_err() {
        emit::count(Counter::LaunchersUntracked);
    }
    0
}

#[inline(always)]
fn in_flight_key(thread: u32, site: u32) -> u64 {
    u64::from(thread) << 32 | u64::from(site)
}

/// Fetches argument `index` into the slot; 1 if it could not be read.
///
/// A function of its own, so that the kernel verifies its paths once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fetch(scratch: *mut Scratch, fetch: *const Fetch, index: u32, frame: u32) -> u32 {
    if scratch.is_null() || fetch.is_null() || index >= ARGUMENTS_MAX as u32 {
        return 1;
    }
    // SAFETY: the caller passes a claimed slot and a fetch of a site.
    let (slot, fetch) = unsafe { (&mut *scratch, &*fetch) };
    let value = fetched(slot, fetch, frame);
    slot.arguments[index as usize] = match value {
        Some(value) => cut(value, fetch),
        None => 0,
    };
    value.is_none() as u32
}

#[inline(always)]
fn fetched(slot: &Scratch, fetch: &Fetch, frame: u32) -> Option<u64> {
    if fetch.base == fetch_base::THREAD_LOCAL {
        return thread_local(slot, fetch);
    }
    let on_stack = fetch.base == fetch_base::ENTRY_STACK;
    let base = if on_stack {
        slot.walk.registers.sp.wrapping_add(u64::from(frame))
    } else {
        arch::register(&slot.walk.registers, &slot.regs, fetch.base)
    };
    if fetch.reads == 0 {
        return Some(base >> (fetch.offsets[0] & 63));
    }
    let address = base.wrapping_add_signed(i64::from(fetch.offsets[0]));
    let ahead = walk::ahead(slot)?;
    let read = if on_stack { ahead.stack.word(address & !7) } else { ahead.frames.word(address & !7) };
    let word = in_word(read?, address, fetch)?;
    if fetch.reads == 1 {
        return Some(word);
    }
    let address = word.wrapping_add_signed(i64::from(fetch.offsets[1]));
    in_word(ahead.frames.word(address & !7)?, address, fetch)
}

/// A thread-local variable of the running thread, through glibc's table of TLS blocks (`dtv_t` in
/// sysdeps/generic/dl-dtv.h: the second word of the thread control block points to pairs; the pair before them holds
/// their number).
#[inline(always)]
fn thread_local(slot: &Scratch, fetch: &Fetch) -> Option<u64> {
    let index = arch::register(&slot.walk.registers, &slot.regs, fetch.offsets[1] as u8);
    let [module, offset]: [u64; 2] = read(index)?;
    let blocks: u64 = read(slot.walk.thread_pointer.wrapping_add(8))?;
    if module > read(blocks.wrapping_sub(16))? {
        return Some(0);
    }
    let block: u64 = read(blocks.wrapping_add(module.wrapping_mul(16)))?;
    // TLS blocks are allocated at first use, zeroed as far as these variables are concerned.
    if block == u64::MAX {
        return Some(0);
    }
    read(block.wrapping_add(offset).wrapping_add_signed(i64::from(fetch.offsets[0])))
}

/// A value of the process, read without read-ahead: it is not near other reads.
#[inline(always)]
fn read<T: Copy + Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: destination and size agree; the helper checks the source and never faults.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut value).cast(), size_of::<T>() as u32, address as *const _) }
            != 0;
    if failed { None } else { Some(value) }
}

/// The value at `address`, given the aligned word that holds its first byte; a value that crosses the word is read
/// separately.
#[inline(always)]
fn in_word(word: u64, address: u64, fetch: &Fetch) -> Option<u64> {
    match within(word, address, fetch) {
        None => read(address),
        value => value,
    }
}

/// Like [`in_word`], but `None` if the value crosses the word.
#[inline(always)]
fn within(word: u64, address: u64, fetch: &Fetch) -> Option<u64> {
    let into = address & 7;
    (into + u64::from(fetch.bytes) <= 8 || into == 0).then_some(word >> (8 * into))
}

/// The lowest bytes of a value, extended as declared. Branch-free: the verifier follows every path through this code
/// for each of a site's arguments.
#[inline(always)]
fn cut(value: u64, fetch: &Fetch) -> u64 {
    let unused = 64_u32.wrapping_sub(8 * u32::from(fetch.bytes)) & 63;
    let high = value << unused;
    let (zeros, signs) = (high >> unused, (high as i64 >> unused) as u64);
    zeros | signs & 0_u64.wrapping_sub(u64::from(fetch.signed & 1))
}

/// A call as the two words in which it is sent.
#[inline(always)]
fn halves(call: &Call) -> [u64; 2] {
    [
        u64::from(call.site) | u64::from(call.event) << 32 | u64::from(call.flags) << 48,
        u64::from(call.arguments) | u64::from(call.text_bytes) << 16 | u64::from(call.unread) << 32,
    ]
}

/// Appends the call, its arguments and its text to the `words` of the stack, and emits the record. Separate for the
/// same reason as [`remember`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn send(scratch: *mut Scratch, words: u32, first: u64, second: u64, text: u64) -> u32 {
    if scratch.is_null() {
        return 0;
    }
    // SAFETY: the caller passes a claimed slot.
    send_call(unsafe { &mut *scratch }, words, [first, second], text);
    0
}

#[inline(always)]
fn send_call(slot: &mut Scratch, words: u32, [first, second]: [u64; 2], text: u64) {
    const CALL_WORDS: usize = size_of::<Call>() / 8;
    // The kernel's verifier must see the bounds on the registers that are used as indices.
    let words = core::hint::black_box(words) as usize;
    let arguments = core::hint::black_box((second & 0xffff) as usize);
    if words > WORDS_MAX || arguments > ARGUMENTS_MAX {
        return;
    }
    // SAFETY: `words` and `tail` are adjacent (asserted in `walk::scratch`), and the tail has room for everything that
    // follows.
    let at = unsafe { (&raw mut slot.words).cast::<u64>().add(words) };
    const { assert!(TAIL_WORDS == CALL_WORDS + ARGUMENTS_MAX + TEXT_MAX / 8) };
    for i in 0..ARGUMENTS_MAX {
        if i >= arguments {
            break;
        }
        // SAFETY: as above.
        unsafe { at.add(CALL_WORDS + i).write_volatile(slot.arguments[i]) };
    }
    let (flags, text_bytes) = if text == 0 {
        (0, 0)
    } else {
        // SAFETY: as above, with room for TEXT_MAX.
        unsafe { read_text(at.add(CALL_WORDS + arguments), text) }
    };
    let text_words = text_bytes.div_ceil(8);
    // SAFETY: as above; `Call` is two words.
    unsafe {
        at.write_volatile(first | u64::from(flags) << 48);
        at.add(1).write_volatile(second | text_bytes << 16);
    }
    let size =
        (size_of::<StackSample>() + 8 * (words + CALL_WORDS + arguments)) as u32 + text_words as u32 * 8;
    if size as usize > size_of::<StackSample>() + 8 * (WORDS_MAX + TAIL_WORDS) {
        return;
    }
    slot.sample.header.size = size;
    let now = slot.sample.header.time_ns;
    let urgency = if stack::is_news(slot.walk.native_end, now) {
        Some(Urgency::Now)
    } else {
        emit::as_it_fills(now, emit::OF_CALLS)
    };
    // SAFETY: the written words follow `sample` without a gap, and `size` lies within.
    unsafe { emit::record(&raw const slot.sample, size, urgency) };
}

/// Copies a string of the process, and pads its last word with zeros. Returns flags of the call, and the length of the
/// string in bytes without its terminator.
///
/// # Safety
/// `to` has room for [`TEXT_MAX`] bytes.
#[inline(always)]
unsafe fn read_text(to: *mut u64, text: u64) -> (u16, u64) {
    // SAFETY: there is room for TEXT_MAX; the helper checks the source and never faults.
    let read = unsafe { bpf_probe_read_user_str(to.cast(), TEXT_MAX as u32, text as *const _) };
    if read <= 0 {
        return (call_flag::TEXT_UNREAD, 0);
    }
    let bytes = core::hint::black_box(read as u64 - 1) & (TEXT_MAX as u64 - 1);
    if bytes & 7 != 0 {
        // SAFETY: within the bytes read. Bytes of an earlier text after the end of this one stay in the slot.
        unsafe {
            let last = to.add((bytes / 8) as usize);
            last.write_volatile(last.read_volatile() & (u64::MAX >> (64 - 8 * (bytes & 7))));
        }
    }
    (if read as usize == TEXT_MAX { call_flag::TEXT_CUT } else { 0 }, bytes)
}

/// A probed function returns.
#[uretprobe]
pub fn call_return(ctx: RetProbeContext) -> u32 {
    let config = config();
    // SAFETY: helpers; the first takes the program's own context.
    let (site, thread) =
        unsafe { (bpf_get_attach_cookie(ctx.as_ptr()) as u32, bpf_get_current_pid_tgid() as u32) };
    let key = in_flight_key(thread, site);
    // The map has calls of targets only.
    // SAFETY: the value is copied immediately; only this thread's own calls write it.
    let Some(entered) = (unsafe { IN_FLIGHT.get(&key) }).copied() else { return 0 };
    let _ = IN_FLIGHT.remove(&key);
    let Some(ids) = task::current_ids(config) else { return 0 };
    let event = SITES.get(site).map_or(0, |site| site.event);
    emit::count(Counter::CallsSeen);
    let size = size_of::<Return>() as u32;
    let mut record = Return {
        header: emit::header(kind::RETURN, size),
        pid: ids.pid,
        tid: ids.tid,
        call: entered.call,
        entered_ns: entered.entered_ns,
        // SAFETY: the context of a probe is readable, and consists of the registers.
        result: arch::result(unsafe { &*ctx.regs.cast() }),
        out: 0,
        site,
        event,
        flags: 0,
    };
    if entered.out != 0 {
        // SAFETY: destination and size agree; the helper checks the source and never faults.
        let failed =
            unsafe { bpf_probe_read_user((&raw mut record.out).cast(), 8, entered.out as *const _) } != 0;
        record.flags = if failed { 0 } else { return_flag::OUT };
    }
    // SAFETY: a whole record on the stack.
    unsafe {
        emit::record(&raw const record, size, emit::as_it_fills(record.header.time_ns, emit::OF_CALLS))
    };
    0
}
