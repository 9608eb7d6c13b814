//! Auto probes: `--probe auto`, the features for what the targets run; the default of `live`.
//!
//! Owns: what `auto` stands for, its budget, and the note that says so. Because: whoever does not know the features by
//! name gets operators and layers, at a cost with a limit. Does not: know which libraries a feature is for
//! ([`deepctx_capture::applicable`]), or keep the budget; the capture does.

use std::path::PathBuf;

use deepctx_capture::applicable::{self, Applicable};
use deepctx_capture::cost::count_runs;
use deepctx_capture::{Budget, FrameSource, ProbeFeature, Targets, find_processes};

use super::capture_args::{CaptureArgs, ProbeChoice, value_name};

/// Default of `--probe-budget` with `auto`, which enables more than one feature that nobody asked for by name.
const BUDGET: &str = "3%";
/// The same where nobody asked for probes at all.
const BUDGET_UNASKED: &str = "1%";

/// What a capture without `--probe` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    /// No features.
    Nothing,
    /// What `auto` chooses.
    Auto,
}

/// What `--probe` stands for in a capture.
#[derive(Debug, PartialEq)]
pub(crate) struct SelectedProbes {
    /// The features.
    pub features: Vec<ProbeFeature>,
    /// Their budget.
    pub budget: Option<Budget>,
    /// What `auto` chose, and why; `None` without it.
    pub note: Option<String>,
    /// What `auto` chose, by name, for the header of a screen; empty without it.
    pub auto: Vec<String>,
}

/// What `auto` chooses from.
#[derive(Clone, Debug, Default)]
struct Candidates {
    features: Vec<Applicable>,
    /// They are of no process yet: the command is about to start.
    starts_command: bool,
    processes: usize,
    unread: usize,
}

/// What `--probe` stands for in a capture of these targets. Those that do not exist have no libraries: the capture
/// reports them.
pub(crate) fn of_capture(
    capture: &CaptureArgs,
    targets: &[Targets],
    follow_children: bool,
    starts_command: bool,
    unasked: Unasked,
) -> SelectedProbes {
    let mut features = named(&capture.probe);
    let is_unasked = capture.probe.is_empty() && unasked == Unasked::Auto;
    if !is_unasked && !capture.probe.contains(&ProbeChoice::Auto) {
        return SelectedProbes { features, budget: capture.probe_budget, note: None, auto: Vec::new() };
    }
    let candidates = if starts_command {
        Candidates { features: applicable::of_all_libraries(), starts_command, ..Candidates::default() }
    } else {
        let pids = find_processes(targets, follow_children).unwrap_or_default();
        let (features, unread) = applicable::of_processes(&pids);
        Candidates { features, starts_command, processes: pids.len(), unread }
    };
    let default_budget = || default_budget(if is_unasked { BUDGET_UNASKED } else { BUDGET });
    let budget = capture.probe_budget.map_or_else(default_budget, Ok);
    let chosen = chosen(&candidates.features, &capture.context, budget.is_ok());
    if is_unasked && chosen.is_empty() {
        return SelectedProbes { features, budget: capture.probe_budget, note: None, auto: Vec::new() };
    }
    let note = note(&candidates, &chosen, &capture.context, &budget);
    add(&mut features, &chosen);
    let budget = kept(capture.probe_budget, &chosen, budget);
    SelectedProbes { features, budget, note: Some(note), auto: chosen_names(&chosen) }
}

/// What `--probe` stands for in a list of probes of these files and processes.
pub(crate) fn of_files(choices: &[ProbeChoice], files: &[PathBuf], pids: &[u32]) -> Vec<ProbeFeature> {
    let mut features = named(choices);
    if choices.contains(&ProbeChoice::Auto) {
        add(&mut features, &applicable::of_paths(files.iter().map(PathBuf::as_path)));
        add(&mut features, &applicable::of_processes(pids).0);
    }
    features
}

/// The features that are named.
fn named(choices: &[ProbeChoice]) -> Vec<ProbeFeature> {
    let feature = |choice: &ProbeChoice| match choice {
        ProbeChoice::Feature(feature) => Some(*feature),
        ProbeChoice::Auto | ProbeChoice::None => None,
    };
    choices.iter().filter_map(feature).collect()
}

fn add(features: &mut Vec<ProbeFeature>, chosen: &[Applicable]) {
    for it in chosen {
        if !features.contains(&it.feature) {
            features.push(it.feature);
        }
    }
}

/// The budget of `auto`, or why none can be kept.
fn default_budget(budget: &str) -> Result<Budget, String> {
    count_runs().map_err(|error| error.to_string())?;
    budget.parse()
}

/// The budget of a capture. If `auto` adds nothing, the named features have the one that they have without it.
fn kept(given: Option<Budget>, chosen: &[Applicable], budget: Result<Budget, String>) -> Option<Budget> {
    if chosen.is_empty() { given } else { budget.ok() }
}

