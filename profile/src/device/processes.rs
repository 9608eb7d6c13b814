//! Processes: the rows of processes that used devices, and the sum of those without a row of their own.
//!
//! Owns: adding the row of one process to that of many ([`GpuProcess::join`]), how a row is called, and a list of rows
//! that has a bound ([`ProcessRows`]). Because: a machine may start short jobs for weeks, and their launches must still
//! add up when their number is long beyond what is kept. Does not: know which processes still run.

use std::collections::VecDeque;

use crate::device::DEVICES_MAX;
use crate::device::activity::{GpuProcess, PROCESSES_MAX};
use crate::units::{Nanos, counted_as};

/// What stands for a note where joined processes have different ones.
const NOTES_DIFFER: &str = "with different notes";
/// Sums of a list: one for each source of times and way of joining, of three each, so that a measured time is never
/// added to one that is merely bounded.
const SUMS_MAX: usize = 9;
/// Rows of one process each that a profile has at most: with the sums they are [`PROCESSES_MAX`].
pub const SINGLE_MAX: usize = PROCESSES_MAX - SUMS_MAX;

impl GpuProcess {
    /// What the row is called: `process 7`, or `3 other processes` for a sum.
    pub fn label(&self) -> String {
        match self.joined_processes {
            0 => format!("process {}", self.pid),
            n => counted_as(n, "other process", "other processes"),
        }
    }

    /// Processes that the row is of.
    fn processes(&self) -> u64 {
        self.joined_processes.max(1)
    }

    /// Whether both rows may become one.
    fn is_alike(&self, other: &GpuProcess) -> bool {
        (self.tier, self.join) == (other.tier, other.join)
    }

    /// Adds another row of the same source of times, so that this one is a sum of several processes. Such a sum has no
    /// number and no device clock, since each process has its own. Gives how many devices found no room.
    pub fn join_processes(&mut self, other: &GpuProcess) -> u64 {
        self.joined_processes = self.processes().saturating_add(other.processes());
        (self.pid, self.clock) = (0, None);
        if self.note != other.note {
            self.note = NOTES_DIFFER.to_owned();
        }
        for (sum, more) in [
            (&mut self.launches, other.launches),
            (&mut self.launches_without_stack, other.launches_without_stack),
            (&mut self.captured, other.captured),
            (&mut self.graph_launches, other.graph_launches),
            (&mut self.transfers, other.transfers),
            (&mut self.transfers_collected, other.transfers_collected),
            (&mut self.launches_collected, other.launches_collected),
            (&mut self.kernels, other.kernels),
            (&mut self.graph_kernels, other.graph_kernels),
            (&mut self.joined, other.joined),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in
            [(&mut self.overhead, other.overhead), (&mut self.busy_at_most, other.busy_at_most)]
        {
            *sum = Nanos(sum.0.saturating_add(more.0));
        }
        self.join_devices(other)
    }

    /// Adds the devices that are not known yet; gives how many found no room.
    fn join_devices(&mut self, other: &GpuProcess) -> u64 {
        let mut without_room = 0;
        for device in &other.devices {
            if self.devices.contains(device) {
                continue;
            }
            if self.devices.len() < DEVICES_MAX {
                self.devices.push(device.clone());
            } else {
                without_room += 1;
            }
        }
        without_room
    }
}

/// The latest rows of processes, and sums of the rows before them.
#[derive(Clone, Debug, Default)]
pub struct ProcessRows {
    latest: VecDeque<GpuProcess>,
    sums: Vec<GpuProcess>,
}

impl ProcessRows {
    /// Adds a row, and keeps the latest `most` as they are. Gives how many devices found no room in a sum.
    pub fn push(&mut self, row: GpuProcess, most: usize) -> u64 {
        self.latest.push_back(row);
        let mut without_room = 0;
        while self.latest.len() > most
            && let Some(oldest) = self.latest.pop_front()
        {
            without_room += add_to_sum(&mut self.sums, oldest);
        }
        without_room
    }

