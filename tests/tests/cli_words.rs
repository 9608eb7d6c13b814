//! Output and exit codes of the program, without privileges.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod pipeline_support;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cli_support::terminal::in_a_terminal;
use cli_support::{expect_code, program, run, stderr, stdout};
use deepctx_profile::profile::Meta;
use deepctx_profile::units::Time;
use deepctx_storage::store::Writer;

/// A profile on disk, from a page of records.
fn stored(folder: &Path, name: &str, records: &str) -> PathBuf {
    let mut pipeline = pipeline_support::run(records);
    let path = folder.join(name);
    let profile = pipeline.profile();
    profile.meta = Meta { target: "app (pid 7)".into(), frequency_hz: 99, ..Meta::default() };
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    writer.finish(profile, Time::from_nanos(2_000_000_000)).unwrap();
    path
}

const RECORDS: &str = "
    10 sample 7/7 app f! g main period=100
    20 sample 7/8 app py:step@3 eval main period=50
    30 sample 7/8 app h! gap:no-row native=no-row period=10
";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_help_opens_with_two_commands_that_can_be_pasted() {
    for command in [
        "",
        "live",
        "record",
        "experiment",
        "dump",
        "control",
        "view",
        "report",
        "analyze",
        "timeline",
        "export",
        "diff",
        "doctor",
        "probes",
    ] {
        let arguments: Vec<&str> = [command, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let help = expect_code(0, &arguments);
        let examples: Vec<&str> = help.lines().take(2).map(str::trim).collect();
        for example in examples {
            assert!(example.trim_start_matches("sudo ").starts_with("deepctx-bpf"), "{command}: {example}");
            if !command.is_empty() {
                assert!(example.contains(command), "{command}: {example}");
            }
        }
    }
}

#[test]
fn every_option_of_a_capture_has_an_environment_variable() {
    for command in ["live", "record", "experiment"] {
        let help = expect_code(0, &[command, "--help"]);
        // Values of options are listed with a dash and a space.
        let options =
            help.lines().map(str::trim).filter(|line| line.starts_with('-') && !line.starts_with("- "));
        let named: Vec<&str> = options.filter(|line| !line.contains("--help")).collect();
        let variables = help.matches("[env: DEEPCTX_").count();
        assert_eq!(named.len(), variables, "{command}: {named:?}");
    }
}

#[test]
fn old_spellings_of_options_are_refused_with_the_new_ones() {
    let check = |arguments: &[&str], new: &str| {
        let said = expect_code(2, arguments);
        assert!(said.contains(new), "{arguments:?}: {said}");
    };
    for (old, new) in
        [("operator", "operators"), ("step", "ranges"), ("team", "openmp"), ("module", "modules")]
    {
        check(&["record", "--context", &format!("python,{old}")], &format!("use `--probe {new}`"));
        check(&["live", "--context", old], &format!("use `--probe {new}`"));
    }
    check(&["record", "--context", "nothing"], "[possible values: python, native, kernel]");
    check(&["record", "--probes", "rows.toml"], "`--probe-file`");
    check(&["probes", "--probes", "rows.toml"], "`--probe-file`");
    check(&["probes", "--context", "operator"], "operator: operators");
}

