//! Target: turns options into what is captured.
//!
//! Owns: the one place where options become a [`CaptureConfig`], checking that processes exist, and the target's name
//! in the header. Because: a mistyped pid should fail at once, with one line. Does not: find or follow processes; the
//! capture does.

use std::fs;

use deepctx_capture::config::{Bytes, Hertz, TraceWindow};
use deepctx_capture::{CaptureConfig, ProbeFeature, Targets, doctor};
use deepctx_pipeline::STEP_MARKER;
use deepctx_symbolizer::memory::reader::{self, Subject};
use deepctx_uprobes::UserRow;

use super::auto_probes::{self, Unasked};
use super::capture_args::{CaptureArgs, ProbeChoice, TargetArgs};
use super::debuginfod;
use super::failure::Failure;
use super::options::{LiveArgs, RecordArgs};
use super::record_args::TraceLevel;
use super::step_marker;
use super::user_rows::user_rows;

/// What to capture, and its description.
#[derive(Debug)]
pub(crate) struct Target {
    /// Configuration of the capture.
    pub config: CaptureConfig,
    /// Text for users: `python train.py (pid 4711)`.
    pub description: String,
    /// What `--probe auto` chose, and why; shown with the notices of the capture.
    pub probes_note: Option<String>,
    /// The same by name, for the header of a screen; empty without `auto`.
    pub auto_probes: Vec<String>,
}

/// The target of `live`.
///
/// # Errors
/// A named target does not exist.
pub(crate) fn of_live(arguments: &LiveArgs) -> Result<Target, Failure> {
    let mut target = resolve(&arguments.target, &arguments.capture, None, Unasked::Auto)?;
    arguments.flight.check(&arguments.capture)?;
    target.config.duration = arguments.duration;
    (target.config.keep, target.config.on_hang) = (arguments.flight.keep, arguments.flight.on_hang);
    target.config.rules.clone_from(&arguments.rules);
    Ok(target)
}

/// The target of `record`. Its command's process is added once it exists.
///
/// # Errors
/// As for [`of_live`].
pub(crate) fn of_record(arguments: &RecordArgs) -> Result<Target, Failure> {
    let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
    let command = (!words.is_empty()).then(|| words.join(" "));
    let resolved = resolve(&arguments.target, &arguments.capture, command.as_deref(), Unasked::Nothing)?;
    if matches!(arguments.trace, Some(TraceWindow::Steps { .. }))
        && !arguments.capture.names(ProbeFeature::Ranges)
    {
        return Err(Failure::new("`--trace steps=…` counts training steps, which need `--probe ranges`"));
    }
    if arguments.trace_level == TraceLevel::Context && !arguments.capture.names(ProbeFeature::Operators) {
        return Err(Failure::new(
            "`--trace-level context` records the starts of operators, which needs `--probe operators`",
        ));
    }
    arguments.flight.check(&arguments.capture)?;
    if arguments.flight.keep.is_some() && arguments.trace.is_some() {
        return Err(Failure::new(
            "`--trace` records the start of a capture and `--keep` keeps its end: expected one of them",
        )
        .hint(
            "record twice, or omit `--trace`: the kept data includes all totals and the latest device work",
        ));
    }
    let config = CaptureConfig {
        keep: arguments.flight.keep,
        on_hang: arguments.flight.on_hang,
        on_finding: arguments.on_finding.iter().map(ToString::to_string).collect(),
        rules: arguments.rules.clone(),
        gpu_activity: arguments.gpu_activity,
        pc_sampling: arguments.sampling.pc_sampling,
        pc_sampling_mode: arguments.sampling.pc_sampling_mode,
        duration: arguments.duration,
        flush: arguments.flush,
        trace: arguments.trace,
        trace_level: arguments.trace_level.config(),
        user: arguments.user.clone(),
        starts_command: command.is_some(),
        ..resolved.config
    };
    Ok(Target { config, ..resolved })
}

/// The selected processes: all if the options select none and there is no command to start.
pub(crate) fn targets(arguments: &TargetArgs, has_command: bool) -> Vec<Targets> {
    let pids = Some(arguments.pid.clone()).filter(|pids| !pids.is_empty()).map(Targets::Pids);
    let mut targets: Vec<Targets> = pids.into_iter().collect();
    targets.extend(arguments.comm.iter().cloned().map(Targets::Comm));
    targets.extend(arguments.container.iter().cloned().map(Targets::Container));
    if arguments.all || targets.is_empty() && arguments.cgroup.is_none() && !has_command {
        targets.push(Targets::All);
    }
    targets.extend(arguments.cgroup.iter().cloned().map(Targets::Cgroup));
    targets
}

