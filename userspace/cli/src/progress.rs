//! Progress: one line on standard error while a capture runs.
//!
//! Owns: when the line is drawn and what it shows, and the table of the profiler's memory after it. Because: a
//! headless capture must show that it is running, what it loses and what it costs. Does not: measure anything.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use deepctx_common::memory::MemoryUse;
use deepctx_profile::units::{Bytes, Nanos, counted};

use super::ascii;
use super::duration::clock;
use super::failure::one_line;
use deepctx_session::Status;

/// Interval between lines when standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the line is redrawn on a terminal.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);

/// The progress line.
#[derive(Debug)]
pub(crate) struct Progress {
    form: Form,
    started: Instant,
    next: Instant,
    notices: usize,
    drawn: bool,
    /// Shows details of the capture.
    verbose: bool,
    /// Start time of the command, until the time to the first complete stack has been printed. Only if verbose.
    asked_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One line that is redrawn in place.
    Line,
    /// A new line at intervals.
    Lines,
    /// Only notices.
    Quiet,
}

impl Progress {
    /// A line on a terminal; elsewhere, lines only when `verbose`. `asked_ns`: start of the command in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub(crate) fn of_capture(verbose: bool, asked_ns: u64) -> Self {
        Self { asked_ns: Some(asked_ns).filter(|_| verbose), ..Self::new(verbose) }
    }

    /// Progress of something other than a capture.
    pub(crate) fn new(verbose: bool) -> Self {
        let form = match (io::stderr().is_terminal(), verbose) {
            (true, _) => Form::Line,
            (false, true) => Form::Lines,
            (false, false) => Form::Quiet,
        };
        let now = Instant::now();
        Self { form, started: now, next: now, notices: 0, drawn: false, verbose, asked_ns: None }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints what has begun, unless the line that follows shows it.
    pub(crate) fn begin(&mut self, text: &str) {
        if self.form != Form::Line {
            self.say(text);
        }
    }

    /// Shows new notices.
    pub(crate) fn notice(&mut self, status: &Status) {
        for notice in &status.notices[self.notices.min(status.notices.len())..] {
            self.say(notice);
        }
        self.notices = status.notices.len();
    }

    /// Shows the status if it is due.
    pub(crate) fn show(&mut self, status: &Status) {
        self.notice(status);
        if let Some(first_ns) = status.first_complete_ns
            && let Some(asked_ns) = self.asked_ns.take()
        {
            self.say(&format!("first complete stack after {}", Nanos(first_ns.saturating_sub(asked_ns))));
        }
        let now = Instant::now();
        if now < self.next || self.form == Form::Quiet {
            return;
        }
        let columns = match self.form {
            Form::Line => columns(),
            Form::Lines | Form::Quiet => usize::MAX,
        };
        let text = line(self.elapsed(), status, columns);
        self.next = now + if self.form == Form::Line { DRAW_INTERVAL } else { LINE_INTERVAL };
        // Errors are ignored: progress output is not essential.
        let _ = match self.form {
            Form::Line => {
                self.drawn = true;
                write!(io::stderr().lock(), "\r\x1b[K{text}")
            }
            Form::Lines | Form::Quiet => writeln!(io::stderr().lock(), "{text}"),
        };
    }

    /// Shows the final notices; if verbose, also the profiler's memory by owner.
    pub(crate) fn end(&mut self, status: &Status) {
        self.notice(status);
        if self.verbose {
            memory(&status.own_memory).iter().for_each(|line| self.say(line));
        }
    }

    /// Prints a separate line.
    pub(crate) fn say(&mut self, text: &str) {
        self.clear();
        let line = one_line(text);
        let _ = writeln!(io::stderr().lock(), "{}", ascii::shown(&line, &io::stderr()));
    }

    /// Clears the line.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

/// Columns of the terminal on standard error that the line may take. The last one stays free: some terminals wrap once
/// it is written. A line that wraps cannot be redrawn in place.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    // A serial console states none.
    size.ok().map_or(0, |size| usize::from(size.ws_col)).checked_sub(1).unwrap_or(79)
}

