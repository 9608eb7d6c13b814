//! Producers of what instructions wait for, to and from the manifest.
//!
//! Owns: [`StoredWait`]. Because: there are at most some thousand, whose frames are in the table of frames already, so
//! they are replaced as a whole with the manifest. Does not: touch files.

use serde::{Deserialize, Serialize};

use deepctx_profile::intern::FrameId;
use deepctx_profile::producers::Producers;

/// What one instruction waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredWait {
    /// Number of its frame on disk.
    frame: u32,
    /// Numbers of the frames that it waits for.
    waits_for: Vec<u32>,
}

/// Those of a profile.
pub(super) fn stored(producers: &Producers) -> Vec<StoredWait> {
    let wait = |(waiting, producers): (FrameId, &[FrameId])| StoredWait {
        frame: waiting.number(),
        waits_for: producers.iter().map(|producer| producer.number()).collect(),
    };
    producers.iter().map(wait).collect()
}

/// The profile's; `frame` maps a number on disk to its frame. What refers to lost frames is left out.
pub(super) fn restored(stored: &[StoredWait], frame: impl Fn(u32) -> Option<FrameId>) -> Producers {
    let mut producers = Producers::default();
    for StoredWait { frame: waiting, waits_for } in stored {
        let Some(waiting) = frame(*waiting) else { continue };
        for producer in waits_for.iter().filter_map(|number| frame(*number)) {
            producers.add(waiting, producer);
        }
    }
    producers
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::num::NonZeroU32;

    use super::*;
    use crate::store::{Writer, open, write_packed};
    use deepctx_profile::frame::Frame;
    use deepctx_profile::intern::StrId;
    use deepctx_profile::metric::Metric;
    use deepctx_profile::producers::{CANDIDATES_MAX, INSTRUCTIONS_MAX};
    use deepctx_profile::profile::Profile;
    use deepctx_profile::units::{Nanos, Time};

    /// An instruction that waits for one that has no samples of its own.
    fn profile() -> Profile {
        let mut profile = Profile::new(Default::default(), Default::default());
        let (kernel, file) = (profile.text("gemm"), profile.text("/src/gemm.cu"));
        let waiting =
            profile.frame(Frame::Instruction { kernel, offset: 32, file: StrId::EMPTY, line: None });
        let line = NonZeroU32::new(7);
        let producer = profile.frame(Frame::Instruction { kernel, offset: 16, file, line });
        profile.add(&[waiting], Metric::StallLongScoreboard, 3);
        profile.producers.add(waiting, producer);
        profile
    }

    /// Labels of all instructions and of what they wait for.
    fn labels(profile: &Profile) -> Vec<(String, Vec<String>)> {
        let label = |frame: FrameId| profile.frames.get(frame).label(&profile.strings, true);
        let wait = |(waiting, of): (FrameId, &[FrameId])| {
            (label(waiting), of.iter().map(|producer| label(*producer)).collect())
        };
        profile.producers.iter().map(wait).collect()
    }

    #[test]
    fn producers_come_back_from_folder_and_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("run.dctx"), folder.path().join("one.dctx"));
        let profile = profile();
        Writer::create(&path, &profile.meta).unwrap().finish(&profile, Time::from_nanos(2)).unwrap();
        write_packed(&profile, Nanos(2), &mut fs::File::create(&file).unwrap()).unwrap();
        let expect = labels(&profile);
        assert_eq!(expect, [("gemm+0x20".to_owned(), vec!["gemm+0x10 (gemm.cu:7)".to_owned()])]);
        for path in [&path, &file] {
            assert_eq!(labels(&open(path).unwrap().profile), expect);
        }
        // A profile of an older version has none.
        let manifest = path.join("manifest.json");
        let mut old: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        assert!(old.as_object_mut().unwrap().remove("producers").is_some());
        fs::write(&manifest, old.to_string()).unwrap();
        assert!(labels(&open(&path).unwrap().profile).is_empty());
    }

    #[test]
    fn hostile_producers_are_bounded() {
        let wait = |frame| StoredWait { frame, waits_for: (0..100).collect() };
        let stored: Vec<StoredWait> = (0..10_000).map(wait).collect();
        let read = restored(&stored, |number| Some(FrameId::from_number(number)));
        assert_eq!(read.iter().len(), INSTRUCTIONS_MAX);
        assert_eq!(read.of(FrameId::from_number(0)).len(), CANDIDATES_MAX);
        assert_eq!(restored(&stored, |_| None), Producers::default());
    }
}
