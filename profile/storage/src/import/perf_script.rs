//! What `perf script` prints, to a profile.
//!
//! Owns: [`head`], [`read`]. Because: `perf record` runs where nothing may be installed. Does not: read `perf.data`,
//! whose symbols only perf can find.
//!
//! ```text
//! python3  4711/4712 [001] 12345.678901:   10101010 cpu-clock:ppp:
//!         7f12ab34cd56 gemm_kernel+0x1f (/usr/lib/libblas.so)
//!     ffffffff81234567 vfs_read+0x2 ([kernel.kallsyms])
//!
//! ```

use super::lossy::lossy;
use super::{NOT_UNDERSTOOD, REPAIRED, TOO_DEEP, gap, words};
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;

/// Maximum frames of one sample; perf's own limit is far lower. The innermost are kept.
const DEPTH_MAX: usize = 16 * 1024;
/// Kernel addresses start here on every 64-bit machine that perf supports.
const KERNEL_FROM: u64 = 0xffff_0000_0000_0000;

/// The first line of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SampleHeader<'l> {
    comm: &'l str,
    pid: u32,
    tid: u32,
    time_ns: u64,
    event: &'l str,
    period: Option<u64>,
}

/// Reads a header line: `comm pid/tid [cpu] seconds: period event:`, where only the comm, an id and the time are
/// required.
pub(super) fn head(line: &str) -> Option<SampleHeader<'_>> {
    if line.starts_with([' ', '\t']) && !line.trim_start().contains(": ") {
        return None;
    }
    // The time is the first word of digits, a dot, digits and a colon.
    let mut at = 0;
    let (start, time) = loop {
        let rest = &line[at..];
        let begin = at + rest.find(|c: char| !c.is_whitespace())?;
        let end = line[begin..].find(char::is_whitespace).map_or(line.len(), |n| begin + n);
        if let Some(time) = line[begin..end].strip_suffix(':').and_then(nanos) {
            break (begin, time);
        }
        at = end;
    };
    let mut before = line[..start].trim_end();
    if before.ends_with(']') {
        before = before[..before.rfind('[')?].trim_end();
    }
    let (comm, ids) = before.rsplit_once(char::is_whitespace).unwrap_or(("", before));
    let (pid, tid) = match ids.split_once('/') {
        Some((pid, tid)) => (pid.parse().ok()?, tid.parse().ok()?),
        None => (ids.parse().ok()?, ids.parse().ok()?),
    };
    let after = line[start..].split_once(':')?.1;
    let words: Vec<&str> = after.split_whitespace().collect();
    let (period, event) = match words.as_slice() {
        [period, event, ..] if period.bytes().all(|b| b.is_ascii_digit()) => (period.parse().ok(), *event),
        [event, ..] => (None, *event),
        [] => (None, ""),
    };
    Some(SampleHeader {
        comm: comm.trim(),
        pid,
        tid,
        time_ns: time,
        event: event.trim_end_matches(':'),
        period,
    })
}

#[cfg(test)]
impl<'l> SampleHeader<'l> {
    pub(super) fn parts(self) -> (&'l str, u32, u32, u64, &'l str, Option<u64>) {
        (self.comm, self.pid, self.tid, self.time_ns, self.event, self.period)
    }
}

fn nanos(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits =
        |text: &str| !text.is_empty() && text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

pub(super) fn read(bytes: &[u8], profile: &mut Profile) -> Nanos {
    let (text, repaired) = lossy(bytes);
    let (mut odd, mut too_deep) = (0, 0);
    let (mut first, mut last) = (u64::MAX, 0);
    let mut sample: Option<Sample> = None;
    for line in text.lines() {
        if line.trim().is_empty() {
            sample.take().into_iter().for_each(|sample| sample.finish(profile));
        } else if line.starts_with('#') {
            continue;
        } else if line.starts_with([' ', '\t'])
            && let Some(open) = &mut sample
            && let Some(frame) = frame(profile, line)
        {
            if open.frames.len() < DEPTH_MAX {
                open.frames.push(profile.frame(frame));
            } else {
                too_deep += 1;
            }
        } else if let Some(head) = head(line) {
            sample.take().into_iter().for_each(|sample| sample.finish(profile));
            first = first.min(head.time_ns);
            last = last.max(head.time_ns);
            sample = Some(Sample::new(profile, &head));
        } else {
            odd += 1;
        }
    }
    sample.into_iter().for_each(|sample| sample.finish(profile));
    gap(profile, NOT_UNDERSTOOD, odd);
    gap(profile, TOO_DEEP, too_deep);
    gap(profile, REPAIRED, repaired);
    Nanos(last.saturating_sub(first))
}

/// A sample whose frames are being read, leaf first.
struct Sample {
    process: FrameId,
    thread: FrameId,
    frames: Vec<FrameId>,
    time: Option<u64>,
}

impl Sample {
    fn new(profile: &mut Profile, head: &SampleHeader<'_>) -> Self {
        let comm = profile.text(head.comm);
        let process = profile.frame(Frame::Process { comm, pid: head.pid });
        let thread = profile.frame(Frame::Thread { name: comm, tid: head.tid });
        // The period of a clock event is in nanoseconds; other periods are not times.
        let event = head.event.split(':').next().unwrap_or("");
        let is_clock = matches!(event, "cpu-clock" | "task-clock");
        Sample { process, thread, frames: Vec::new(), time: head.period.filter(|_| is_clock) }
    }

    fn finish(self, profile: &mut Profile) {
        let stack: Vec<FrameId> =
            [self.process, self.thread].into_iter().chain(self.frames.into_iter().rev()).collect();
        profile.add(&stack, Metric::Samples, 1);
        if let Some(time) = self.time {
            profile.add(&stack, Metric::CpuTime, time);
        }
    }
}

/// Parses a frame line: address, symbol and offset, module in brackets.
fn frame(profile: &mut Profile, line: &str) -> Option<Frame> {
    let (address, rest) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.strip_suffix(" (deleted))").map_or(rest.to_owned(), |rest| format!("{rest})"));
    let (symbol, module) = match rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")) {
        Some((symbol, module)) => (symbol, module),
        None => match rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            Some(module) => ("[unknown]", module),
            None => (&*rest, ""),
        },
    };
    let symbol = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    };
    let inlined = module == "inlined";
    let module = if inlined || module == "[unknown]" { "" } else { module };
    let kernel = address >= KERNEL_FROM;
    Some(match (symbol.trim(), kernel) {
        ("[unknown]" | "", true) => Frame::KernelUnnamed { reason: profile.text(super::NO_SYMBOL.key) },
        ("[unknown]" | "", false) => Frame::NativeUnnamed {
            module: profile.text(module),
            offset: address,
            reason: profile.text(super::NO_SYMBOL.key),
            role: Role::Code,
        },
        (symbol, true) => Frame::Kernel { symbol: profile.text(symbol) },
        (symbol, false) => match symbol.strip_prefix("py::") {
            Some(_) => words::python(profile, symbol)?,
            None => words::native(profile, symbol, module, inlined),
        },
    })
}
