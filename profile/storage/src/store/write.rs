//! The writer: what is new in a growing profile, to disk.
//!
//! Owns: [`Writer`], [`Delta`]. Because: each flush must cost what is new and not what is there, and must happen
//! entirely or not at all. Does not: decide when; the caller has the clock.

use std::ffi::OsStr;
use std::io;
use std::iter;
use std::path::Path;
use std::sync::Arc;

use super::StoreError;
use super::batch::Batch;
use super::columns::Table;
use super::container::Container;
use super::devices::{self, WrittenDevices};
use super::lanes::{WrittenLanes, new_rows};
use super::manifest::{Manifest, Segment, put, sync};
use super::merge;
use super::producers::{self, StoredWait};
use super::schema::{self, LedgerRow, Window};
use super::step_times::{StoredPlace, stored};
use super::table::{BATCH_ROWS, encode};
use super::unmerged::Unmerged;
use super::written_values::WrittenValues;
use crate::folder::Folder;
use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::device::memory::Pool;
use deepctx_profile::ledger::Stage;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Time, clock};

/// Writes one growing profile into its own folder.
///
/// Whatever stops the program, the folder has everything up to the last successful flush. A failed flush leaves that
/// unchanged, and the next one writes the data of both.
#[derive(Debug)]
pub struct Writer {
    folder: Arc<Folder>,
    manifest: Manifest,
    written: StoredExtent,
    /// Files are numbered by attempt, so that none is ever written twice.
    attempt: u32,
    unmerged: Unmerged,
}

/// The part of the profile that is on disk.
#[derive(Clone, Debug, Default)]
struct StoredExtent {
    flushes: u64,
    frames: usize,
    nodes: usize,
    executables: usize,
    ledger: Vec<LedgerRow>,
    /// By metric, by index of the cell in the tree.
    values: Vec<WrittenValues>,
    lanes: WrittenLanes,
    devices: WrittenDevices,
}

impl StoredExtent {
    /// Nothing written yet; the root is never listed.
    fn new() -> Self {
        StoredExtent {
            nodes: 1,
            values: vec![WrittenValues::default(); Metric::COUNT],
            ..StoredExtent::default()
        }
    }

    /// New data since `from_ns`.
    fn delta(
        &self,
        profile: &Profile,
        from_ns: u64,
        now: Time<clock::Monotonic>,
    ) -> Result<Delta, StoreError> {
        let end_ns = (now - profile.meta.started_monotonic).0.max(from_ns);
        let mut delta = Delta {
            segments: Vec::new(),
            end_ns,
            meta: profile.meta.clone(),
            frames: profile.frames.len(),
            nodes: profile.tree.len(),
            executables: profile.executables.len(),
            ledger: ledger_rows(profile),
            values: Vec::new(),
            lanes: WrittenLanes::default(),
            devices: WrittenDevices::default(),
            processes: profile.gpu.processes.clone(),
            device_uses: profile.gpu.uses.clone(),
            pools: profile.memory.clone(),
            step_times: stored(&profile.step_times),
            producers: producers::stored(&profile.producers),
            flushes: self.flushes,
        };
        delta.add(Table::Frames, self.new_frames(profile))?;
        delta.add(Table::Nodes, self.new_nodes(profile))?;
        let (values, totals) = self.changes(profile, Window { from_ns, to_ns: end_ns });
        delta.values = totals;
        delta.add(Table::Values, values)?;
        let (lanes, written) = new_rows(&profile.timeline, &self.lanes, end_ns);
        delta.lanes = written;
        delta.add(Table::Timeline, [lanes])?;
        let (activities, shapes, written) = devices::new_rows(&profile.gpu, &self.devices);
        delta.devices = written;
        delta.add(Table::Activities, [activities])?;
        delta.add(Table::Shapes, [shapes])?;
        if delta.ledger != self.ledger {
            delta.add(Table::Ledger, [schema::ledger_batch(end_ns, &delta.ledger)])?;
        }
        let new = profile.executables.get(self.executables..).unwrap_or(&[]);
        delta.add(Table::Executables, [schema::executable_batch(new)])?;
        Ok(delta)
    }