/// Those that show something beside these frames, and whose cost has a limit.
fn chosen(candidates: &[Applicable], context: &[FrameSource], has_budget: bool) -> Vec<Applicable> {
    let is_chosen = |it: &&Applicable| {
        context.contains(&frames_beside(it.feature)) && (has_budget || !has_probes(it.feature))
    };
    candidates.iter().filter(is_chosen).copied().collect()
}

/// The frames among which a feature is shown. It would record them although `--context` leaves them out.
fn frames_beside(feature: ProbeFeature) -> FrameSource {
    match feature {
        ProbeFeature::Openmp => FrameSource::Native,
        _ => FrameSource::Python,
    }
}

/// Whether a feature costs the program traps.
fn has_probes(feature: ProbeFeature) -> bool {
    !matches!(feature, ProbeFeature::Modules | ProbeFeature::Async)
}

/// What was chosen, by name.
fn chosen_names(chosen: &[Applicable]) -> Vec<String> {
    match chosen {
        [] => vec!["nothing".to_owned()],
        _ => chosen.iter().map(|it| value_name(it.feature)).collect(),
    }
}

/// What was chosen, and why.
fn note(
    candidates: &Candidates,
    chosen: &[Applicable],
    context: &[FrameSource],
    budget: &Result<Budget, String>,
) -> String {
    let mut note = format!("--probe auto: {}", listed(candidates, chosen));
    match budget {
        Ok(budget) if !chosen.is_empty() => note += &format!(", with a budget of {budget}"),
        Ok(_) => {}
        Err(because) => {
            note += &format!("; no probes, since the kernel does not measure what they cost ({because})");
        }
    }
    if candidates.features.iter().any(|it| !context.contains(&frames_beside(it.feature))) {
        note += "; others need frames that --context leaves out";
    }
    if candidates.unread > 0 {
        note += &format!("; {} of {} processes could not be read", candidates.unread, candidates.processes);
    }
    note
}

