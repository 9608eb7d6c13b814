//! Text of pipelines: how long their stages wait, and for whom.
//!
//! Owns: the columns of these tables. Because: a bound must not look like a measured wait. Does not: compute.

use std::io::{self, Write};

use deepctx_profile::units::Nanos;

use super::{counted, more, not_measured_in_words, without_middle};
use crate::over_time::{Measurement, MessagePair, MessageWaits, Pipeline};

/// Widest list of communicators.
const NAME_WIDTH: usize = 60;

/// Writes the waits of each stage; nothing without a pipeline.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(found: &Pipeline, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let Pipeline { stages, refused } = found;
    if stages.is_empty() && refused.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPipeline: time in which only messages run, at most the wait for neighbours")?;
    let all = || stages.iter().flat_map(|stage| stage.steps.iter().map(move |step| (stage, step)));
    if !stages.is_empty() {
        writeln!(out, "  rank   step    length  waits at most   share  messages  communicators")?;
    }
    for (stage, step) in all().take(rows) {
        let waits = match &step.waits {
            Measurement::Yes(waits) => waits,
            Measurement::No { not_measured } => {
                let because = not_measured_in_words(not_measured);
                writeln!(out, "  {:>4} {:>6}  {:>8}  {because}", stage.rank, step.step, "–")?;
                continue;
            }
        };
        let [length, most] = [waits.length_ns, waits.waiting_at_most_ns].map(|ns| Nanos(ns).to_string());
        let share = waits.waiting_at_most_ns as f64 * 100.0 / waits.length_ns.max(1) as f64;
        let names = without_middle(&communicators_in_words(&stage.communicators), NAME_WIDTH);
        let figures = format!("{length:>8}  {most:>13}  {share:5.1}%  {:>8}", waits.messages);
        writeln!(out, "  {:>4} {:>6}  {figures}  {names}", stage.rank, step.step)?;
    }
    more(all().count(), rows, "step", out)?;
    let inferred = stages.iter().map(|stage| stage.inferred_messages).sum::<usize>();
    if inferred > 0 {
        writeln!(out, "  {} known by the name of the kernel only", counted(inferred as u64, "message"))?;
    }
    for of in refused.iter().take(rows) {
        writeln!(out, "  rank {}: not known: {}", of.rank, of.because.sentence)?;
    }
    more(refused.len(), rows, "rank", out)
}

/// Writes which of two ranks waits for the other; nothing without messages between them.
///
/// # Errors
/// Those of `out`.
pub(super) fn messages(found: &MessageWaits, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let MessageWaits { pairs, not_matched, without_peer } = found;
    if pairs.is_empty() && not_matched.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nMessages: which of two ranks waits for the other")?;
    if !pairs.is_empty() {
        writeln!(
            out,
            "  from    to  messages  receiver waits  sender waits  transfer   error each  communicator"
        )?;
    }
    for row in pairs.iter().take(rows) {
        let times = [row.receiver_waited_ns, row.sender_waited_ns, row.transfer_ns, row.clock_error_ns];
        let [receiver, sender, transfer, error] = times.map(|ns| Nanos(ns).to_string());
        let (from, to, count) = (row.from, row.to, row.messages);
        let name = without_middle(&row.communicator, NAME_WIDTH);
        let inferred = match inferred_in_words(row) {
            words if words.is_empty() => words,
            words => format!(" ({words})"),
        };
        write!(out, "  {from:>4}  {to:>4}  {count:>8}  {receiver:>14}  {sender:>12}  {transfer:>8}  ")?;
        writeln!(out, "{error:>11}  {name}{inferred}")?;
    }
    more(pairs.len(), rows, "pair", out)?;
    for of in not_matched.iter().take(rows) {
        writeln!(out, "  rank {} to {}: not matched: {}", of.from, of.to, of.because.sentence)?;
    }
    more(not_matched.len(), rows, "pair", out)?;
    if *without_peer > 0 {
        let count = counted(*without_peer as u64, "message");
        writeln!(out, "  without {count} of which the trace does not name the other rank")?;
    }
    Ok(())
}

