//! Merging: several segments of a table become one, and no figure changes.
//!
//! Owns: which segments of a table are joined when, and what joining means for each table. Because: a flush every few
//! seconds for a day would leave a hundred thousand files, and rows for windows of time that nobody distinguishes any
//! more. Does not: replace anything on disk; the writer does.
//!
//! Segments have levels. A flush writes level 0; as soon as [`FAN_IN`] segments of a table have one level, they
//! become one of the next. So there are few files however long a capture takes, every row is written again at most
//! [`TOP`] times before it lies at the top, and what is old is coarse: a row of `values` at level 2 stands for 64
//! flushes.

use std::collections::BTreeMap;
use std::iter;

use super::batch::{Batch, Row};
use super::columns::Table;
use super::container::Container;
use super::devices;
use super::lanes;
use super::manifest::Segment;
use super::read::load;
use super::schema::{self, Window};
use super::table::{BATCH_ROWS, Batches, encode};
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::units::Nanos;

/// Number of segments merged into one. More would mean more files, fewer more rewrites of every row.
const FAN_IN: usize = 8;
/// The last level: its segments are merged into the same level. With a flush every five seconds, one is six hours.
const TOP: u8 = 4;
/// Level of segments that are never merged.
pub(super) const NEVER: u8 = u8::MAX;
/// Segments of tables with unmergeable rows are final from this many rows on: 15 MB of activities.
const FULL_ROWS: u64 = 1 << 19;
/// Rows in memory at once of each segment being merged.
const STEP_ROWS: usize = 8 * 1024;

/// Why segments could not be merged: one of them cannot be read, or there is no memory for the result.
pub(super) type MergeError = String;

/// The segments of a table to merge, by their indices among all segments, and the level of the result. `levels` are
/// those of the table's segments, old ones first, each with its index and its rows.
pub(super) fn due(table: Table, levels: &[(usize, u8, u64)]) -> Option<(Vec<usize>, u8)> {
    let runs = levels.chunk_by(|a, b| a.1 == b.1).filter(|run| run[0].1 <= TOP && run.len() >= FAN_IN);
    let run = &runs.min_by_key(|run| run[0].1)?[..FAN_IN];
    let mut rows = 0u64;
    let fits = run.iter().take_while(|(.., more)| {
        rows = rows.saturating_add(*more);
        !keeps_every_row(table) || rows <= FULL_ROWS
    });
    // A full segment gets a final level, even if it is a single one.
    let count = fits.count().max(1);
    let next = if count < FAN_IN { NEVER } else { (run[0].1 + 1).min(TOP) };
    Some((run[..count].iter().map(|(place, ..)| *place).collect(), next))
}

/// Whether a table can grow without bound, because merging drops no rows.
fn keeps_every_row(table: Table) -> bool {
    table == Table::Activities
}

/// One segment with the content of all these. `window_ns` is the current length of the timeline's windows.
pub(super) fn merge(
    table: Table,
    container: &Container,
    segments: &[&Segment],
    window_ns: u64,
) -> Result<(u64, Vec<u8>), MergeError> {
    // The newest ledger includes all older ones.
    let segments =
        if table == Table::Ledger { segments.last().map_or(&[][..], std::slice::from_ref) } else { segments };
    let inputs =
        segments.iter().map(|segment| Batches::of(table, load(container, segment)?, segment.rows, STEP_ROWS));
    let inputs: Vec<Batches> = inputs.collect::<Result<_, MergeError>>()?;
    let mut rows = 0u64;
    let count = |batch: Result<Batch, MergeError>| {
        let batch = batch?;
        rows += batch.rows() as u64;
        Ok(batch)
    };
    let bytes = match table {
        Table::Values => encode(table, SortedRows::new(inputs)?.map(count)),
        Table::Timeline => encode(table, iter::once(timeline(inputs, window_ns)).map(count)),
        Table::Shapes => encode(table, iter::once(shapes(inputs)).map(count)),
        Table::Frames
        | Table::Nodes
        | Table::Activities
        | Table::Ledger
        | Table::Executables
        | Table::Trace
        | Table::TraceLanes => encode(table, one_after_the_other(inputs).map(count)),
    }?;
    Ok((rows, bytes))
}

