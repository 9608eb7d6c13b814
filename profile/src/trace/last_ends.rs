//! Of the last work of each stream, the one that ends last.
//!
//! Owns: [`LastEnds`]. Because: a wait for a device is one for the stream that ends last, and a trace with very many
//! streams may have as many waits. Does not: know when work was queued.

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
}
