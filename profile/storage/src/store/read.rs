//! The reader: a folder back to a profile, as far as it can be read.
//!
//! Owns: [`open`], [`StoredProfile`]. Because: a profile with one damaged file is still worth most of what it was, as
//! long as the damage is reported. Does not: repair anything on disk.

use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::batch::{Batch, Row};
use super::columns::Table;
use super::container::{Container, is_plain_name};
use super::devices::{self, Shapes};
use super::lanes;
use super::manifest::{Manifest, Segment};
use super::producers;
use super::reason::{CONTEXT_LOST, FRAME_LOST, NOT_FINISHED, SEGMENT_LOST};
use super::schema::{self, LedgerRow};
use super::step_times::restored;
use super::table::decode;
use crate::error::OpenError;
use crate::note::Damage;
use crate::version::FormatVersion;
use deepctx_profile::device::activity::{Activities, Activity, PROCESSES_MAX};
use deepctx_profile::device::gpu::USES_MAX;
use deepctx_profile::device::memory::POOLS_MAX;
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::FrameId;
use deepctx_profile::ledger::{Ledger, Reason, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Profile};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, counted};

/// Maximum activities read, the last ones: 80 MiB.
const ACTIVITIES_MAX: usize = 1 << 20;
/// A segment has the new rows of one table, of one flush or of many; the largest is a full tree at once, well below
/// this.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Maximum rows that a segment may claim: more than a tree can hold; a hostile file of a few bytes could claim any.
const SEGMENT_ROWS_MAX: u64 = 1 << 26;
/// How often a profile that changes while it is read is read again: its writer flushes seconds apart.
const AGAIN: usize = 4;
/// A profile is opened completely, whatever the limits of the capture were; these only stop absurd sizes.
const LIMITS: Limits = Limits { nodes: 1 << 26, frames: 1 << 25, string_bytes: 1 << 31 };

/// A profile from disk.
#[derive(Debug)]
pub(crate) struct StoredProfile {
    /// The profile. Unreadable parts are in its ledger, as gaps of the stage `store`.
    pub(crate) profile: Profile,
    /// Its format version: ours, or a newer minor one.
    pub(crate) version: FormatVersion,
    /// Whether the capture ended well; if not, everything after its last flush is missing.
    pub(crate) finished: bool,
    /// Time from the start of the capture to its last flush.
    pub(crate) elapsed: Nanos,
    /// Files that could not be read.
    pub(crate) lost: Vec<LostSegment>,
    /// Contexts by number on disk, for events that refer to them.
    #[cfg(feature = "import")]
    pub(crate) nodes: FxHashMap<u32, NodeId>,
}

#[cfg(test)]
impl StoredProfile {
    /// Whether nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.finished && self.lost.is_empty()
    }
}

/// A file of a profile that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostSegment {
    /// Its name.
    pub(crate) file: String,
    /// Its table.
    pub(crate) table: String,
    /// The damage.
    pub(crate) damage: Damage,
    /// The damage as a sentence.
    pub(crate) because: String,
}

/// Why a segment cannot be read.
#[derive(Debug)]
pub(super) struct BadSegment {
    damage: Damage,
    because: String,
}

impl BadSegment {
    fn new(damage: Damage, because: impl Into<String>) -> Self {
        BadSegment { damage, because: because.into() }
    }

    fn rows(because: String) -> Self {
        BadSegment { damage: Damage::Rows, because }
    }
}

impl From<BadSegment> for String {
    fn from(bad: BadSegment) -> Self {
        bad.because
    }
}

/// Opens a profile, a folder or one file. Damaged or missing segments are skipped and reported in
/// [`StoredProfile::lost`].
pub(crate) fn open(path: &Path) -> Result<StoredProfile, OpenError> {
    let container = Container::at(path)?;
    let mut manifest = Manifest::read(&container)?;
    for _ in 0..AGAIN {
        let segments = manifest.segments.clone();
        let opened = read(&container, manifest);
        if opened.lost.is_empty() {
            return Ok(opened);
        }
        // The running capture may have merged them since.
        manifest = Manifest::read(&container)?;
        if manifest.segments == segments {
            return Ok(opened);
        }
    }
    Ok(read(&container, manifest))
}

