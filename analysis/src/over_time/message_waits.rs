//! Messages: which of two ranks waits for the other.
//!
//! Owns: [`MessageWaits`]. Because: a stage of a pipeline that waits is late by what another stage does, and only both
//! ranks' traces show which of the two came last. Does not: match messages by time, or those of which the trace does
//! not name the other rank.
//!
//! The messages from one rank to another are in order within their communicator: the first one sent is the first one
//! received. If the two ranks have different numbers of them, they are not matched. If one would be received before it
//! is sent, beyond the error of the clocks, the first sends were before the sender's trace: the fewest are left out
//! with which every message is possible, *inferred*. If these are more than a few, or not fewer than the others, the
//! pair is not matched. A rank waits from its begin of a message until the other rank's begin. One that had ended by
//! then did not wait: NCCL puts small messages in a buffer.
//!
//! Because of this buffer, no time is too late for a receive. If sends ended before the receiver's trace begins, their
//! receives may be missing: as many of the first sends are left out as make every message overlap in time on both
//! ranks, *inferred*, within the same bounds. If no number does, or several do, the pair is not matched. If the last
//! receive ends before the sender's trace, that trace has its send, and none is left out.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::frame::clean;
use deepctx_profile::trace::RankTrace;
use serde::Serialize;

use super::collectives::{Lateness, unix_ns};
use super::pipeline::is_message;
use super::reason::fields;
use super::window::Window;

/// The messages between ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MessageWaits {
    /// Matched messages, from one rank to another; most waiting first. Empty with one rank.
    pub pairs: Vec<MessagePair>,
    /// Pairs of ranks whose messages are not matched, and why.
    pub not_matched: Vec<UnmatchedPair>,
    /// Messages of which the trace does not name the other rank.
    pub without_peer: usize,
}

/// Messages from one rank to another in a communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MessagePair {
    /// The communicator.
    pub communicator: String,
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// How many messages are matched.
    pub messages: usize,
    /// Sends from before the sender's trace: so many of the first receives and of the last sends are left out, since
    /// otherwise a message would be received before it is sent. Inferred.
    pub sends_before_trace: usize,
    /// Receives from before the receiver's trace: so many of the first sends and of the last receives are left out,
    /// since sends ended before that trace begins, and all others overlap with their receives. Inferred.
    pub receives_before_trace: usize,
    /// Time that the receiver waited for the sender.
    pub receiver_waited_ns: u64,
    /// Time that the sender waited for the receiver.
    pub sender_waited_ns: u64,
    /// From the later begin to the receiver's end: the time of the transfers themselves.
    pub transfer_ns: u64,
    /// Error of both clocks: each wait may be wrong by this much.
    pub clock_error_ns: u64,
    /// Whether a trace does not state its rank, so that it is inferred who is who.
    pub ranks_inferred: bool,
}

/// A pair of ranks whose messages are not matched. Serialized, `reason` is the key and `because` the sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnmatchedPair {
    /// The communicator.
    pub communicator: String,
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// Messages of the sender, and of the receiver.
    pub messages: [usize; 2],
    /// Why.
    #[serde(flatten, serialize_with = "fields")]
    pub because: &'static Reason,
}

reasons! {
    class Gap, page "traces.md";
    const PEER_WITHOUT_TRACE = "peer-without-trace",
        "a rank exchanges messages with one that has no trace here";
    const MESSAGE_COUNTS_DIFFER = "message-counts-differ",
        "a rank has another number of messages than the rank that it exchanges them with";
    const MESSAGE_SIZES_DIFFER = "message-sizes-differ",
        "a message would be received with another size than it is sent with";
    const RECEIVED_BEFORE_SENT = "received-before-sent",
        "a message would be received before it is sent: the traces of two ranks begin at different messages";
    const SENT_BEFORE_TRACE = "sent-before-trace",
        "messages were sent before the receiver's trace begins, and it is unknown which of them were received by then";
    const PEER_CLOCK_UNKNOWN = "peer-clock-unknown",
        "two ranks exchange messages, and no chain of collectives aligns their clocks";
}

/// Maximum messages before a trace: a stage of a pipeline is ahead of the next one by a few messages.
const BEFORE_TRACE_MAX: usize = 8;

