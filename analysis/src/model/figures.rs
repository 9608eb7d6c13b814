//! Figures of a part of a model: latency, memory, work and values derived from them.
//!
//! Owns: [`Figures`]. Because: a layer, a kernel, a type and a whole model are compared by the same figures. Does not:
//! say how a figure was obtained; [`super::Basis`] does.

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use serde::{Deserialize, Serialize};

use super::peaks::{Bound, Peaks};

/// Figures of a part of a model; `None` if the profile has no such data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Device time of its kernels if the profile has it, else its CPU time.
    pub latency_ns: Option<u64>,
    /// Time on CPUs, or of host events of an imported trace.
    pub host_ns: Option<u64>,
    /// Time of its kernels on devices.
    pub gpu_ns: Option<u64>,
    /// Kernels.
    pub kernels: Option<u64>,
    /// Bytes of tensors allocated.
    pub allocated_bytes: Option<u64>,
    /// Floating-point operations, by a model.
    pub modelled_flops: Option<u64>,
    /// Bytes read and written, by a model.
    pub modelled_bytes: Option<u64>,
    /// Operations per byte: the arithmetic intensity.
    pub modelled_flops_per_byte: Option<f64>,
    /// Operations over latency: the arithmetic throughput.
    pub modelled_flops_per_second: Option<f64>,
    /// The limit that it reaches first.
    pub bound: Option<Bound>,
}

/// Which figures a profile has.
#[derive(Clone, Debug, Default)]
pub(super) struct AvailableFigures {
    pub(super) host: Option<Metric>,
    pub(super) gpu: bool,
    pub(super) kernels: bool,
    pub(super) allocated: bool,
    /// Work by layer: operators that began without a stack have none.
    pub(super) work: bool,
    /// Latency and work cover the same time: samples cover the whole capture, work the time since its probes were
    /// attached.
    pub(super) rates: bool,
    pub(super) peaks: Option<Peaks>,
}

impl AvailableFigures {
    pub(super) fn of(profile: &Profile, peaks: Option<Peaks>) -> Self {
        let has = |metric: &Metric| profile.tree.total(*metric).sum > 0;
        AvailableFigures {
            host: [Metric::CpuTime, Metric::WallTime].into_iter().find(|metric| has(metric)),
            gpu: has(&Metric::GpuTime),
            kernels: has(&Metric::Kernels),
            allocated: has(&Metric::TensorBytes),
            work: has(&Metric::ModelFlops),
            rates: has(&Metric::GpuTime),
            peaks,
        }
    }
}

/// Sums behind the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) host_ns: u64,
    pub(super) gpu_ns: u64,
    pub(super) kernels: u64,
    pub(super) allocated_bytes: u64,
    pub(super) flops: u64,
    /// Of these, operations of work whose bytes are unknown: the size of some results is not recorded.
    pub(super) flops_without_bytes: u64,
    pub(super) bytes: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Sums) {
        let pairs = [
            (&mut self.host_ns, other.host_ns),
            (&mut self.gpu_ns, other.gpu_ns),
            (&mut self.kernels, other.kernels),
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.flops, other.flops),
            (&mut self.flops_without_bytes, other.flops_without_bytes),
            (&mut self.bytes, other.bytes),
        ];
        for (mine, theirs) in pairs {
            *mine = mine.saturating_add(theirs);
        }
    }

    pub(super) fn latency_ns(&self, available: &AvailableFigures) -> u64 {
        if available.gpu { self.gpu_ns } else { self.host_ns }
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Sums::default()
    }

    /// As figures. Zero work is unknown work: no formula fits, or no tensor was recorded. Partly known bytes have no
    /// intensity: it would be too high.
    pub(super) fn figures(&self, available: &AvailableFigures) -> Figures {
        let some = |is: bool, value: u64| is.then_some(value);
        let latency_ns = some(available.gpu || available.host.is_some(), self.latency_ns(available));
        let modelled_flops = some(available.work && self.flops > 0, self.flops);
        let modelled_bytes = some(available.work && self.bytes > 0, self.bytes);
        let ratio = |part: u64, whole: u64| part as f64 / whole as f64;
        let known_bytes = modelled_bytes.filter(|_| self.flops_without_bytes == 0);
        let flops_per_byte = modelled_flops.zip(known_bytes).map(|(flops, bytes)| ratio(flops, bytes));
        let timed = latency_ns.filter(|latency_ns| available.rates && *latency_ns > 0);
        Figures {
            latency_ns,
            host_ns: some(available.host.is_some(), self.host_ns),
            gpu_ns: some(available.gpu, self.gpu_ns),
            kernels: some(available.kernels, self.kernels),
            allocated_bytes: some(available.allocated, self.allocated_bytes),
            modelled_flops,
            modelled_bytes,
            modelled_flops_per_byte: flops_per_byte,
            modelled_flops_per_second: modelled_flops.zip(timed).map(|(flops, ns)| ratio(flops, ns) * 1e9),
            bound: available.peaks.as_ref().zip(flops_per_byte).map(|(peaks, of)| peaks.bound(of)),
        }
    }
}

/// Whether some of the modelled work in a context has operations and no bytes, as that of a transposed convolution.
pub(super) fn lacks_bytes(profile: &Profile, node: NodeId) -> bool {
    let count = |metric: Metric| profile.tree.exclusive(node, metric).count;
    count(Metric::ModelBytes) < count(Metric::ModelFlops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intensity_and_throughput_follow_from_sums() {
        let sums = Sums { host_ns: 500, gpu_ns: 2000, flops: 4000, bytes: 1000, ..Sums::default() };
        let available = AvailableFigures {
            host: Some(Metric::CpuTime),
            gpu: true,
            work: true,
            rates: true,
            peaks: Peaks::new(10.0, 2.0, "given"),
            ..AvailableFigures::default()
        };
        let of = sums.figures(&available);
        assert_eq!((of.latency_ns, of.host_ns, of.kernels), (Some(2000), Some(500), None));
        assert_eq!((of.modelled_flops_per_byte, of.modelled_flops_per_second), (Some(4.0), Some(2e9)));
        assert_eq!(of.bound, Some(Bound::Memory));
    }

    #[test]
    fn what_is_not_known_is_none() {
        let sums = Sums { flops: 5, ..Sums::default() };
        let check =
            |available: AvailableFigures, expect: Figures| assert_eq!(sums.figures(&available), expect);
        check(AvailableFigures::default(), Figures::default());
        let expect = Figures { modelled_flops: Some(5), ..Figures::default() };
        check(AvailableFigures { work: true, ..AvailableFigures::default() }, expect);
    }

    #[test]
    fn work_with_partly_known_bytes_has_no_intensity() {
        let available =
            AvailableFigures { work: true, peaks: Peaks::new(10.0, 2.0, "given"), ..Default::default() };
        let intensity = |flops_without_bytes: u64| {
            let sums = Sums { flops: 4000, flops_without_bytes, bytes: 1000, ..Sums::default() };
            let of = sums.figures(&available);
            assert_eq!((of.modelled_flops, of.modelled_bytes), (Some(4000), Some(1000)));
            (of.modelled_flops_per_byte, of.bound)
        };
        assert_eq!(intensity(0), (Some(4.0), Some(Bound::Memory)));
        assert_eq!(intensity(3000), (None, None));
    }
}
