//! Metrics: what can be measured in a calling context, and the figures kept of it.
//!
//! Owns: the list of metrics with their names and units, and [`Cell`]. Because: count, sum, extremes and sum of
//! squares together give means and deviations for free and can be merged in any order. Does not: know where the
//! values come from.
//!
//! The set is closed on purpose: a metric is an index into arrays on the hot path, and its number is stored.
//! Quantities that an analysis derives (a share, a rate, a model's estimate) do not belong here: they are values of
//! that analysis, with a key and a [`Unit`] of their own, computed from cells when a report is made and never stored
//! with them.

use std::fmt;
use std::str::FromStr;

/// Unit of a metric's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// A plain count.
    Count,
    /// Bytes.
    Bytes,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $variant:ident = $n:literal, $name:literal, $unit:ident;)*) => {
        /// Something measured. Numbers and names are stored: append-only.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Metric { $($(#[$doc])* $variant = $n,)* }

        impl Metric {
            /// Every metric, in numeric order.
            pub const ALL: &'static [Metric] = &[$(Metric::$variant,)*];

            /// Name as in the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Metric::$variant => $name,)* }
            }

            /// Unit of its values.
            pub const fn unit(self) -> Unit {
                match self { $(Metric::$variant => Unit::$unit,)* }
            }
        }
    };
}

