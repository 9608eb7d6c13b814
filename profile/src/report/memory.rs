//! Memory at its peak: who had the memory of each device when there was most of it.
//!
//! Owns: the table. Because: "out of memory" has an answer: the lines that had it then. Does not: know when that was
//! ([`crate::memory`] does).

use std::cmp::Reverse;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Extent, NAME_WIDTH, counted, share, without_middle};
use crate::frame::{Frame, FrameKind, clean};
use crate::memory::{Pool, device_frame};
use crate::metric::Metric;
use crate::profile::Profile;
use crate::units::{Bytes, Nanos};

/// What is known of a pool, in lines for people.
fn lines(pool: &Pool) -> Vec<String> {
    let mut lines = vec![format!(
        "{} at {}: {}; {} of {} in all",
        Bytes(pool.peak_bytes),
        Nanos(pool.peak_ns),
        match pool.peak_reserved_bytes {
            None => "most at a time".to_owned(),
            Some(reserved) => format!(
                "most at a time, of {} that the allocator held ({} unused)",
                Bytes(reserved),
                share(reserved.saturating_sub(pool.peak_bytes), reserved).trim()
            ),
        },
        counted(pool.allocations, "allocation"),
        Bytes(pool.allocated_bytes),
    )];
    if let (Some(reserved), Some(unused)) = (pool.most_reserved_bytes, pool.most_unused_bytes) {
        lines.push(format!(
            "the allocator held {} at most; {} of it were unused at {}",
            Bytes(reserved),
            Bytes(unused),
            Nanos(pool.most_unused_ns)
        ));
    }
    if pool.given_bytes > pool.asked_bytes && pool.asked_bytes > 0 {
        let more = pool.given_bytes - pool.asked_bytes;
        lines.push(format!("{} more were given out than asked for", share(more, pool.asked_bytes).trim()));
    }
    if pool.peak_unseen_bytes > 0 {
        lines
            .push(format!("{} of the most were allocated before the capture", Bytes(pool.peak_unseen_bytes)));
    }
    lines
}

/// Who had the memory of each device when there was most of it.
pub(super) fn write(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let mut pools: Vec<&Pool> = profile.memory.iter().filter(|pool| pool.peak_bytes > 0).collect();
    if pools.is_empty() {
        return Ok(());
    }
    pools.sort_by_key(|pool| Reverse(pool.peak_bytes));
    let held = holders(profile);
    writeln!(out, "\nMemory at its peak")?;
    for pool in pools.iter().take(extent.rows) {
        writeln!(out, "  process {}, {}", pool.pid, clean(&pool.device))?;
        for line in lines(pool) {
            writeln!(out, "    {line}")?;
        }
        let key = (pool.pid, device_frame(&pool.device));
        let mut holders: Vec<_> = held.get(&key).into_iter().flatten().collect();
        holders.sort_by(|(name, a), (other, b)| b.cmp(a).then_with(|| name.cmp(other)));
        for (name, bytes) in holders.iter().take(extent.rows) {
            let (share, bytes) = (share(**bytes, pool.peak_bytes), Bytes(**bytes).to_string());
            writeln!(out, "    {share}  {bytes:>9}  {}", without_middle(name, 2 * NAME_WIDTH))?;
        }
        if let Some(more) = holders.len().checked_sub(extent.rows).filter(|more| *more > 0) {
            writeln!(out, "    … {}", counted(more as u64, "more place"))?;
        }
    }
    if let Some(more) = pools.len().checked_sub(extent.rows).filter(|more| *more > 0) {
        writeln!(out, "  … {}", counted(more as u64, "more device"))?;
    }
    Ok(())
}