#[test]
fn variables_of_old_names_are_refused_and_replace_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let packed = folder.path().join("packed.dctx");
    expect_code(0, &["export", text(&profile), "--format", "dctx", "-o", text(&packed)]);
    let before = fs::read(&packed).unwrap();
    let report = |variables: &[(&str, &str)]| {
        program().args(["report", text(&packed)]).envs(variables.iter().copied()).output().unwrap()
    };
    let output = report(&[("DEEPCTX_OUTPUT", text(&packed)), ("DEEPCTX_FORCE", "1")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("DEEPCTX_RECORD_OUTPUT"), "{}", stderr(&output));
    let output = report(&[("DEEPCTX_RECORD_OUTPUT", text(&packed)), ("DEEPCTX_RECORD_FORCE", "1")]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(fs::read(&packed).unwrap(), before);
    let output = report(&[("DEEPCTX_FORMAT", "json")]);
    assert!(stderr(&output).contains("DEEPCTX_REPORT_FORMAT"), "{}", stderr(&output));
    assert!(stdout(&report(&[("DEEPCTX_REPORT_FORMAT", "json")])).starts_with('{'));
}

#[test]
fn bad_usage_ends_with_code_2() {
    for arguments in [
        &["record", "--freq", "0"][..],
        &["record", "--duration", "soon"],
        &["record", "--no-such-option"],
        &["export", "run.dctx"],
        &["export", "run.dctx", "--format", "nothing"],
        &["no-such-command"],
        &["record", "--max-loss", "200"],
    ] {
        expect_code(2, arguments);
    }
}

#[test]
fn a_window_of_steps_needs_the_probe_on_ranges() {
    let said = expect_code(2, &["record", "--trace", "steps=5..8", "-o", "unused.dctx", "--", "true"]);
    assert!(said.contains("need `--probe ranges`"), "{said}");
    let said = expect_code(2, &["record", "--trace", "steps=8..5", "--", "true"]);
    assert!(said.contains("like steps=5..8"), "{said}");
    let said = expect_code(2, &["record", "--trace", "signal=soon", "--", "true"]);
    assert!(said.contains("soon"), "{said}");
}

#[test]
fn a_python_function_as_step_marker_is_refused() {
    for marker in ["train.py:step", "__main__:step"] {
        let said = expect_code(2, &["record", "--step-marker", marker]);
        assert!(said.contains("a Python function cannot mark training steps"), "{said}");
        assert!(
            said.contains("record_function(\"step\")") && said.contains("`--step-marker step`"),
            "{said}"
        );
    }
}

#[test]
fn an_error_is_one_line_and_a_hint() {
    let check = |arguments: &[&str], error: &str, hint: &str| {
        let said = expect_code(2, arguments);
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("hint: "),
            "{said}"
        );
        assert!(lines[0].contains(error) && lines[1].contains(hint), "{said}");
    };
    check(&["record", "--pid", "4194305", "-o", "/tmp/none.dctx"], "no process with pid 4194305", "ps -e");
    let none = "no process is in a container whose id begins with \"0123456789ab\"";
    check(&["dump", "--container", "0123456789ab"], none, "/proc/PID/cgroup");
    check(&["dump", "--comm", "no-such-program"], "no process is named", "15 characters");
    check(&["dump", "--cgroup", "/no/such"], "cgroup /no/such", "/sys/fs/cgroup");
    // A target that is not there comes before a destination that is.
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("run.dctx");
    fs::create_dir(&taken).unwrap();
    let record = |target: [&str; 2], error: &str, hint: &str| {
        check(&["record", target[0], target[1], "-o", text(&taken)], error, hint);
    };
    record(["--pid", "4194305"], "no process with pid 4194305", "ps -e");
    record(["--comm", "no-such-program"], "no process is named", "15 characters");
    record(["--container", "0123456789ab"], none, "/proc/PID/cgroup");
    record(["--cgroup", "/no/such"], "cgroup /no/such", "/sys/fs/cgroup");
    record(["--pid", &std::process::id().to_string()], "run.dctx", "--force");
    check(&["record", "-o", "-"], "expected a file name", "export");
    check(&["record", "-o", "/no/such/folder/run.dctx"], "/no/such/folder: expected a folder", "-o");
    check(&["--pid", "1"], "needs a terminal", "--once");
}

#[test]
fn a_profile_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text"), "hello").unwrap();
    for command in [&["view", "--once"][..], &["report"], &["export", "--format", "folded"]] {
        let missing = expect_code(2, &[command, &["/no/such.dctx"]].concat());
        assert!(missing.contains("no such profile: `/no/such.dctx`"), "{missing}");
        let other = expect_code(2, &[command, &[text(&folder.path().join("text"))]].concat());
        assert!(other.contains("neither a profile nor anything") && other.contains("`hello`"), "{other}");
    }
}

