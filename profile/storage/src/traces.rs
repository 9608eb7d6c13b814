//! Traces from disk: files of other tools with events in time, one for each rank of a job, and our own.
//!
//! Owns: [`open_traces`], which files of a folder are traces, and which captures have one clock. Because: tools write
//! one file for each rank, and finding a straggler starts from a folder of them. Does not: know a format;
//! [`crate::import`] does.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use deepctx_profile::profile::Meta;
use deepctx_profile::trace::{Job, Trace};

use crate::error::{NotAProfile, OpenError};
use crate::import::{self, ImportError};
use crate::store::{self, Recording, TracePart};

/// Suffixes of trace files: a folder of them may contain other files, too.
const NAMES: [&str; 5] = [".json", ".xplane.pb", ".pftrace", ".perfetto-trace", ".sqlite"];
/// Suffix of captures of ours in a folder.
const CAPTURE: &str = ".dctx";
/// Further suffixes of packed ones.
const PACKED: [&str; 2] = [".gz", ".zst"];
/// Maximum files of a folder: the largest jobs have tens of thousands of ranks, but nobody traces all of them.
const FILES_MAX: usize = 4096;
/// Maximum entries of a folder, which may contain other files, too.
const ENTRIES_MAX: usize = 16 * FILES_MAX;

/// Maximum difference of calendar times of captures of one boot. Beyond it, the calendar was set meanwhile, or two
/// virtual machines were resumed from one, with one boot id and two clocks.
const CALENDAR_ERROR_MAX_NS: u128 = 1_000_000_000;

/// Opens traces as one job. A path is a file, a folder with a file or a capture for each rank, or a profile recorded
/// with its events.
///
/// # Errors
/// One of them is not a trace with events (a profile needs `record --trace`), is damaged, or two have the same rank.
pub fn open_traces(paths: &[PathBuf]) -> Result<Job, OpenError> {
    open_traces_in_part(paths, TracePart::All)
}

/// Opens a part of traces as one job: of ours, which may have more events than fit at once. A part by training steps of
/// other tools' files is the whole file, since tables skip events outside the steps.
///
/// # Errors
/// As [`open_traces`], or a part by time is requested of another tool's file.
pub fn open_traces_in_part(paths: &[PathBuf], part: TracePart) -> Result<Job, OpenError> {
    let mut traces: Vec<(String, Trace)> = Vec::new();
    let mut left = import::EVENTS_MAX;
    let mut boots = Boots::new();
    for (number, file) in (0u32..).zip(files(paths)?) {
        let of_file = match part {
            // No folder of other tools' traces: their files are listed instead.
            _ if may_have_ranks(&file) => open_ours(&file, number, &mut boots, part, left)?,
            TracePart::Between(..) => return Err(no_part(&file)),
            TracePart::All | TracePart::Steps(..) => open_foreign(&file, number)?,
        };
        for (name, trace) in of_file {
            left = left.checked_sub(trace.len()).ok_or_else(|| OpenError::Import {
                path: file.clone(),
                source: ImportError::TooLarge { most: import::EVENTS_MAX, what: "events of a job" },
            })?;
            traces.push((name, trace));
        }
    }
    let first = || paths.first().cloned().unwrap_or_default();
    Job::new(traces).map_err(|same| OpenError::NotAProfile { path: first(), because: same.into() })
}

/// Whether there may be events of several ranks: in a deepctx-bpf profile, as a folder or as one file, and in a folder
/// with a trace per rank. A single trace of another tool is not read again for them.
pub fn may_have_ranks(path: &Path) -> bool {
    path.is_dir() || store::is_packed(path)
}

/// Whether a folder is not a deepctx-bpf profile and has traces, or may have.
pub(crate) fn is_folder_of_traces(path: &Path) -> bool {
    path.is_dir()
        && !path.join("manifest.json").exists()
        && in_folder(path, ENTRIES_MAX).is_ok_and(|files| files.is_none_or(|files| !files.is_empty()))
}

