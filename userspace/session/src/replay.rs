//! Replay: a profile of recorded input, resolved now.
//!
//! Owns: feeding a source to a pipeline to its end. Because: a stack that came out wrong must be reproducible without
//! its process. Names are looked up in files as they are now; Python names, which only the process knew, stay
//! unknown. The profiler's own processes have their stacks. Does not: differ from a live session in anything else.

use deepctx_pipeline::input::Source;
use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::units::{Time, clock};
use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::native::DebugInfo;

use crate::options::SKEW_NS;
use crate::resolver::Resolver;

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayResult {
    /// The profile.
    pub profile: Profile,
    /// Time of the newest record.
    pub newest: Time<clock::Monotonic>,
}

/// Replays a source of input, such as a [raw capture](crate::RawReader).
///
/// # Errors
/// The source cannot be read.
pub fn replay<S: Source<Maps>>(
    source: &mut S,
    meta: Meta,
    debug_info: DebugInfo,
) -> Result<ReplayResult, S::Error> {
    let mut pipeline = Pipeline::new(Resolver::new(debug_info, None), meta, Config::default());
    while let Some(input) = source.next_input()? {
        let input = input.with_maps(|pid, maps| pipeline.symbols().admit(pid, maps));
        pipeline.feed(input);
        let newest_ns = pipeline.newest_ns();
        pipeline.advance(newest_ns.saturating_sub(SKEW_NS));
    }
    pipeline.finish();
    let gaps = pipeline.symbols().gaps();
    pipeline.tables_lack(gaps.into());
    let newest = Time::from_nanos(pipeline.newest_ns());
    Ok(ReplayResult { profile: pipeline.into_profile(), newest })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crossbeam_channel::unbounded;
    use deepctx_capture::Message;
    use deepctx_common::end::WalkEnd;
    use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, kind, word};
    use deepctx_pipeline::encode;
    use deepctx_pipeline::input::{Input, ProcessRefusal, Refusals, RefusedProcess};
    use deepctx_profile::ledger::Stage;
    use deepctx_profile::metric::Metric;

    use super::*;
    use crate::{Options, RawReader, RawWriter, Session, Sink, SinkError, State, lock};

    // No process has these numbers.
    const EXECUTES: u32 = u32::MAX;
    const GAVE_WAY: u32 = u32::MAX - 1;
    const WITHOUT_ROOM: u32 = u32::MAX - 2;

    /// Copies the input of a session.
    #[derive(Debug)]
    struct RawCopy(Arc<Mutex<RawWriter<Vec<u8>>>>);

    impl Sink for RawCopy {
        fn on_input(&mut self, input: &Input<Maps>) -> Result<(), SinkError> {
            lock(&self.0).write(input).map_err(SinkError::Raw)
        }

        fn on_finish(&mut self, _state: &State<'_>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    /// Samples of processes that the kernel programs do not know; one of them runs another program before its last.
    fn records() -> Vec<u8> {
        let mut bytes = Vec::new();
        let gap = word::tagged(word::GAP, WalkEnd::UnknownProcess as u64);
        let words = [word::tagged(word::EXACT, 0x1000), gap];
        let samples = [(EXECUTES, 10), (EXECUTES, 30), (GAVE_WAY, 30), (WITHOUT_ROOM, 30), (EXECUTES, 50)];
        for (sequence, (pid, time_ns)) in (1..).zip(samples) {
            let header = RecordHeader { sequence, time_ns, ..RecordHeader::default() };
            let native_end = WalkEnd::UnknownProcess as u8;
            let sample =
                StackSample { header, pid, tid: pid, period: 1, native_end, ..StackSample::default() };
            encode::sample(&mut bytes, &sample, &[], &words);
        }
        let header = RecordHeader { kind: kind::EXEC, sequence: 6, time_ns: 40, ..RecordHeader::default() };
        let comm = encode::comm("other");
        encode::process_event(&mut bytes, &ProcessEvent { header, pid: EXECUTES, parent: 0, comm });
        bytes
    }

    /// Stacks with their samples, and what they lack with how often.
    fn stacks_and_gaps(profile: &Profile) -> Vec<String> {
        let mut lines = Vec::new();
        for (node, samples) in profile.tree.cells(Metric::Samples) {
            let frames = profile.tree.stack(node).into_iter().map(|frame| profile.frames.get(frame));
            let labels: Vec<String> = frames.map(|frame| frame.label(&profile.strings, false)).collect();
            lines.push(format!("{} {}", labels.join(";"), samples.sum));
        }
        for row in profile.ledger.rows().into_iter().filter(|row| row.stage == Stage::Resolve.name()) {
            lines.push(format!("{} {}", row.reason, row.count));
        }
        lines.sort_unstable();
        lines
    }

    #[test]
    fn a_replay_knows_as_the_capture_who_was_refused() {
        let refused = [
            (EXECUTES, ProcessRefusal::OverShare),
            (GAVE_WAY, ProcessRefusal::GaveWay),
            (WITHOUT_ROOM, ProcessRefusal::NoRoom),
        ]
        .map(|(pid, refusal)| RefusedProcess { pid, since_ns: 20, refusal });
        let (sender, messages) = unbounded();
        sender.send(Message::Records(records())).unwrap();
        sender.send(Message::Refused(Refusals { processes: refused.into(), left_out: 3 })).unwrap();
        drop(sender);
        let copy = Arc::new(Mutex::new(RawWriter::new(Vec::new()).unwrap()));
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(RawCopy(Arc::clone(&copy)))];
        let session = Session::start(messages, Options { sinks, ..Options::default() }).unwrap();
        let live = session.finish(None).unwrap().profile;

        let bytes = lock(&copy).take();
        let mut reader = RawReader::new(&bytes[..]).unwrap();
        let replayed = replay(&mut reader, Meta::default(), DebugInfo::default()).unwrap().profile;
        let keys = ["process-over-share", "process-gave-way", "process-without-room", "unknown-process"];
        for profile in [&live, &replayed] {
            let gaps = &profile.ledger.stage(Stage::Resolve).gaps;
            assert_eq!(keys.map(|key| gaps.count(key)), [1, 1, 1, 2]);
            assert_eq!(profile.ledger.stage(Stage::Kernel).gaps.count("refusals-forgotten"), 3);
        }
        assert_eq!(stacks_and_gaps(&replayed), stacks_and_gaps(&live));
    }
}