    /// Sums first, then the latest rows, the last one first.
    pub fn iter(&self) -> impl Iterator<Item = &GpuProcess> {
        self.sums.iter().chain(self.latest.iter().rev())
    }
}

/// Adds a row to that sum of `rows` which has the same source of times; where there is none, the row becomes it. Gives
/// how many devices found no room.
fn add_to_sum(rows: &mut Vec<GpuProcess>, row: GpuProcess) -> u64 {
    let sum = rows.iter_mut().find(|sum| sum.joined_processes > 0 && sum.is_alike(&row));
    if let Some(sum) = sum {
        return sum.join_processes(&row);
    }
    rows.push(GpuProcess { joined_processes: row.processes(), pid: 0, clock: None, ..row });
    0
}

/// Adds rows to others. Beyond `most` rows they are added to sums, of which there are a few more.
pub(crate) fn add_rows<'r>(
    rows: &mut Vec<GpuProcess>,
    more: impl IntoIterator<Item = &'r GpuProcess>,
    most: usize,
) {
    for row in more {
        if row.joined_processes == 0 && rows.len() < most {
            rows.push(row.clone());
        } else {
            add_to_sum(rows, row.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::activity::{ClockOffset, JoinMethod, Tier};

    fn process(pid: u32) -> GpuProcess {
        GpuProcess { pid, launches: u64::from(pid), ..GpuProcess::default() }
    }

    fn collected(pid: u32) -> GpuProcess {
        let clock = Some(ClockOffset { readings: 1, ..ClockOffset::default() });
        GpuProcess { tier: Tier::Collected, join: JoinMethod::Exact, clock, ..process(pid) }
    }

    fn shown(rows: &ProcessRows) -> Vec<(String, u64)> {
        rows.iter().map(|row| (row.label(), row.launches)).collect()
    }

    #[test]
    fn the_oldest_rows_become_a_labelled_sum() {
        let mut rows = ProcessRows::default();
        (1..=3).for_each(|pid| _ = rows.push(process(pid), 2));
        let row = |label: &str, launches| (label.to_owned(), launches);
        assert_eq!(shown(&rows), [row("1 other process", 1), row("process 3", 3), row("process 2", 2)]);
        (4..=5).for_each(|pid| _ = rows.push(process(pid), 2));
        assert_eq!(shown(&rows), [row("3 other processes", 6), row("process 5", 5), row("process 4", 4)]);
    }

    #[test]
    fn measured_rows_are_not_added_to_bounded_ones() {
        let mut rows = ProcessRows::default();
        for row in [process(1), collected(2), process(4), collected(8)] {
            rows.push(row, 0);
        }
        let sums: Vec<_> = rows.iter().map(|row| (row.tier, row.launches, row.clock)).collect();
        assert_eq!(sums, [(Tier::Observed, 5, None), (Tier::Collected, 10, None)]);
    }

    #[test]
    fn a_sum_has_each_device_once_and_a_bound() {
        let of = |number| Device { number, ..Device::default() };
        let devices: Vec<Device> = (0..DEVICES_MAX as u32).map(of).collect();
        let mut sum = GpuProcess { devices: devices.clone(), note: "CUPTI 26".into(), ..process(1) };
        let same = GpuProcess { devices, note: "CUPTI 26".into(), ..process(2) };
        assert_eq!((sum.join_processes(&same), sum.devices.len()), (0, DEVICES_MAX));
        assert_eq!(sum.note, "CUPTI 26");
        let others = GpuProcess { devices: vec![of(1000), of(1001)], ..process(3) };
        assert_eq!((sum.join_processes(&others), sum.devices.len()), (2, DEVICES_MAX));
        assert_eq!((sum.note.as_str(), sum.label()), (NOTES_DIFFER, "3 other processes".to_owned()));
    }

    #[test]
    fn rows_without_room_are_added_to_a_sum() {
        let of_one: Vec<_> = (1..=600).map(process).collect();
        let mut rows = of_one.clone();
        (0..2).for_each(|_| add_rows(&mut rows, &of_one, SINGLE_MAX));
        assert_eq!(
            (rows.len(), rows[SINGLE_MAX].label()),
            (SINGLE_MAX + 1, "785 other processes".to_owned())
        );
        let launches: u64 = rows.iter().map(|row| row.launches).sum();
        assert_eq!(launches, 3 * 600 * 601 / 2);
    }

    #[test]
    fn sums_are_added_as_what_they_stand_for() {
        let mut sum = process(1);
        sum.join_processes(&process(2));
        let mut both = sum.clone();
        both.join_processes(&sum);
        assert_eq!((both.joined_processes, both.launches), (4, 6));
    }
}
