//! What a runtime's own tables and names say of a file's functions beyond its frame descriptions.
//!
//! Owns: which of the sources below a file has; which function of `greenlet` begins a stack of its own. Because: these
//! runtimes change stacks by hand, and their frame descriptions promise a caller where there is none, or none that is
//! theirs. Does not: know Go's functions ([`super::go`]), or form pages ([`super::assemble`]).

use super::elf::Image;
use super::frames::Slice;
use super::go::GoRows;
use super::new_rows::Rows;
use super::rules::END;
use super::sections::{Sections, bytes_at, dynamic_functions};
use super::stats::{BuildStats, Count};
use super::uncovered::ReadAt;
use super::{Limits, go};
use crate::pclntab::{Pclntab, PclntabSection};

/// Largest table of Go functions that is read: Kubernetes' largest program has 40 MiB.
const PCLNTAB_BYTES_MAX: u64 = 256 << 20;

/// `greenlet::UserGreenlet::inner_bootstrap`, mangled, without its parameters: it runs on the stack of the new greenlet
/// and never returns. Below it the stack is that of whoever runs now.
const GREENLET_OUTERMOST: &[u8] = b"_ZN8greenlet12UserGreenlet15inner_bootstrap";

/// What runtimes say.
#[derive(Debug, Default)]
pub(super) struct Runtimes {
    /// Functions that go before their frame descriptions.
    pub(super) marked: Option<Slice>,
    /// Rows of functions that no frame description may cover.
    pub(super) stated: Option<Slice>,
}

impl Runtimes {
    /// Reads what there is. `headers`: the bytes of the file's headers; `file`: all others.
    pub(super) fn read(
        headers: &[u8],
        file: &dyn ReadAt,
        image: &Image<'_>,
        limits: &Limits,
        stats: &mut BuildStats,
    ) -> Self {
        if let Some(PclntabSection { range, text }) =
            PclntabSection::of(headers, &|range| file.read_at(range))
        {
            let bytes = bytes_at(range, file, PCLNTAB_BYTES_MAX);
            let table = bytes.as_deref().map(|bytes| Pclntab::parse(bytes, text));
            return match table {
                Some(Ok(table)) => {
                    let GoRows { marked, stated } = go::rows(&table, headers, file, image, limits, stats);
                    Self { marked, stated }
                }
                _ => {
                    stats.add(Count::UnreadableSections, 1);
                    Self::default()
                }
            };
        }
        let sections = Sections::of(headers).unwrap_or_default();
        Self { marked: greenlet(&sections, file, image, stats), stated: None }
    }
}

/// Where greenlets begin, if this is `greenlet`'s library.
fn greenlet(
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
    stats: &mut BuildStats,
) -> Option<Slice> {
    let mut rows = Rows::new();
    for function in dynamic_functions(sections, file, image, |name| name.starts_with(GREENLET_OUTERMOST)) {
        rows.push(function.start, function.end, END);
        stats.add(Count::OutermostMarked, 1);
    }
    rows.finish()
}