/// All rows unchanged.
fn one_after_the_other(inputs: Vec<Batches>) -> impl Iterator<Item = Result<Batch, MergeError>> {
    inputs.into_iter().flat_map(|mut input| iter::from_fn(move || input.next().transpose()))
}

/// Calls `take` for each row.
fn each_row(inputs: Vec<Batches>, mut take: impl FnMut(&Row<'_>) -> Option<()>) -> Result<(), MergeError> {
    for mut input in inputs {
        while let Some(batch) = input.next()? {
            for row in batch.iter() {
                take(&row).ok_or("a row makes no sense")?;
            }
        }
    }
    Ok(())
}

/// Merges rows of one lane and window. There are no more than a timeline has windows.
fn timeline(inputs: Vec<Batches>, window_ns: u64) -> Result<Batch, MergeError> {
    let window_ns = window_ns.max(1);
    let mut windows: BTreeMap<(u32, usize, u64), (u64, u64, u64)> = BTreeMap::new();
    each_row(inputs, |row| {
        let (node, metric, (Nanos(from), Nanos(to)), sum) = lanes::lane(row)?;
        let metric = metric.parse::<Metric>().ok()?.index();
        let joined = windows.entry((node, metric, from / window_ns)).or_insert((from, to, 0));
        *joined = (joined.0.min(from), joined.1.max(to), Metric::ALL[metric].join(joined.2, sum));
        Some(())
    })?;
    let mut rows = Batch::new(Table::Timeline);
    for ((node, metric, _), (from, to, sum)) in windows {
        lanes::push(&mut rows, node, Metric::ALL[metric], Window { from_ns: from, to_ns: to }, sum);
    }
    Ok(rows)
}

/// Keeps the newest row of each subject. There are no more than a profile keeps shapes.
fn shapes(inputs: Vec<Batches>) -> Result<Batch, MergeError> {
    let mut newest: BTreeMap<(u32, usize), [u32; 3]> = BTreeMap::new();
    each_row(inputs, |row| {
        let (node, what, spread) = devices::shape_row(row)?;
        newest.insert((node, what?), spread);
        Some(())
    })?;
    let mut rows = Batch::new(Table::Shapes);
    for ((node, what), spread) in newest {
        devices::push_shape_row(&mut rows, node, what, spread);
    }
    Ok(rows)
}

/// A row of `values`: its subject, and the figures.
type Value = ((usize, u32), Cell);

/// Rows of `values` of several segments, merged by subject. Each segment is sorted already, so a few rows of each at a
/// time are enough.
struct SortedRows {
    inputs: Vec<(Batches, Rows)>,
    window: Window,
}

/// Buffered rows, the next one last.
type Rows = Vec<Value>;

impl SortedRows {
    fn new(inputs: Vec<Batches>) -> Result<Self, MergeError> {
        let mut sorted = SortedRows {
            inputs: Vec::with_capacity(inputs.len()),
            window: Window { from_ns: u64::MAX, to_ns: 0 },
        };
        for mut input in inputs {
            let rows = sorted.read(&mut input)?;
            sorted.inputs.push((input, rows));
        }
        Ok(sorted)
    }

    fn read(&mut self, input: &mut Batches) -> Result<Rows, MergeError> {
        let Some(batch) = input.next()? else { return Ok(Vec::new()) };
        let rows = batch.iter().map(|row| {
            let (node, metric, cell) = schema::value(&row)?;
            self.window.from_ns = self.window.from_ns.min(row.u64("from_ns")?);
            self.window.to_ns = self.window.to_ns.max(row.u64("to_ns")?);
            Some(((metric.parse::<Metric>().ok()?.index(), node), cell))
        });
        let mut rows = rows.collect::<Option<Rows>>().ok_or("a row makes no sense")?;
        if !rows.is_sorted_by_key(|(about, _)| *about) {
            return Err("its rows are in no order".to_owned());
        }
        rows.reverse();
        Ok(rows)
    }

    /// The next subject, with the figures of all segments.
    fn next_value(&mut self) -> Result<Option<Value>, MergeError> {
        let Some(least) = self.inputs.iter().filter_map(|(_, rows)| Some(rows.last()?.0)).min() else {
            return Ok(None);
        };
        let mut sum = Cell::EMPTY;
        for place in 0..self.inputs.len() {
            while let Some((_, cell)) = self.inputs[place].1.pop_if(|(about, _)| *about == least) {
                sum.merge(&cell);
                if self.inputs[place].1.is_empty() {
                    let mut inputs = std::mem::take(&mut self.inputs);
                    inputs[place].1 = self.read(&mut inputs[place].0)?;
                    self.inputs = inputs;
                }
            }
        }
        Ok(Some((least, sum)))
    }

    fn batch(&mut self) -> Result<Option<Batch>, MergeError> {
        let mut values = Vec::with_capacity(STEP_ROWS);
        while values.len() < BATCH_ROWS
            && let Some(value) = self.next_value()?
        {
            values.push(value);
        }
        // The window is known once all rows were read.
        let mut batch = Batch::new(Table::Values);
        for ((metric, node), cell) in values {
            schema::push_value(&mut batch, self.window, node, Metric::ALL[metric].name(), &cell);
        }
        Ok((batch.rows() > 0).then_some(batch))
    }
}

impl Iterator for SortedRows {
    type Item = Result<Batch, MergeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::{add, at, contents, new_profile, segments};
    use crate::store::{StoredProfile, Writer, open};
    use deepctx_profile::device::activity::{Activity, ActivityKind, Launch};
    use deepctx_profile::ledger::Stage;
    use deepctx_profile::profile::Profile;

    /// Levels after this many flushes, each of `rows` rows, oldest first.
    fn after(table: Table, flushes: usize, rows: u64) -> Vec<(u8, u64)> {
        let mut segments: Vec<(u8, u64)> = Vec::new();
        for _ in 0..flushes {
            segments.push((0, rows));
            let levels: Vec<_> =
                segments.iter().enumerate().map(|(place, &(level, rows))| (place, level, rows)).collect();
            if let Some((places, level)) = due(table, &levels) {
                let sum = places.iter().map(|&place| segments[place].1).sum();
                segments[places[0]] = (level, sum);
                segments.drain(places[0] + 1..places[0] + places.len());
            }
        }
        segments
    }

    #[test]
    fn there_are_few_files_however_long_a_capture_takes() {
        let check = |flushes, most: usize| {
            let segments = after(Table::Values, flushes, 1);
            assert!(segments.len() <= most, "{flushes}: {segments:?}");
            assert!(segments.is_sorted_by_key(|(level, _)| std::cmp::Reverse(*level)), "{segments:?}");
            assert_eq!(segments.iter().map(|(_, rows)| rows).sum::<u64>(), flushes as u64);
        };
        check(7, 7);
        check(720, 24);
        check(100_000, 40);
    }

    #[test]
    fn files_of_single_activities_stop_growing() {
        let full = after(Table::Activities, 1000, FULL_ROWS / 4);
        assert!(full.iter().all(|(_, rows)| *rows <= FULL_ROWS), "{full:?}");
        assert!(full.len() < 280, "{}", full.len());
        assert_eq!(after(Table::Activities, 100, FULL_ROWS * 2).len(), 100);
        assert!(after(Table::Activities, 1000, 1).len() < 40);
    }

    /// Adds to every table of the profile.
    fn grow(profile: &mut Profile, round: u32, stack: &[u32], value: u64) {
        add(profile, stack, Metric::ALL[round as usize % 5], value);
        let node = profile.add(&[], Metric::Samples, 1);
        profile.ledger.stage_mut(Stage::Attribute).pass(1);
        let start = Nanos(u64::from(round) * 700_000_000);
        profile.timeline.add(node, Metric::CpuTime, Nanos(start.0 + value % 50_000_000), value % 1000);
        if round.is_multiple_of(3) {
            profile.timeline.add(node, Metric::OffCpuTime, Nanos(start.0 / 2), 1 + value % 7);
        }
        let kind = ActivityKind::Kernel;
        let (pid, end) = (7, Nanos(start.0 + value % 1000));
        let (device, context, stream, correlation, bytes) = (0, 1, 7, round, 0);
        profile.gpu.activities.push(Activity {
            node,
            kind,
            pid,
            device,
            context,
            stream,
            correlation,
            start,
            end,
            launched: None,
            bytes,
        });
        let launch = Launch {
            grid: [round, 1, 1],
            block: [value as u32 % 1024, 1, 1],
            dynamic_shared: 0,
            static_shared: None,
            registers: (round > 9).then_some(round),
            arch: (round > 9).then_some(80),
            device_arch: (round > 12).then_some(90),
        };
        profile.gpu.shape(node, &launch);
    }

    fn flush(writer: &mut Writer, profile: &Profile, round: u32, merges: bool) {
        let now = at(u64::from(round + 1) * 700_000_000);
        if merges {
            writer.flush(profile, now).unwrap();
            return writer.merge().unwrap();
        }
        let delta = writer.delta(profile, now).unwrap();
        writer.commit(delta, false).unwrap();
    }

    /// Everything that is read back, as text.
    fn all(opened: &StoredProfile) -> String {
        let profile = &opened.profile;
        let mut lanes: Vec<_> = profile
            .timeline
            .lanes()
            .iter()
            .map(|lane| (profile.tree.stack(lane.node), lane.metric, &lane.values))
            .collect();
        lanes.sort();
        let mut shapes: Vec<_> = profile.gpu.shapes().map(|it| format!("{it:?}")).collect();
        shapes.sort();
        let activities: Vec<_> = profile.gpu.activities.iter().collect();
        let window = profile.timeline.window();
        format!(
            "{}\n{lanes:?} {window:?}\n{shapes:?}\n{activities:?}\n{:?}",
            contents(profile),
            opened.elapsed
        )
    }

    fn check_as_if_never_merged(steps: &[(Vec<u32>, u64)], folder: &Path) {
        let (path, plain) = (folder.join("run.dctx"), folder.join("plain.dctx"));
        let mut profile = new_profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        let mut without = Writer::create(&plain, &profile.meta).unwrap();
        for (round, (stack, value)) in (0..).zip(steps) {
            grow(&mut profile, round, stack, *value);
            flush(&mut writer, &profile, round, true);
            flush(&mut without, &profile, round, false);
        }
        let (merged, plain) = (open(&path).unwrap(), open(&plain).unwrap());
        assert_eq!((&merged.lost, &plain.lost), (&Vec::new(), &Vec::new()));
        assert_eq!(all(&merged), all(&plain));
        let names: Vec<String> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "manifest.json")
            .collect();
        // Seven of each level, and no unlisted files.
        assert!(names.len() <= Table::OF_PROFILE.len() * 2 * FAN_IN, "{names:?}");
        assert!(names.iter().all(|name| name.ends_with(".parquet")), "{names:?}");
    }

    #[test]
    fn merged_again_and_again_a_profile_says_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let steps: Vec<_> = (0..150u32).map(|n| (vec![0, 1, n % 9, n], u64::from(n) * 977)).collect();
        check_as_if_never_merged(&steps, folder.path());
    }

    proptest! {
        // Each case writes and syncs a few hundred files.
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 32))]

        #[test]
        fn merging_changes_no_figure(
            steps in prop::collection::vec((prop::collection::vec(0u32..60, 0..6), 0u64..1 << 40), 8..24),
        ) {
            let folder = tempfile::tempdir().unwrap();
            check_as_if_never_merged(&steps, folder.path());
        }
    }

    #[test]
    fn who_reads_while_segments_are_merged_misses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = new_profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for round in 0..60 {
                    grow(&mut profile, round, &[0, 1, round], 1);
                    flush(&mut writer, &profile, round, true);
                }
                over.store(true, Ordering::Relaxed);
            });
            let mut before = 0;
            while !over.load(Ordering::Relaxed) {
                let opened = open(&path).unwrap();
                assert_eq!(opened.lost, []);
                let count: u64 =
                    opened.profile.tree.metrics().map(|m| opened.profile.tree.total(m).count).sum();
                assert_eq!(opened.profile.ledger.stage(Stage::Attribute).kept, count);
                assert!(count >= before);
                before = count;
            }
        });
    }

    #[test]
    fn flushes_go_on_while_segments_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = new_profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        let mut due = None;
        for round in 0..20 {
            grow(&mut profile, round, &[0, 1, round], 1);
            flush(&mut writer, &profile, round, false);
            match round {
                8 => due = writer.due(),
                // Ten more flushes have happened since this merge began.
                18 => writer.adopt(due.take().unwrap().run()).unwrap(),
                _ => {}
            }
        }
        let mut opened = open(&path).unwrap();
        assert_eq!(opened.lost, []);
        opened.profile.ledger.stage_mut(Stage::Store).gaps = Default::default();
        assert_eq!(contents(&opened.profile), contents(&profile));
        let values = segments(&path).iter().filter(|name| name.starts_with("values")).count();
        assert_eq!(values, 20 - FAN_IN + 1);
    }

    #[test]
    fn files_that_no_merge_takes_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = new_profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        for round in 0..FAN_IN as u32 {
            grow(&mut profile, round, &[0, 1, round], 1);
            flush(&mut writer, &profile, round, false);
        }
        let files = |from: &str| segments(&path).iter().filter(|name| name.starts_with(from)).count();
        assert_eq!(files("values"), FAN_IN);
        fs::write(path.join("values-000002.parquet"), "damaged").unwrap();
        let before = writer.unmerged_files();
        writer.merge().unwrap();
        // Those of `values` stay; others were merged, which leaves none of level 0 of them.
        let after = writer.unmerged_files();
        assert!(FAN_IN <= after && after < before, "{before} {after}");
    }

    #[test]
    fn segments_that_could_not_be_merged_are_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = new_profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        for round in 0..20 {
            if round == 5 {
                fs::write(path.join("values-000002.parquet"), "damaged").unwrap();
            }
            // A folder in the file's place simulates a full disk.
            if round == 7 {
                fs::create_dir(path.join("nodes-000008.parquet")).unwrap();
            }
            grow(&mut profile, round, &[0, 1, round], 1);
            flush(&mut writer, &profile, round, true);
            if round == 7 {
                fs::remove_dir(path.join("nodes-000008.parquet")).unwrap();
            }
        }
        let opened = open(&path).unwrap();
        assert_eq!(opened.lost.len(), 1);
        assert_eq!(opened.lost[0].file, "values-000002.parquet");
        assert_eq!(opened.profile.tree.len(), profile.tree.len());
        let left = |from: &str| segments(&path).iter().filter(|name| name.starts_with(from)).count();
        // Those that found no room were merged with a later merge; the damaged ones stay. Not every flush has new
        // contexts.
        assert_eq!((left("nodes"), left("values")), (1 + 1 + 3, 8 + 1 + 4), "{:?}", segments(&path));
    }
}