metrics! {
    /// Time on a CPU.
    CpuTime = 0, "cpu-time", Nanoseconds;
    /// Time blocked or waiting for a CPU.
    OffCpuTime = 1, "off-cpu-time", Nanoseconds;
    /// Elapsed time, whatever the thread did.
    WallTime = 2, "wall-time", Nanoseconds;
    /// Timer samples.
    Samples = 3, "samples", Count;
    /// Time of kernels on a GPU.
    GpuTime = 4, "gpu-time", Nanoseconds;
    /// Kernels launched on a GPU.
    Kernels = 5, "kernels", Count;
    /// Host time inside launch calls.
    LaunchTime = 6, "launch-time", Nanoseconds;
    /// From the launch to the start on the device.
    LaunchDelay = 7, "launch-delay", Nanoseconds;
    /// Host time blocked in synchronization.
    SyncTime = 8, "sync-time", Nanoseconds;
    /// Time of copies and fills on a device.
    CopyTime = 9, "copy-time", Nanoseconds;
    /// Bytes copied or filled.
    CopyBytes = 10, "copy-bytes", Bytes;
    /// Bytes allocated.
    AllocBytes = 11, "alloc-bytes", Bytes;
    /// Bytes freed.
    FreeBytes = 12, "free-bytes", Bytes;
    // The stall reasons of NVIDIA's warp-state sampler, by the names its tools print.
    /// PC samples: waiting at a barrier.
    StallBarrier = 13, "stall:barrier", Count;
    /// PC samples: waiting for a branch target.
    StallBranchResolving = 14, "stall:branch_resolving", Count;
    /// PC samples: held back by the dispatcher.
    StallDispatch = 15, "stall:dispatch_stall", Count;
    /// PC samples: waiting for stores to drain at exit.
    StallDrain = 16, "stall:drain", Count;
    /// PC samples: immediate constant cache miss.
    StallImcMiss = 17, "stall:imc_miss", Count;
    /// PC samples: local/global memory queue full.
    StallLgThrottle = 18, "stall:lg_throttle", Count;
    /// PC samples: waiting for local, global or texture memory.
    StallLongScoreboard = 19, "stall:long_scoreboard", Count;
    /// PC samples: arithmetic pipe busy.
    StallMathPipeThrottle = 20, "stall:math_pipe_throttle", Count;
    /// PC samples: waiting at a memory barrier.
    StallMembar = 21, "stall:membar", Count;
    /// PC samples: memory input/output queue full.
    StallMioThrottle = 22, "stall:mio_throttle", Count;
    /// PC samples: any other reason.
    StallMisc = 23, "stall:misc", Count;
    /// PC samples: waiting for instructions.
    StallNoInstructions = 24, "stall:no_instructions", Count;
    /// PC samples: eligible, but another warp was chosen.
    StallNotSelected = 25, "stall:not_selected", Count;
    /// PC samples: issuing.
    StallSelected = 26, "stall:selected", Count;
    /// PC samples: waiting for shared memory or special functions.
    StallShortScoreboard = 27, "stall:short_scoreboard", Count;
    /// PC samples: asleep on purpose.
    StallSleeping = 28, "stall:sleeping", Count;
    /// PC samples: texture queue full.
    StallTexThrottle = 29, "stall:tex_throttle", Count;
    /// PC samples: fixed latency of the previous instruction.
    StallWait = 30, "stall:wait", Count;
    /// PC samples: waiting for a warp-group matrix operation.
    StallGmma = 31, "stall:gmma", Count;
    /// PC samples: waiting for the warps of a warp group to arrive.
    StallWarpgroupArrive = 32, "stall:warpgroup_arrive", Count;
    /// Hardware cycles on a CPU.
    Cycles = 33, "cycles", Count;
    /// Upper bound of kernel time that was not measured: from the launch to the end of the next wait for it. Launches
    /// overlap in it, so sums are far too high.
    GpuTimeBound = 34, "gpu-time-bound", Nanoseconds;
    /// Of the bytes allocated in a context, those freed since, from any context.
    ReturnedBytes = 35, "returned-bytes", Bytes;
    /// Bytes that a rank contributed to collectives.
    CollectiveBytes = 36, "collective-bytes", Bytes;
    /// Calls of user-selected functions, and of operators.
    Calls = 37, "calls", Count;
    /// Time in a named range of the program, without the ranges nested in it.
    RangeTime = 38, "range-time", Nanoseconds;
    /// Time from the end of a training step to the end of the next one at the same place.
    StepTime = 39, "step-time", Nanoseconds;
    /// Floating-point operations that a model derives from the sizes of tensors ([`crate::operator::work`]): not
    /// measured.
    ModelFlops = 40, "model-flops", Count;
    /// Bytes read and written, derived by the same model: not measured.
    ModelBytes = 41, "model-bytes", Bytes;
    /// Bytes of tensors allocated by the framework's allocator.
    TensorBytes = 42, "tensor-bytes", Bytes;
    /// Of these, those freed since, from any context.
    TensorReturnedBytes = 43, "tensor-returned-bytes", Bytes;
    /// Live bytes of tensors: of a context at the end, of a device by time.
    LiveBytes = 44, "live-bytes", Bytes;
    /// Bytes of tensors that a context held at the peak of its device.
    PeakBytes = 45, "peak-bytes", Bytes;
    /// Bytes reserved by the framework's allocator, allocated to tensors or not.
    ReservedBytes = 46, "reserved-bytes", Bytes;
    // Of the machine, whatever ran on it: see `docs/system.md`.
    /// Time that a CPU of the machine ran anything.
    CpuBusyTime = 47, "system:cpu-busy-time", Nanoseconds;
    /// Time that a CPU of the machine was idle while a task that ran there waited for a disk.
    CpuIoWaitTime = 48, "system:cpu-io-wait-time", Nanoseconds;
    /// Time that the hypervisor withheld a CPU of a virtual machine.
    CpuStealTime = 49, "system:cpu-steal-time", Nanoseconds;
    /// Time in which some task was runnable without a CPU.
    CpuPressureTime = 50, "system:cpu-pressure-time", Nanoseconds;
    /// Time in which some task waited for a disk.
    IoPressureTime = 51, "system:io-pressure-time", Nanoseconds;
    /// Time in which some task waited for memory to be reclaimed or read back.
    MemoryPressureTime = 52, "system:memory-pressure-time", Nanoseconds;
    /// Periods in which a cgroup with a CPU limit ran.
    LimitedPeriods = 53, "system:limited-periods", Count;
    /// Of these, those in which the limit stopped it.
    ThrottledPeriods = 54, "system:throttled-periods", Count;
    /// Bytes of memory in use, by time.
    MemoryUsedBytes = 55, "system:memory-used-bytes", Bytes;
    /// Bytes read from a disk.
    DiskReadBytes = 56, "system:disk-read-bytes", Bytes;
    /// Bytes written to a disk.
    DiskWrittenBytes = 57, "system:disk-written-bytes", Bytes;
    /// Bytes received by a network interface.
    NetworkReceivedBytes = 58, "system:network-received-bytes", Bytes;
    /// Bytes sent by a network interface.
    NetworkSentBytes = 59, "system:network-sent-bytes", Bytes;
    // Of a GPU, as its driver reports them: sampled once in each interval, and taken for all of it.
    /// Time that a GPU ran any kernel: the driver's share of its last period, of at most a second, times the interval.
    GpuBusyTime = 60, "system:gpu-busy-time", Nanoseconds;
    /// Time that the memory of a GPU was read or written, in the same way.
    GpuMemoryBusyTime = 61, "system:gpu-memory-busy-time", Nanoseconds;
    /// Total bytes of memory, by time.
    MemoryTotalBytes = 62, "system:memory-total-bytes", Bytes;
    /// Milliwatts that a GPU draws, by time.
    GpuPowerMilliwatts = 63, "system:gpu-power-milliwatts", Count;
    /// Degrees Celsius of a GPU, by time.
    GpuTemperatureCelsius = 64, "system:gpu-temperature-celsius", Count;
    /// Megahertz of a GPU's multiprocessors, by time.
    GpuClockMegahertz = 65, "system:gpu-clock-megahertz", Count;
    /// Megahertz of a GPU's memory, by time.
    GpuMemoryClockMegahertz = 66, "system:gpu-memory-clock-megahertz", Count;
    /// Time of intervals in which a GPU was slowed down to stay within its power limit.
    GpuPowerLimitedTime = 67, "system:gpu-power-limited-time", Nanoseconds;
    /// The same, because it was too hot.
    GpuThermalLimitedTime = 68, "system:gpu-thermal-limited-time", Nanoseconds;
    /// The same, because its hardware slowed down for another reason.
    GpuSlowdownTime = 69, "system:gpu-slowdown-time", Nanoseconds;
    /// The same, because a user set its clocks, or it follows those of other GPUs.
    GpuClockSettingTime = 70, "system:gpu-clock-setting-time", Nanoseconds;
    /// Megabits per second of a network interface's link in each direction.
    NetworkLinkMegabits = 71, "system:network-link-megabits", Count;
}