/// One rank's part of a message, in Unix time if the trace has it.
#[derive(Clone, Copy, Debug)]
struct MessagePart {
    begin: i64,
    end: i64,
    elements: u64,
}

impl MessagePart {
    /// The same on a clock that this one is ahead of.
    fn aligned(self, ahead_ns: i64) -> Self {
        let [begin, end] = [self.begin, self.end].map(|at| at.saturating_sub(ahead_ns));
        MessagePart { begin, end, ..self }
    }

    /// Whether a receive begins before this send ends, within the error of their clocks.
    fn meets(self, received: Self, error_ns: i64) -> bool {
        received.begin <= self.end.saturating_add(error_ns)
    }

    /// How long it waited for a rank that begins at this moment.
    fn waited(self, until: i64) -> u64 {
        if self.end < until { 0 } else { until.saturating_sub(self.begin).max(0).unsigned_abs() }
    }
}

/// What is sent, and what is received.
type Sides = [Vec<MessagePart>; 2];
/// Both sides by communicator, sender and receiver.
type Pairs = BTreeMap<(String, u32, u32), Sides>;

/// The messages of windows, on the clocks of these ranks, which are in order.
pub(super) fn compute(windows: &[Window<'_>], ranks: &[Lateness]) -> MessageWaits {
    let mut found = MessageWaits::default();
    // One rank, or training steps that a rank did not measure.
    if ranks.is_empty() {
        return found;
    }
    let mut pairs = Pairs::new();
    for window in windows {
        found.without_peer += collect(window, &mut pairs);
    }
    let of_ranks: BTreeMap<u32, &RankTrace> =
        windows.iter().map(|window| (window.of.rank, window.of)).collect();
    let is_recorded = |rank: &u32| of_ranks.get(rank).is_some_and(|of| of.rank_is_recorded);
    let clock = |rank: u32| {
        let place = ranks.binary_search_by_key(&rank, |row| row.rank).ok()?;
        ranks.get(place)
    };
    for ((communicator, from, to), mut sides) in pairs {
        for side in &mut sides {
            side.sort_by_key(|part| (part.begin, part.end));
        }
        let begins = of_ranks.get(&to).map_or(i64::MIN, |of| unix_ns(&of.trace, of.first_event()));
        let ends = of_ranks.get(&from).and_then(|of| Some(unix_ns(&of.trace, of.span?.1)));
        match matched(&sides, clock(from), clock(to), begins, ends.unwrap_or(i64::MIN)) {
            Ok(sums) => {
                let ranks_inferred = ![from, to].iter().all(is_recorded);
                found.pairs.push(MessagePair { communicator, from, to, ranks_inferred, ..sums });
            }
            Err(because) => {
                let messages = sides.map(|side| side.len());
                found.not_matched.push(UnmatchedPair { communicator, from, to, messages, because });
            }
        }
    }
    let waited = |row: &MessagePair| row.receiver_waited_ns.saturating_add(row.sender_waited_ns);
    found.pairs.sort_rows_by_key(|row| std::cmp::Reverse(waited(row)));
    found
}

/// Adds the messages of a rank. Returns how many do not say whom they are for.
fn collect(window: &Window<'_>, pairs: &mut Pairs) -> usize {
    let (trace, rank) = (&window.of.trace, window.of.rank);
    let mut without_peer = 0;
    for (_, note) in trace.collectives.iter().filter(|(_, note)| window.has_device(note.op)) {
        let operation = trace.name(note.operation);
        let Some(op) = trace.device.get(note.op).filter(|_| is_message(operation)) else { continue };
        let Some(peer) = note.peer else {
            without_peer += 1;
            continue;
        };
        let receives = operation.eq_ignore_ascii_case("recv");
        let (from, to) = if receives { (peer, rank) } else { (rank, peer) };
        let sides = pairs.entry((clean(trace.name(note.communicator)), from, to)).or_default();
        let (begin, end) = (unix_ns(trace, op.begin), unix_ns(trace, op.end()));
        let part = MessagePart { begin, end, elements: note.elements_in };
        sides[usize::from(receives)].push(part);
    }
    without_peer
}

/// The sums of messages in order, with the clocks of the sender, whose trace ends at a time, and of the receiver, whose
/// trace begins at a time.
fn matched(
    sides: &Sides,
    from: Option<&Lateness>,
    to: Option<&Lateness>,
    receiver_begins: i64,
    sender_ends: i64,
) -> Result<MessagePair, &'static Reason> {
    let (Some(from), Some(to)) = (from, to) else { return Err(PEER_WITHOUT_TRACE) };
    let [sent, received] = sides;
    if sent.len() != received.len() {
        return Err(MESSAGE_COUNTS_DIFFER);
    }
    let errors = from.clock_uncertainty_ns.zip(to.clock_uncertainty_ns);
    let Some((of_sender, of_receiver)) = errors.filter(|_| from.clock_reference == to.clock_reference) else {
        return Err(PEER_CLOCK_UNKNOWN);
    };
    let clock_error_ns = of_sender.saturating_add(of_receiver);
    let error_ns = i64::try_from(clock_error_ns).unwrap_or(i64::MAX);
    let aligned = |of: &[MessagePart], ahead_ns: i64| -> Vec<MessagePart> {
        of.iter().map(|part| part.aligned(ahead_ns)).collect()
    };
    let sent = aligned(sent, from.clock_offset_ns);
    let received = aligned(received, to.clock_offset_ns);
    let receiver_begins = receiver_begins.saturating_sub(to.clock_offset_ns);
    let sender_ends = sender_ends.saturating_sub(from.clock_offset_ns);
    let sums = possible(&sent, &received, receiver_begins, sender_ends, error_ns)?;
    Ok(MessagePair { clock_error_ns, ..sums })
}

