//! Tracks: which thread, process or counter an event of a track is of.
//!
//! Owns: [`Tracks`]. Because: an event names its track, a track its parent, and some ancestor is a thread or a
//! process; our own exports say what each track is of. Does not: read events.

use rustc_hash::FxHashMap;

use crate::proto::perfetto::TrackDescriptor;

/// Maximum tracks of a file: a viewer draws a row for each.
const TRACKS_MAX: usize = 1 << 20;
/// Maximum nesting of tracks.
const DEPTH_MAX: usize = 64;

/// The tracks of a file.
#[derive(Default)]
pub(super) struct Tracks {
    numbers: FxHashMap<u64, u32>,
    uuids: Vec<u64>,
    described: FxHashMap<u64, TrackDescriptor>,
}

/// A process of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProcessKey {
    /// By its track: on two machines, two processes may have one number.
    Track(u64),
    /// By its number, which only a thread states.
    Number(i32),
}

/// The tracks above an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrackPlace {
    pub(super) process: String,
    pub(super) thread: String,
    /// Whether its slices are time of a thread, or of a process drawn as one.
    pub(super) is_of_thread: bool,
    pub(super) name: String,
}

impl Tracks {
    /// The number of a track; `None` if there are too many.
    pub(super) fn number(&mut self, uuid: u64) -> Option<u32> {
        if let Some(number) = self.numbers.get(&uuid) {
            return Some(*number);
        }
        if self.uuids.len() >= TRACKS_MAX {
            return None;
        }
        let number = self.uuids.len() as u32;
        self.numbers.insert(uuid, number);
        self.uuids.push(uuid);
        Some(number)
    }

    /// The id with this number.
    pub(super) fn uuid(&self, number: u32) -> u64 {
        self.uuids.get(number as usize).copied().unwrap_or(0)
    }

    /// The ids of all tracks with events, by number.
    pub(super) fn with_events(&self) -> &[u64] {
        &self.uuids
    }

    /// The process of a track, and its number.
    pub(super) fn process(&self, uuid: u64) -> Option<(ProcessKey, i32)> {
        let all = || self.upwards(uuid).filter_map(|(uuid, of)| Some((uuid, of?)));
        let by_track = all().find_map(|(uuid, of)| Some((ProcessKey::Track(uuid), of.process.as_ref()?.pid)));
        by_track.or_else(|| {
            let pid = all().find_map(|(_, of)| Some(of.thread.as_ref()?.pid))?;
            Some((ProcessKey::Number(pid), pid))
        })
    }

    /// Adds a description of a track; fields set earlier win.
    pub(super) fn describe(&mut self, track: TrackDescriptor) {
        if self.described.len() < TRACKS_MAX || self.described.contains_key(&track.uuid) {
            self.described.entry(track.uuid).or_insert(track);
        }
    }

    /// The description of a track.
    pub(super) fn descriptor(&self, uuid: u64) -> Option<&TrackDescriptor> {
        self.described.get(&uuid)
    }

    /// A track and its ancestors.
    pub(super) fn upwards(&self, uuid: u64) -> impl Iterator<Item = (u64, Option<&TrackDescriptor>)> {
        let parent =
            |uuid: &u64| self.described.get(uuid).and_then(|of| of.parent_uuid).filter(|above| above != uuid);
        std::iter::successors(Some(uuid), move |uuid| parent(uuid))
            .take(DEPTH_MAX)
            .map(|uuid| (uuid, self.described.get(&uuid)))
    }

    /// The owner of an event on a track.
    pub(super) fn place(&self, uuid: u64) -> TrackPlace {
        let own = self.described.get(&uuid);
        let name = own.and_then(|of| of.name.clone().or(of.static_name.clone()));
        let name = name.unwrap_or_else(|| format!("track {uuid}"));
        let all = || self.upwards(uuid).filter_map(|(_, of)| of);
        if let Some(thread) = all().find_map(|of| of.thread.as_ref()) {
            let (process, thread) = (thread.pid.to_string(), thread.tid.to_string());
            return TrackPlace { process, thread, is_of_thread: true, name };
        }
        let process = all().find_map(|of| of.process.as_ref()).map(|process| process.pid.to_string());
        let is_of_thread = own.is_none_or(|of| of.process.is_some());
        TrackPlace { process: process.unwrap_or_default(), thread: name.clone(), is_of_thread, name }
    }
}
