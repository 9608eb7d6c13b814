//! XLA's names: what planes, lines and events of its profiler say of devices.
//!
//! Owns: [`Plane`], [`stream`] and [`work`]. Because: XPlane files, and the Chrome traces that JAX and TensorBoard make
//! of them, have the same names. Does not: read either.
//!
//! The line of a stream lists all kinds of its work in no order (`Stream #17(Compute,MemcpyD2H)`). Other lines of a
//! device (`XLA Ops`, `XLA Modules`, `Steps`) are derived from streams, and repeat their time.

use deepctx_profile::trace::DeviceKind;

/// What a plane, a process in Chrome's form, is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plane {
    /// A GPU, by its number.
    Gpu(u32),
    /// A device of another kind (`/device:TPU:0`), whose lines are no streams.
    OtherDevice,
    /// Threads.
    Threads,
}

impl Plane {
    pub(super) fn of(name: &str) -> Self {
        let Some(device) = name.strip_prefix("/device:") else { return Plane::Threads };
        let number = device.strip_prefix("GPU:").and_then(|rest| rest.split(' ').next()?.parse().ok());
        number.map_or(Plane::OtherDevice, Plane::Gpu)
    }
}

/// Number of the stream of a line, and the kinds of its work; `None` for any other line.
pub(super) fn stream(line: &str) -> Option<(Option<u64>, &str)> {
    let rest = line.strip_prefix("Stream #")?;
    let (number, kinds) = rest.split_once('(').unwrap_or((rest, ""));
    Some((number.parse().ok(), kinds.strip_suffix(')').unwrap_or(kinds)))
}

/// Names of copies; their ends vary (`MemcpyD2H`, `MemcpyHToD`).
const COPIES: [&str; 4] = ["MemcpyD", "MemcpyH", "MemcpyP2P", "MemcpyOther"];

/// The kind of an event of a stream: by its name for copies and fills, otherwise by the line, if that has one kind.
pub(super) fn work(kinds: &str, event: &str) -> DeviceKind {
    let only = if kinds.contains(',') { "" } else { kinds };
    if COPIES.iter().any(|copy| event.starts_with(copy)) || only.starts_with("Memcpy") {
        DeviceKind::Copy
    } else if event == "Memset" || only.starts_with("Memset") {
        DeviceKind::Fill
    } else {
        DeviceKind::Kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_mixed_lines_is_told_by_its_name() {
        let check = |line: &str, event: &str, expect: (Option<u64>, DeviceKind)| {
            let (number, kinds) = stream(line).unwrap();
            assert_eq!((number, work(kinds, event)), expect, "{line} {event}");
        };
        check("Stream #17(Kernel)", "gemm", (Some(17), DeviceKind::Kernel));
        check("Stream #3(MemcpyD2H,Compute)", "loop_fusion", (Some(3), DeviceKind::Kernel));
        check("Stream #3(Memset,Compute)", "loop_fusion", (Some(3), DeviceKind::Kernel));
        check("Stream #3(Compute,MemcpyD2H)", "MemcpyD2H", (Some(3), DeviceKind::Copy));
        check("Stream #3(Compute,Memset)", "Memset", (Some(3), DeviceKind::Fill));
        check("Stream #4(MemcpyH2D)", "hipMemcpyAsync", (Some(4), DeviceKind::Copy));
        check("Stream #all", "gemm", (None, DeviceKind::Kernel));
        assert_eq!(stream("XLA Ops"), None);
    }

    #[test]
    fn planes_are_of_devices_or_threads() {
        assert_eq!(Plane::of("/device:GPU:3 H100"), Plane::Gpu(3));
        assert_eq!(Plane::of("/device:TPU:0"), Plane::OtherDevice);
        assert_eq!(Plane::of("/host:CPU"), Plane::Threads);
    }
}