fn read(container: &Container, manifest: Manifest) -> StoredProfile {
    let version = manifest.version();
    let mut reader = Reader {
        container,
        profile: Profile::new(manifest.meta, LIMITS),
        frames: FxHashMap::default(),
        nodes: FxHashMap::from_iter([(0, NodeId::ROOT)]),
        stand_ins: Vec::new(),
        shapes: Shapes::default(),
        lost: Vec::new(),
    };
    reader.profile.gpu.activities = Activities::new(ACTIVITIES_MAX);
    for &table in Table::OF_PROFILE {
        let segments: Vec<&Segment> = manifest.segments.iter().filter(|s| s.table == table.name()).collect();
        if table == Table::Ledger {
            reader.ledger(&segments);
        } else {
            for segment in segments {
                reader.take(table, segment);
            }
        }
    }
    let shapes = std::mem::take(&mut reader.shapes);
    let mut gpu = std::mem::take(&mut reader.profile.gpu);
    shapes.finish(&mut gpu, |number| reader.node(number));
    gpu.processes = manifest.gpu;
    gpu.processes.truncate(PROCESSES_MAX);
    gpu.uses = manifest.device_uses;
    gpu.uses.truncate(USES_MAX);
    gpu.activities.leave_out(manifest.activities_left_out);
    let step_times = restored(&manifest.step_times, |number| reader.node(number));
    let producers = producers::restored(&manifest.producers, |number| reader.frames.get(&number).copied());
    let Reader { mut profile, lost, .. } = reader;
    profile.memory = manifest.memory;
    profile.memory.truncate(POOLS_MAX);
    profile.step_times = step_times;
    profile.producers = producers;
    profile.gpu = gpu;
    if !lost.is_empty() {
        profile.ledger.gap(Stage::Store, SEGMENT_LOST, lost.len() as u64);
    }
    if !manifest.complete {
        profile.ledger.gap(Stage::Store, NOT_FINISHED, 1);
    }
    StoredProfile {
        profile,
        version,
        finished: manifest.complete,
        elapsed: Nanos(manifest.end_ns),
        lost,
        #[cfg(feature = "import")]
        nodes: reader.nodes,
    }
}

struct Reader<'a> {
    container: &'a Container,
    profile: Profile,
    /// By number on disk.
    frames: FxHashMap<u32, FrameId>,
    /// By number on disk.
    nodes: FxHashMap<u32, NodeId>,
    /// Frames in place of lost rows, by key of the reason: a hostile profile has one for each of millions of nodes.
    stand_ins: Vec<(&'static str, FrameId)>,
    shapes: Shapes,
    lost: Vec<LostSegment>,
}

