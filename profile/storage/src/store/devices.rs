//! Device activities, to and from their tables.
//!
//! Owns: the rows of single activities and of the shapes of launches, and what of them is new since the last flush.
//! Because: a trace is drawn from single activities, and the profile in memory keeps only the last of them. Does not:
//! touch files.

use rustc_hash::FxHashMap;

use super::batch::{Batch, Row};
use super::columns::Table;
use deepctx_profile::device::activity::{Activity, ActivityKind, Shape, Spread};
use deepctx_profile::device::gpu::Gpu;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

/// The part of device work that is on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenDevices {
    /// Activities so far, including those left out.
    met: u64,
    /// Of these, those dropped before a flush.
    pub(super) left_out: u64,
    /// By context: as many as a profile keeps.
    shapes: FxHashMap<NodeId, Shape>,
}

/// New rows since `written`, and the state after writing them.
pub(super) fn new_rows(gpu: &Gpu, written: &WrittenDevices) -> (Batch, Batch, WrittenDevices) {
    let (mut activities, mut shapes) = (Batch::new(Table::Activities), Batch::new(Table::Shapes));
    let mut now = written.clone();
    let first = gpu.activities.left_out();
    now.met = first.saturating_add(gpu.activities.iter().len() as u64);
    now.left_out = now.left_out.saturating_add(first.saturating_sub(written.met));
    let known = usize::try_from(written.met.saturating_sub(first)).unwrap_or(usize::MAX);
    gpu.activities.iter().skip(known).for_each(|activity| push_activity(&mut activities, activity));
    let changed = gpu.shapes().filter(|(node, shape)| written.shapes.get(node) != Some(shape));
    let mut changed: Vec<_> = changed.map(|(node, shape)| (node, *shape)).collect();
    changed.sort_unstable_by_key(|(node, _)| *node);
    for (node, shape) in changed {
        push_shape(&mut shapes, node, &shape);
        now.shapes.insert(node, shape);
    }
    (activities, shapes, now)
}

fn push_activity(to: &mut Batch, activity: &Activity) {
    let Activity { node, kind, pid, device, context, stream, correlation, start, end, launched, bytes } =
        *activity;
    to.push([
        kind.name().into(),
        node.number().into(),
        pid.into(),
        device.into(),
        context.into(),
        stream.into(),
        correlation.into(),
        start.0.into(),
        end.0.into(),
        launched.map(|time| time.0).into(),
        bytes.into(),
    ]);
}

/// A row of `activities`; its `node` is a number on disk. An unknown kind has no row.
pub(super) fn activity(row: &Row<'_>) -> Option<(u32, Option<Activity>)> {
    let kind = row.text("kind")?;
    let kind = ActivityKind::ALL.into_iter().find(|known| known.name() == kind);
    let of = |kind| {
        Some(Activity {
            node: NodeId::ROOT,
            kind,
            pid: row.u32("pid")?,
            device: row.u32("device")?,
            context: row.u32("context")?,
            stream: row.u32("stream")?,
            correlation: row.u32("correlation")?,
            start: Nanos(row.u64("start_ns")?),
            end: Nanos(row.u64("end_ns")?),
            launched: row.u64("launched_ns").map(Nanos),
            bytes: row.u64("bytes")?,
        })
    };
    let activity = match kind {
        Some(kind) => Some(of(kind)?),
        None => None,
    };
    Some((row.u32("node")?, activity))
}

/// Subjects of rows of `shapes`.
pub(super) const SHAPE: [&str; 11] = [
    "grid.x",
    "grid.y",
    "grid.z",
    "block.x",
    "block.y",
    "block.z",
    "dynamic-shared",
    "static-shared",
    "registers",
    "architecture",
    "device-architecture",
];

fn push_shape(to: &mut Batch, node: NodeId, shape: &Shape) {
    let known = shape.grid.into_iter().chain(shape.block).chain([shape.dynamic_shared]).map(Some);
    let all = known.chain([shape.static_shared, shape.registers, shape.arch, shape.device_arch]);
    for (what, spread) in all.enumerate() {
        let Some(Spread { min, max, last }) = spread else { continue };
        push_shape_row(to, node.number(), what, [min, max, last]);
    }
}

/// Adds a row of `shapes`: number of the node, index of the subject, smallest, largest and last.
pub(super) fn push_shape_row(to: &mut Batch, node: u32, what: usize, [min, max, last]: [u32; 3]) {
    to.push([node.into(), SHAPE[what].into(), min.into(), max.into(), last.into()]);
}

/// A row of `shapes`: number of the node, index of the subject if known; smallest, largest and last.
pub(super) fn shape_row(row: &Row<'_>) -> Option<(u32, Option<usize>, [u32; 3])> {
    let (node, what) = (row.u32("node")?, row.text("what")?);
    let spread = [row.u32("min")?, row.u32("max")?, row.u32("last")?];
    Some((node, SHAPE.iter().position(|known| *known == what), spread))
}

/// Shapes while rows are read.
#[derive(Default)]
pub(super) struct Shapes {
    /// By number of the node on disk: smallest, largest and last of each subject. Later rows replace earlier ones.
    rows: FxHashMap<u32, [Option<[u32; 3]>; SHAPE.len()]>,
}