#[test]
fn tables_of_a_model_are_printed_alone() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let profile = text(&profile);
    let report = |more: &[&str]| expect_code(0, &[&["report", profile], more].concat());
    let said = report(&["--table", "totals,layers"]);
    assert!(said.contains("layers           missing") && said.contains("--probe modules"), "{said}");
    assert!(said.contains("\nTotals\n") && !said.contains("Hottest functions"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&report(&["--table", "totals", "--format", "json"])).unwrap();
    assert_eq!(json["totals"]["host_ns"], 160, "{json}");
    assert!(json.get("layers").is_none() && json.get("kernels").is_none(), "{json}");
    let refused = |more: &[&str], expect: &str| {
        let said = expect_code(2, &[&["report", profile], more].concat());
        assert!(said.contains(expect), "{said}");
    };
    refused(&["--table", "totals", "--format", "html"], "text or JSON only");
    refused(&["--table", "everything"], "layer-types");
    refused(&["--table", "layers", "--peak-flops", "1T"], "--peak-bandwidth");
    refused(&["--table", "layers", "--peak-flops", "fast", "--peak-bandwidth", "1G"], "as in 19.5T");
}

#[test]
fn a_stored_profile_is_exported_reported_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let profile = text(&profile);
    let folded = |more: &[&str]| expect_code(0, &[&["export", profile, "--format", "folded"], more].concat());
    assert_eq!(folded(&[]), "app-7;[unknown: no-row];h 10\napp-7;main;g;f 100\napp-7;main;m.py:step 50\n");
    assert_eq!(folded(&["--metric", "samples", "--view", "python"]), "app-7 2\napp-7;m.py:step 1\n");
    assert_eq!(
        folded(&["--lines", "--view", "python", "--group-by", "thread"]),
        "\
app-7;app/7 100\napp-7;app/8 10\napp-7;app/8;m.py:step:3 50\n"
    );
    assert!(expect_code(0, &["export", profile, "--format", "svg"]).contains("<svg"));
    assert!(expect_code(0, &["export", profile, "--format", "html"]).contains("</html>"));
    let none = expect_code(2, &["export", profile, "--format", "csv", "--metric", "gpu-time"]);
    assert!(none.contains("--metric gpu-time") && none.contains("it has cpu-time, samples"), "{none}");

    let report = expect_code(0, &["report", profile]);
    assert!(report.contains("app (pid 7)") && report.contains("no-row"), "{report}");
    let json: serde_json::Value =
        serde_json::from_str(&expect_code(0, &["report", profile, "--format", "json"])).unwrap();
    assert_eq!((&json["schema_version"], &json["total_ns"]), (&1.into(), &160.into()));
    let hottest = &json["functions"][0];
    assert_eq!((&hottest["function"], &hottest["exclusive_percent"]), (&"f".into(), &62.5.into()));
    for table in ["contexts", "phases", "training_steps", "layers", "compiled_code", "kernels", "memory"] {
        assert!(json.get(table).is_some(), "no table {table} in {json}");
    }
    let page = expect_code(0, &["report", profile, "--format", "html"]);
    assert!(page.contains("</html>") && page.contains("\"title\":\"Contexts\""), "{page}");
    assert_eq!(json["losses"][0]["reason"], "no-row");

    let picture = expect_code(0, &["view", profile, "--once"]);
    assert!(
        picture.contains("app (pid 7)") && picture.contains("main") && !picture.contains('\x1b'),
        "{picture}"
    );
}

#[test]
fn names_that_are_not_there_are_answered_with_near_ones() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let profile = text(&profile);
    let check = |arguments: &[&str], expect: &str| {
        let said = expect_code(2, &[arguments, &[profile]].concat());
        assert!(said.contains(expect), "{arguments:?}: {said}");
    };
    let near = "no stack matches\nhint: the nearest names are m.py:step";
    check(&["report", "--filter", "m.py:stpe"], near);
    check(&["analyze", "--path", "python:stepp"], near);
    check(&["export", "--format", "folded", "--filter", "^m.py:stp$"], near);
    check(&["diff", profile, "--filter", "m.py:steq"], near);
    check(&["report", "--filter", "!.*"], "the filter is a regular expression that must match one frame");
    check(&["report", "--metric", "gpu-time"], "it has cpu-time, samples");
}

