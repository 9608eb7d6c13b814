//! Memory at its peak: the holders of each device's memory when most of it was in use.
//!
//! Owns: [`PeakMemory`]. Because: the answer to "out of memory" is the lines that held it then. Does not: know when
//! that was ([`deepctx_profile::device::memory`] does).

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::device::memory::{Pool, device_frame};
use deepctx_profile::frame::{Frame, FrameKind};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::amount::percent;
use crate::{Subset, Table};

/// Memory of tensors by process and device, highest peak first.
pub type PeakMemory = Table<MemoryPool>;

/// The memory of tensors of one process on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPool {
    /// Its figures.
    #[serde(flatten)]
    pub pool: Pool,
    /// Who held it at the peak, most bytes first.
    pub holders: Table<Holder>,
}

/// A place in the program that held memory at the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// The innermost Python function and the operators below it, else the innermost function.
    pub place: String,
    /// What it held.
    pub bytes: u64,
    /// As a share of the peak.
    pub bytes_percent: f64,
}

impl PeakMemory {
    /// Every device's memory at its peak.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (profile, most) = (subset.profile(), subset.selection().rows);
        let mut pools: Vec<&Pool> = profile.memory.iter().filter(|pool| pool.peak_bytes > 0).collect();
        if pools.is_empty() {
            return Table::default();
        }
        pools.sort_rows_by_key(|pool| Reverse(pool.peak_bytes));
        let held = bytes_held(profile);
        let row = |pool: &Pool| {
            let key = (pool.pid, device_frame(&pool.device));
            let mut holders: Vec<_> = held.get(&key).into_iter().flatten().collect();
            holders.sort_rows_by(|(name, a), (other, b)| b.cmp(a).then_with(|| name.cmp(other)));
            let holder = |(place, bytes): (&String, &u64)| Holder {
                place: place.clone(),
                bytes: *bytes,
                bytes_percent: percent(*bytes, pool.peak_bytes),
            };
            let holders = Table::cut(holders.into_iter().map(holder).collect(), most);
            MemoryPool { pool: pool.clone(), holders }
        };
        Table::cut(pools.into_iter().map(row).collect(), most)
    }
}

/// By process and device frame: bytes at the peak by place in the program.
fn bytes_held(profile: &Profile) -> FxHashMap<(u32, String), FxHashMap<String, u64>> {
    let mut held: FxHashMap<(u32, String), FxHashMap<String, u64>> = FxHashMap::default();
    for (node, cell) in profile.tree.cells(Metric::PeakBytes) {
        let stack = profile.tree.stack(node);
        let frames: Vec<Frame> = stack.iter().map(|frame| profile.frames.get(*frame)).collect();
        let [Frame::Process { pid, .. }, within @ .., leaf] = &frames[..] else { continue };
        let device = leaf.label(&profile.strings, false);
        let bytes = held.entry((*pid, device)).or_default().entry(place(profile, within)).or_default();
        *bytes = bytes.saturating_add(cell.sum);
    }
    held
}

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
pub(crate) mod tests {
    use deepctx_profile::frame::Role;
    use deepctx_profile::units::Nanos;

    use super::*;
    use crate::Selection;

    /// A device with two holders and one without a peak.
    pub(crate) fn profile() -> Profile {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut add = |function: &str, operators: &[&str], bytes| {
            let comm = profile.text("python");
            let (function, file) = (profile.text(function), profile.text("/a/train.py"));
            let line = std::num::NonZeroU32::new(3);
            let mut stack = vec![
                Frame::Process { comm, pid: 7 },
                Frame::Thread { name: comm, tid: 8 },
                Frame::Python { function, file, line, first_line: None, role: Role::Code },
            ];
            for name in operators.iter().copied().chain(["[memory] cuda:0"]) {
                let name = profile.text(name);
                stack.push(Frame::Operator { name });
            }
            let stack: Vec<_> = stack.into_iter().map(|frame| profile.frame(frame)).collect();
            profile.add(&stack, Metric::PeakBytes, bytes);
        };
        add("load", &["aten::empty"], 300 << 20);
        add("step", &["aten::linear", "aten::addmm"], 100 << 20);
        add("step", &["aten::linear", "aten::addmm"], 60 << 20);
        add("step", &[], 40 << 20);
        profile.memory.push(Pool {
            pid: 7,
            device: "cuda:0".into(),
            allocations: 12,
            allocated_bytes: 1 << 30,
            peak_bytes: 600 << 20,
            peak_at: Nanos(3_200_000_000),
            peak_unseen_bytes: 100 << 20,
            peak_reserved_bytes: Some(800 << 20),
            most_reserved_bytes: Some(900 << 20),
            most_unused_bytes: Some(500 << 20),
            most_unused_at: Nanos(4_000_000_000),
            asked_bytes: 1000,
            given_bytes: 1024,
            ..Pool::default()
        });
        profile.memory.push(Pool { pid: 7, device: "cpu".into(), ..Pool::default() });
        profile
    }

    #[test]
    fn holders_at_the_peak_come_largest_first() {
        let profile = profile();
        let selection = Selection { rows: 2, ..Selection::of(Metric::CpuTime) };
        let memory = PeakMemory::compute(&Subset::new(&profile, &selection));
        let [pool] = &memory.rows[..] else { panic!("{memory:?}") };
        let rows: Vec<_> =
            pool.holders.rows.iter().map(|row| (row.place.as_str(), row.bytes, row.bytes_percent)).collect();
        assert_eq!(
            rows,
            [
                ("train.py:load:3 ▸ aten::empty", 300 << 20, 50.0),
                ("train.py:step:3 ▸ aten::linear ▸ aten::addmm", 160 << 20, 160.0 / 6.0),
            ]
        );
        assert_eq!(pool.holders.left_out, 1);
    }
}
