//! Target: from what the user named to what the capture takes.
//!
//! Owns: checking that processes exist, and the words for the header. Because: a mistyped pid should be answered at
//! once, in one line. Does not: find or follow processes; the capture does.

use std::fs;

use deepctx_uprobes::torch::Questions;

use super::failure::Failure;
use super::options::{CaptureArgs, Context, Event, LaunchStacks, OPERATOR_STACKS, TargetArgs};
use super::step_marker;
use super::user_rows::user_rows;
use deepctx_capture::{ALL_STACKS, CaptureOptions, Clock, ProbeOptions, doctor};

/// What to capture, and what to call it.
#[derive(Debug)]
pub struct Target {
    /// For the capture.
    pub options: CaptureOptions,
    /// For people: `python train.py (pid 4711)`.
    pub description: String,
}

/// Resolves the target options. `command`: what `record` is about to start.
///
/// # Errors
/// Something that was named does not exist.
pub fn resolve(target: &TargetArgs, capture: &CaptureArgs, command: Option<&str>) -> Result<Target, Failure> {
    let mut words = Vec::new();
    if let Some(command) = command {
        words.push(command.to_owned());
    }
    for pid in &target.pid {
        words.push(describe(*pid)?);
    }
    words.extend(target.comm.iter().map(|name| format!("every {name}")));
    words.extend(target.cgroup.iter().map(|path| format!("cgroup {}", path.display())));
    words.extend(target.container.iter().map(|id| format!("container {id}")));
    let all = target.all || words.is_empty();
    if all {
        words = vec!["the whole system".into()];
    }
    let has = |context| capture.context.contains(&context);
    let user = match &capture.probes {
        Some(path) => user_rows(path)?,
        None => Vec::new(),
    };
    let mut user = if capture.no_gpu { Vec::new() } else { user };
    if has(Context::Step) {
        user.extend(capture.step_marker.iter().filter_map(|marker| step_marker::library_function(marker)));
    }
    let mut questions = questions(&capture.context, &capture.shapes);
    // Beside native frames, which show operators anyway, and wherever stacks of them are asked for, each is counted; else
    // they are those that stacks show.
    questions.operators &= has(Context::Native) || capture.operator_stacks.is_some();
    let operators_alone = !has(Context::Native) && (has(Context::Operator) || questions.of_tensors());
    let (of_operators, backward) = (questions.of_operators(), questions.backward);
    let teams = questions.teams;
    let probes = (questions.any() || !capture.no_gpu).then_some(ProbeOptions {
        user,
        ahead: command.is_some(),
        borrow: true,
        samples: false,
        accelerators: !capture.no_gpu,
        questions,
        stacks_per_second: per_second(capture.launch_stacks),
        operator_stacks_per_second: per_second(capture.operator_stacks.unwrap_or(OPERATOR_STACKS)),
        budget: capture.probe_budget,
    });
    Ok(Target {
        options: CaptureOptions {
            pids: target.pid.clone(),
            comms: target.comm.clone(),
            cgroup: target.cgroup.clone(),
            container: target.container.clone(),
            all,
            follow_children: !target.no_children,
            frequency_hz: capture.freq,
            clock: match capture.event {
                Event::CpuClock => Clock::CpuClock,
                Event::Cycles => Clock::Cycles,
            },
            kernel: has(Context::Kernel),
            native: has(Context::Native) || backward || teams,
            operators: operators_alone,
            python: has(Context::Python)
                || has(Context::Async)
                || has(Context::Module)
                || of_operators
                || operators_alone,
            coroutines: has(Context::Async),
            modules: has(Context::Module),
            off_cpu: capture.off_cpu,
            probes,
            cache: doctor::cache_folder(),
            ring_bytes: None,
        },
        description: words.join(", "),
    })
}

fn per_second(stacks: LaunchStacks) -> u32 {
    match stacks {
        LaunchStacks::All => ALL_STACKS,
        LaunchStacks::PerSecond(most) => most,
        LaunchStacks::Off => 0,
    }
}

/// What sources of frames, and a wish for the tensors of some operators, ask of PyTorch.
pub(super) fn questions(context: &[Context], shapes: &[String]) -> Questions {
    let has = |one| context.contains(&one);
    Questions {
        backward: has(Context::Backward),
        ranges: has(Context::Step),
        memory: has(Context::Memory),
        teams: has(Context::Team),
        operators: has(Context::Operator),
        tensors: shapes.iter().filter(|name| most_of(name).is_none()).cloned().collect(),
        more_tensors: hottest(shapes).is_some(),
    }
}

/// How many operators are to be chosen by what samples show; `None` when the user named all.
pub(super) fn hottest(shapes: &[String]) -> Option<usize> {
    shapes.iter().find_map(|name| most_of(name))
}

/// `hottest` and `hottest:3` are no names.
fn most_of(name: &str) -> Option<usize> {
    const USUAL: usize = 5;
    let most = name.strip_prefix("hottest")?;
    if most.is_empty() { Some(USUAL) } else { most.strip_prefix(':')?.parse().ok().filter(|most| *most > 0) }
}

/// A process in words, if it is one.
fn describe(pid: u32) -> Result<String, Failure> {
    let no_such = || {
        Failure::new(format_args!("no process {pid}: expected the id of a running process"))
            .hint("list them with `ps -e`, or name it with --comm NAME")
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| no_such())?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok());
    if let Some(group) = group.filter(|group| *group != pid) {
        return Err(Failure::new(format_args!(
            "{pid}: expected a process, found a thread of process {group}"
        ))
        .hint(format_args!("use --pid {group}")));
    }
    Ok(format!("{} (pid {pid})", command_line(pid)))
}

/// The command line of a process, shortened; its name in brackets when it has none.
fn command_line(pid: u32) -> String {
    const LONGEST: usize = 80;
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<String> = bytes
        .split(|byte| *byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let Some((program, rest)) = arguments.split_first() else {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", name.trim());
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
    use super::*;

    #[test]
    fn a_process_is_told_from_a_thread_and_from_nothing() {
        let own = std::process::id();
        assert!(describe(own).unwrap().ends_with(&format!("(pid {own})")));
        assert!(describe(u32::MAX).unwrap_err().to_string().contains("no process"));
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
            .join()
            .unwrap();
        // The thread has ended, or it is told apart; either way it is no process.
        assert!(describe(thread).is_err());
    }
}
