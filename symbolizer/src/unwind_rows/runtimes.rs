//! What a runtime's own tables and names add to a file's FDEs.
//!
//! Owns: which of the sources below a file has. Because: these runtimes switch stacks by hand, and their FDEs promise
//! a caller where there is none, or the wrong one. Does not: know Go's functions ([`super::go`]) or those of
//! `greenlet` ([`super::greenlet`]), or form pages ([`super::assemble`]).

use super::elf::Image;
use super::frames::Slice;
use super::go::GoRows;
use super::sections::{Sections, bytes_at};
use super::stats::{BuildStats, Count};
use super::uncovered::ReadAt;
use super::{Limits, go, greenlet};
use crate::pclntab::{Pclntab, PclntabSection};

/// Largest table of Go functions that is read: Kubernetes' largest program has 40 MiB.
const PCLNTAB_BYTES_MAX: u64 = 256 << 20;

/// Rows from runtimes.
#[derive(Debug, Default)]
pub(super) struct Runtimes {
    /// Functions whose rows override frame descriptions.
    pub(super) marked: Option<Slice>,
    /// Rows that only fill gaps of frame descriptions.
    pub(super) stated: Option<Slice>,
}

impl Runtimes {
    /// Reads the tables of known runtimes. `headers`: the bytes of the file's headers; `file`: all others.
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
        Self { marked: greenlet::rows(&sections, file, image, stats), stated: None }
    }
}