fn resolve(
    target: &TargetArgs,
    capture: &CaptureArgs,
    command: Option<&str>,
    unasked: Unasked,
) -> Result<Target, Failure> {
    if capture.probe.len() > 1 && capture.probe.contains(&ProbeChoice::None) {
        return Err(Failure::new("`--probe none` means no features, but others are named beside it"));
    }
    let description = description(target, command)?;
    let (targets, follow_children) = (targets(target, command.is_some()), !target.no_children);
    let selected = auto_probes::of_capture(capture, &targets, follow_children, command.is_some(), unasked);
    without_effect(capture, &selected.features).into_iter().for_each(super::note);
    let config = CaptureConfig {
        targets,
        follow_children,
        frequency: Hertz(capture.freq),
        clock: capture.event,
        context: capture.context.clone(),
        debug_info: Bytes(capture.debug_info.bytes_max),
        debuginfod: debuginfod::servers(capture.debuginfod.as_ref(), capture.debug_info.bytes_max)?,
        system_metrics: capture.system_metrics.0,
        off_cpu: capture.off_cpu,
        step_markers: capture.step_marker.clone(),
        launch_stacks: capture.launch_stacks,
        operator_stacks: capture.operator_stacks,
        shapes: capture.shapes.clone(),
        probe_file: capture.probe_file.clone(),
        probe_rows: probe_rows(capture, &selected.features)?,
        probe: selected.features,
        probe_budget: selected.budget,
        accelerators: !capture.no_gpu,
        cache: doctor::cache_folder(),
        ..CaptureConfig::default()
    };
    Ok(Target { config, description, probes_note: selected.note, auto_probes: selected.auto })
}

/// Options that do nothing beside the others. These are no errors: a configuration may set them for all captures.
fn without_effect(capture: &CaptureArgs, probe: &[ProbeFeature]) -> Vec<&'static str> {
    let has = |feature| probe.contains(&feature);
    let has_optional = !probe.is_empty()
        || !capture.probe.is_empty()
        || !capture.shapes.is_empty()
        || capture.probe_file.is_some();
    let marks = capture.step_marker.iter().any(|marker| marker != STEP_MARKER);
    let checks = [
        (marks && !has(ProbeFeature::Ranges), "--step-marker has no effect without `--probe ranges`"),
        (
            capture.operator_stacks.is_some() && !has(ProbeFeature::Operators) && capture.shapes.is_empty(),
            "--operator-stacks has no effect without `--probe operators` or --shapes",
        ),
        (
            capture.probe_budget.is_some() && !has_optional,
            "--probe-budget has no effect without --probe, --shapes or --probe-file",
        ),
        (capture.no_gpu && capture.probe_file.is_some(), "--probe-file has no effect with --no-gpu"),
    ];
    checks.into_iter().filter(|(is_idle, _)| *is_idle).map(|(_, sentence)| sentence).collect()
}

/// The rows of the user's probe file, and one for each step marker that is a library function.
fn probe_rows(capture: &CaptureArgs, probe: &[ProbeFeature]) -> Result<Vec<UserRow>, Failure> {
    let listed = capture.probe_file.as_deref().map(user_rows).transpose()?.unwrap_or_default();
    let mut rows = if capture.no_gpu { Vec::new() } else { listed };
    if probe.contains(&ProbeFeature::Ranges) {
        rows.extend(capture.step_marker.iter().filter_map(|marker| step_marker::library_function(marker)));
    }
    Ok(rows)
}

/// Fails if a process id given by the user is invalid.
///
/// # Errors
/// The process does not exist, or the id is a thread's.
pub(crate) fn check_processes(target: &TargetArgs) -> Result<(), Failure> {
    target.pid.iter().try_for_each(|pid| describe(*pid).map(drop))
}

/// Describes the targets.
fn description(target: &TargetArgs, command: Option<&str>) -> Result<String, Failure> {
    let mut words: Vec<String> = command.into_iter().map(str::to_owned).collect();
    for pid in &target.pid {
        words.push(describe(*pid)?);
    }
    words.extend(target.comm.iter().map(|name| format!("every {name}")));
    words.extend(target.cgroup.iter().map(|path| format!("cgroup {}", path.display())));
    words.extend(target.container.iter().map(|id| format!("container {id}")));
    let all = target.all || words.is_empty();
    Ok(if all { "the whole system".into() } else { words.join(", ") })
}