#[test]
fn findings_of_a_stored_profile_decide_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let stacks = folder.path().join("stacks.txt");
    fs::write(&stacks, "app-7;main;gomp_barrier_wait 600\napp-7;main;work 400\n").unwrap();
    let stacks = text(&stacks);
    let analyze = |code: i32, more: &[&str]| expect_code(code, &[&["analyze", stacks], more].concat());
    let found = analyze(0, &[]);
    assert!(found.starts_with("1. 60% of samples is threads spinning at barriers"), "{found}");
    assert!(found.contains("Healthy:") && found.contains("record with --off-cpu"), "{found}");
    analyze(1, &["--fail-on", "spinning-threads:high"]);
    analyze(0, &["--fail-on", "import-time", "--only", "spinning-threads"]);
    analyze(0, &["--fail-on", "spinning-threads", "--skip", "spinning-threads"]);
    assert!(analyze(2, &["--fail-on", "spinning"]).contains("the nearest are spinning-threads, "));
    assert!(analyze(2, &["--only", "spinning"]).contains("the nearest are spinning-threads, "));
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[spinning-threads]\nmin_percent = 90\n").unwrap();
    analyze(0, &["--rules", text(&rules), "--fail-on", "spinning-threads"]);
    fs::write(&rules, "[spinning-threads]\npercent = 90\n").unwrap();
    assert!(analyze(2, &["--rules", text(&rules)]).contains("expected one of min_percent"));
    let json: serde_json::Value = serde_json::from_str(&analyze(0, &["--format", "json"])).unwrap();
    assert_eq!(json["findings"][0]["gain"]["label"], "bounded");
    assert_eq!(json["checks"][0]["rule"], "hotspot");
    assert!(analyze(0, &["--format", "html"]).contains("\"title\":\"Findings\""));
    let report = expect_code(0, &["report", stacks]);
    assert!(report.contains("≤ 60.0%") && report.lines().count() <= 45, "{report}");
}

#[test]
fn a_late_rank_of_a_folder_decides_the_exit_code() {
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/traces/dlrm");
    let found = expect_code(0, &["analyze", job, "--only", "straggler"]);
    assert!(found.contains("rank 7  rank7.json.gz"), "{found}");
    expect_code(1, &["analyze", job, "--fail-on", "straggler:high"]);
    let one = expect_code(0, &["analyze", &format!("{job}/rank7.json.gz"), "--only", "straggler"]);
    assert!(one.contains("Not checked") && one.contains("record with --trace"), "{one}");
}

#[test]
fn every_tab_of_a_stored_profile_can_be_printed() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let show = |more: &[&str]| expect_code(0, &[&["view", text(&profile), "--once"], more].concat());
    let check = |more: &[&str], expected: &[&str]| {
        let picture = show(more);
        for part in expected {
            assert!(picture.contains(part), "no {part} with {more:?} in\n{picture}");
        }
    };
    check(&["--tab", "callers"], &["N f", "g → main → app-7"]);
    check(&["--tab", "table"], &["self", "total", "m.py:step"]);
    check(&["--tab", "time", "--group-by", "thread"], &["mean", "# app-7", "~ app/8"]);
    check(&["--tab", "source", "--source", "m.py"], &["no text: there is no such file", "31.2%  3"]);
    check(&["--tab", "health"], &["received", "in flight", "no-row", "not known: profiles do not store it"]);
    assert!(!show(&["--size", "200x24"]).contains("profiler:"), "a profile has no figures of its overhead");
    check(&[], &["nothing stands out, by 1 rule; hottest: f 62.5%", "Where CPU time goes", "m.py:step"]);
    let flame = ["--tab", "flame", "--filter"];
    check(&[&flame[..], &["^f$"]].concat(), &["filter ^f$ 62.5%", "main → g"]);
    let folded = [&flame[..], &["!^f$", "--lines", "--fold-recursion"]].concat();
    check(&folded, &["37.5%", "m.py:step:3", "by line, recursion collapsed"]);
    assert!(show(&["--ascii", "--tab", "flame"]).is_ascii());
    assert_eq!(show(&["--size", "40x6"]).lines().map(|line| line.chars().count()).max(), Some(40));
    let wrong = expect_code(2, &["view", text(&profile), "--once", "--filter", "("]);
    assert!(wrong.contains("unclosed group"), "{wrong}");
}

