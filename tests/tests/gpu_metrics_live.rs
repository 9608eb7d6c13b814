//! GPU metrics of the driver, recorded beside a process, with a look-alike of NVIDIA's library.
//!
//! Owns: whole captures by the program as a user runs it, with a library that is correct, is incomplete, hangs or ends
//! its process. Because: that library is third-party code, and only GPU metrics may depend on it. Does not: check
//! programs' use of a GPU. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cli_support::recording::{Recording, RecordingOutcome};
use cli_support::{Busy, can_capture, expect_code, gap_count, is_without_privileges, program, signal};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::Profile;

const LIBRARY: &str = "libnvidia-ml.so.1";
/// The two GPUs of the stub library.
const FIRST: &str = "gpu 0 GPU-abcd0000-0000-4000-8000-000000000000";
const SECOND: &str = "gpu 1 GPU-abcd0001-0000-4000-8000-000000000001";
/// Timeout for expected events.
const PATIENCE: Duration = Duration::from_secs(60);

/// A world-readable folder with a library: the process that loads it runs as `nobody`.
struct Library(tempfile::TempDir);

impl Library {
    /// An empty one.
    fn folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// The stub library with these faults (`tests/workloads/gpu_management.c`).
    fn with(faults: &str) -> Self {
        let library = Self::folder();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/gpu_management.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(library.file()).arg(source).arg("-ldl");
        assert!(compiler.status().unwrap().success());
        fs::write(library.0.path().join("faults"), faults).unwrap();
        fs::set_permissions(library.0.path().join("faults"), Permissions::from_mode(0o644)).unwrap();
        library
    }

    fn file(&self) -> PathBuf {
        self.0.path().join(LIBRARY)
    }

    /// Records a busy process with this library and these options until the condition holds.
    fn record(&self, options: &[&str], is_enough: impl Fn(&RecordedProfile) -> bool) -> RecordedProfile {
        let (busy, file) = (Busy::start(), self.0.path().join("run.dctx"));
        let mut record = program();
        record.env("LD_LIBRARY_PATH", self.0.path());
        let pid = busy.pid();
        let options = [&["--system-metrics", "200ms", "--pid", &pid], options].concat();
        let mut recording = Recording::of_file(&file, &mut record, &options);
        // Everything else is recorded, whatever the library does.
        recording.wait_until(|_| {
            let grown = RecordedProfile::open(&file, recording.said());
            let samples = grown.profile.tree.total(Metric::Samples).sum;
            grown.machine_readings() >= 10 && samples > 10 && is_enough(&grown)
        });
        let RecordingOutcome { status, said } = recording.interrupted();
        assert_eq!(status.code(), Some(0), "{said}");
        RecordedProfile::open(&file, said)
    }

    /// Pids of the processes that have the library mapped.
    fn readers(&self) -> Vec<String> {
        let path = self.file().to_str().unwrap().to_owned();
        let has_it = |process: &PathBuf| {
            fs::read_to_string(process.join("maps")).is_ok_and(|maps| maps.contains(&path))
        };
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
        let pid = |process: PathBuf| process.file_name().unwrap().to_str().unwrap().to_owned();
        processes.filter(has_it).map(pid).collect()
    }

    /// Waits until no process has the library mapped.
    fn is_gone(&self) {
        let began = Instant::now();
        while !self.readers().is_empty() {
            assert!(began.elapsed() < PATIENCE, "a reader was left behind");
            std::thread::yield_now();
        }
    }
}

struct RecordedProfile {
    profile: Profile,
    said: String,
    file: PathBuf,
}

impl RecordedProfile {
    fn open(file: &Path, said: String) -> Self {
        Self { profile: deepctx_storage::open(file).unwrap().profile, said, file: file.to_owned() }
    }

    /// Number of readings of the machine's own metrics.
    fn machine_readings(&self) -> u64 {
        self.cell("cpu 0", Metric::CpuBusyTime).count
    }

    /// Values of a part of the machine.
    fn cell(&self, resource: &str, metric: Metric) -> Cell {
        let Profile { tree, frames, strings, .. } = &self.profile;
        let of = |node| match frames.get(tree.node(node).frame) {
            Frame::Resource { name } => strings.get(name) == resource,
            _ => false,
        };
        tree.cells(metric).find(|(node, _)| of(*node)).map_or(Cell::EMPTY, |(_, cell)| cell)
    }

    /// Asserts that every reading of a level had this value.
    #[track_caller]
    fn is_always(&self, resource: &str, metric: Metric, value: u64) {
        let cell = self.cell(resource, metric);
        assert_eq!((cell.min, cell.max), (value, value), "{resource} {metric}: {self}");
    }

    /// Asserts that no GPU was read.
    #[track_caller]
    fn has_no_gpus(&self) {
        for metric in [Metric::GpuBusyTime, Metric::GpuPowerMilliwatts, Metric::MemoryTotalBytes] {
            assert_eq!(self.profile.tree.total(metric), Cell::EMPTY, "{metric}: {self}");
        }
    }

