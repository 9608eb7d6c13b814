//! Samples of instructions (`cupti_pcsampling.h`), context by context.
//!
//! Owns: what a simulated kernel's instructions wait for, who asked for it, and the account of it (`DEEPCTX_SIM_LOG`
//! with `.pc` behind it). Because: samples follow from which kernels ran for how long, so what a profiler makes of
//! them can be compared. Does not: know instructions: each kernel has as many as its code has room for, and stands at
//! some of them.
//!
//! As in the real one: sampling begins with `Enable` and takes its settings after that; what is not read waits; an
//! instruction is reported once for each launch where kernels are serialized, else once; of reasons only those that
//! were chosen are counted; `Disable` puts what is left into the buffer that was configured, and forgets what does not
//! fit.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use super::client::update_kinds as update;
use super::{Version, driver, misbehaviour, result};
use crate::api::{Code, In, Out, Status, api};
use crate::link::{self, Record, ask, kind};

/// `CUpti_PCSamplingStallReason`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stall {
    reason: u32,
    samples: u32,
}

/// `CUpti_PCSamplingPCData`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PcData {
    size: usize,
    cubin: u64,
    offset: u64,
    function: u32,
    pad: u32,
    name: *const c_char,
    stalls: usize,
    stall: *mut Stall,
    correlation: u32,
}

/// `CUpti_PCSamplingData`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    size: usize,
    room: usize,
    total: u64,
    dropped: u64,
    pcs: usize,
    remaining: usize,
    range: u64,
    pc: *mut PcData,
    elsewhere: u64,
    full: u8,
}

/// `CUpti_PCSamplingConfigurationInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    kind: u32,
    status: i32,
    value: [u64; 3],
}

/// The parameters of all functions: size, a null pointer, the context, and up to three words.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters<const N: usize> {
    size: usize,
    private: usize,
    context: usize,
    words: [usize; N],
}

/// `CUpti_GetCubinCrcParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Crc {
    size: usize,
    bytes: usize,
    cubin: *const u8,
    crc: u64,
}

const PERIOD: u32 = 1;
const REASONS: u32 = 2;
const MODE: u32 = 5;
const BUFFER: u32 = 8;
const CONTINUOUS: u64 = 1;
const SERIALIZED: u64 = 2;
/// Default period.
const PERIOD_DEFAULT: u64 = 10;

/// One instruction: image, symbol, offset, launch if kernels are serialized, and name.
type SampledInstruction = (u64, u32, u64, u32, usize);

/// A sampled context.
#[derive(Debug)]
struct Sampling {
    number: u32,
    period: u64,
    serialized: bool,
    /// The configured reasons.
    chosen: Vec<u32>,
    /// Address of the configured buffer.
    buffer: usize,
    waiting: BTreeMap<SampledInstruction, BTreeMap<u32, u32>>,
    total: u64,
    dropped: u64,
    elsewhere: u64,
    overrun: bool,
}

