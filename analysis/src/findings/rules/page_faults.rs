//! The operating system's kernel handling page faults.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

/// What it matches.
const PATH: &str = r"kernel:/^(asm_exc_page_fault|exc_page_fault|do_user_addr_fault|handle_mm_fault|do_page_fault|do_mem_abort)$/";

pub(super) const RULE: Rule = Rule {
    id: "page-faults",
    what: "time in which the kernel handles page faults",
    definition: "time below `exc_page_fault` and the like / all time ≥ `min_percent`; faults of files that are mapped \
                 to be read (imports of modules, models that are loaded) left out",
    source: "own rule",
    origin: "",
    needs: "samples with kernel frames",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "is page faults",
        figure: "time in page faults",
        advice: "Keep memory between steps: reuse buffers, preload jemalloc or tcmalloc, or raise \
                 M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.",
        because: "memory that stays mapped does not fault",
        // A mapped file has to fault once.
        unless: &[Class::Import, Class::CheckpointRead],
    }
    .outcome(facts, values)
}
