//! Why there are no figures, in words.
//!
//! Owns: [`not_measured_in_words`]. Because: several tables have rows without figures, and must state the cause alike.
//! Does not: decide what is measured.

use super::counted;
use crate::over_time::{LaneLoss, NotMeasured};

/// Maximum number of named lanes.
const LANES: usize = 3;

/// Why there are no figures.
pub(in crate::render) fn not_measured_in_words(because: &NotMeasured) -> String {
    let of_one_rank =
        because.lost.iter().all(|lost| Some(lost.rank) == because.lost.first().map(|of| of.rank));
    let lane = |lost: &LaneLoss| match of_one_rank {
        true => format!("{} of {}", lost.events, lost.lane),
        false => format!("{} of rank {} {}", lost.events, lost.rank, lost.lane),
    };
    let mut lanes: Vec<String> = because.lost.iter().take(LANES).map(lane).collect();
    if let more @ 1.. = because.lost.len().saturating_sub(LANES) {
        lanes.push(format!("{} more", counted(more as u64, "lane")));
    }
    format!("not measured: events were lost meanwhile ({})", lanes.join(", "))
}