impl Shapes {
    /// Adds a row; unknown subjects are skipped.
    pub(super) fn take(&mut self, row: &Row<'_>) -> Option<()> {
        let (node, what, spread) = shape_row(row)?;
        if let Some(place) = what {
            self.rows.entry(node).or_default()[place] = Some(spread);
        }
        Some(())
    }

    /// Adds all shapes; `node` maps a number on disk to its context.
    pub(super) fn finish(self, gpu: &mut Gpu, mut node: impl FnMut(u32) -> NodeId) {
        for (number, spreads) in self.rows {
            let node = node(number);
            let of = |place: usize| spreads[place].map(|[min, max, last]| Spread { min, max, last });
            let some = |place| of(place).unwrap_or(Spread { min: 0, max: 0, last: 0 });
            let shape = Shape {
                grid: [some(0), some(1), some(2)],
                block: [some(3), some(4), some(5)],
                dynamic_shared: some(6),
                static_shared: of(7),
                registers: of(8),
                arch: of(9),
                device_arch: of(10),
            };
            gpu.add_shape(node, &shape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Writer, open, write_packed};
    use deepctx_profile::device::Device;
    use deepctx_profile::device::activity::{Activities, GpuProcess, Launch};
    use deepctx_profile::device::gpu::DeviceUse;
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::{Limits, Meta, Profile};
    use deepctx_profile::units::Time;

    fn activity(n: u32, node: NodeId) -> Activity {
        Activity {
            node,
            kind: ActivityKind::ALL[n as usize % ActivityKind::ALL.len()],
            pid: 7,
            device: n % 2,
            context: 1,
            stream: 7,
            correlation: n,
            start: Nanos(1000 * u64::from(n)),
            end: Nanos(1000 * u64::from(n) + 500),
            launched: n.is_multiple_of(3).then_some(Nanos(1000 * u64::from(n) - u64::from(n.min(900)))),
            bytes: u64::from(n) * 4096,
        }
    }

    fn launch(n: u32) -> Launch {
        Launch {
            grid: [n, 1, 2],
            block: [64, n, 1],
            dynamic_shared: 1 << n,
            static_shared: None,
            registers: (n > 3).then_some(n),
            arch: (n > 5).then_some(80),
            device_arch: (n > 6).then_some(90),
        }
    }

    fn all(gpu: &Gpu) -> Vec<Activity> {
        gpu.activities.iter().copied().collect()
    }

    #[test]
    fn what_devices_did_comes_back_from_several_flushes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = Profile::new(Meta::default(), Limits::default());
        profile.gpu.activities = Activities::new(10);
        let name = profile.text("gemm");
        let kernel = profile.frame(deepctx_profile::Frame::GpuKernel { name });
        let node = profile.add(&[kernel], Metric::GpuTime, 1);
        profile.gpu.processes.push(GpuProcess { pid: 7, launches: 3, ..GpuProcess::default() });
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        let mut expect = Vec::new();
        for (flush, numbers) in [(0..4), (4..12), (12..12), (12..30)].into_iter().enumerate() {
            for n in numbers.clone() {
                profile.gpu.activities.push(activity(n, node));
                profile.gpu.shape(node, &launch(n % 9));
            }
            // Only the last ten of a flush still exist.
            expect.extend(numbers.clone().skip(numbers.len().saturating_sub(10)).map(|n| activity(n, node)));
            writer.flush(&profile, Time::from_nanos(flush as u64)).unwrap();
        }
        let read = open(&path).unwrap().profile.gpu;
        assert_eq!(all(&read), expect);
        assert_eq!(read.activities.left_out(), 8);
        assert_eq!(read.shape_of(node), profile.gpu.shape_of(node));
        assert_eq!(read.processes, profile.gpu.processes);
    }

    #[test]
    fn the_use_of_devices_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("run.dctx"), folder.path().join("one.dctx"));
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let of = |busy| DeviceUse { busy: Nanos(busy), until_first: Nanos(2), since_first: Nanos(9) };
        profile.gpu.uses = vec![of(3), of(4)];
        Writer::create(&path, &profile.meta).unwrap().finish(&profile, Time::from_nanos(11)).unwrap();
        write_packed(&profile, Nanos(11), &mut std::fs::File::create(&file).unwrap()).unwrap();
        for path in [path, file] {
            assert_eq!(open(&path).unwrap().profile.gpu.uses, profile.gpu.uses);
        }
    }

    #[test]
    fn a_profile_of_before_devices_were_told_opens_without_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let devices = vec![Device { number: 1, name: "NVIDIA H200".to_owned(), ..Device::default() }];
        profile.gpu.processes.push(GpuProcess { pid: 7, launches: 3, devices, ..GpuProcess::default() });
        Writer::create(&path, &profile.meta).unwrap().flush(&profile, Time::from_nanos(1)).unwrap();
        let opened = |path| open(path).unwrap().profile.gpu.processes;
        assert_eq!(opened(&path), profile.gpu.processes);
        let manifest = path.join("manifest.json");
        let mut old: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&manifest).unwrap()).unwrap();
        assert!(old["gpu"][0].as_object_mut().unwrap().remove("devices").is_some());
        std::fs::write(&manifest, old.to_string()).unwrap();
        profile.gpu.processes[0].devices.clear();
        assert_eq!(opened(&path), profile.gpu.processes);
    }
}