/// Reads a file, up to one byte more than is accepted, so that the importer notices a longer pipe.
///
/// # Errors
/// It cannot be read, or is larger.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    let failed = |source| OpenError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().is_ok_and(|facts| facts.len() > import::BYTES_MAX as u64) {
        return Err(OpenError::Import { path: path.to_owned(), source: import::TOO_LARGE });
    }
    let mut bytes = Vec::new();
    file.take(import::BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The traces of another tool's file. Processes of one file share a clock.
fn open_foreign(path: &Path, domain: u32) -> Result<Vec<(String, Trace)>, OpenError> {
    let bytes = read(path)?;
    let (mut traces, _) = import::traces(&bytes).map_err(|source| OpenError::import(path, source))?;
    traces.iter_mut().for_each(|(_, trace)| trace.clock.domain = trace.clock.domain.map(|_| domain));
    let is_one = traces.len() == 1;
    let of_process = |pid: Option<u32>| pid.filter(|_| !is_one).map(process_name);
    Ok(traces
        .into_iter()
        .map(|(pid, trace)| (of_process(pid).unwrap_or_else(|| name(path)), trace))
        .collect())
}

fn no_part(path: &Path) -> OpenError {
    OpenError::NotAProfile { path: path.to_owned(), because: NotAProfile::NoParts }
}

/// The clock of the first capture of each boot: its domain, and its begin since 1970 and since the boot.
type Boots = HashMap<String, (u32, [u64; 2])>;

/// The clock of a capture if it is that of an earlier one, or may be that of a later one: its domain, and the begin
/// since 1970. `None` if the boot is not known.
fn clock_of_boot(meta: &Meta, domain: u32, boots: &mut Boots) -> Option<(u32, u64)> {
    let begin = [meta.started.as_nanos(), meta.started_monotonic.as_nanos()];
    if meta.boot_id.is_empty() || begin[0] == 0 {
        return None;
    }
    let (domain, first) = *boots.entry(meta.boot_id.clone()).or_insert((domain, begin));
    let [real, monotonic] = [0, 1].map(|clock| i128::from(begin[clock]) - i128::from(first[clock]));
    let epoch_ns = u64::try_from(i128::from(first[0]) + monotonic).ok()?;
    ((real - monotonic).unsigned_abs() <= CALENDAR_ERROR_MAX_NS).then_some((domain, epoch_ns))
}

/// The traces of a capture with `--trace`, one per process; all share its clock, also with other captures of one boot.
fn open_ours(
    path: &Path,
    domain: u32,
    boots: &mut Boots,
    part: TracePart,
    most: usize,
) -> Result<Vec<(String, Trace)>, OpenError> {
    let Recording { mut traces, meta } = Recording::open(path, part, most)?;
    let of_boot = clock_of_boot(&meta, domain, boots);
    for (_, trace) in &mut traces {
        trace.clock.domain = Some(of_boot.map_or(domain, |(domain, _)| domain));
        trace.clock.epoch_ns = of_boot.map(|(_, epoch_ns)| epoch_ns).or(trace.clock.epoch_ns);
    }
    if traces.len() == 1 {
        return Ok(traces.into_iter().map(|(_, trace)| (name(path), trace)).collect());
    }
    // Processes of one capture without a rank from a launcher are numbered in the order of their ids.
    Ok(traces.into_iter().map(|(pid, trace)| (process_name(pid), trace)).collect())
}

/// Name of a trace in a file with several processes.
fn process_name(pid: u32) -> String {
    format!("process {pid}")
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, OpenError> {
    let mut all = Vec::new();
    for path in paths {
        if !path.exists() {
            return Err(OpenError::NotFound { path: path.clone() });
        }
        if !path.is_dir() || path.join("manifest.json").exists() {
            all.push(path.clone());
            continue;
        }
        let found = in_folder(path, ENTRIES_MAX).and_then(|found| {
            // Captures beside other tools' files are left out: the files may be exports of them.
            let has_none = found.as_ref().is_some_and(Vec::is_empty);
            if has_none { entries(path, ENTRIES_MAX, is_capture) } else { Ok(found) }
        });
        let found = found.map_err(|source| OpenError::Read { path: path.clone(), source })?;
        let because = match found.as_ref().map(Vec::len) {
            None => NotAProfile::TooManyEntries { most: ENTRIES_MAX },
            Some(0) => NotAProfile::NoTraces,
            Some(count) if count > FILES_MAX => NotAProfile::TooManyTraces { count, most: FILES_MAX },
            Some(_) => {
                all.extend(found.into_iter().flatten());
                continue;
            }
        };
        return Err(OpenError::NotAProfile { path: path.clone(), because });
    }
    Ok(all)
}

/// The name of a file without the suffix of its packing.
fn unpacked(name: &str) -> &str {
    PACKED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

fn has_name_of_trace(name: &str) -> bool {
    NAMES.iter().any(|end| unpacked(name).ends_with(end))
}

/// Leaves out other forms of XPlane files: JAX and TensorBoard write `HOST.trace.json.gz` and `perfetto_trace.json.gz`
/// beside `HOST.xplane.pb`. Each would count as a rank that did the same.
fn leave_out_other_forms(files: &mut Vec<PathBuf>) {
    let host = |file: &PathBuf| Some(unpacked(&name(file)).strip_suffix(".xplane.pb")?.to_owned());
    let hosts: HashSet<String> = files.iter().filter_map(host).collect();
    if hosts.is_empty() {
        return;
    }
    files.retain(|file| match unpacked(&name(file)) {
        "perfetto_trace.json" => false,
        name => name.strip_suffix(".trace.json").is_none_or(|host| !hosts.contains(host)),
    });
}

/// Whether an entry of a folder is another tool's trace.
fn is_foreign(path: &Path) -> bool {
    has_name_of_trace(&name(path)) && path.is_file()
}

/// Whether an entry of a folder is a capture of ours.
fn is_capture(path: &Path) -> bool {
    name(path).ends_with(CAPTURE) && (path.join("manifest.json").exists() || store::is_packed(path))
}

/// The traces of other tools in a folder; `None` if it has more than `most` entries.
fn in_folder(path: &Path, most: usize) -> io::Result<Option<Vec<PathBuf>>> {
    let mut found = entries(path, most, is_foreign)?;
    found.iter_mut().for_each(leave_out_other_forms);
    Ok(found)
}

/// Such entries of a folder, by name; `None` if it has more than `most` of any kind.
fn entries(path: &Path, most: usize, is_wanted: fn(&Path) -> bool) -> io::Result<Option<Vec<PathBuf>>> {
    let mut files = Vec::new();
    for (number, entry) in fs::read_dir(path)?.enumerate() {
        if number >= most {
            return Ok(None);
        }
        let path = entry?.path();
        if is_wanted(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(Some(files))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::units::Time;

    use super::*;

    /// Boot id, and begin since 1970 and since the boot, in seconds; domain and begin of the clock.
    type CaptureClock<'a> = (&'a str, [u64; 2], Option<(u32, u64)>);

    #[test]
    fn captures_of_one_boot_have_one_clock() {
        let check = |captures: &[CaptureClock<'_>]| {
            let mut boots = Boots::new();
            for (domain, (boot_id, begin, expect)) in (0..).zip(captures) {
                let [started, started_monotonic] = begin.map(|seconds| seconds * 1_000_000_000);
                let meta = Meta {
                    started: Time::from_nanos(started),
                    started_monotonic: Time::from_nanos(started_monotonic),
                    boot_id: (*boot_id).to_owned(),
                    ..Meta::default()
                };
                let found = clock_of_boot(&meta, domain, &mut boots);
                let found = found.map(|(domain, epoch_ns)| (domain, epoch_ns / 1_000_000_000));
                assert_eq!(found, *expect, "{domain} of {captures:?}");
            }
        };
        check(&[("a", [900, 50], Some((0, 900))), ("a", [907, 57], Some((0, 907)))]);
        // The calendar was set by a second meanwhile; and the later one may be opened first.
        check(&[("a", [900, 50], Some((0, 900))), ("a", [908, 57], Some((0, 907)))]);
        check(&[("a", [908, 57], Some((0, 908))), ("a", [900, 50], Some((0, 901)))]);
        // It says something else.
        check(&[("a", [900, 50], Some((0, 900))), ("a", [990, 57], None), ("a", [807, 57], None)]);
        check(&[("a", [900, 50], Some((0, 900))), ("b", [907, 57], Some((1, 907)))]);
        check(&[("", [900, 50], None), ("", [907, 57], None)]);
        // A capture that does not know the calendar, and those that no capture writes.
        check(&[("a", [0, 50], None), ("a", [907, 57], Some((1, 907)))]);
        check(&[("a", [1, 90], Some((0, 1))), ("a", [1, 50], None)]);
    }

    #[test]
    fn packed_profiles_may_have_ranks_as_folders_may() {
        let check = |path: &Path, expect| assert_eq!(may_have_ranks(path), expect, "{}", path.display());
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        check(&fixtures.join("format-1.2"), true);
        check(&fixtures.join("format-1.2.dctx"), true);
        let trace = tempfile::NamedTempFile::new().unwrap();
        fs::write(trace.path(), "{\"traceEvents\": []}").unwrap();
        check(trace.path(), false);
        check(&fixtures.join("missing.dctx"), false);
    }

    #[test]
    fn a_folder_of_captures_has_each_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path, expect: &[&str]| {
            let found = files(&[path.to_owned()]).unwrap();
            assert_eq!(found.iter().map(|file| name(file)).collect::<Vec<_>>(), expect);
        };
        for capture in ["b.dctx", "a.dctx", "copy"] {
            store::Writer::create(&folder.path().join(capture), &Meta::default()).unwrap();
        }
        fs::create_dir(folder.path().join("empty.dctx")).unwrap();
        check(folder.path(), &["a.dctx", "b.dctx"]);
        // A capture is a folder as well.
        check(&folder.path().join("a.dctx"), &["a.dctx"]);
        fs::write(folder.path().join("a.json"), "").unwrap();
        check(folder.path(), &["a.json"]);
    }

    #[test]
    fn a_folder_has_each_capture_in_one_form() {
        let check = |written: &[&str], expect: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            written.iter().for_each(|file| fs::write(folder.path().join(file), "").unwrap());
            let found = in_folder(folder.path(), written.len()).unwrap().unwrap();
            assert_eq!(found.iter().map(|file| name(file)).collect::<Vec<_>>(), expect);
            // Those beyond the bound are not left out silently.
            assert_eq!(in_folder(folder.path(), written.len() - 1).unwrap(), None);
        };
        check(
            &["a.trace.json.gz", "a.xplane.pb", "b.trace.json.gz", "notes.txt", "perfetto_trace.json.gz"],
            &["a.xplane.pb", "b.trace.json.gz"],
        );
        check(&["a.trace.json", "perfetto_trace.json"], &["a.trace.json", "perfetto_trace.json"]);
    }
}
