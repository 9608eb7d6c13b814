//! Step times, to and from the manifest.
//!
//! Owns: [`StoredPlace`]. Because: what is known of all places takes a few kilobytes, so it is replaced as a whole with
//! the manifest, and the numbers of buckets are nobody else's. Does not: touch files.

use serde::{Deserialize, Serialize};

use deepctx_profile::step_times::StepTimes;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

/// How often training steps of one place took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredPlace {
    /// Number of its context on disk.
    node: u32,
    /// The shortest time of each bucket in nanoseconds, ascending, and how many steps it has.
    buckets: Vec<(u64, u64)>,
    /// Times of the latest steps in nanoseconds, the last one last.
    latest: Vec<Nanos>,
}

/// Those of a profile.
pub(super) fn stored(times: &StepTimes) -> Vec<StoredPlace> {
    times
        .iter()
        .map(|(place, histogram)| StoredPlace {
            node: place.number(),
            buckets: histogram.buckets().map(|(least, steps)| (least.0, steps)).collect(),
            latest: times.latest(place).collect(),
        })
        .collect()
}

/// The profile's; `node` maps a number on disk to its context.
pub(super) fn restored(stored: &[StoredPlace], mut node: impl FnMut(u32) -> NodeId) -> StepTimes {
    let mut times = StepTimes::default();
    for StoredPlace { node: number, buckets, latest } in stored {
        let place = node(*number);
        for (least, steps) in buckets {
            times.add_steps(place, Nanos(*least), *steps);
        }
        latest.iter().for_each(|took| times.add_latest(place, *took));
    }
    times
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::store::{Writer, open, write_packed};
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::Profile;
    use deepctx_profile::step_times::{LATEST_MAX, PLACES_MAX};
    use deepctx_profile::units::Time;

    /// The profile, and the node at which its steps end.
    fn profile() -> (Profile, NodeId) {
        let mut profile = deepctx_profile::text::parse("P a-1 / y t.py:main:9 / r step 1").unwrap();
        let place = NodeId::from_number(3);
        for took in [80_000_000, 81_000_000, 104_000_000] {
            profile.add_step(place, Nanos(took));
        }
        (profile, place)
    }

    fn manifest(path: &Path) -> serde_json::Value {
        serde_json::from_slice(&fs::read(path.join("manifest.json")).unwrap()).unwrap()
    }

    #[test]
    fn times_of_steps_come_back_from_folder_and_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("run.dctx"), folder.path().join("one.dctx"));
        let (mut profile, place) = profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        writer.flush(&profile, Time::from_nanos(1)).unwrap();
        assert_eq!(open(&path).unwrap().profile.step_times, profile.step_times);
        profile.add_step(place, Nanos(7));
        writer.finish(&profile, Time::from_nanos(2)).unwrap();
        write_packed(&profile, Nanos(2), &mut fs::File::create(&file).unwrap()).unwrap();
        for path in [&path, &file] {
            let read = open(path).unwrap().profile;
            assert_eq!(read.step_times, profile.step_times);
            let cell = read.tree.exclusive(place, Metric::StepTime);
            let most = read.step_times.of(place).and_then(|times| times.percentile(100, &cell)).unwrap().most;
            assert_eq!(most, Nanos(104_000_000), "it is the longest step");
        }
        let stored = manifest(&path)["step_times"][0].clone();
        assert_eq!(stored["buckets"][0], serde_json::json!([7, 1]));
        assert_eq!(stored["latest"], serde_json::json!([80_000_000, 81_000_000, 104_000_000, 7]));
    }

    #[test]
    fn profiles_from_before_have_no_percentiles() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let (profile, place) = profile();
        Writer::create(&path, &profile.meta).unwrap().finish(&profile, Time::from_nanos(1)).unwrap();
        let mut old = manifest(&path);
        assert!(old.as_object_mut().unwrap().remove("step_times").is_some());
        fs::write(path.join("manifest.json"), old.to_string()).unwrap();
        let read = open(&path).unwrap().profile;
        assert_eq!(read.tree.exclusive(place, Metric::StepTime).count, 3);
        assert_eq!(read.step_times, StepTimes::default());
        // Merged with a later one, only a part of the steps has a bucket.
        let mut merged = read;
        merged.merge(&profile);
        let cell = merged.tree.exclusive(place, Metric::StepTime);
        assert_eq!(merged.step_times.of(place).map(|times| (cell.count, times.count())), Some((6, 3)));
        assert_eq!(merged.step_times.of(place).and_then(|times| times.percentile(50, &cell)), None);
    }

    #[test]
    fn hostile_times_of_steps_are_bounded() {
        let buckets = vec![(u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 1)];
        let latest = vec![Nanos(u64::MAX); 2 * LATEST_MAX];
        let place = |node| StoredPlace { node, buckets: buckets.clone(), latest: latest.clone() };
        let stored: Vec<StoredPlace> = (0..10_000).map(place).collect();
        let read = restored(&stored, NodeId::from_number);
        assert_eq!((read.iter().len(), read.refused()), (PLACES_MAX, u64::MAX));
        assert_eq!(read.latest(NodeId::ROOT).count(), LATEST_MAX);
    }
}