impl Reader<'_> {
    /// Reads a segment into the profile. A truncated one counts as lost, though its first rows may be there.
    fn take(&mut self, table: Table, segment: &Segment) -> bool {
        let outcome = load(self.container, segment).and_then(|bytes| {
            decode(table, bytes, segment.rows, |batch| self.take_batch(table, batch))
                .map_err(BadSegment::rows)
        });
        outcome.map_err(|bad| self.lose(segment, bad)).is_ok()
    }

    fn lose(&mut self, segment: &Segment, bad: BadSegment) {
        let clean = |text: &str| deepctx_profile::frame::clean(&text.chars().take(200).collect::<String>());
        self.lost.push(LostSegment {
            file: clean(&segment.file),
            table: clean(&segment.table),
            damage: bad.damage,
            because: clean(&bad.because),
        });
    }

    fn take_batch(&mut self, table: Table, batch: &Batch) -> Result<(), String> {
        if table == Table::Nodes {
            let columns = batch.u32s("id")?.iter().zip(batch.u32s("parent")?).zip(batch.u32s("frame")?);
            for ((&id, &parent), &frame) in columns {
                self.take_node(id, parent, frame).ok_or_else(|| format!("node {id} makes no sense"))?;
            }
            return Ok(());
        }
        for row in batch.iter() {
            match table {
                Table::Frames => self.take_frame(&row),
                Table::Values => self.take_value(&row),
                Table::Timeline => self.take_lane(&row),
                Table::Activities => self.take_activity(&row),
                Table::Shapes => self.shapes.take(&row),
                Table::Executables => schema::executable(&row).map(|e| self.profile.executables.push(e)),
                // Read above, and as a whole by `Reader::ledger`.
                Table::Nodes | Table::Ledger => Some(()),
                // Listed elsewhere, and read by `trace`.
                Table::Trace | Table::TraceLanes => Some(()),
            }
            .ok_or_else(|| format!("row {} makes no sense", row.number()))?;
        }
        Ok(())
    }

    fn take_frame(&mut self, row: &Row<'_>) -> Option<()> {
        let (id, frame) = schema::frame(row, &mut self.profile.strings)?;
        let frame = self.profile.frames.intern(frame);
        self.frames.insert(id, frame).is_none().then_some(())
    }

    fn take_node(&mut self, id: u32, parent: u32, frame: u32) -> Option<()> {
        if parent >= id {
            return None;
        }
        let parent = self.node(parent);
        let frame = match self.frames.get(&frame) {
            Some(&frame) => frame,
            None => self.stand_in(FRAME_LOST),
        };
        let node = self.profile.tree.child(parent, frame);
        self.nodes.insert(id, node).is_none().then_some(())
    }

    fn take_value(&mut self, row: &Row<'_>) -> Option<()> {
        let (node, metric, cell) = schema::value(row)?;
        let node = self.node(node);
        // A metric of a later minor version cannot be shown here.
        if let Ok(metric) = metric.parse::<Metric>() {
            self.profile.tree.add_cell(node, metric, &cell);
        }
        Some(())
    }

    fn take_lane(&mut self, row: &Row<'_>) -> Option<()> {
        let (node, metric, (from, to), sum) = lanes::lane(row)?;
        let node = self.node(node);
        // A metric of a later minor version cannot be shown here.
        if let Ok(metric) = metric.parse::<Metric>() {
            self.profile.timeline.add_span(node, metric, from, to, sum);
        }
        Some(())
    }

    fn take_activity(&mut self, row: &Row<'_>) -> Option<()> {
        let (node, activity) = devices::activity(row)?;
        let node = self.node(node);
        match activity {
            Some(activity) => self.profile.gpu.activities.push(Activity { node, ..activity }),
            None => self.profile.gpu.activities.leave_out(1),
        }
        Some(())
    }

    /// The node with this number on disk; if its row is lost, a placeholder.
    fn node(&mut self, number: u32) -> NodeId {
        match self.nodes.get(&number) {
            Some(&node) => node,
            None => {
                let frame = self.stand_in(CONTEXT_LOST);
                self.profile.tree.child(NodeId::ROOT, frame)
            }
        }
    }

    fn stand_in(&mut self, reason: &deepctx_common::reason::Reason) -> FrameId {
        if let Some((_, frame)) = self.stand_ins.iter().find(|(key, _)| *key == reason.key) {
            return *frame;
        }
        let name = self.profile.strings.intern(reason.key);
        let frame = self.profile.frames.intern(Frame::Unresolved { reason: name, origin: Origin::default() });
        self.stand_ins.push((reason.key, frame));
        frame
    }

    /// The newest readable ledger: each is complete.
    fn ledger(&mut self, segments: &[&Segment]) {
        for segment in segments.iter().rev() {
            let mut rows = Vec::new();
            let outcome = load(self.container, segment).and_then(|bytes| {
                decode(Table::Ledger, bytes, segment.rows, |batch| {
                    rows.extend(batch.iter().filter_map(|row| schema::ledger_row(&row)));
                    Ok(())
                })
                .map_err(BadSegment::rows)
            });
            match outcome {
                Ok(()) => {
                    self.profile.ledger = ledger_of(rows);
                    return;
                }
                Err(bad) => self.lose(segment, bad),
            }
        }
    }
}

/// Bytes of a segment, after verifying its checksum.
pub(super) fn load(container: &Container, segment: &Segment) -> Result<Vec<u8>, BadSegment> {
    if !is_plain_name(&segment.file) {
        return Err(BadSegment::new(Damage::Listed, "it has a name that no segment has"));
    }
    if segment.rows > SEGMENT_ROWS_MAX {
        return Err(BadSegment::new(Damage::Listed, format!("it claims {} rows", segment.rows)));
    }
    let unreadable = |error: io::Error| BadSegment::new(Damage::Unreadable(error.kind()), error.to_string());
    let bytes = container.read(&segment.file, SEGMENT_BYTES_MAX).map_err(unreadable)?;
    if bytes.len() as u64 != segment.bytes {
        let length = counted(bytes.len() as u64, "byte");
        let because = format!("it has {length} instead of {}", segment.bytes);
        return Err(BadSegment::new(Damage::Changed, because));
    }
    if crc32fast::hash(&bytes) != segment.crc32 {
        return Err(BadSegment::new(Damage::Changed, "its checksum is wrong"));
    }
    Ok(bytes)
}

fn ledger_of(rows: Vec<LedgerRow>) -> Ledger {
    let mut ledger = Ledger::default();
    for row in rows {
        // A stage or class of a later minor version cannot be shown here.
        let Some(stage) = Stage::from_name(&row.stage) else { continue };
        let account = ledger.stage_mut(stage);
        let reason = Reason {
            key: row.reason.unwrap_or_default().into(),
            sentence: row.sentence.unwrap_or_default().into(),
        };
        match row.class.as_str() {
            "received" => account.received = row.count,
            "kept" => account.kept = row.count,
            "merged" => account.merged = row.count,
            "dropped" => account.dropped.add(reason, row.count),
            "gap" => account.gaps.add(reason, row.count),
            _ => {}
        }
    }
    ledger
}