#[test]
fn files_of_other_tools_are_reported_shown_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("stacks.txt");
    fs::write(&foreign, "app-7;main;train.py:step 9\napp-7;main;read_[k] 1\nodd\n").unwrap();
    let foreign = text(&foreign);
    let report = expect_code(0, &["report", foreign]);
    assert!(report.contains("90.0%") && report.contains("train.py:step"), "{report}");
    let exported = program().args(["export", foreign, "--format", "folded"]).output().unwrap();
    assert_eq!(stdout(&exported), "app-7;main;read_[k] 1\napp-7;main;train.py:step 9\n");
    assert!(stderr(&exported).contains("1 not-understood"), "{}", stderr(&exported));
    assert!(expect_code(0, &["view", foreign, "--once"]).contains("train.py:step"));
    // An import is kept in our own format, as one file.
    let kept = folder.path().join("kept.dctx");
    expect_code(0, &["export", foreign, "--format", "dctx", "-o", text(&kept)]);
    let again = expect_code(0, &["export", text(&kept), "--format", "folded"]);
    assert_eq!(again, stdout(&exported));
}

#[test]
fn invalid_files_in_foreign_formats_are_refused_with_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, bytes: &[u8], expect: &str| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let said = expect_code(2, &["report", text(&path)]);
        assert!(said.contains(name) && said.contains(expect) && said.contains("hint: "), "{said}");
    };
    check("a.pb.gz", b"\x7fELF\x02\x01\x01\0\0\0", "no valid pprof profile: at byte 0");
    check("b.pb.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03 broken", "cannot be decompressed");
    check("c.json", b"{\"profiles\": []}", "without `traceEvents`");
    check("d.json", b"{\"traceEvents\": [{\"ph\":", "no valid Chrome or Kineto trace");
    check("e.dctx", b"", "it is empty");
}

#[test]
fn a_timeline_is_of_traces_alone() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |rank: u32, begin: u32| {
        let kernel = format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclKernel","pid":0,"tid":7,"ts":{begin},"dur":{},"args":{{"device":0,"stream":7}}}}"#,
            90 - begin
        );
        format!(r#"{{"traceEvents":[{kernel}],"distributedInfo":{{"rank":{rank},"world_size":3}}}}"#)
    };
    let ranks = folder.path().join("ranks");
    fs::create_dir(&ranks).unwrap();
    fs::write(ranks.join("a.json"), trace(0, 10)).unwrap();
    fs::write(ranks.join("b.json"), trace(1, 60)).unwrap();
    let said = expect_code(0, &["timeline", text(&ranks)]);
    assert!(
        said.contains("no trace of 1 rank: 2") && said.contains("Collectives: whom the others wait for"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&expect_code(0, &["timeline", text(&ranks), "--format", "json"])).unwrap();
    assert_eq!(json["stragglers"]["collectives"][0]["latest_rank"], 1);
    assert_eq!(json["devices"][0]["communication_ns"], 80_000);
    // The same files form one profile.
    assert!(expect_code(0, &["report", text(&ranks), "--metric", "gpu-time"]).contains("rank 1"));
    let page = expect_code(0, &["report", text(&ranks), "--metric", "gpu-time", "--format", "html"]);
    for table in ["Devices over time", "Stragglers", "Critical path"] {
        assert!(page.contains(&format!("\"title\":\"{table}\"")), "{table}");
    }
    assert!(!page.contains("\"title\":\"Sequences\""), "a table without rows has no tab");
    // A rank without a collective: its clock cannot be aligned.
    fs::write(ranks.join("c.json"), trace(2, 10).replace("ncclKernel", "gemm")).unwrap();
    assert!(expect_code(0, &["timeline", text(&ranks)]).contains("not aligned: no collective in common"));
    let out = folder.path().join("all.json");
    let said = stderr(&run(&["export", text(&ranks), "--format", "chrome", "-o", text(&out)]));
    assert!(said.contains("1 of 3 ranks has a clock that is not aligned with rank 0's"), "{said}");
    fs::write(ranks.join("c.json"), trace(1, 60)).unwrap();
    assert!(expect_code(2, &["timeline", text(&ranks)]).contains("both of rank 1"));
    let folded = folder.path().join("x.folded");
    fs::write(&folded, "a;b 3\n").unwrap();
    assert!(expect_code(2, &["timeline", text(&folded)]).contains("no events in time"));
    assert!(
        expect_code(2, &["timeline", text(&folded), "--steps", "5"])
            .contains("expected two numbers of steps")
    );
}