    fn new_frames<'p>(&self, profile: &'p Profile) -> impl Iterator<Item = Batch> + 'p {
        let mut new = profile.frames.iter().skip(self.frames).peekable();
        iter::from_fn(move || {
            new.peek()?;
            let mut batch = Batch::new(Table::Frames);
            for (id, frame) in new.by_ref().take(BATCH_ROWS) {
                schema::push_frame(&mut batch, &profile.strings, id, &frame);
            }
            Some(batch)
        })
    }

    fn new_nodes<'p>(&self, profile: &'p Profile) -> impl Iterator<Item = Batch> + 'p {
        let mut new = (self.nodes as u32..profile.tree.len() as u32).peekable();
        iter::from_fn(move || {
            new.peek()?;
            let mut batch = Batch::new(Table::Nodes);
            for id in new.by_ref().take(BATCH_ROWS) {
                let node = profile.tree.node(NodeId::from_number(id));
                schema::push_node(&mut batch, id, node.parent.number(), node.frame);
            }
            Some(batch)
        })
    }

    fn changes(&self, profile: &Profile, window: Window) -> (Vec<Batch>, Vec<(Metric, usize, Cell)>) {
        let (mut batches, mut totals) = (vec![Batch::new(Table::Values)], Vec::new());
        for &metric in Metric::ALL {
            let written = &self.values[metric.index()];
            for (node, place, cell) in profile.tree.placed_cells(metric) {
                let Some(new) = written.news(place, &cell) else { continue };
                if totals.len() % BATCH_ROWS == BATCH_ROWS - 1 {
                    batches.push(Batch::new(Table::Values));
                }
                if let Some(batch) = batches.last_mut() {
                    schema::push_value(batch, window, node.number(), metric.name(), &new);
                }
                totals.push((metric, place, cell));
            }
        }
        (batches, totals)
    }
}

/// The manifest and files of a complete profile, written at once, without a folder.
pub(super) fn in_memory(
    profile: &Profile,
    now: Time<clock::Monotonic>,
) -> Result<(Vec<u8>, Files), StoreError> {
    let delta = StoredExtent::new().delta(profile, 0, now)?;
    let mut manifest = Manifest::new(profile.meta.clone());
    manifest.complete = true;
    manifest.end_ns = delta.end_ns;
    manifest.gpu = delta.processes;
    manifest.device_uses = delta.device_uses;
    manifest.memory = delta.pools;
    manifest.step_times = delta.step_times;
    manifest.producers = delta.producers;
    manifest.activities_left_out = delta.devices.left_out;
    let mut files = Vec::new();
    for (table, rows, bytes) in delta.segments {
        let segment = segment(table, 0, rows, &bytes);
        files.push((segment.file.clone(), bytes));
        manifest.segments.push(segment);
    }
    Ok((manifest.to_bytes()?, files))
}

/// Content of a flush: encoded rows that no longer need the profile.
#[derive(Debug)]
pub struct Delta {
    segments: Vec<(Table, u64, Vec<u8>)>,
    end_ns: u64,
    meta: Meta,
    frames: usize,
    nodes: usize,
    executables: usize,
    ledger: Vec<LedgerRow>,
    values: Vec<(Metric, usize, Cell)>,
    lanes: WrittenLanes,
    devices: WrittenDevices,
    processes: Vec<GpuProcess>,
    device_uses: Vec<DeviceUse>,
    pools: Vec<Pool>,
    step_times: Vec<StoredPlace>,
    producers: Vec<StoredWait>,
    flushes: u64,
}

/// Files of a profile: names and contents.
pub(super) type Files = Vec<(String, Vec<u8>)>;

impl Writer {
    /// Creates the folder `path`, which must not exist, with an empty profile in it.
    pub fn create(path: &Path, meta: &Meta) -> Result<Writer, StoreError> {
        let (parent, name) =
            Folder::of_parent(path).map_err(|source| StoreError::Create { path: path.to_owned(), source })?;
        Writer::create_in(&parent, &name, meta)
    }