impl Metric {
    /// Number of metrics.
    pub const COUNT: usize = Metric::ALL.len();

    /// Whether it is a level: a value holds until the next one, and the value of a span is the highest in it, not the
    /// sum.
    pub const fn is_level(self) -> bool {
        matches!(self, Self::LiveBytes | Self::ReservedBytes) || self.is_reading()
    }

    /// Whether values of one context add up. Readings of the machine do not: only their mean and their values over time
    /// are meaningful.
    pub const fn adds_up(self) -> bool {
        !self.is_reading()
    }

    /// Whether it is a level of the machine that is read repeatedly.
    const fn is_reading(self) -> bool {
        matches!(
            self,
            Self::MemoryUsedBytes
                | Self::MemoryTotalBytes
                | Self::GpuPowerMilliwatts
                | Self::GpuTemperatureCelsius
                | Self::GpuClockMegahertz
                | Self::GpuMemoryClockMegahertz
                | Self::NetworkLinkMegabits
        )
    }

    /// Whether it is of the machine, whatever ran on it; its contexts are [`crate::frame::Frame::Resource`]s.
    pub const fn is_of_machine(self) -> bool {
        self as u8 >= Self::CpuBusyTime as u8
    }

    /// Joins values of two spans of time.
    #[inline]
    pub fn join(self, a: u64, b: u64) -> u64 {
        if self.is_level() { a.max(b) } else { a.saturating_add(b) }
    }