    /// Number of the capture's messages with this text.
    fn said(&self, text: &str) -> usize {
        self.to_string().lines().filter(|line| line.contains(text)).count()
    }
}

impl std::fmt::Display for RecordedProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.said)
    }
}

/// Whether this machine has a real driver, whose library would be used instead.
fn has_driver() -> bool {
    ["/dev/nvidiactl", "/proc/driver/nvidia"].iter().any(|path| Path::new(path).exists())
}

#[test]
fn readings_of_gpus_are_those_of_their_library() {
    if !can_capture() {
        return;
    }
    let library = Library::with("");
    let recorded = library.record(&[], |grown| {
        let limited = grown.cell(FIRST, Metric::GpuPowerLimitedTime).sum;
        grown.cell(FIRST, Metric::GpuBusyTime).count >= 5 && limited > 500_000_000
    });
    for (gpu, used, temperature) in [(FIRST, 8, 40), (SECOND, 16, 60)] {
        recorded.is_always(gpu, Metric::MemoryUsedBytes, used << 30);
        recorded.is_always(gpu, Metric::MemoryTotalBytes, 80 << 30);
        recorded.is_always(gpu, Metric::GpuTemperatureCelsius, temperature);
        recorded.is_always(gpu, Metric::GpuClockMegahertz, 1980);
        recorded.is_always(gpu, Metric::GpuMemoryClockMegahertz, 2619);
    }
    let time = |gpu, metric| recorded.cell(gpu, metric).sum;
    // The first one is always at its power limit, and busy for a quarter of the time.
    let whole = time(FIRST, Metric::GpuPowerLimitedTime);
    let readings = recorded.cell(FIRST, Metric::GpuBusyTime).count;
    assert!(time(FIRST, Metric::GpuBusyTime).abs_diff(whole / 4) <= readings, "{recorded}");
    assert!(time(FIRST, Metric::GpuMemoryBusyTime).abs_diff(whole / 10) <= readings, "{recorded}");
    recorded.is_always(FIRST, Metric::GpuPowerMilliwatts, 350_000);
    recorded.is_always(FIRST, Metric::GpuThermalLimitedTime, 0);
    // The second one is too hot.
    assert_eq!(time(SECOND, Metric::GpuThermalLimitedTime), whole, "{recorded}");
    recorded.is_always(SECOND, Metric::GpuSlowdownTime, 0);
    recorded.is_always(SECOND, Metric::GpuPowerLimitedTime, 0);
    // A watt more per reading: none is used twice or lost.
    let power = recorded.cell(SECOND, Metric::GpuPowerMilliwatts);
    let last = 100_000 + 1000 * (power.count - 1);
    assert_eq!((power.min, power.max, power.count), (100_000, last, readings), "{recorded}");
    assert_eq!(power.sum, power.count * (100_000 + last) / 2, "{recorded}");
    assert_eq!(recorded.said("GPU"), 0, "{recorded}");

    let report = expect_code(0, &["report", recorded.file.to_str().unwrap(), "--all"]);
    let row = report.lines().find(|line| line.contains(FIRST) && line.contains("gpu-power-milliwatts"));
    assert!(row.is_some_and(|row| row.split_whitespace().any(|word| word == "350000")), "{report}");
}

#[test]
fn a_figure_that_a_gpu_lacks_is_missing_alone() {
    if !can_capture() {
        return;
    }
    let library = Library::with("nvmlDeviceGetPowerUsage 0 0 3\n");
    let recorded = library.record(&[], |grown| grown.cell(SECOND, Metric::GpuPowerMilliwatts).count > 3);
    assert_eq!(recorded.cell(FIRST, Metric::GpuPowerMilliwatts), Cell::EMPTY, "{recorded}");
    recorded.is_always(FIRST, Metric::GpuTemperatureCelsius, 40);
    assert_eq!(recorded.said("GPU"), 0, "{recorded}");
}

#[test]
fn a_lost_gpu_costs_its_own_figures() {
    if !can_capture() {
        return;
    }
    let library = Library::with("* 1 3 15\n");
    let recorded = library.record(&[], |grown| grown.cell(FIRST, Metric::GpuBusyTime).count > 6);
    for metric in [Metric::GpuBusyTime, Metric::GpuPowerMilliwatts, Metric::GpuThermalLimitedTime] {
        assert_eq!(recorded.cell(SECOND, metric).count, 3, "{metric}: {recorded}");
    }
    let said = format!("{SECOND}: some or all figures are missing: NVML_ERROR_GPU_IS_LOST (15)");
    assert!(recorded.said(&said) == 1, "{recorded}");
}

