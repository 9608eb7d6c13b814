//! Of the last work of each stream, the one that ends last.
//!
//! Owns: [`LastEnds`], [`last_ended`]. Because: a wait for a device is one for the stream that ends last, and a trace
//! with very many streams may have as many waits. Does not: know when work was queued.

use std::collections::{BTreeMap, BTreeSet};

use super::TraceTime;
use super::event::{DeviceOp, Stream};
use crate::intern::Id;

/// End, stream and work: the greatest one ends last.
type LastEnd = (TraceTime, Id<Stream>, Id<DeviceOp>);

/// The last work of each stream so far.
pub(super) struct LastEnds {
    /// A tree of maxima. Its leaves are the streams.
    tree: Vec<Option<LastEnd>>,
}

impl LastEnds {
    pub(super) fn of(streams: usize) -> Self {
        LastEnds { tree: vec![None; 2 * streams.next_power_of_two()] }
    }

    /// Adds the next work of a stream, and returns the one that ends last then; of several, that of the last stream.
    pub(super) fn add(&mut self, id: Id<DeviceOp>, op: &DeviceOp) -> Option<Id<DeviceOp>> {
        let mut at = self.tree.len() / 2 + op.stream.index();
        *self.tree.get_mut(at)? = Some((op.end(), op.stream, id));
        while at > 1 {
            at /= 2;
            self.tree[at] = self.tree[2 * at].max(self.tree[2 * at + 1]);
        }
        self.tree[1].map(|(_, _, last)| last)
    }
}

/// For each of these calls, by begin and end: of the work that each stream was given last before, the one that ends
/// last, but not after the call. Work comes with the time when it was queued, in that order.
pub(super) fn last_ended(
    streams: usize,
    work: impl Iterator<Item = (TraceTime, Id<DeviceOp>, DeviceOp)>,
    mut calls: Vec<(TraceTime, TraceTime)>,
) -> BTreeMap<(TraceTime, TraceTime), Id<DeviceOp>> {
    calls.sort_unstable();
    let mut work = work.peekable();
    let mut last: Vec<Option<LastEnd>> = vec![None; streams];
    let mut ends: BTreeSet<LastEnd> = BTreeSet::new();
    let mut found = BTreeMap::new();
    for (begin, end) in calls {
        while let Some((_, id, op)) = work.next_if(|(queued, ..)| *queued < begin) {
            let Some(of_stream) = last.get_mut(op.stream.index()) else { continue };
            let row = (op.end(), op.stream, id);
            if let Some(before) = of_stream.replace(row) {
                ends.remove(&before);
            }
            ends.insert(row);
        }
        let most: LastEnd = (end, Id::from_number(u32::MAX), Id::from_number(u32::MAX));
        if let Some((_, _, id)) = ends.range(..=most).next_back() {
            found.insert((begin, end), *id);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::trace::{Links, text};

    /// With a look at every stream for each wait, this would take minutes.
    #[test]
    fn waits_for_very_many_streams_cost_little() {
        let lines = |n: u64| {
            let [at, id] = [10 * n, n + 1];
            format!(
                "call m {at}..{} cudaLaunchKernel #{id}\nkernel 0/{n} {}..{} k{n} #{id}\n\
                 call m {}..{} cudaDeviceSynchronize\n",
                at + 1,
                at + 2,
                at + 4,
                at + 5,
                at + 6
            )
        };
        let trace = text::parse(&(0..30_000).map(lines).collect::<String>()).unwrap();
        let mut on: Vec<_> = Links::of(&trace).waits().map(|wait| wait.on).collect();
        on.sort();
        assert_eq!(on, trace.device.iter().map(|(id, _)| id).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_work_of_a_stream_stands_for_it() {
        // An end behind that of later work on the same stream is no end that anything waits for.
        let trace = text::parse(
            "call m 0..1 cudaLaunchKernel #1\ncall m 2..3 cudaLaunchKernel #2\ncall m 4..5 cudaLaunchKernel #3
             call m 6..9 cudaDeviceSynchronize\n kernel 0/7 1..90 a #1\n kernel 0/7 3..5 b #2\n kernel 0/8 5..7 c #3",
        )
        .unwrap();
        let links = Links::of(&trace);
        let names = links.waits().map(|wait| trace.name(trace.device.get(wait.on).unwrap().name));
        assert_eq!(names.collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn a_call_waits_for_no_work_that_outlasts_it() {
        // Work of two devices, or of two streams.
        let check = |second: &str, call: &str, sync: &str, expect: &[&str]| {
            let input = format!(
                "call m 0..1 cudaLaunchKernel #1\ncall m 2..3 cudaLaunchKernel #2\ncall m {call} cudaDeviceSynchronize #3
                 kernel 0/7 1..20 a #1\n kernel {second} 3..90 b #2\n {sync}"
            );
            let trace = text::parse(&input).unwrap();
            let links = Links::of(&trace);
            let names = links.waits().map(|wait| trace.name(trace.device.get(wait.on).unwrap().name));
            assert_eq!(names.collect::<Vec<_>>(), expect, "{input}");
            assert_eq!(links.unlinked_waits(), u64::from(expect.is_empty()), "{input}");
        };
        check("1/7", "4..30", "", &["a"]);
        check("1/7", "4..30", "sync context - 4..29 #3", &["a"]);
        check("0/8", "4..30", "sync stream - 4..29 #3", &["a"]);
        check("1/7", "4..95", "", &["b"]);
        check("1/7", "4..10", "", &[]);
        // All of one device is waited for: its clock must be off.
        check("0/8", "4..30", "", &["b"]);
    }
}