/// By context.
static SAMPLING: Mutex<BTreeMap<usize, Sampling>> = Mutex::new(BTreeMap::new());
static ON: AtomicBool = AtomicBool::new(false);
static SAMPLES: AtomicU64 = AtomicU64::new(0);
static READS: AtomicU64 = AtomicU64::new(0);
/// Samples by name, offset and reason, plus the fate of the others.
static ACCOUNT: Mutex<BTreeMap<(String, u64, &'static str), u64>> = Mutex::new(BTreeMap::new());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, Sampling>> {
    SAMPLING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kinds of activities needed while a client samples.
pub(super) fn kinds() -> u64 {
    if ON.load(Ordering::Relaxed) { 1 << kind::CONCURRENT_KERNEL | 1 << kind::FILL } else { 0 }
}

/// The device's reasons, as named by `libnvperf_host`. CUPTI 12's devices are sm_80; those of 13 are sm_90, which have
/// one more reason and start at another number.
const NAMES: [&str; 19] = [
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instructions",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
    "warpgroup_arrive",
];

/// Reasons as listed by the functions: number and name; each with its second form, plus an entry that is no reason.
fn reasons() -> Vec<(u32, String)> {
    let (first, names) = match super::version() {
        Version::Twelve => (1, &NAMES[..18]),
        Version::Thirteen => (5, &NAMES[..]),
    };
    let whole = names.iter().map(|name| format!("smsp__pcsamp_warps_issue_stalled_{name}"));
    let both = whole.flat_map(|name| [name.clone(), format!("{name}_not_issued")]);
    (first..).zip(both.chain(["smsp__pcsamp_samples_data_dropped".to_owned()])).collect()
}

/// The number of a reason by its index in [`NAMES`].
fn number(place: usize) -> u32 {
    let first = if super::version() == Version::Twelve { 1 } else { 5 };
    first + 2 * place as u32
}

/// Handles a device record.
pub(super) fn happened(record: &Record) {
    if !ON.load(Ordering::Relaxed) {
        return;
    }
    let mut contexts = contexts();
    let Some(sampling) = contexts.values_mut().find(|sampling| sampling.number == record.context) else {
        return;
    };
    match record.kind {
        kind::FILL => {
            // Kernels of the driver itself.
            sampling.total += 1;
            sampling.elsewhere += 1;
            account("", 0, "elsewhere", 1);
        }
        kind::CONCURRENT_KERNEL => sampling.sample(record),
        _ => {}
    }
}

fn account(name: &str, offset: u64, what: &'static str, samples: u64) {
    let mut account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    *account.entry((name.to_owned(), offset, what)).or_insert(0) += samples;
}

impl Sampling {
    fn sample(&mut self, record: &Record) {
        // SAFETY: names of kernels are never freed.
        let name = unsafe { CStr::from_ptr(record.name) }.to_string_lossy();
        // A cycle is a nanosecond, and one multiprocessor is sampled.
        let samples = (record.end_ns.saturating_sub(record.start_ns) >> self.period).max(1);
        let kinds = if super::version() == Version::Twelve { 18 } else { 19 };
        let code = record.code;
        let mut state = link::crc(name.as_bytes()) ^ u64::from(code.bytes);
        for _ in 0..samples {
            self.total += 1;
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // A few instructions get most of the samples, as is typical.
            let instructions = u64::from(code.bytes / 16).max(1);
            let offset = 16 * ((state >> 33) % instructions.min(6));
            let reason = (state >> 48) as usize % kinds;
            let every = |n: Option<u64>, count: u64| n.is_some_and(|n| count.is_multiple_of(n));
            if every(misbehaviour::get().drop, SAMPLES.fetch_add(1, Ordering::Relaxed) + 1) {
                self.dropped += 1;
                account("", 0, "dropped", 1);
                continue;
            }
            account(&name, offset, NAMES[reason], 1);
            let correlation = if self.serialized { record.correlation } else { 0 };
            let place = (code.crc, code.symbol, offset, correlation, record.name.expose_provenance());
            let reported = self.waiting.entry(place).or_default();
            *reported.entry(number(reason)).or_insert(0) += 1;
            if state >> 20 & 1 == 1 {
                // The scheduler chose no other warp either.
                *reported.entry(number(reason) + 1).or_insert(0) += 1;
            }
        }
    }

    /// Writes pending samples as far as they fit.
    fn write(&mut self, data: Out<Data>) -> Status {
        let mut out = data.get().map_err(|_| result::INVALID_PARAMETER)?;
        if out.size < size_of::<Data>() - 7 || out.pc.is_null() {
            return Err(result::INVALID_PARAMETER);
        }
        out.total = std::mem::take(&mut self.total);
        out.dropped = std::mem::take(&mut self.dropped);
        out.elsewhere = std::mem::take(&mut self.elsewhere);
        out.pcs = 0;
        while out.pcs < out.room
            && let Some((place, reasons)) = self.waiting.pop_first()
        {
            let (cubin, function, offset, correlation, name) = place;
            let of = out.pc.wrapping_add(out.pcs);
            let chosen = |(reason, _): &(&u32, &u32)| self.chosen.contains(reason);
            let reported: Vec<_> = reasons.iter().filter(chosen).collect();
            if reported.is_empty() {
                // CUPTI omits instructions without a configured reason.
                continue;
            }
            // SAFETY: the client promises `room` entries, each with one element per configured reason.
            unsafe {
                let old = of.read();
                if old.size != size_of::<PcData>() || old.stall.is_null() {
                    return Err(result::INVALID_PARAMETER);
                }
                for (n, (reason, samples)) in reported.iter().enumerate() {
                    old.stall.add(n).write(Stall { reason: **reason, samples: **samples });
                }
                let name = std::ptr::with_exposed_provenance(name);
                let stalls = reported.len();
                of.write(PcData { cubin, offset, function, name, stalls, correlation, ..old });
                if misbehaviour::get().astray.is_some_and(|n| (out.pcs as u64 + 1).is_multiple_of(n)) {
                    let nowhere = std::ptr::with_exposed_provenance(0x5151_5151);
                    of.write(PcData {
                        cubin: 1,
                        offset: u64::MAX,
                        name: nowhere,
                        stalls: usize::MAX,
                        ..of.read()
                    });
                }
            }
            out.pcs += 1;
        }
        out.remaining = self.waiting.len();
        data.put(out)
    }
}

/// The context parameter, checked as in all functions.
fn context_of<const N: usize>(parameters: In<Parameters<N>>) -> Result<Parameters<N>, Code> {
    let given = parameters.get().map_err(|_| result::INVALID_PARAMETER)?;
    if given.size != size_of::<Parameters<N>>() || given.private != 0 {
        return Err(result::INVALID_PARAMETER);
    }
    if (driver()?.table.number)(ask::CONTEXT, given.context) == 0 {
        return Err(result::INVALID_CONTEXT);
    }
    Ok(given)
}

fn enable(context: usize) -> Status {
    if let Some(error) = misbehaviour::get().unsampled {
        return Err(Code(error as i32));
    }
    let number = (driver()?.table.number)(ask::CONTEXT, context) as u32;
    let mut contexts = contexts();
    if contexts.contains_key(&context) {
        return Err(result::INVALID_OPERATION);
    }
    let sampling = Sampling {
        number,
        period: PERIOD_DEFAULT,
        serialized: false,
        chosen: reasons().into_iter().map(|(number, _)| number).collect(),
        buffer: 0,
        waiting: BTreeMap::new(),
        total: 0,
        dropped: 0,
        elsewhere: 0,
        overrun: false,
    };
    contexts.insert(context, sampling);
    drop(contexts);
    ON.store(true, Ordering::Relaxed);
    write_account_at_exit();
    super::callbacks::attach()?;
    update()
}

fn disable(context: usize) -> Status {
    // Running work is included.
    super::buffers::settle();
    let mut contexts = contexts();
    let mut gone = contexts.remove(&context).ok_or(result::INVALID_OPERATION)?;
    ON.store(!contexts.is_empty(), Ordering::Relaxed);
    drop(contexts);
    update()?;
    if gone.buffer != 0 && !gone.overrun {
        gone.write(Out::at(std::ptr::with_exposed_provenance_mut(gone.buffer)))?;
    }
    for reasons in gone.waiting.values() {
        let whole = |(reason, _): &(&u32, &u32)| (*reason - number(0)).is_multiple_of(2);
        account("", 0, "discarded", reasons.iter().filter(whole).map(|(_, n)| u64::from(*n)).sum());
    }
    write_account();
    Ok(())
}

fn configure(sampling: &mut Sampling, attribute: &mut Attribute) -> Status {
    let [first, second, _] = attribute.value;
    let allowed = match attribute.kind {
        PERIOD => {
            let ok = (5..=31).contains(&(first as u32));
            sampling.period = if ok { first } else { sampling.period };
            ok
        }
        REASONS => {
            let numbers = In::<u32>::at(std::ptr::with_exposed_provenance(second as usize));
            let chosen = numbers.list(first as usize).unwrap_or_default();
            let known = reasons();
            let ok = !chosen.is_empty() && chosen.iter().all(|of| known.iter().any(|(n, _)| n == of));
            sampling.chosen = if ok { chosen } else { std::mem::take(&mut sampling.chosen) };
            ok
        }
        MODE => {
            sampling.serialized = first == SERIALIZED;
            [CONTINUOUS, SERIALIZED].contains(&first)
        }
        BUFFER => {
            sampling.buffer = first as usize;
            first != 0
        }
        3 | 4 | 6 | 7 | 9 => true,
        _ => {
            attribute.status = result::INVALID_PARAMETER.0;
            return Err(result::INVALID_OPERATION);
        }
    };
    attribute.status = if allowed { 0 } else { result::INVALID_OPERATION.0 };
    if allowed { Ok(()) } else { Err(result::INVALID_OPERATION) }
}

fn read(given: &Parameters<1>) -> Status {
    let mut contexts = contexts();
    let sampling = contexts.get_mut(&given.context).ok_or(result::INVALID_OPERATION)?;
    let reads = READS.fetch_add(1, Ordering::Relaxed) + 1;
    let begins = misbehaviour::get().overrun.is_some_and(|n| reads.is_multiple_of(n));
    if begins && !sampling.overrun && !sampling.waiting.is_empty() {
        sampling.overrun = true;
    }
    if sampling.overrun {
        let whole = |(reason, _): &(&u32, &u32)| (*reason - number(0)).is_multiple_of(2);
        for reasons in std::mem::take(&mut sampling.waiting).values() {
            account("", 0, "overrun", reasons.iter().filter(whole).map(|(_, n)| u64::from(*n)).sum());
        }
        return Err(result::OUT_OF_MEMORY);
    }
    sampling.write(Out::at(std::ptr::with_exposed_provenance_mut(given.words[0])))
}

fn write_account_at_exit() {
    extern "C" fn at_exit() {
        write_account();
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the process: the library is never unloaded.
    ONCE.call_once(|| _ = unsafe { libc::atexit(at_exit) });
}

/// Writes the account: kernel, offset, reason, samples, or the fate of samples without a location.
fn write_account() {
    let Some(path) = std::env::var("DEEPCTX_SIM_LOG").ok().filter(|path| !path.is_empty()) else { return };
    let path = path.replace("%p", &std::process::id().to_string()) + ".pc";
    let account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::from("kernel\toffset\treason\tsamples\n");
    for ((name, offset, reason), samples) in account.iter() {
        let _ = writeln!(text, "{name}\t{offset}\t{reason}\t{samples}");
    }
    // A full disk loses the account, not the program.
    let _ = std::fs::write(path, text);
}

api! { Tool;
    fn cuptiPCSamplingEnable(parameters: In<Parameters<0>>) { enable(context_of(parameters)?.context) }
    fn cuptiPCSamplingDisable(parameters: In<Parameters<0>>) { disable(context_of(parameters)?.context) }
    fn cuptiPCSamplingStart(parameters: In<Parameters<0>>) {
        // Only for clients that control ranges; none does.
        context_of(parameters)?;
        Err(result::INVALID_OPERATION)
    }
    fn cuptiPCSamplingStop(parameters: In<Parameters<0>>) {
        context_of(parameters)?;
        Err(result::INVALID_OPERATION)
    }
    fn cuptiPCSamplingSetConfigurationAttribute(parameters: In<Parameters<2>>) {
        let given = context_of(parameters)?;
        let mut contexts = contexts();
        let sampling = contexts.get_mut(&given.context).ok_or(result::INVALID_OPERATION)?;
        for n in 0..given.words[0].min(64) {
            let at = given.words[1] + n * size_of::<Attribute>();
            let place = Out::<Attribute>::at(std::ptr::with_exposed_provenance_mut(at));
            let mut attribute = place.get().map_err(|_| result::INVALID_PARAMETER)?;
            let done = configure(sampling, &mut attribute);
            place.put(attribute)?;
            done?;
        }
        Ok(())
    }
    fn cuptiPCSamplingGetConfigurationAttribute(parameters: In<Parameters<2>>) {
        let given = context_of(parameters)?;
        let contexts = contexts();
        let sampling = contexts.get(&given.context).ok_or(result::INVALID_OPERATION)?;
        let place = Out::<Attribute>::at(std::ptr::with_exposed_provenance_mut(given.words[1]));
        let attribute = place.get().map_err(|_| result::INVALID_PARAMETER)?;
        let first = match attribute.kind {
            PERIOD => sampling.period,
            MODE => if sampling.serialized { SERIALIZED } else { CONTINUOUS },
            _ => return Err(result::INVALID_OPERATION),
        };
        place.put(Attribute { status: 0, value: [first, 0, 0], ..attribute })
    }
    fn cuptiPCSamplingGetData(parameters: In<Parameters<1>>) { read(&context_of(parameters)?) }
    fn cuptiPCSamplingGetNumStallReasons(parameters: In<Parameters<1>>) {
        let given = context_of(parameters)?;
        let count = Out::at(std::ptr::with_exposed_provenance_mut(given.words[0]));
        count.put(reasons().len()).map_err(|_| result::INVALID_PARAMETER)
    }
    fn cuptiPCSamplingGetStallReasons(parameters: In<Parameters<3>>) {
        let given = context_of(parameters)?;
        let [count, numbers, names] = given.words;
        for (n, (number, name)) in reasons().into_iter().take(count).enumerate() {
            Out::<u32>::at(std::ptr::with_exposed_provenance_mut(numbers)).put_at(n, number)?;
            let to = In::<*mut u8>::at(std::ptr::with_exposed_provenance(names + n * 8)).get()?;
            // SAFETY: the client promises 128 bytes for each; names are shorter.
            unsafe {
                std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
                to.add(name.len()).write(0);
            }
        }
        Ok(())
    }
    fn cuptiGetCubinCrc(parameters: Out<Crc>) {
        let given = parameters.get().map_err(|_| result::INVALID_PARAMETER)?;
        if given.size != size_of::<Crc>() || given.cubin.is_null() || given.bytes == 0 {
            return Err(result::INVALID_PARAMETER);
        }
        // SAFETY: the client promises this many bytes.
        let image = unsafe { std::slice::from_raw_parts(given.cubin, given.bytes) };
        parameters.put(Crc { crc: link::crc(image), ..given })
    }
}

// As in `cupti_pcsampling.h` of 12.9 and 13.5.
const _: () = {
    assert!(size_of::<Stall>() == 8 && size_of::<PcData>() == 64 && size_of::<Data>() == 80);
    assert!(size_of::<Attribute>() == 32 && size_of::<Parameters<2>>() == 40 && size_of::<Crc>() == 32);
};
