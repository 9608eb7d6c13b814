//! Events at time zero of the clock, long before all others.
//!
//! Owns: [`Trace::leave_out_at_zero`]. Because: a tool that does not know a time writes 0, and one such event makes a
//! trace of a second begin in 1970. Does not: define "long"; an importer does.

use super::{
    CollectiveNote, CollectiveNotes, CounterSteps, DeviceOp, DeviceOps, DeviceRanges, HostCategories,
    HostCategory, HostOp, HostOps, MemoryEvents, Syncs, Trace, TraceTime, WakeUpEvent, WakeUpEvents,
};
use crate::intern::Id;
use crate::units::Nanos;

/// New handles of rows by their old ones; `None` for removed rows.
struct IdMap<Row>(Vec<Option<Id<Row>>>);

impl<Row> IdMap<Row> {
    fn of(&self, old: Id<Row>) -> Option<Id<Row>> {
        self.0.get(old.index()).copied().flatten()
    }
}

impl Trace {
    /// Removes events at time 0 if all others begin more than `apart` later; returns how much later.
    pub fn leave_out_at_zero(&mut self, apart: Nanos) -> u64 {
        let zero = TraceTime::default();
        let (mut at_zero, mut others) = (0, None);
        for at in self.times() {
            match at == zero {
                true => at_zero += 1,
                false => others = Some(others.map_or(at, |first: TraceTime| first.min(at))),
            }
        }
        if at_zero == 0 || others.is_none_or(|first| first - zero <= apart) {
            return 0;
        }
        let mut host = HostOps::default();
        let keep = |(_, op): (_, HostOp)| (op.begin != zero).then(|| host.push(op)).flatten();
        let host_moved = IdMap(self.host.iter().map(keep).collect());
        self.host = host;
        let mut device = DeviceOps::default();
        let keep = |(_, op): (_, DeviceOp)| (op.begin != zero).then(|| device.push(op)).flatten();
        let device_moved = IdMap(self.device.iter().map(keep).collect());
        self.device = device;
        self.move_notes(&host_moved, &device_moved);
        macro_rules! rebuild {
            ($table:ident: $type:ty, $at:ident) => {{
                let mut kept = <$type>::default();
                self.$table.iter().filter(|(_, row)| row.$at != zero).for_each(|(_, row)| _ = kept.push(row));
                self.$table = kept;
            }};
        }
        rebuild!(syncs: Syncs, begin);
        rebuild!(counters: CounterSteps, at);
        rebuild!(memory: MemoryEvents, at);
        rebuild!(device_ranges: DeviceRanges, begin);
        at_zero
    }

    /// All times.
    fn times(&self) -> impl Iterator<Item = TraceTime> + '_ {
        let host = self.host.iter().map(|(_, op)| op.begin);
        let device = self.device.iter().map(|(_, op)| op.begin);
        let syncs = self.syncs.iter().map(|(_, sync)| sync.begin);
        let counters = self.counters.iter().map(|(_, step)| step.at);
        let memory = self.memory.iter().map(|(_, event)| event.at);
        let ranges = self.device_ranges.iter().map(|(_, range)| range.begin);
        host.chain(device).chain(syncs).chain(counters).chain(memory).chain(ranges)
    }

    /// Moves notes about operations along with them.
    fn move_notes(&mut self, host: &IdMap<HostOp>, device: &IdMap<DeviceOp>) {
        let mut categories = HostCategories::default();
        for (_, row) in self.categories.iter() {
            let moved = host.of(row.op).map(|op| HostCategory { op, ..row });
            moved.into_iter().for_each(|row| _ = categories.push(row));
        }
        self.categories = categories;
        let mut wake_ups = WakeUpEvents::default();
        for (_, row) in self.wake_ups.iter() {
            let moved = host.of(row.ends).map(|ends| WakeUpEvent { ends, ..row });
            moved.into_iter().for_each(|row| _ = wake_ups.push(row));
        }
        self.wake_ups = wake_ups;
        let mut collectives = CollectiveNotes::default();
        for (_, row) in self.collectives.iter() {
            let moved = device.of(row.op).map(|op| CollectiveNote { op, ..row });
            moved.into_iter().for_each(|row| _ = collectives.push(row));
        }
        self.collectives = collectives;
    }
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn only_events_far_before_all_others_are_left_out() {
        let check = |input: &str, left_out: u64, expect: &[&str]| {
            let mut trace = text::parse(input).unwrap();
            assert_eq!(trace.leave_out_at_zero(Nanos(1_000_000)), left_out, "{input}");
            let host = trace.host.iter().map(|(_, op)| trace.name(op.name));
            let names = host.chain(trace.device.iter().map(|(_, op)| trace.name(op.name)));
            assert_eq!(names.collect::<Vec<_>>(), expect, "{input}");
        };
        check("op m 0..5 a\n op m 2000..2005 b\n kernel 0/7 0..1 k", 2, &["b"]);
        check("op m 0..5 a\n op m 900..2005 b", 0, &["a", "b"]);
        check("op m 0..5 a\n kernel 0/7 900..2005 k\n op m 5000..5001 b", 0, &["a", "b", "k"]);
        check("op m 0..5 a", 0, &["a"]);
        check("op m 2000..2005 b", 0, &["b"]);
    }

    #[test]
    fn notes_follow_their_operations() {
        let mut trace = text::parse(
            "off-cpu m 0..9 zero woken=3 by=interrupt
             op m 2000..2001 other
             off-cpu m 3000..3009 futex woken=3005 by=interrupt",
        )
        .unwrap();
        assert_eq!(trace.leave_out_at_zero(Nanos(1_000_000)), 1);
        let woken = trace.wake_ups.iter().filter_map(|(_, row)| trace.host.get(row.ends));
        assert!(woken.map(|op| trace.name(op.name).split(' ').next()).eq([Some("futex")]));
    }
}