    /// Place in arrays of [`Metric::COUNT`] entries.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No metric has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric `{0}`: expected one of {names}", names = Metric::ALL.iter().map(|m| m.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, UnknownMetric> {
        Metric::ALL.iter().copied().find(|m| m.name() == name).ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

/// Figures of one metric at one place. Merging is commutative and associative, as long as nothing saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Number of values.
    pub count: u64,
    /// Their sum; stops at the largest `u64` (584 years of nanoseconds).
    pub sum: u64,
    /// The smallest; `u64::MAX` when there is none.
    pub min: u64,
    /// The largest; 0 when there is none.
    pub max: u64,
    /// Sum of their squares; stops at [`Cell::SUM_SQUARES_MAX`].
    pub sum_squares: u128,
}

impl Default for Cell {
    fn default() -> Self {
        Cell::EMPTY
    }
}

impl Cell {
    /// No values.
    pub const EMPTY: Cell = Cell { count: 0, sum: 0, min: u64::MAX, max: 0, sum_squares: 0 };

    /// Largest sum of squares: what the store's `DECIMAL(38, 0)` holds.
    pub const SUM_SQUARES_MAX: u128 = 10u128.pow(38) - 1;

    /// This many times the same value.
    pub fn repeated(count: u64, value: u64) -> Cell {
        if count == 0 {
            return Cell::EMPTY;
        }
        let squares = (u128::from(value) * u128::from(value)).saturating_mul(u128::from(count));
        Cell {
            count,
            sum: count.saturating_mul(value),
            min: value,
            max: value,
            sum_squares: squares.min(Self::SUM_SQUARES_MAX),
        }
    }

    /// Adds one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.add_squares(u128::from(value) * u128::from(value));
    }

    /// Adds all values of another cell.
    pub fn merge(&mut self, other: &Cell) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.add_squares(other.sum_squares);
    }

    #[inline]
    fn add_squares(&mut self, squares: u128) {
        self.sum_squares = self.sum_squares.saturating_add(squares).min(Self::SUM_SQUARES_MAX);
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Mean of the values; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Standard deviation of the values (of the whole population, not of a sample); `None` without any.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let variance = self.sum_squares as f64 / self.count as f64 - mean * mean;
        Some(variance.max(0.0).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_parse_back_and_numbers_are_indices() {
        for (place, &metric) in Metric::ALL.iter().enumerate() {
            assert_eq!(metric.name().parse(), Ok(metric));
            assert_eq!(metric.index(), place);
        }
        assert!(
            "cpu"
                .parse::<Metric>()
                .unwrap_err()
                .to_string()
                .starts_with("unknown metric `cpu`: expected one of cpu-time,")
        );
    }

    #[test]
    fn mean_and_deviation_of_a_known_sample() {
        let mut cell = Cell::EMPTY;
        assert_eq!((cell.mean(), cell.deviation()), (None, None));
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|value| cell.add(value));
        assert_eq!((cell.count, cell.sum, cell.min, cell.max, cell.sum_squares), (8, 40, 2, 9, 232));
        assert_eq!((cell.mean(), cell.deviation()), (Some(5.0), Some(2.0)));
    }

    #[test]
    fn huge_values_saturate() {
        let mut cell = Cell::EMPTY;
        cell.add(u64::MAX);
        cell.add(u64::MAX);
        assert_eq!((cell.sum, cell.sum_squares), (u64::MAX, Cell::SUM_SQUARES_MAX));
        let other = cell;
        cell.merge(&other);
        assert_eq!((cell.count, cell.sum_squares), (4, Cell::SUM_SQUARES_MAX));
    }
}