    /// Creates the folder `name` in `parent`, which must not have it, with an empty profile in it.
    pub fn create_in(parent: &Folder, name: &OsStr, meta: &Meta) -> Result<Writer, StoreError> {
        let folder = parent.make(name).map_err(|source| {
            let path = parent.path().join(name);
            match source.kind() {
                io::ErrorKind::AlreadyExists => StoreError::AlreadyExists(path),
                _ => StoreError::Create { path, source },
            }
        })?;
        let manifest = Manifest::new(meta.clone());
        if let Err(error) = manifest.write(&folder) {
            // Only what was just created; if even that fails the folder stays, empty.
            _ = parent.remove_folder(name, &folder);
            return Err(match error {
                StoreError::Write { source, .. } => {
                    StoreError::Create { path: folder.path().to_owned(), source }
                }
                error => error,
            });
        }
        let (written, unmerged) = (StoredExtent::new(), Unmerged::default());
        Ok(Writer { folder: Arc::new(folder), manifest, written, attempt: 0, unmerged })
    }

    /// Memory of the state that is on disk.
    pub fn held_bytes(&self) -> usize {
        let values = self.written.values.iter().map(WrittenValues::bytes);
        values.sum::<usize>() + self.written.lanes.held_bytes()
    }

    /// Number of files that are not merged yet, or could not be.
    pub fn unmerged_files(&self) -> usize {
        let is_unmerged = |segment: &&Segment| segment.level == 0 || self.unmerged.contains(&segment.file);
        self.manifest.segments.iter().filter(is_unmerged).count()
    }

