//! Devices: the source of their times, and whether probes and activities agree.
//!
//! Owns: [`Devices`]. Because: a bounded time must not look like a measured one. Does not: compute anything; the
//! profile has a row for each process.

use deepctx_profile::device::activity::GpuProcess;

use crate::{Subset, Table};

/// The processes that used devices, in the order of the profile.
pub type Devices = Table<GpuProcess>;

impl Devices {
    /// The first processes.
    pub fn compute(subset: &Subset<'_>) -> Self {
        Table::cut(subset.profile().gpu.processes.clone(), subset.selection().rows)
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::Profile;

    use super::*;
    use crate::Selection;

    #[test]
    fn processes_keep_their_order() {
        let mut profile = Profile::new(Default::default(), Default::default());
        profile.gpu.processes = [9, 7, 8].map(|pid| GpuProcess { pid, ..GpuProcess::default() }).to_vec();
        let selection = Selection { rows: 2, ..Selection::of(Metric::CpuTime) };
        let devices = Devices::compute(&Subset::new(&profile, &selection));
        assert_eq!(devices.rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [9, 7]);
        assert_eq!(devices.left_out, 1);
    }
}
