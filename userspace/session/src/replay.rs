//! Replay: a profile of recorded input, resolved now.
//!
//! Owns: feeding a source to a pipeline to its end. Because: a stack that came out wrong must be reproducible without
//! its process. Names are looked up in files as they are now; Python names, which only the process knew, stay
//! unknown. The profiler's own processes have their stacks, and why others had no unwind data is not known. Does not:
//! differ from a live session in anything else.

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
    let newest = Time::from_nanos(pipeline.newest_ns());
    Ok(ReplayResult { profile: pipeline.into_profile(), newest })
}