    /// The folder, wherever it has moved.
    pub fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder)
    }

    /// Writes new data. `profile` is the same growing profile at each call, `now` the time of its last record.
    pub fn flush(&mut self, profile: &Profile, now: Time<clock::Monotonic>) -> Result<(), StoreError> {
        let delta = self.delta(profile, now)?;
        self.commit(delta, false)
    }

    /// Writes new data and marks the profile as complete.
    pub fn finish(&mut self, profile: &Profile, now: Time<clock::Monotonic>) -> Result<(), StoreError> {
        let delta = self.delta(profile, now)?;
        self.commit(delta, true)
    }

    /// The first half of a flush: encodes new data, without touching the disk, so that the profile can go on growing
    /// while another thread waits for the disk in [`Writer::commit`].
    pub fn delta(&self, profile: &Profile, now: Time<clock::Monotonic>) -> Result<Delta, StoreError> {
        self.written.delta(profile, self.manifest.end_ns, now)
    }

    /// The second half of a flush: writes a delta. Only one delta may be pending; one that was made before another was
    /// written is refused.
    pub fn commit(&mut self, delta: Delta, complete: bool) -> Result<(), StoreError> {
        if delta.flushes != self.written.flushes {
            return Err(StoreError::StaleDelta);
        }
        let attempt = self.attempt;
        self.attempt = self.attempt.saturating_add(1);

        let mut manifest = self.manifest.clone();
        manifest.complete = complete;
        manifest.end_ns = delta.end_ns;
        manifest.meta = delta.meta;
        manifest.gpu = delta.processes;
        manifest.device_uses = delta.device_uses;
        manifest.memory = delta.pools;
        manifest.step_times = delta.step_times;
        manifest.producers = delta.producers;
        manifest.activities_left_out = delta.devices.left_out;
        let mut files = Vec::new();
        let mut put_all = || {
            for (table, rows, bytes) in &delta.segments {
                let segment = segment(*table, attempt, *rows, bytes);
                files.push(segment.file.clone());
                put(&self.folder, &segment.file, bytes)?;
                manifest.segments.push(segment);
            }
            // The names of the segments must be durable before the manifest lists them; once for all of them.
            sync(&self.folder)?;
            manifest.put(&self.folder)
        };
        if let Err(error) = put_all() {
            // No manifest lists these files; they would only take space, which may be exhausted.
            for file in files {
                _ = self.folder.remove(file.as_ref());
            }
            return Err(error);
        }
        self.manifest = manifest;
        self.written.flushes += 1;
        self.written.frames = delta.frames;
        self.written.nodes = delta.nodes;
        self.written.executables = delta.executables;
        self.written.ledger = delta.ledger;
        self.written.lanes = delta.lanes;
        self.written.devices = delta.devices;
        for (metric, place, cell) in delta.values {
            self.written.values[metric.index()].set(place, &cell);
        }
        // The manifest lists the segments by now, so they stay, even if it may not be durable.
        sync(&self.folder)
    }

    /// Merges old segments if there are enough of them, as [`Writer::due`] does in steps.
    ///
    /// # Errors
    /// Those of [`Writer::adopt`].
    pub fn merge(&mut self) -> Result<(), StoreError> {
        self.due().map_or(Ok(()), |due| self.adopt(due.run()))
    }

    /// Old segments to be merged, if there are enough of them. [`PendingMerge::run`] does that, on any thread, while
    /// flushes go on; [`Writer::adopt`] takes the result. Only one merge may be pending.
    pub fn due(&mut self) -> Option<PendingMerge> {
        let of_tables: Vec<_> = Table::OF_PROFILE.iter().filter_map(|table| self.due_of(*table)).collect();
        let window_ns = self.written.lanes.window_ns;
        (!of_tables.is_empty()).then(|| PendingMerge { folder: self.folder(), window_ns, of_tables })
    }

    fn due_of(&mut self, table: Table) -> Option<PendingTableMerge> {
        let numbered = self.manifest.segments.iter().enumerate();
        let of_table = numbered.filter(|(_, segment)| segment.table == table.name());
        let levels: Vec<_> = of_table.map(|(place, segment)| (place, segment.level, segment.rows)).collect();
        let (places, level) = merge::due(table, &levels)?;
        if let [full] = places[..] {
            self.manifest.segments[full].level = merge::NEVER;
            return None;
        }
        let old = places.iter().map(|&place| self.manifest.segments[place].clone()).collect();
        let attempt = self.attempt;
        self.attempt = self.attempt.saturating_add(1);
        Some(PendingTableMerge { table, old, level, attempt })
    }

    /// Replaces old segments by merged ones in the manifest, and removes them. Readers see one or the other, never
    /// both.
    ///
    /// Unmerged segments stay as they are: the profile is just as complete. A few later merges try them again.
    ///
    /// # Errors
    /// The manifest could not be written: it lists the old segments.
    pub fn adopt(&mut self, merged: MergeResult) -> Result<(), StoreError> {
        let mut manifest = self.manifest.clone();
        let (mut old, mut new, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (names, segment) in merged.of_tables {
            let Some(segment) = segment else {
                failed.extend(names);
                continue;
            };
            new.push(segment.file.clone());
            if let Some(first) = manifest.segments.iter_mut().find(|segment| segment.file == names[0]) {
                *first = segment;
            }
            manifest.segments.retain(|segment| !names.contains(&segment.file));
            old.extend(names);
        }
        if !new.is_empty() {
            self.unmerged.retry(&mut manifest.segments);
        }
        let listed = sync(&self.folder).and_then(|()| manifest.put(&self.folder));
        let unused = if listed.is_ok() {
            self.manifest = manifest;
            self.unmerged.remove(&old);
            // If the new manifest may not be durable, files listed by the previous one must stay.
            if sync(&self.folder).is_ok() { old } else { Vec::new() }
        } else {
            failed.extend(old);
            new
        };
        self.unmerged.add(&mut self.manifest.segments, &failed);
        for file in unused {
            _ = self.folder.remove(file.as_ref());
        }
        listed
    }
}

/// Segments to be merged: each of them is listed, so no flush touches it.
#[derive(Debug)]
pub struct PendingMerge {
    folder: Arc<Folder>,
    window_ns: u64,
    of_tables: Vec<PendingTableMerge>,
}

