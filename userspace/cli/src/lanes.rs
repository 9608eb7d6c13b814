//! Lanes: the single events of a file, on one clock.
//!
//! Owns: reading them. Because: the view and the page draw the same lanes of the same files. Does not: draw.

use std::path::Path;
use std::sync::Arc;

use deepctx_analysis::over_time::JobClocks;
use deepctx_profile::trace::{EventLanes, Job};

/// Ranks that are named in a sentence.
const NAMED_MAX: usize = 16;

/// The lanes of a file; `None` if it is no trace or has no events. Totals then show everything.
pub(crate) fn read(path: &Path) -> Option<EventLanes> {
    job(path).and_then(of_job)
}

/// The individual events of a file, if any.
pub(crate) fn job(path: &Path) -> Option<Arc<Job>> {
    // Input from a pipe was consumed when it was opened as a profile.
    if !path.is_file() && !path.is_dir() {
        return None;
    }
    deepctx_storage::open_traces(&[path.to_owned()]).ok().map(Arc::new)
}

/// The lanes of these events; `None` when there are none.
pub(crate) fn of_job(job: Arc<Job>) -> Option<EventLanes> {
    let clocks = JobClocks::of(&job);
    let lanes = EventLanes::with_unaligned(job, |rank| clocks.offset_ns(rank), clocks.unaligned.clone());
    (!lanes.lanes().is_empty()).then_some(lanes)
}

/// Which ranks' times cannot be compared with the first rank's, if any.
pub(crate) fn unaligned(job: &Job, clocks: &JobClocks) -> Option<String> {
    let ranks = &clocks.unaligned;
    let first = job.ranks().first()?.rank;
    let named: Vec<String> = ranks.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = if ranks.len() > NAMED_MAX { ", …" } else { "" };
    let named = named.join(", ");
    let have = if ranks.len() == 1 { "has a clock that is" } else { "have clocks that are" };
    (!ranks.is_empty()).then(|| {
        format!(
            "{} of {} ranks {have} not aligned with rank {first}'s, as no chain of collectives leads there: \
             {named}{more}",
            ranks.len(),
            job.ranks().len()
        )
    })
}