/// The sums of messages on one clock: in order, or without those that were before one of the traces.
fn possible(
    sent: &[MessagePart],
    received: &[MessagePart],
    receiver_begins: i64,
    sender_ends: i64,
    error_ns: i64,
) -> Result<MessagePair, &'static Reason> {
    let in_order = sums(sent, received, error_ns);
    let is_impossible = matches!(in_order, Err(because) if because == RECEIVED_BEFORE_SENT);
    // More messages must speak for leaving some out than are left out.
    let most = BEFORE_TRACE_MAX.min(sent.len().saturating_sub(1) / 2);
    let ended_before = sent.first().is_some_and(|first| first.end.saturating_add(error_ns) < receiver_begins);
    // The sender was traced until then, and so was the last message: the first ones were received late, from a buffer.
    let last_is_sent = received.last().is_some_and(|last| last.end.saturating_add(error_ns) < sender_ends);
    match (is_impossible, ended_before) {
        (true, false) => without_first_receives(sent, received, most, error_ns).ok_or(RECEIVED_BEFORE_SENT),
        // Of so few messages, none may be left out.
        (false, true) if most > 0 && !last_is_sent => {
            let found = without_first_sends(sent, received, most, error_ns);
            found.map_or_else(|| in_order.and(Err(SENT_BEFORE_TRACE)), Ok)
        }
        // Where each trace seems to begin after the other one, neither does.
        _ => in_order,
    }
}

/// The sums if the first sends were before the trace: with the fewest of them that make every message possible.
fn without_first_receives(
    sent: &[MessagePart],
    received: &[MessagePart],
    most: usize,
    error_ns: i64,
) -> Option<MessagePair> {
    let found = |sends_before_trace: usize| {
        let sent = sent.get(..sent.len().checked_sub(sends_before_trace)?)?;
        let sums = sums(sent, received.get(sends_before_trace..)?, error_ns).ok()?;
        Some(MessagePair { sends_before_trace, ..sums })
    };
    (1..=most).find_map(found)
}

/// The sums if the first receives were before the trace: with the only number of them that makes every message overlap
/// with its receive. `None` without one, or with several.
fn without_first_sends(
    sent: &[MessagePart],
    received: &[MessagePart],
    most: usize,
    error_ns: i64,
) -> Option<MessagePair> {
    let found = |receives_before_trace: usize| {
        let sent = sent.get(receives_before_trace..)?;
        let received = received.get(..sent.len())?;
        let all_meet = sent.iter().zip(received).all(|(sent, received)| sent.meets(*received, error_ns));
        let sums = all_meet.then(|| sums(sent, received, error_ns))?.ok()?;
        Some(MessagePair { receives_before_trace, ..sums })
    };
    // If one more than may be left out fits, too, the number is unknown.
    let mut fitting = (1..=most + 1).filter_map(found);
    fitting.next().filter(|pair| pair.receives_before_trace <= most && fitting.next().is_none())
}

