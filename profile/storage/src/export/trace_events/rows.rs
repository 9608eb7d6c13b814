//! Rows of a file of events: threads and streams of every rank, each under its own numbers.
//!
//! Owns: [`Rows`]. Because: viewers group rows by process number, and two ranks may both have a process 1 and a
//! device 0. Does not: place events.

use rustc_hash::FxHashMap;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{Job, RankTrace, counter_process};

use crate::event_header::{LaneHeader, LaneOwner};

/// Numbers of synthetic processes: no system has a process beyond 2^22.
const OWN_NUMBERS: u64 = 1 << 23;
/// In Chrome's form: the id of a stream without a number.
const NO_STREAM: &str = "-1";

/// Longest text id of a process or a thread; readers keep as many characters.
const WORD_MAX: usize = 64;

/// A row.
pub(super) struct Row {
    pub(super) header: LaneHeader,
    /// Name of its process or device.
    pub(super) process_name: String,
    /// Its name.
    pub(super) name: String,
}

/// Numeric ids of a row and its process.
struct Numbers {
    pid: String,
    tid: String,
}

/// Display names of a row and its process.
struct Names {
    process: String,
    row: String,
}

/// The rows of a file.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    places: FxHashMap<(usize, LaneOwner), usize>,
    /// By rank, indices of its threads and streams.
    threads: Vec<Vec<usize>>,
    streams: Vec<Vec<usize>>,
    /// By rank and device, the index of the row for operations without a stream.
    devices: FxHashMap<(usize, u32), usize>,
    /// Synthetic numbers by rank and name: of processes, if the file has several ranks, and where an own one is too
    /// long.
    numbers: FxHashMap<(usize, String), u64>,
    has_several: bool,
}

impl Rows {
    pub(super) fn of(job: &Job) -> Self {
        let has_several = job.ranks().len() > 1;
        let mut rows = Rows {
            rows: Vec::new(),
            places: FxHashMap::default(),
            threads: Vec::new(),
            streams: Vec::new(),
            devices: FxHashMap::default(),
            numbers: FxHashMap::default(),
            has_several,
        };
        for (rank, of) in job.ranks().iter().enumerate() {
            rows.add_rank(rank, of);
        }
        rows
    }

    fn add_rank(&mut self, rank: usize, of: &RankTrace) {
        let trace = &of.trace;
        let of_rank = if self.has_several { format!("rank {} ", of.rank) } else { String::new() };
        let mut threads = Vec::new();
        for thread in trace.threads() {
            let (process, thread) =
                (trace.name(thread.process).to_owned(), trace.name(thread.thread).to_owned());
            let process_name = format!("{of_rank}process {}", clean(&process));
            let name = format!("thread {}", clean(&thread));
            let numbers = Numbers { pid: self.process(rank, &process), tid: self.thread_word(rank, &thread) };
            let names = Names { process: process_name, row: name };
            threads.push(self.add(rank, LaneOwner::Thread { process, thread }, numbers, names));
        }
        self.threads.push(threads);
        let mut streams = Vec::new();
        for stream in trace.streams() {
            streams.push(self.stream(rank, &of_rank, stream.device, stream.stream));
        }
        self.streams.push(streams);
        // A synchronization without a stream is on the row of its device.
        for (_, sync) in trace.syncs.iter() {
            let device = sync.recorded_on.and_then(|stream| trace.streams().get(stream.index()));
            let device = device.map_or(0, |stream| stream.device);
            if sync.stream.is_none() && !self.devices.contains_key(&(rank, device)) {
                let place = self.stream(rank, &of_rank, device, None);
                self.devices.insert((rank, device), place);
            }
        }
        for (_, step) in trace.counters.iter() {
            let process = trace.name(step.process).to_owned();
            let process_name = format!("{of_rank}process {}", clean(&process));
            let numbers = Numbers { pid: self.process(rank, &process), tid: "0".to_owned() };
            let of = LaneOwner::Counters { counters_of: process };
            self.add(rank, of, numbers, Names { process: process_name, row: "counters".to_owned() });
        }
    }