/// By process and frame of the device: bytes at the peak by place in the program.
fn holders(profile: &Profile) -> FxHashMap<(u32, String), FxHashMap<String, u64>> {
    let mut holders: FxHashMap<(u32, String), FxHashMap<String, u64>> = FxHashMap::default();
    for (node, cell) in profile.tree.cells(Metric::PeakBytes) {
        let stack = profile.tree.stack(node);
        let frames: Vec<Frame> = stack.iter().map(|frame| profile.frames.get(*frame)).collect();
        let [Frame::Process { pid, .. }, within @ .., leaf] = &frames[..] else { continue };
        let device = leaf.label(&profile.strings, false);
        let place = place(profile, within);
        let bytes = holders.entry((*pid, device)).or_default().entry(place).or_default();
        *bytes = bytes.saturating_add(cell.sum);
    }
    holders
}

/// Where in the program that is: the innermost Python function and the operators below it, else the innermost function.
fn place(profile: &Profile, frames: &[Frame]) -> String {
    let label = |frame: &Frame| frame.label(&profile.strings, true);
    let python = frames.iter().rposition(|frame| frame.kind() == FrameKind::Python);
    let below = frames.get(python.map_or(0, |at| at + 1)..).unwrap_or_default();
    let operators = below.iter().filter(|frame| frame.kind() == FrameKind::Operator);
    let place: Vec<String> =
        python.and_then(|at| frames.get(at)).into_iter().chain(operators).map(label).collect();
    match place.is_empty() {
        true => frames.last().map_or_else(String::new, label),
        false => place.join(" ▸ "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Limits, Meta};

    #[test]
    fn the_report_says_who_had_the_memory_when_there_was_most() {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let add = |profile: &mut Profile, function: &str, operators: &[&str], bytes| {
            let comm = profile.text("python");
            let (function, file) = (profile.text(function), profile.text("/a/train.py"));
            let mut stack = vec![
                Frame::Process { comm, pid: 7 },
                Frame::Thread { name: comm, tid: 8 },
                Frame::Python {
                    function,
                    file,
                    line: std::num::NonZeroU32::new(3),
                    first_line: None,
                    role: crate::frame::Role::Code,
                },
            ];
            for name in operators.iter().copied().chain(["[memory] cuda:0"]) {
                let name = profile.text(name);
                stack.push(Frame::Operator { name });
            }
            let stack: Vec<_> = stack.into_iter().map(|frame| profile.frame(frame)).collect();
            profile.add(&stack, Metric::PeakBytes, bytes);
        };
        add(&mut profile, "load", &["aten::empty"], 300 << 20);
        add(&mut profile, "step", &["aten::linear", "aten::addmm"], 100 << 20);
        add(&mut profile, "step", &["aten::linear", "aten::addmm"], 60 << 20);
        add(&mut profile, "step", &[], 40 << 20);
        profile.memory.push(Pool {
            pid: 7,
            device: "cuda:0".into(),
            allocations: 12,
            allocated_bytes: 1 << 30,
            peak_bytes: 600 << 20,
            peak_ns: 3_200_000_000,
            peak_unseen_bytes: 100 << 20,
            peak_reserved_bytes: Some(800 << 20),
            most_reserved_bytes: Some(900 << 20),
            most_unused_bytes: Some(500 << 20),
            most_unused_ns: 4_000_000_000,
            asked_bytes: 1000,
            given_bytes: 1024,
            ..Pool::default()
        });
        profile.memory.push(Pool { pid: 7, device: "cpu".into(), ..Pool::default() });
        let mut out = Vec::new();
        write(&profile, Extent { rows: 2, depth: 3 }, &mut out).unwrap();
        expect_test::expect![[r#"

            Memory at its peak
              process 7, cuda:0
                600 MiB at 3.20 s: most at a time, of 800 MiB that the allocator held (25.0% unused); 12 allocations of 1.00 GiB in all
                the allocator held 900 MiB at most; 500 MiB of it were unused at 4.00 s
                2.4% more were given out than asked for
                100 MiB of the most were allocated before the capture
                 50.0%    300 MiB  train.py:load:3 ▸ aten::empty
                 26.7%    160 MiB  train.py:step:3 ▸ aten::linear ▸ aten::addmm
                … 1 more place
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }
}