/// The chosen features, each with its library.
fn listed(candidates: &Candidates, chosen: &[Applicable]) -> String {
    let names = |of: &[Applicable]| {
        let names: Vec<String> = of.iter().map(|it| value_name(it.feature)).collect();
        names.join(", ")
    };
    if candidates.features.is_empty() {
        return "nothing, since no target has loaded PyTorch, JAX, OpenMP, NVTX or roctx".to_owned();
    }
    if chosen.is_empty() {
        return "nothing".to_owned();
    }
    if candidates.starts_command {
        return format!("{}, each once its library is loaded", names(chosen));
    }
    let of_library = |of: &[Applicable]| {
        let library = of.first().map_or("", |it| it.library);
        format!("{} ({library})", names(of))
    };
    let libraries: Vec<String> = chosen.chunk_by(|a, b| a.library == b.library).map(of_library).collect();
    libraries.join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::super::options::{Cli, Command};
    use super::*;

    const ALL: [FrameSource; 3] = [FrameSource::Python, FrameSource::Native, FrameSource::Kernel];

    fn record(options: &str) -> CaptureArgs {
        let words = format!("deepctx-bpf record {options}");
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let Some(Command::Record(arguments)) = cli.command else { panic!("it is `record`") };
        arguments.capture
    }

    fn of_paths(paths: &[&str]) -> Candidates {
        let features = applicable::of_paths(paths.iter().map(Path::new));
        Candidates { features, processes: 3, ..Candidates::default() }
    }

    #[test]
    fn a_default_budget_limits_only_what_auto_adds() {
        let chosen = applicable::of_paths([Path::new("/l/libgomp.so.1")]);
        let budget = || BUDGET.parse::<Budget>();
        assert_eq!(kept(None, &[], budget()), None);
        assert_eq!(kept(None, &chosen, budget()), budget().ok());
        let given: Option<Budget> = "5%".parse().ok();
        assert_eq!(kept(given, &[], Ok(given.unwrap())), given);
    }

    #[test]
    fn auto_stands_beside_named_features() {
        let auto = ProbeChoice::Auto;
        assert_eq!(record("--probe auto").probe, [auto]);
        assert_eq!(record("--probe memory,auto").probe, [ProbeFeature::Memory.into(), auto]);
        assert!(record("").probe.is_empty(), "it is not the default");
    }

    #[test]
    fn a_capture_that_asks_for_nothing_may_get_auto() {
        let check = |options: &str, unasked: Unasked, features: usize, budget: Option<&str>| {
            let selected = of_capture(&record(options), &[], true, true, unasked);
            assert_eq!(selected.features.len(), features, "{options}");
            assert_eq!(selected.auto.len(), features, "{options}");
            assert_eq!(selected.note.is_some(), features > 0, "{options}");
            assert_eq!(selected.budget, budget.and_then(|it| it.parse().ok()), "{options}");
        };
        check("", Unasked::Nothing, 0, None);
        check("--probe none", Unasked::Auto, 0, None);
        check("--probe none --probe-budget 5%", Unasked::Auto, 0, Some("5%"));
        check("--probe-budget 5%", Unasked::Auto, 4, Some("5%"));
        check("--probe-budget 5% --context kernel", Unasked::Auto, 0, Some("5%"));
    }

    #[test]
    fn targets_without_such_libraries_get_no_note_unasked() {
        let targets = [Targets::Pids(vec![std::process::id()])];
        let selected = of_capture(&record(""), &targets, false, false, Unasked::Auto);
        assert_eq!(selected, SelectedProbes { features: vec![], budget: None, note: None, auto: vec![] });
    }

    #[test]
    fn without_auto_the_options_count_as_typed() {
        let capture = record("--probe ranges,memory --probe-budget 5%");
        let selected = of_capture(&capture, &[Targets::Pids(vec![u32::MAX])], true, false, Unasked::Nothing);
        let features = vec![ProbeFeature::Ranges, ProbeFeature::Memory];
        let budget = "5%".parse().ok();
        assert_eq!(selected, SelectedProbes { features, budget, note: None, auto: Vec::new() });
    }

    #[test]
    fn a_command_may_load_any_library_later() {
        use ProbeFeature::{Memory, Modules, Openmp, Operators, Ranges};

        let capture = record("--probe auto,memory,ranges --probe-budget 5%");
        let selected = of_capture(&capture, &[], true, true, Unasked::Nothing);
        assert_eq!(selected.features, [Memory, Ranges, Operators, Modules, Openmp]);
        assert_eq!(selected.budget, "5%".parse().ok());
        let expect = "--probe auto: operators, modules, ranges, openmp, each once its library is loaded, \
                      with a budget of 5%";
        assert_eq!(selected.note.as_deref(), Some(expect));
        assert_eq!(selected.auto, ["operators", "modules", "ranges", "openmp"]);
    }

    #[test]
    fn targets_choose_by_what_they_have_loaded() {
        // This process has none of the libraries, and the other one does not exist.
        for pid in [std::process::id(), u32::MAX - 1] {
            let capture = record("--probe auto,memory --probe-budget 5%");
            let selected = of_capture(&capture, &[Targets::Pids(vec![pid])], false, false, Unasked::Nothing);
            assert_eq!(selected.features, [ProbeFeature::Memory]);
            assert_eq!(selected.auto, ["nothing"]);
            assert!(selected.note.unwrap().starts_with("--probe auto: nothing, since no target"), "{pid}");
        }
    }

    #[test]
    fn libraries_given_as_files_choose_features_too() {
        let files = [PathBuf::from("/lib/libgomp.so.1")];
        let auto = [ProbeChoice::Auto];
        assert_eq!(of_files(&auto, &files, &[]), [ProbeFeature::Openmp]);
        assert_eq!(of_files(&[ProbeFeature::Memory.into()], &files, &[]), [ProbeFeature::Memory]);
    }

    #[test]
    fn the_note_says_what_was_chosen_and_why() {
        let check = |paths: &[&str], context: &[FrameSource], budget: Result<&str, &str>, expect: &str| {
            let candidates = of_paths(paths);
            let budget = budget.map_err(str::to_owned).and_then(str::parse::<Budget>);
            let chosen = chosen(&candidates.features, context, budget.is_ok());
            let note = note(&candidates, &chosen, context, &budget);
            assert_eq!(note.strip_prefix("--probe auto: "), Some(expect));
        };
        let both = ["/v/libtorch_cpu.so", "/v/libgomp-a34b3233.so.1"];
        check(
            &both,
            &ALL,
            Ok(BUDGET),
            "operators, modules, ranges (libtorch_cpu.so), openmp (libgomp.so), with a budget of 3%",
        );
        check(
            &[],
            &ALL,
            Ok(BUDGET),
            "nothing, since no target has loaded PyTorch, JAX, OpenMP, NVTX or roctx",
        );
        check(
            &both,
            &ALL,
            Err("EPERM"),
            "modules (libtorch_cpu.so); no probes, since the kernel does not measure what they cost (EPERM)",
        );
        check(
            &both,
            &[FrameSource::Native],
            Ok(BUDGET),
            "openmp (libgomp.so), with a budget of 3%; others need frames that --context leaves out",
        );
        check(
            &both,
            &[FrameSource::Kernel],
            Ok(BUDGET),
            "nothing; others need frames that --context leaves out",
        );
    }

    #[test]
    fn processes_that_could_not_be_read_are_said() {
        let candidates = Candidates { unread: 2, ..of_paths(&["/lib/libomp.so"]) };
        let note = note(&candidates, &candidates.features, &ALL, &BUDGET.parse());
        assert!(note.ends_with("; 2 of 3 processes could not be read"), "{note}");
    }
}