#[test]
fn a_library_that_cannot_begin_is_named_with_its_error() {
    if !can_capture() {
        return;
    }
    let library = Library::with("nvmlInit_v2 -1 0 18\n");
    let why = "no figures of GPUs: nvmlInit failed: NVML_ERROR_LIB_RM_VERSION_MISMATCH (18)";
    let recorded = library.record(&[], |grown| grown.said(why) > 0);
    recorded.has_no_gpus();
    assert!(recorded.said(why) == 1, "{recorded}");
    library.is_gone();
}

#[test]
fn a_library_that_never_begins_costs_gpus_alone() {
    if !can_capture() {
        return;
    }
    let library = Library::with("nvmlInit_v2 -1 0 hang\n");
    let why = "no figures of GPUs: NVIDIA's library did not answer in time";
    let recorded = library.record(&[], |_| true);
    recorded.has_no_gpus();
    assert!(recorded.said(why) == 1, "{recorded}");
    library.is_gone();
}

#[test]
fn a_reading_that_hangs_costs_gpus_alone() {
    if !can_capture() {
        return;
    }
    let library = Library::with("nvmlDeviceGetTemperature 1 2 hang\n");
    // It is killed after two seconds and queried once more; the machine's own metrics continue.
    library.record(&[], |grown| {
        let readings = grown.cell(FIRST, Metric::GpuBusyTime).count;
        let is_told = gap_count(&grown.profile, "gpu-reading-missing") > 0;
        is_told && readings >= 2 && grown.machine_readings() > 2 * readings
    });
    library.is_gone();
}

#[test]
fn a_library_that_ends_its_process_costs_gpus_alone() {
    if !can_capture() {
        return;
    }
    let library = Library::with("nvmlDeviceGetMemoryInfo -1 0 abort\n");
    let why = "no figures of GPUs: NVIDIA's library ended the process that asked it";
    let recorded = library.record(&[], |grown| grown.said(why) > 0);
    recorded.has_no_gpus();
    assert!(recorded.said(why) == 1, "{recorded}");

    // Later failures do not affect earlier readings.
    let library = Library::with("nvmlDeviceGetMemoryInfo -1 2 abort\n");
    let why = "no more figures of GPUs: NVIDIA's library ended the process that asked it";
    library.record(&[], |grown| grown.cell(SECOND, Metric::GpuBusyTime).count >= 2 && grown.said(why) == 1);
    library.is_gone();
}

#[test]
fn a_lost_reader_of_gpus_is_replaced() {
    if !can_capture() {
        return;
    }
    let library = Library::with("");
    let readings_before = std::cell::Cell::new(None::<u64>);
    let recorded = library.record(&[], |grown| {
        let readings = grown.cell(FIRST, Metric::GpuBusyTime).count;
        match readings_before.get() {
            // Some more readings may be on their way to the profile.
            Some(before) => readings >= before + 10,
            None => {
                if readings >= 2 {
                    let readers = library.readers();
                    assert!(!readers.is_empty(), "{grown}");
                    for reader in &readers {
                        is_without_privileges(reader);
                        signal(reader, "KILL");
                    }
                    readings_before.set(Some(readings));
                }
                false
            }
        }
    });
    assert_eq!(recorded.said("figures of GPUs"), 0, "{recorded}");
    library.is_gone();
}

#[test]
fn without_a_driver_nothing_is_said_or_started() {
    if !can_capture() {
        return;
    }
    let recorded = Library::with("").record(&["--no-gpu"], |_| true);
    recorded.has_no_gpus();
    assert_eq!(recorded.said("GPU"), 0, "{recorded}");
    if !has_driver() {
        let recorded = Library::folder().record(&[], |_| true);
        recorded.has_no_gpus();
        assert_eq!(recorded.said("GPU"), 0, "{recorded}");
    }
}

/// The vendor's libraries below a folder.
fn vendors_own(folder: PathBuf) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with("libnvidia-ml.so.") {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn nvidias_own_library_without_a_driver_says_so() {
    if !can_capture() {
        return;
    }
    let Some(folder) = std::env::var_os("DEEPCTX_VENDOR_LIBRARIES") else {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the vendors' libraries are not named");
        println!("skipped: DEEPCTX_VENDOR_LIBRARIES names no folder with the vendors' libraries");
        return;
    };
    if has_driver() {
        println!("skipped, a GPU: this machine has a driver of NVIDIA");
        return;
    }
    let libraries = vendors_own(folder.into());
    assert!(!libraries.is_empty());
    for original in libraries {
        let library = Library::folder();
        fs::copy(&original, library.file()).unwrap();
        let why = "no figures of GPUs: nvmlInit failed: NVML_ERROR_DRIVER_NOT_LOADED (9)";
        let recorded = library.record(&[], |grown| grown.said(why) > 0);
        recorded.has_no_gpus();
        assert!(recorded.said(why) == 1, "{}: {recorded}", original.display());
        library.is_gone();
    }
}