/// What is inferred of messages between two ranks; empty if nothing is.
pub(in crate::render) fn inferred_in_words(row: &MessagePair) -> String {
    let ranks = row.ranks_inferred.then(|| "ranks inferred".to_owned());
    let messages = match (row.sends_before_trace, row.receives_before_trace) {
        (0, 0) => None,
        (0, receives) => Some(counted(receives as u64, "receive")),
        (sends, _) => Some(counted(sends as u64, "send")),
    };
    let left_out = |of: String| format!("matched after leaving out {of} from before the trace: inferred");
    ranks.into_iter().chain(messages.map(left_out)).collect::<Vec<_>>().join("; ")
}

/// The communicators of a stage; `–` where the trace names none.
pub(in crate::render) fn communicators_in_words(names: &[String]) -> String {
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over_time::{PipelineStage, PipelineStep, PipelineWaits};

    #[test]
    fn inferred_ranks_of_messages_are_said_to_be() {
        let pair = MessagePair {
            communicator: "5 PIPELINE".to_owned(),
            from: 1,
            to: 2,
            messages: 7,
            sends_before_trace: 0,
            receives_before_trace: 0,
            receiver_waited_ns: 30_000,
            sender_waited_ns: 4_000,
            transfer_ns: 5_000,
            clock_error_ns: 1_000,
            ranks_inferred: true,
        };
        let found = MessageWaits { pairs: vec![pair], not_matched: Vec::new(), without_peer: 3 };
        let mut out = Vec::new();
        messages(&found, 9, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let row = shown.lines().find(|line| line.contains("5 PIPELINE")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..5], ["1", "2", "7", "30.0", "µs"]);
        assert!(row.ends_with("  5 PIPELINE (ranks inferred)"), "{row}");
        assert!(shown.contains("  without 3 messages of which"), "{shown}");
    }

    #[test]
    fn receives_before_a_trace_are_said_to_be_inferred() {
        let pair = MessagePair { receives_before_trace: 2, ..MessagePair::default() };
        let expect = "matched after leaving out 2 receives from before the trace: inferred";
        assert_eq!(inferred_in_words(&pair), expect);
    }

    #[test]
    fn sends_before_a_trace_are_said_to_be_inferred() {
        let check = |sends_before_trace: usize, ranks_inferred: bool, expect: &str| {
            let pair = MessagePair { sends_before_trace, ranks_inferred, ..MessagePair::default() };
            assert_eq!(inferred_in_words(&pair), expect);
        };
        check(0, false, "");
        check(1, false, "matched after leaving out 1 send from before the trace: inferred");
        check(2, true, "ranks inferred; matched after leaving out 2 sends from before the trace: inferred");
    }

    #[test]
    fn waits_are_shown_as_bounds() {
        let waits =
            PipelineWaits { length_ns: 100_000, messages: 3, message_ns: 40_000, waiting_at_most_ns: 30_000 };
        let stage = PipelineStage {
            rank: 2,
            communicators: vec!["5 PIPELINE".to_owned()],
            inferred_messages: 1,
            steps: vec![PipelineStep { step: 7, waits: Measurement::Yes(waits) }],
        };
        let mut out = Vec::new();
        write(&Pipeline { stages: vec![stage], refused: Vec::new() }, 9, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let row = shown.lines().find(|line| line.contains("5 PIPELINE")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["2", "7", "100", "µs", "30.0", "µs", "30.0%", "3", "5", "PIPELINE"]);
        assert!(shown.contains("waits at most") && shown.contains("1 message known by"), "{shown}");
        let mut out = Vec::new();
        write(&Pipeline::default(), 9, &mut out).unwrap();
        assert!(out.is_empty());
    }
}