/// Text of the progress line. If it is too long for so many columns, it lacks what matters least.
fn line(elapsed: Duration, status: &Status, columns: usize) -> String {
    // Most programs launch nothing.
    let launches = (status.launches > 0).then(|| format!("{:.0} launches/s", status.launches_per_second));
    let own = format!("own {:.1} % CPU, {}", status.own_cpu_share * 100.0, Bytes(status.own_memory_bytes));
    // In the order of the line, with their importance: what is lost comes before what it costs.
    let mut parts = vec![
        (0, clock(elapsed)),
        (1, format!("{:.0} samples/s", status.samples_per_second)),
        (4, launches.unwrap_or_default()),
        (5, counted(status.samples, "sample")),
        (2, format!("{} lost", counted(status.lost, "record"))),
        (3, own),
    ];
    parts.retain(|(_, part)| !part.is_empty());
    let text = |parts: &[(u8, String)]| parts.iter().map(|(_, part)| &**part).collect::<Vec<_>>().join("  ");
    while text(&parts).len() > columns
        && let Some(least) = parts.iter().map(|(importance, _)| *importance).max().filter(|least| *least > 0)
    {
        parts.retain(|(importance, _)| *importance != least);
    }
    text(&parts).chars().take(columns).collect()
}

/// The profiler's memory by owner, as lines. Small owners share one line, so that the lines add up.
fn memory(held: &[MemoryUse]) -> Vec<String> {
    const SMALL: u64 = 100 << 10;
    let total: u64 = held.iter().map(|held| held.bytes).sum();
    if total == 0 {
        return Vec::new();
    }
    let (large, small): (Vec<MemoryUse>, Vec<MemoryUse>) = held.iter().partition(|held| held.bytes >= SMALL);
    let small = MemoryUse { by: "smaller parts", bytes: small.iter().map(|held| held.bytes).sum() };
    let line = |held: &MemoryUse| format!("{:>10}  {}", Bytes(held.bytes).to_string(), held.by);
    let mut lines = vec![format!("own memory, {}:", Bytes(total))];
    lines.extend(large.iter().chain(Some(&small).filter(|small| small.bytes > 0)).map(line));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_listed_by_owner_and_adds_up() {
        let held = [
            MemoryUse::new("names", 3 << 20),
            MemoryUse::new("frames", 60 << 10),
            MemoryUse::new("other", 40 << 10),
        ];
        let lines = ["own memory, 3.10 MiB:", "  3.00 MiB  names", "   100 KiB  smaller parts"];
        assert_eq!(memory(&held), lines);
        assert!(memory(&[]).is_empty());
    }

    #[test]
    fn the_line_has_time_rate_losses_and_cost() {
        let status = Status {
            samples: 6930,
            samples_per_second: 98.7,
            lost: 3,
            own_cpu_share: 0.0042,
            own_memory_bytes: 84 << 20,
            ..Status::default()
        };
        let check = |status: &Status, columns: usize, expect: &str| {
            let text = line(Duration::from_secs(70), status, columns);
            assert_eq!(text, expect, "{columns} columns");
        };
        check(
            &status,
            usize::MAX,
            "1:10  99 samples/s  6930 samples  3 records lost  own 0.4 % CPU, 84.0 MiB",
        );
        let status = Status { launches: 20_000, launches_per_second: 9_800.4, ..status };
        let all =
            "1:10  99 samples/s  9800 launches/s  6930 samples  3 records lost  own 0.4 % CPU, 84.0 MiB";
        check(&status, usize::MAX, all);
        check(&status, all.len(), all);
        // What does not fit is left out, the number of samples first.
        let of_80 = "1:10  99 samples/s  9800 launches/s  3 records lost  own 0.4 % CPU, 84.0 MiB";
        check(&status, 79, of_80);
        check(&status, 70, "1:10  99 samples/s  3 records lost  own 0.4 % CPU, 84.0 MiB");
        check(&status, 39, "1:10  99 samples/s  3 records lost");
        check(&status, 20, "1:10  99 samples/s");
        check(&status, 3, "1:1");
    }
}