#[derive(Debug)]
struct PendingTableMerge {
    table: Table,
    old: Vec<Segment>,
    level: u8,
    attempt: u32,
}

/// Result of a merge: files that are not listed yet.
#[derive(Debug)]
pub struct MergeResult {
    /// By table: names of the old files, and the new segment, if it could be created.
    of_tables: Vec<(Vec<String>, Option<Segment>)>,
    /// Why the last one that is missing could not be.
    error: Option<String>,
}

impl MergeResult {
    /// Why old files of a table were not merged; none of their data is missing.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

impl PendingMerge {
    /// Reads the old segments and writes the merged ones.
    pub fn run(self) -> MergeResult {
        let PendingMerge { folder, window_ns, of_tables } = self;
        let container = Container::Folder(Arc::clone(&folder));
        let mut error = None;
        let one = |due: PendingTableMerge| {
            let old: Vec<&Segment> = due.old.iter().collect();
            let merged =
                merge::merge(due.table, &container, &old, window_ns).map_err(|error| error.to_string());
            let new = merged.and_then(|(rows, bytes)| {
                let new = Segment { level: due.level, ..segment(due.table, due.attempt, rows, &bytes) };
                put(&folder, &new.file, &bytes).map_err(|error| error.to_string())?;
                Ok(new)
            });
            let new = new.map_err(|because| error = Some(because)).ok();
            (due.old.into_iter().map(|segment| segment.file).collect(), new)
        };
        let of_tables = of_tables.into_iter().map(one).collect();
        MergeResult { of_tables, error }
    }
}

/// The manifest entry of a file of rows.
fn segment(table: Table, attempt: u32, rows: u64, bytes: &[u8]) -> Segment {
    let file = format!("{}-{attempt:06}.parquet", table.name());
    let (table, crc32) = (table.name().to_owned(), crc32fast::hash(bytes));
    Segment { table, file, rows, bytes: bytes.len() as u64, crc32, level: 0 }
}

impl Delta {
    /// Adds the rows of a table, if any.
    fn add(&mut self, table: Table, batches: impl IntoIterator<Item = Batch>) -> Result<(), StoreError> {
        let mut rows = 0;
        let mut batches = batches.into_iter().filter(|batch| batch.rows() > 0).peekable();
        if batches.peek().is_none() {
            return Ok(());
        }
        let counted = batches.map(|batch| {
            rows += batch.rows() as u64;
            Ok(batch)
        });
        let bytes = encode(table, counted).map_err(StoreError::encode(table.name()))?;
        self.segments.push((table, rows, bytes));
        Ok(())
    }

    /// Bytes that [`Writer::commit`] will write, besides the manifest.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, _, bytes)| bytes.len() as u64).sum()
    }
}

/// The ledger as rows, including the refusals of the profile's own tables as gaps.
fn ledger_rows(profile: &Profile) -> Vec<LedgerRow> {
    let mut ledger = profile.ledger.clone();
    for (reason, n) in profile.refusals() {
        ledger.gap(Stage::Attribute, reason, n);
    }
    let mut rows = Vec::new();
    for &stage in Stage::ALL {
        let account = ledger.stage(stage);
        let mut push = |class: &str, count, why: Option<(&str, &str)>| {
            let owned = |text: &str| text.to_owned();
            let (reason, sentence) = why.map(|(key, sentence)| (owned(key), owned(sentence))).unzip();
            rows.push(LedgerRow { stage: owned(stage.name()), class: owned(class), reason, sentence, count });
        };
        for (class, n) in [("received", account.received), ("kept", account.kept), ("merged", account.merged)]
        {
            if n > 0 {
                push(class, n, None);
            }
        }
        for (class, tally) in [("dropped", &account.dropped), ("gap", &account.gaps)] {
            for (reason, n) in tally.iter() {
                push(class, n, Some((&reason.key, &reason.sentence)));
            }
        }
    }
    rows
}