#[test]
fn two_profiles_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let before = stored(folder.path(), "a", &"10 sample 7/7 app f! main period=100\n".repeat(50));
    let after = stored(folder.path(), "b", &"10 sample 9/9 app g! main period=100\n".repeat(50));
    let said = expect_code(0, &["diff", text(&before), text(&after)]);
    assert!(said.contains("-100.00%") && said.contains("app;main;f") && said.contains("+100.00%"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&expect_code(0, &["diff", text(&before), text(&after), "--format", "json"]))
            .unwrap();
    assert_eq!(json["functions"][0]["significant"], true);
    assert!(said.contains("note: only 0.0% of the values before and 0.0% after"), "{said}");
    assert_eq!(json["matched"], serde_json::json!({ "before": 0.0, "after": 0.0 }));
    assert_eq!(json["options"], serde_json::json!([]));
    assert!(expect_code(0, &["diff", text(&before), text(&after), "--format", "svg"]).contains("<svg"));
    assert!(expect_code(0, &["diff", text(&before), text(&before)]).contains("nothing differs"));
}

#[test]
fn texts_for_a_terminal_are_in_its_locale() {
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(format!("{name}.folded")));
    fs::write(&before, "main;rest 30\n").unwrap();
    fs::write(&after, "main;größe 50\nmain;rest 30\n").unwrap();
    let (before, after) = (text(&before), text(&after));
    for command in [&["report", after][..], &["diff", before, after]] {
        let shown = |locale: &str| {
            let mut program = program();
            program.args(command).env("LC_ALL", locale);
            let ended = in_a_terminal(&program, "no such text");
            assert_eq!(ended.code, 0, "{}", ended.drawn);
            ended.drawn
        };
        assert!(shown("C.UTF-8").contains("größe"), "{command:?}");
        let said = shown("C");
        assert!(said.is_ascii() && said.contains("gr??e"), "{said}");
        assert!(expect_code(0, command).contains("größe"), "a pipe has UTF-8 in any locale");
    }
    let mut none = program();
    none.args(["report", "/größe"]).env("LC_ALL", "C");
    let ended = in_a_terminal(&none, "no such text");
    assert!(ended.code == 2 && ended.drawn.is_ascii() && ended.drawn.contains("/gr??e"), "{ended:?}");
}

#[test]
fn a_comparison_fails_for_what_grew_beyond_chance() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, f: usize, g: usize| {
        let line =
            |function: &str, n: usize| format!("10 sample 7/7 app {function} main period=100\n").repeat(n);
        stored(folder.path(), name, &(line("f", f) + &line("g", g)))
    };
    let (before, after, longer) = (of("a", 500, 500), of("b", 400, 600), of("c", 1000, 1000));
    let compare = |code, files: [&Path; 2], limit: &str| {
        expect_code(code, &["diff", text(files[0]), text(files[1]), "--fail-on", limit])
    };
    let said = compare(1, [&before, &after], "+5%");
    assert!(said.contains("the share of g grew by 10.00% ±"), "{said}");
    compare(0, [&before, &after], "+15%");
    compare(0, [&before, &after], "total+0%");
    // A longer run of the same: no share grew, only the total.
    compare(0, [&before, &longer], "+0%");
    assert!(compare(1, [&before, &longer], "total+50%").contains("the total grew by 100.00%"));
    for bad in ["5%", "+5", "+x%", "rest+5%", "+-5%"] {
        assert!(compare(2, [&before, &after], bad).contains("expected a limit like +5%"), "{bad}");
    }
    let table = expect_code(0, &["diff", text(&before), text(&after), "--format", "markdown"]);
    assert!(table.contains("| change | ± | before | after | function |"), "{table}");
    assert!(
        table.contains("| 50.00 % | 60.00 % | `g` |") && table.contains("total changed by +0.00 %"),
        "{table}"
    );
}