/// Describes a process.
fn describe(pid: u32) -> Result<String, Failure> {
    let no_such = || {
        Failure::new(format_args!("no process with pid {pid}"))
            .hint("list them with `ps -e`, or name it with --comm NAME")
    };
    // The name in it may be any bytes.
    let status = fs::read(format!("/proc/{pid}/status")).map_err(|_| no_such())?;
    let status = String::from_utf8_lossy(&status);
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok());
    if let Some(group) = group.filter(|group| *group != pid) {
        return Err(Failure::new(format_args!(
            "{pid}: expected a process, found a thread of process {group}"
        ))
        .hint(format_args!("use --pid {group}")));
    }
    Ok(format!("{} (pid {pid})", command_line(pid)))
}

/// A process's command line, shortened; its name in brackets when it has none.
fn command_line(pid: u32) -> String {
    const LONGEST: usize = 80;
    /// Enough for the longest that is shown, whatever its folder.
    const COMMAND_LINE_BYTES_MAX: u64 = 16 << 10;
    let bytes = reader::read_proc(&Subject::of(pid), "cmdline", COMMAND_LINE_BYTES_MAX).unwrap_or_default();
    let arguments: Vec<String> = bytes
        .split(|byte| *byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let Some((program, rest)) = arguments.split_first() else {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", String::from_utf8_lossy(&name).trim());
    };
    let program = program.rsplit('/').next().unwrap_or(program).to_owned();
    let line = [&[program], rest].concat().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::options::{Cli, Command};
    use super::*;

    #[test]
    fn options_left_out_are_the_defaults_of_a_capture() {
        let pid = std::process::id().to_string();
        let cli = Cli::try_parse_from(["deepctx-bpf", "record", "--pid", &pid]).unwrap();
        let Some(Command::Record(arguments)) = cli.command else { panic!("it is `record`") };
        let CaptureConfig { targets, cache, .. } = of_record(&arguments).unwrap().config;
        let expect = CaptureConfig { targets, cache, ..CaptureConfig::default() };
        assert_eq!(of_record(&arguments).unwrap().config, expect);
    }

    #[test]
    fn options_that_do_nothing_beside_others_are_named() {
        let check = |words: &str, expect: &str| {
            let words = format!("deepctx-bpf record {words}");
            let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
            let Some(Command::Record(arguments)) = cli.command else { panic!("it is `record`") };
            let capture = &arguments.capture;
            let probe = auto_probes::of_capture(capture, &[], true, true, Unasked::Nothing).features;
            let said = without_effect(capture, &probe);
            let names: Vec<&str> = said.iter().filter_map(|said| said.split(' ').next()).collect();
            assert_eq!(names.join(" "), expect, "{words}");
        };
        check("--all", "");
        check("--step-marker train_step", "--step-marker");
        check("--step-marker train_step --probe ranges", "");
        check("--step-marker train_step --probe auto --probe-budget 5%", "");
        check("--step-marker train_step --probe auto --probe-budget 5% --context kernel", "--step-marker");
        check("--operator-stacks all --probe-budget 5%", "--operator-stacks --probe-budget");
        check("--operator-stacks all --probe-budget 5% --probe operators", "");
        check("--operator-stacks all --shapes aten::mm", "");
        check("--probe-file rows.toml --probe-budget 5%", "");
        check("--probe-file rows.toml --no-gpu", "--probe-file");
    }

    #[test]
    fn the_help_says_who_captures_the_whole_system() {
        use clap::CommandFactory as _;

        assert_eq!(targets(&TargetArgs::default(), false), [Targets::All]);
        assert!(targets(&TargetArgs::default(), true).is_empty());
        let help = Cli::command().find_subcommand_mut("record").unwrap().render_long_help().to_string();
        let words: Vec<&str> = help.split_whitespace().collect();
        let expect = "The whole system. This is the default of `live`, and of `record` without a command";
        assert!(words.join(" ").contains(expect), "{help}");
    }

    #[test]
    fn a_process_is_told_from_a_thread_and_from_nothing() {
        let own = std::process::id();
        assert!(describe(own).unwrap().ends_with(&format!("(pid {own})")));
        assert!(describe(u32::MAX).unwrap_err().to_string().contains("no process"));
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
            .join()
            .unwrap();
        // The thread has ended or is recognized as a thread; either way it is no process.
        assert!(describe(thread).is_err());
    }
}
