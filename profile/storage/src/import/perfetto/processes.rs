//! Processes of a file of rocprofv3: each is a trace of its own.
//!
//! Owns: [`Processes`], and the bound on them. Because: each process counts its correlation ids from 1, and AMD's
//! converter (`rocpd convert`) writes all processes of a job into one file. Does not: read events.
//!
//! rocprofv3 itself writes a file for each process: where a file names one, tracks without a process are its own. Where
//! it names several, those are nobody's, and their ids join nothing.

use rustc_hash::FxHashMap;

use super::tracks::{ProcessKey, Tracks};

/// Maximum processes of a file, as of other formats: each is a trace.
const PROCESSES_MAX: usize = 1024;

/// The trace that has the events of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceOfTrack {
    /// The one of its process, by place.
    Trace(usize),
    /// The file has several processes, and does not say which.
    Unknown,
    /// None: it is of a process beyond the bound.
    LeftOut,
}

/// The processes of a file, in the order of their first events.
pub(super) struct Processes {
    places: FxHashMap<ProcessKey, usize>,
    pids: Vec<i32>,
    /// The track of each process with this number; `None` if several have it.
    tracks: FxHashMap<i32, Option<ProcessKey>>,
}

impl Processes {
    /// The processes of all tracks with events.
    pub(super) fn of(tracks: &Tracks) -> Self {
        let found = || tracks.with_events().iter().filter_map(|uuid| tracks.process(*uuid));
        let mut of_pids: FxHashMap<i32, Option<ProcessKey>> = FxHashMap::default();
        for (key, pid) in found().filter(|(key, _)| matches!(key, ProcessKey::Track(_))) {
            let known = of_pids.entry(pid).or_insert(Some(key));
            *known = known.filter(|known| *known == key);
        }
        let mut all = Processes { places: FxHashMap::default(), pids: Vec::new(), tracks: of_pids };
        for (key, pid) in found() {
            let key = all.resolved(key);
            if all.pids.len() < PROCESSES_MAX && !all.places.contains_key(&key) {
                all.places.insert(key, all.pids.len());
                all.pids.push(pid);
            }
        }
        all
    }

    /// A process that only a thread states is the one whose track has its number.
    fn resolved(&self, key: ProcessKey) -> ProcessKey {
        match key {
            ProcessKey::Track(_) => key,
            ProcessKey::Number(pid) => self.tracks.get(&pid).copied().flatten().unwrap_or(key),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.pids.len()
    }

    /// Their numbers; none if there are not several.
    pub(super) fn pids(&self) -> Vec<Option<u32>> {
        let pids = self.pids.iter().filter(|_| self.count() > 1);
        pids.map(|pid| u32::try_from(*pid).ok()).collect()
    }

    /// The trace of a track.
    pub(super) fn trace_of(&self, tracks: &Tracks, uuid: u64) -> TraceOfTrack {
        match tracks.process(uuid) {
            Some((key, _)) => {
                let place = self.places.get(&self.resolved(key)).copied();
                place.map_or(TraceOfTrack::LeftOut, TraceOfTrack::Trace)
            }
            None if self.count() > 1 => TraceOfTrack::Unknown,
            None => TraceOfTrack::Trace(0),
        }
    }
}