/// The sums of messages in order, on one clock.
fn sums(
    sent: &[MessagePart],
    received: &[MessagePart],
    error_ns: i64,
) -> Result<MessagePair, &'static Reason> {
    let mut sums = MessagePair { messages: sent.len(), ..MessagePair::default() };
    for (sent, received) in sent.iter().zip(received) {
        if sent.elements != received.elements {
            return Err(MESSAGE_SIZES_DIFFER);
        }
        if received.end.saturating_add(error_ns) < sent.begin {
            return Err(RECEIVED_BEFORE_SENT);
        }
        let later = sent.begin.max(received.begin);
        sums.sender_waited_ns = sums.sender_waited_ns.saturating_add(sent.waited(later));
        sums.receiver_waited_ns = sums.receiver_waited_ns.saturating_add(received.waited(later));
        let transfer_ns = received.end.saturating_sub(later).max(0).unsigned_abs();
        sums.transfer_ns = sums.transfer_ns.saturating_add(transfer_ns);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{CollectiveNote, CollectiveNotes, Job, RankInfo, Trace, text};

    use super::super::{OverTime, Steps};
    use super::*;

    /// A rank of a pipeline of three with these messages: operation, the other rank, begin and end in µs.
    fn rank(number: u32, messages: &[(&str, Option<u32>, u64, u64)]) -> Trace {
        sized(number, messages, 8)
    }

    fn sized(number: u32, messages: &[(&str, Option<u32>, u64, u64)], elements: u64) -> Trace {
        let line = |(_, _, begin, end): &(&str, Option<u32>, u64, u64)| {
            format!("kernel 0/9 {begin}..{end} ncclDevKernel_SendRecv\n")
        };
        let mut trace = text::parse(&messages.iter().map(line).collect::<String>()).unwrap();
        trace.rank = RankInfo { rank: Some(number), world_size: None };
        trace.clock.domain = Some(0);
        let ops: Vec<_> = trace.device.iter().map(|(id, _)| id).collect();
        for (op, (operation, peer, ..)) in ops.into_iter().zip(messages) {
            let [operation, communicator, element] =
                [*operation, "5 PIPELINE", "Float"].map(|word| trace.text(word));
            let note = CollectiveNote {
                op,
                operation,
                communicator,
                group_size: 3,
                elements_in: elements,
                element,
                ordinal: None,
                peer: *peer,
            };
            trace.collectives.push(note).unwrap();
        }
        trace
    }

    fn found(ranks: Vec<Trace>) -> MessageWaits {
        let files = (0..).zip(ranks).map(|(n, trace)| (format!("{n}.json"), trace)).collect();
        OverTime::compute(&Job::new(files).unwrap(), Steps::default()).messages
    }

    const SENDS: [(&str, Option<u32>, u64, u64); 3] =
        [("send", Some(1), 0, 10), ("send", Some(1), 30, 40), ("recv", Some(1), 50, 70)];
    const RECEIVES: [(&str, Option<u32>, u64, u64); 3] =
        [("recv", Some(0), 6, 10), ("recv", Some(0), 20, 41), ("send", Some(0), 65, 70)];

    #[test]
    fn the_rank_that_comes_first_waits() {
        let found = found(vec![rank(0, &SENDS), rank(1, &RECEIVES)]);
        let pair = |from, to, messages, receiver_waited_ns, sender_waited_ns, transfer_ns| MessagePair {
            communicator: "5 PIPELINE".to_owned(),
            from,
            to,
            messages,
            sends_before_trace: 0,
            receives_before_trace: 0,
            receiver_waited_ns,
            sender_waited_ns,
            transfer_ns,
            clock_error_ns: 0,
            ranks_inferred: false,
        };
        assert_eq!(found.pairs, [pair(0, 1, 2, 10_000, 6_000, 15_000), pair(1, 0, 1, 15_000, 0, 5_000)]);
        assert_eq!((found.not_matched, found.without_peer), (Vec::new(), 0));
    }

    #[test]
    fn a_message_that_ended_before_is_not_waited_for() {
        // The sender's kernel ends as soon as the data is in a buffer.
        let found = found(vec![rank(0, &[("send", Some(1), 0, 4)]), rank(1, &[("recv", Some(0), 20, 25)])]);
        let pair = &found.pairs[0];
        let times = (pair.sender_waited_ns, pair.receiver_waited_ns, pair.transfer_ns);
        assert_eq!(times, (0, 0, 5_000));
    }

    #[test]
    fn what_cannot_be_matched_has_a_reason() {
        let check = |ranks: Vec<Trace>, expect: &[(u32, u32, [usize; 2], &str)]| {
            let found = found(ranks);
            let row = |of: &UnmatchedPair| (of.from, of.to, of.messages, of.because.key);
            let rows: Vec<_> = found.not_matched.iter().map(row).collect();
            assert_eq!((rows.as_slice(), found.pairs.len()), (expect, 0));
        };
        let first = || rank(0, &SENDS[..2]);
        let second = || rank(1, &RECEIVES[..2]);
        check(vec![first(), rank(1, &RECEIVES[..1])], &[(0, 1, [2, 1], "message-counts-differ")]);
        check(vec![first(), rank(2, &[])], &[(0, 1, [2, 0], "peer-without-trace")]);
        let of_other_host = || {
            let mut trace = second();
            trace.clock.domain = None;
            trace
        };
        check(vec![first(), of_other_host()], &[(0, 1, [2, 2], "peer-clock-unknown")]);
        let early = || rank(1, &[("recv", Some(0), 0, 5), ("recv", Some(0), 6, 10)]);
        check(vec![first(), early()], &[(0, 1, [2, 2], "received-before-sent")]);
        check(vec![first(), sized(1, &RECEIVES[..2], 9)], &[(0, 1, [2, 2], "message-sizes-differ")]);
        // A trace that names no other rank is never matched by time.
        let unnamed = found(vec![first(), rank(1, &[("recv", None, 0, 10)])]);
        assert_eq!((unnamed.pairs.len(), unnamed.without_peer), (0, 1));
        assert_eq!(unnamed.not_matched[0].messages, [2, 0]);
    }

    /// Messages with these numbers, one each 100 µs: the sender begins first, and the receiver ends last.
    fn in_turn(receives: bool, numbers: std::ops::Range<u64>) -> Vec<(&'static str, Option<u32>, u64, u64)> {
        let message = |number: u64| match receives {
            true => ("recv", Some(0), 100 * number + 5, 100 * number + 12),
            false => ("send", Some(1), 100 * number, 100 * number + 10),
        };
        numbers.map(message).collect()
    }

    #[test]
    fn sends_before_a_trace_are_left_out() {
        // Messages that the sender's trace begins after, how many there are in each trace, and how many are matched.
        let check = |before: u64, count: u64, expect: Option<usize>| {
            let sender = rank(0, &in_turn(false, before..before + count));
            let found = found(vec![sender, rank(1, &in_turn(true, 0..count))]);
            let row = found.pairs.first().map(|row| (row.messages, row.sends_before_trace));
            assert_eq!(row, expect.map(|matched| (matched, before as usize)), "{before} {count}");
            let because: Vec<&str> = found.not_matched.iter().map(|row| row.because.key).collect();
            let refused: &[&str] = if expect.is_none() { &["received-before-sent"] } else { &[] };
            assert_eq!(because, refused, "{before} {count}");
            if let Some(row) = found.pairs.first() {
                let each = [row.sender_waited_ns, row.receiver_waited_ns, row.transfer_ns];
                assert_eq!(each, [5_000, 0, 7_000].map(|ns| ns * row.messages as u64), "{before} {count}");
            }
        };
        check(0, 5, Some(5));
        check(1, 5, Some(4));
        check(2, 5, Some(3));
        // As many would be left out as are matched, or more than a few.
        check(2, 4, None);
        check(8, 30, Some(22));
        check(9, 30, None);
    }

    /// Messages with these numbers, each receive of so many µs: how many are matched, and sends and receives before a
    /// trace, or the reason why not.
    #[track_caller]
    fn check_row(sends: &[u64], receives: &[u64], lasts: u64, expect: Result<(usize, usize, usize), &str>) {
        let send = |number: &u64| ("send", Some(1), 100 * number, 100 * number + 10);
        let receive = |number: &u64| ("recv", Some(0), 100 * number + 5, 100 * number + 5 + lasts);
        let sends: Vec<_> = sends.iter().map(send).collect();
        let receives: Vec<_> = receives.iter().map(receive).collect();
        let found = found(vec![rank(0, &sends), rank(1, &receives)]);
        let row = |row: &MessagePair| (row.messages, row.sends_before_trace, row.receives_before_trace);
        let rows = found.pairs.iter().map(|pair| Ok(row(pair)));
        let rows: Vec<_> = rows.chain(found.not_matched.iter().map(|row| Err(row.because.key))).collect();
        assert_eq!(rows, [expect], "{sends:?} {receives:?}");
    }

    #[test]
    fn receives_before_a_trace_are_left_out() {
        let check = |before: u64, count: u64, expect: Result<usize, &str>| {
            let [sends, receives] = [0, before].map(|first| (first..first + count).collect::<Vec<u64>>());
            let expect = expect.map(|matched| (matched, 0, before as usize));
            check_row(&sends, &receives, 7, expect);
        };
        check(0, 5, Ok(5));
        check(1, 5, Ok(4));
        check(2, 5, Ok(3));
        check(8, 30, Ok(22));
        // As many would be left out as are matched, or more than a few.
        check(2, 4, Err("sent-before-trace"));
        check(9, 30, Err("sent-before-trace"));
        // Only how much later one trace begins than the other counts.
        check_row(&[2, 3, 4, 5, 6], &[3, 4, 5, 6, 7], 7, Ok((4, 0, 1)));
    }

    #[test]
    fn receives_that_fit_several_sends_are_not_matched() {
        // Each receive lasts until the next message is being sent.
        check_row(&[0, 1, 2, 3, 4], &[1, 2, 3, 4, 5], 99, Err("sent-before-trace"));
        // No number of them meets every send: the last messages are late.
        check_row(&[0, 1, 2, 3, 4], &[1, 2, 3, 5, 6], 7, Err("sent-before-trace"));
        // The receiver's trace begins in time, so that late receives were in a buffer.
        check_row(&[0, 1, 2, 3, 4], &[0, 2, 3, 4, 5], 7, Ok((5, 0, 0)));
    }

    #[test]
    fn no_send_is_left_out_if_the_last_was_traced() {
        // Each message is received while the next one is sent.
        let check = |sender_ends: u64, expect: (usize, usize)| {
            let mut sends = in_turn(false, 0..5);
            sends.push(("send", None, sender_ends - 10, sender_ends));
            let found = found(vec![rank(0, &sends), rank(1, &in_turn(true, 1..6))]);
            let rows = found.pairs.iter().map(|row| (row.messages, row.receives_before_trace));
            assert_eq!(rows.collect::<Vec<_>>(), [expect], "{sender_ends}");
        };
        // The last receive ends at 512.
        check(512, (4, 1));
        check(513, (5, 0));
    }

    #[test]
    fn traces_that_each_begin_later_are_not_matched() {
        // Message 0 ended before the receiver's trace, and message 3 would be received before it is sent.
        check_row(&[0, 3, 4, 5, 6, 7], &[1, 2, 3, 4, 5, 6], 7, Err("received-before-sent"));
    }

    #[test]
    fn sends_are_left_out_only_if_sizes_agree() {
        let sender = rank(0, &in_turn(false, 1..6));
        let mut receiver = sized(1, &in_turn(true, 0..5), 8);
        let notes: Vec<CollectiveNote> = receiver.collectives.iter().map(|(_, note)| note).collect();
        receiver.collectives = CollectiveNotes::default();
        for (place, note) in notes.into_iter().enumerate() {
            let elements_in = if place == 3 { 9 } else { note.elements_in };
            receiver.collectives.push(CollectiveNote { elements_in, ..note }).unwrap();
        }
        let found = found(vec![sender, receiver]);
        assert_eq!((found.pairs.len(), found.not_matched[0].because.key), (0, "received-before-sent"));
    }

    #[test]
    fn ranks_that_no_trace_states_are_inferred() {
        let mut second = rank(1, &RECEIVES);
        second.rank.rank = None;
        let files = vec![("rank0.json".to_owned(), rank(0, &SENDS)), ("rank1.json".to_owned(), second)];
        let found = OverTime::compute(&Job::new(files).unwrap(), Steps::default()).messages;
        assert_eq!(found.pairs.iter().map(|pair| pair.ranks_inferred).collect::<Vec<_>>(), [true, true]);
    }
}
