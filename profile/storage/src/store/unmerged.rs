//! Unmerged: segments whose merge failed.
//!
//! Owns: when they are tried again. Because: a disk that was full for an hour must not leave hundreds of files for the
//! rest of a capture of weeks, and a damaged file must not be read again and again. Does not: merge, or report.

use std::collections::BTreeMap;

use super::manifest::Segment;
use super::merge::NEVER;

/// Merges of a segment that may fail before it is left alone for good.
const FAILURES_MAX: u8 = 4;

/// The segments, by file name.
#[derive(Debug, Default)]
pub(super) struct Unmerged(BTreeMap<String, Failed>);

#[derive(Debug)]
struct Failed {
    /// Level before the first failure.
    level: u8,
    failures: u8,
}

impl Unmerged {
    /// A merge of these segments failed: they are left alone until another merge succeeds.
    pub(super) fn add(&mut self, segments: &mut [Segment], names: &[String]) {
        for segment in segments.iter_mut().filter(|segment| names.contains(&segment.file)) {
            let first = Failed { level: segment.level, failures: 0 };
            let failed = self.0.entry(segment.file.clone()).or_insert(first);
            failed.failures = failed.failures.saturating_add(1);
            segment.level = NEVER;
        }
    }

    /// A merge succeeded: segments are tried again, unless they failed too often.
    pub(super) fn retry(&self, segments: &mut [Segment]) {
        for segment in segments {
            if let Some(failed) = self.0.get(&segment.file)
                && failed.failures < FAILURES_MAX
            {
                segment.level = failed.level;
            }
        }
    }

    /// Whether the segment of this file is one of them.
    pub(super) fn contains(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    /// These segments were merged.
    pub(super) fn remove(&mut self, names: &[String]) {
        for name in names {
            self.0.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(file: &str, level: u8) -> Segment {
        Segment { table: "values".into(), file: file.into(), rows: 1, bytes: 1, crc32: 0, level }
    }

    #[test]
    fn a_segment_is_tried_again_a_few_times() {
        let mut segments = [segment("a", 2), segment("b", 0)];
        let names = ["a".to_owned()];
        let mut unmerged = Unmerged::default();
        for _ in 0..FAILURES_MAX - 1 {
            unmerged.add(&mut segments, &names);
            assert_eq!([segments[0].level, segments[1].level], [NEVER, 0]);
            unmerged.retry(&mut segments);
            assert_eq!([segments[0].level, segments[1].level], [2, 0]);
        }
        unmerged.add(&mut segments, &names);
        unmerged.retry(&mut segments);
        assert_eq!(segments[0].level, NEVER);
        assert!(unmerged.contains("a") && !unmerged.contains("b"));
    }

    #[test]
    fn a_merged_segment_is_forgotten() {
        let mut segments = [segment("a", 1)];
        let names = ["a".to_owned()];
        let mut unmerged = Unmerged::default();
        unmerged.add(&mut segments, &names);
        unmerged.remove(&names);
        unmerged.retry(&mut segments);
        assert_eq!(segments[0].level, NEVER);
    }
}
