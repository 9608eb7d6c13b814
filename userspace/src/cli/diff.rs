//! `diff`: what grew and what shrank between two profiles, by calling context.
//!
//! Owns: matching contexts by their folded text without process ids, and how far a difference can be believed. Because:
//! two runs of a program have other pids and other numbers of samples. Does not: know how text is folded.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use deepctx_profile::export::folded;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::Selection;

use super::failure::{Done, Failure};
use super::options::DiffArgs;
use super::{look, output};

/// Runs it.
///
/// # Errors
/// One of the profiles could not be opened.
pub fn run(arguments: &DiffArgs) -> Result<Done, Failure> {
    let before = look::open(&arguments.before)?.profile;
    let after = look::open(&arguments.after)?.profile;
    let selection = look::selection(&arguments.look, look::timer_of(&before));
    let rows = compare(&contexts(&before, &selection)?, &contexts(&after, &selection)?);
    output::write(Path::new("-"), false, |out| print(&rows, selection.metric, arguments.limit, out))?;
    Ok(Done::Fully)
}

/// Value and samples of each context.
type Contexts = BTreeMap<String, Value>;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Value {
    value: u64,
    samples: u64,
}

/// Contexts by their text, the process by its name alone.
fn contexts(profile: &Profile, selection: &Selection) -> Result<Contexts, Failure> {
    let mut contexts = Contexts::new();
    for metric in [selection.metric, Metric::Samples] {
        let mut text = Vec::new();
        folded::write(profile, &Selection { metric, ..*selection }, &mut text)
            .map_err(|error| Failure::io("folded stacks", &error))?;
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((stack, value)) = line.rsplit_once(' ') else { continue };
            let (process, rest) = stack.split_once(';').unwrap_or((stack, ""));
            let entry = contexts.entry(format!("{};{rest}", without_pid(process))).or_default();
            let value = value.parse::<u64>().unwrap_or(0);
            if metric == Metric::Samples {
                entry.samples += value;
            }
            if metric == selection.metric {
                entry.value += value;
            }
        }
    }
    Ok(contexts)
}

fn without_pid(process: &str) -> &str {
    match process.rsplit_once('-') {
        Some((name, pid)) if pid.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => process,
    }
}

/// One context in both profiles, as shares of their totals.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    context: String,
    before: f64,
    after: f64,
    /// Standard error of the difference, from the numbers of samples.
    error: f64,
}

impl Row {
    fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Whether chance alone is an unlikely cause (about one in twenty).
    fn is_significant(&self) -> bool {
        self.change().abs() > 2.0 * self.error
    }
}

/// Largest changes first. Shares are compared, so that a longer run is not a slower one.
fn compare(before: &Contexts, after: &Contexts) -> Vec<Row> {
    let total = |contexts: &Contexts| {
        contexts
            .values()
            .fold((0.0, 0.0), |sum, value| (sum.0 + value.value as f64, sum.1 + value.samples as f64))
    };
    let (totals_before, totals_after) = (total(before), total(after));
    let share = |contexts: &Contexts, totals: (f64, f64), context: &str| {
        let value = contexts.get(context).copied().unwrap_or_default();
        let share = if totals.0 > 0.0 { value.value as f64 / totals.0 } else { 0.0 };
        // Counts of samples scatter like a binomial draw; one is added so that "never seen" is not "certainly never".
        let drawn = totals.1.max(1.0);
        let likely = ((value.samples as f64 + 1.0) / (drawn + 2.0)).min(1.0);
        (share, likely * (1.0 - likely) / drawn)
    };
    let names = before.keys().chain(after.keys().filter(|context| !before.contains_key(*context)));
    let mut rows: Vec<Row> = names
        .map(|context| {
            let ((before, variance_before), (after, variance_after)) =
                (share(before, totals_before, context), share(after, totals_after, context));
            Row { context: context.clone(), before, after, error: (variance_before + variance_after).sqrt() }
        })
        .filter(|row| row.before != row.after)
        .collect();
    rows.sort_by(|a, b| {
        b.change().abs().total_cmp(&a.change().abs()).then_with(|| a.context.cmp(&b.context))
    });
    rows
}

fn print(rows: &[Row], metric: Metric, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "share of {metric} by context; `?` marks changes that chance may explain")?;
    writeln!(out, "{:>9} {:>8} {:>8}  context", "change", "before", "after")?;
    for row in rows.iter().take(limit) {
        let mark = if row.is_significant() { ' ' } else { '?' };
        let [change, before, after] = [row.change(), row.before, row.after].map(|share| share * 100.0);
        writeln!(out, "{change:>+8.2}%{mark}{before:>7.2}% {after:>7.2}%  {}", row.context)?;
    }
    if rows.len() > limit {
        writeln!(out, "{} more contexts differ (--limit shows more)", rows.len() - limit)?;
    }
    if rows.is_empty() {
        writeln!(out, "no context differs")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(rows: &[(&str, u64)]) -> Contexts {
        rows.iter().map(|(name, n)| ((*name).to_owned(), Value { value: n * 10, samples: *n })).collect()
    }

    fn check(before: &[(&str, u64)], after: &[(&str, u64)], expect: &str) {
        let mut out = Vec::new();
        print(&compare(&contexts(before), &contexts(after)), Metric::CpuTime, 10, &mut out).unwrap();
        let rows: Vec<String> =
            String::from_utf8(out).unwrap().lines().skip(2).map(|line| line.trim().into()).collect();
        assert_eq!(rows.join("\n"), expect);
    }

    #[test]
    fn shares_are_compared_and_the_largest_change_comes_first() {
        check(
            &[("app;a", 500), ("app;b", 500)],
            &[("app;a", 1500), ("app;c", 500)],
            "-50.00%   50.00%    0.00%  app;b\n+25.00%   50.00%   75.00%  app;a\n+25.00%    0.00%   25.00%  app;c",
        );
    }

    #[test]
    fn a_longer_run_of_the_same_is_no_difference() {
        check(&[("app;a", 10)], &[("app;a", 5000)], "no context differs");
    }

    #[test]
    fn a_change_that_chance_may_explain_is_marked() {
        check(
            &[("app;a", 10), ("app;b", 10)],
            &[("app;a", 11), ("app;b", 9)],
            "+5.00%?  50.00%   55.00%  app;a\n-5.00%?  50.00%   45.00%  app;b",
        );
    }

    #[test]
    fn processes_are_matched_by_name() {
        assert_eq!(without_pid("python3-4711"), "python3");
        assert_eq!(without_pid("my-app-4711"), "my-app");
        assert_eq!(without_pid("my-app"), "my-app");
    }
}