#[test]
fn an_existing_output_is_kept_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let output = folder.path().join("out.folded");
    fs::write(&output, "mine").unwrap();
    let arguments = ["export", text(&profile), "--format", "folded", "-o", text(&output)];
    assert!(expect_code(2, &arguments).contains("--force"));
    assert_eq!(fs::read_to_string(&output).unwrap(), "mine");
    expect_code(0, &[&arguments[..], &["--force"]].concat());
    assert!(fs::read_to_string(&output).unwrap().contains("main;g;f"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn a_reader_that_goes_away_early_is_success() {
    let folder = tempfile::tempdir().unwrap();
    // More than a pipe holds.
    let records: String = (0..20_000).map(|n| format!("{n} sample 7/7 app f{n} main\n")).collect();
    let profile = stored(folder.path(), "run.dctx", &records);
    let mut child = program()
        .args(["export", text(&profile), "--format", "folded"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn environment_and_file_give_defaults_in_that_order() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let config = folder.path().join("deepctx.toml");
    fs::write(&config, "metric = \"samples\"\nview = \"python\"").unwrap();
    let export = |variables: &[(&str, &str)], more: &[&str]| {
        let output = program()
            .args(["export", text(&profile), "--format", "folded", "--config", text(&config)])
            .args(more)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        stdout(&output)
    };
    assert_eq!(export(&[], &[]), "app-7 2\napp-7;m.py:step 1\n");
    assert_eq!(export(&[("DEEPCTX_METRIC", "cpu-time")], &[]), "app-7 110\napp-7;m.py:step 50\n");
    assert_eq!(
        export(&[("DEEPCTX_METRIC", "cpu-time")], &["--metric", "samples"]),
        "app-7 2\napp-7;m.py:step 1\n"
    );
    fs::write(&config, "colour = true").unwrap();
    let output = program().args(["doctor", "--config", text(&config)]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'colour' is not an option"), "{}", stderr(&output));
}

#[test]
fn variables_that_do_not_apply_are_ignored() {
    let set =
        [("DEEPCTX_GPU_ACTIVITY", "0"), ("DEEPCTX_RECORD_USER", "nobody"), ("DEEPCTX_METRIC", "gpu-time")];
    let run_with = |arguments: &[&str]| program().args(arguments).envs(set).output().unwrap();
    let said = stderr(&run_with(&["record", "--pid", "4194305", "-o", "/tmp/none.dctx"]));
    assert!(said.contains("no process with pid 4194305"), "{said}");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/traces/dlrm/rank7.json.gz");
    let compared = run_with(&["diff", "--events", trace, trace]);
    assert_eq!(compared.status.code(), Some(0), "{}", stderr(&compared));
    // What is typed must apply.
    assert!(expect_code(2, &["record", "--user", "nobody", "--pid", "1"]).contains("COMMAND"));
    for option in [["--metric", "gpu-time"], ["--view", "python"]] {
        let said = expect_code(2, &[&["diff", "--events", trace, trace][..], &option].concat());
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

#[test]
fn a_format_in_a_file_holds_where_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let config = folder.path().join("deepctx.toml");
    fs::write(&config, "format = \"html\"").unwrap();
    let (profile, config) = (text(&profile), text(&config));
    assert!(expect_code(0, &["report", profile, "--config", config]).contains("</html>"));
    assert!(expect_code(0, &["diff", profile, profile, "--config", config]).contains("nothing differs"));
    fs::write(config, "format = \"docx\"").unwrap();
    assert!(expect_code(2, &["report", profile, "--config", config]).contains("'docx' for no command"));
}

#[test]
fn options_without_effect_are_named_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let profile = stored(folder.path(), "run.dctx", RECORDS);
    let output = run(&["report", text(&profile), "--all", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("note: --all has no effect"), "{}", stderr(&output));
    let said = expect_code(2, &["view", text(&profile)]);
    assert!(said.contains("the view needs a terminal") && said.contains("or use `report`"), "{said}");
    let mut demo = program();
    demo.args(["demo", "-o", text(&folder.path().join("demo.dctx"))]);
    let ended = in_a_terminal(&demo, "no such text");
    assert!(ended.code == 2 && ended.drawn.contains("add --print"), "{ended:?}");
}

#[test]
fn names_cannot_reach_the_terminal_as_commands() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["report", text(&folder.path().join("\x1b[31mred"))]);
    assert!(!stderr(&output).contains('\x1b'), "{}", stderr(&output));
}

#[test]
fn doctor_exit_code_matches_its_findings() {
    let output = run(&["doctor", "--format", "json"]);
    let checks: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let checks = checks.as_array().unwrap();
    let all_ok = checks.iter().all(|check| check["ok"].as_bool().unwrap());
    assert_eq!(output.status.code(), Some(if all_ok { 0 } else { 2 }));
    assert!(checks.len() >= 4);
}