    fn stream(&mut self, rank: usize, of_rank: &str, device: u32, stream: Option<u64>) -> usize {
        let process = if self.has_several {
            self.number(rank, format!("GPU {device}")).to_string()
        } else {
            device.to_string()
        };
        // Perfetto keeps 32 bits of these numbers in Chrome's form; streams of several contexts have more.
        let thread = match stream {
            None => NO_STREAM.to_owned(),
            Some(stream) if stream <= u64::from(u32::MAX) => stream.to_string(),
            Some(stream) => self.number(rank, format!("GPU {device} stream {stream}")).to_string(),
        };
        let name = stream.map_or_else(|| "no stream".to_owned(), |stream| format!("stream {stream}"));
        let names = Names { process: format!("{of_rank}GPU {device}"), row: name };
        self.add(rank, LaneOwner::Stream { device, stream }, Numbers { pid: process, tid: thread }, names)
    }

    /// Id of a process in the file: its own or, with several ranks, a synthetic number.
    fn process(&mut self, rank: usize, process: &str) -> String {
        let is_own = self.has_several || process.chars().count() > WORD_MAX;
        if is_own { self.number(rank, process.to_owned()).to_string() } else { process.to_owned() }
    }

    /// Id of a thread in the file.
    fn thread_word(&mut self, rank: usize, thread: &str) -> String {
        let is_own = thread.chars().count() > WORD_MAX;
        if is_own { self.number(rank, format!("thread {thread}")).to_string() } else { thread.to_owned() }
    }

    fn number(&mut self, rank: usize, name: String) -> u64 {
        let next = OWN_NUMBERS + self.numbers.len() as u64;
        *self.numbers.entry((rank, name)).or_insert(next)
    }

    fn add(&mut self, rank: usize, of: LaneOwner, numbers: Numbers, names: Names) -> usize {
        if let Some(place) = self.places.get(&(rank, of.clone())) {
            return *place;
        }
        let place = self.rows.len();
        self.places.insert((rank, of.clone()), place);
        let Numbers { pid, tid } = numbers;
        let header = LaneHeader { pid, tid, uuid: place as u64 + 1, rank, of };
        let Names { process, row } = names;
        self.rows.push(Row { header, process_name: process, name: row });
        place
    }

    pub(super) fn headers(&self) -> Vec<LaneHeader> {
        self.rows.iter().map(|row| row.header.clone()).collect()
    }

    /// The row of a thread, by its index in the trace.
    pub(super) fn thread(&self, rank: usize, thread: usize) -> usize {
        self.threads[rank][thread]
    }

    /// The row of a stream, by its index in the trace.
    pub(super) fn of_stream(&self, rank: usize, stream: usize) -> usize {
        self.streams[rank][stream]
    }

    /// The row for operations without a stream.
    pub(super) fn device(&self, rank: usize, device: u32) -> usize {
        self.devices.get(&(rank, device)).copied().unwrap_or(0)
    }

    /// A row of a process of the profile: the file may have another number for it.
    pub(super) fn of_process(&self, pid: u32) -> Option<&Row> {
        let process = counter_process(pid);
        let is_its = |row: &&Row| match &row.header.of {
            LaneOwner::Thread { process: of, .. } | LaneOwner::Counters { counters_of: of } => *of == process,
            LaneOwner::Stream { .. } | LaneOwner::Counter { .. } => false,
        };
        self.rows.iter().find(is_its)
    }

    /// The row of a process's counters.
    pub(super) fn counters(&self, rank: usize, process: &str) -> usize {
        let of = LaneOwner::Counters { counters_of: process.to_owned() };
        self.places.get(&(rank, of)).copied().unwrap_or(0)
    }
}
