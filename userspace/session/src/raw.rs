//! Raw: a file of the input of a session, to be replayed.
//!
//! Owns: the format, its writer and its reader. Because: a wrong stack that was seen once must become a test that
//! needs no kernel. Does not: interpret records; a replay takes the same path as a live capture.
//!
//! The file is the line `deepctx-raw 1`, followed by blocks: a tag of one byte, the length (four bytes, little-endian),
//! and the payload. Files that older versions wrote are read: fields that they lack have their defaults.
//!
//! | block | payload |
//! |---|---|
//! | `R` | records, as `deepctx_common::record` defines them |
//! | `S` | a JSON object `{"pid", "time_ns", "name"}`, a newline, then the executable lines of `/proc/PID/maps` |
//! | `W` | processes without unwind data: an object `{"processes": [{"pid", "since_ns", "refusal"}], "left_out"}` |
//! | `C` | the kernel programs' counters: u64, little-endian, by their numbers |
//! | `K` | names of kernels that were found in processes, as a JSON array of `{"pid", "handle", "name", …}` |
//! | `L` | lines of device code, as a JSON array of `{"pid", "crc", "because", "files", "functions"}` |
//! | `P` | probes, as a JSON array of `{"site", "event", "symbol", "family", "roles"}`, the events and roles by number |
//! | `N` | calls of each probe so far: u64, little-endian, by the probes' numbers |
//! | `F` | numbers of probes that were taken away, and that others will have: u32, little-endian |
//! | `E` | the time at which probes of calls were detached: u64, little-endian |
//! | `M` | what the machine did between two times, as a JSON object `{"from_ns", "to_ns", "values"}` |
//! | `T` | begin or end of a duty window, as a JSON object `{"time_ns", "watched", "budget", "what"}` |

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;

use deepctx_common::end::Counter;
use deepctx_events::{Event, Family, Role};
use deepctx_symbolizer::maps::{self, Backing, DeviceNumber, LineFilter, Maps};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use deepctx_pipeline::input::{Input, KernelCounters, SiteInfo, Source, SpaceUpdate};

const MAGIC: &[u8] = b"deepctx-raw 1\n";
/// Largest block that is read: larger than one drain of a ring, and than the maps of a process.
const BLOCK_MAX: usize = 256 << 20;

/// Writes a raw capture.
#[derive(Debug)]
pub struct RawWriter<W: Write> {
    out: W,
}

impl RawWriter<Vec<u8>> {
    /// The bytes written since the last time.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Why a raw capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The file does not begin with the header of a raw capture.
    #[error("not a raw capture: it does not begin with `deepctx-raw 1`")]
    NotRaw,
    /// A block is invalid.
    #[error("block {block} is damaged: {because}")]
    Damaged {
        /// Its index.
        block: u64,
        /// What is wrong with it.
        because: &'static str,
    },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
struct SpaceHead {
    pid: u32,
    time_ns: u64,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct StoredSite {
    site: u32,
    event: u16,
    symbol: String,
    family: String,
    roles: Vec<u8>,
}

impl From<&SiteInfo> for StoredSite {
    fn from(site: &SiteInfo) -> Self {
        Self {
            site: site.site,
            event: site.event.number(),
            symbol: site.symbol.clone(),
            family: site.family.library().to_owned(),
            roles: site.roles.iter().map(|role| *role as u8).collect(),
        }
    }
}

impl From<StoredSite> for SiteInfo {
    /// An event that only an older or a newer version knows becomes a user-listed function; an unknown role becomes an
    /// unused argument.
    fn from(stored: StoredSite) -> Self {
        let role = |number: u8| Role::ALL.get(usize::from(number)).copied().unwrap_or(Role::Other);
        Self {
            site: stored.site,
            event: Event::from_number(stored.event).unwrap_or(Event::User),
            symbol: stored.symbol,
            family: Family::ALL.into_iter().find(|f| f.library() == stored.family).unwrap_or(Family::User),
            roles: stored.roles.into_iter().map(role).collect(),
        }
    }
}

impl<W: Write> RawWriter<W> {
    /// Begins a raw capture.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self { out })
    }

    /// Adds one input.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, input: &Input<Maps>) -> io::Result<()> {
        match input {
            Input::Records(bytes) => self.block(b'R', bytes),
            Input::Space(update) => {
                let head = SpaceHead { pid: update.pid, time_ns: update.time_ns, name: update.name.clone() };
                let mut payload = serde_json::to_vec(&head)?;
                payload.push(b'\n');
                write_maps(&update.maps, &mut payload);
                self.block(b'S', &payload)
            }
            Input::Refused(refusals) => self.block(b'W', &serde_json::to_vec(refusals)?),
            Input::Counters(counters) => {
                let payload: Vec<u8> = counters.iter().flat_map(|counter| counter.to_le_bytes()).collect();
                self.block(b'C', &payload)
            }
            Input::SiteCounts(counts) => {
                let payload: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
                self.block(b'N', &payload)
            }
            Input::SitesFreed(numbers) => {
                let payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                self.block(b'F', &payload)
            }
            Input::CallsEnd(time_ns) => self.block(b'E', &time_ns.to_le_bytes()),
            Input::Sites(sites) => {
                let stored: Vec<StoredSite> = sites.iter().map(StoredSite::from).collect();
                self.block(b'P', &serde_json::to_vec(&stored)?)
            }
            Input::Recovered(kernels) => self.block(b'K', &serde_json::to_vec(kernels)?),
            Input::Lines(lines) => self.block(b'L', &serde_json::to_vec(lines)?),
            Input::DutyWindow(window) => self.block(b'T', &serde_json::to_vec(window)?),
            Input::System(sample) => self.block(b'M', &serde_json::to_vec(sample)?),
        }
    }

    /// Flushes buffered bytes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn block(&mut self, tag: u8, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.out.write_all(&[tag])?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(payload)
    }
}

/// Lines as the kernel writes them.
fn write_maps(maps: &Maps, out: &mut Vec<u8>) {
    // A jitdump that is mapped executable is among the mappings already.
    for m in maps.mappings.iter().chain(maps.jitdumps.iter().filter(|dump| !dump.executable)) {
        let flag = |set, letter| if set { letter } else { '-' };
        let mut line = format!("{:x}-{:x} ", m.begin.0, m.end.0);
        line.extend([flag(m.readable, 'r'), flag(m.writable, 'w'), flag(m.executable, 'x'), 'p']);
        // Writing to a String cannot fail.
        let DeviceNumber { major, minor } = m.device;
        let _ = write!(line, " {:08x} {major:02x}:{minor:02x} {} ", m.offset.0, m.inode);
        out.extend_from_slice(line.as_bytes());
        for byte in m.path.as_bytes() {
            match byte {
                b'\n' => out.extend_from_slice(b"\\012"),
                byte => out.push(*byte),
            }
        }
        if m.backing == Backing::DeletedFile {
            out.extend_from_slice(b" (deleted)");
        }
        out.push(b'\n');
    }
}

/// Reads a raw capture.
#[derive(Debug)]
pub struct RawReader<R: Read> {
    from: R,
    block: u64,
}

impl<R: Read> RawReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`RawError::NotRaw`], or when it cannot be read.
    pub fn new(mut from: R) -> Result<Self, RawError> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Ok(()) if magic == *MAGIC => Ok(Self { from, block: 0 }),
            Ok(()) => Err(RawError::NotRaw),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(RawError::NotRaw),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, because: &'static str) -> RawError {
        RawError::Damaged { block: self.block, because }
    }

    fn payload(&mut self, length: usize) -> Result<Vec<u8>, RawError> {
        if length > BLOCK_MAX {
            return Err(self.damaged("its length is larger than any block"));
        }
        // Grows as bytes arrive: a length alone must not allocate.
        let mut payload = Vec::new();
        self.from.by_ref().take(length as u64).read_to_end(&mut payload)?;
        if payload.len() < length { Err(self.damaged("the file ends within it")) } else { Ok(payload) }
    }

    fn parsed<T: DeserializeOwned>(&self, payload: &[u8], because: &'static str) -> Result<T, RawError> {
        serde_json::from_slice(payload).map_err(|_| self.damaged(because))
    }

    fn space(&self, payload: &[u8]) -> Result<Input<Maps>, RawError> {
        let head_end = payload.iter().position(|byte| *byte == b'\n');
        let head_end = head_end.ok_or_else(|| self.damaged("it has no header"))?;
        let head: SpaceHead = self.parsed(&payload[..head_end], "its header cannot be parsed")?;
        let maps = maps::parse(&payload[head_end + 1..], LineFilter::Executable);
        Ok(Input::Space(SpaceUpdate { pid: head.pid, time_ns: head.time_ns, name: head.name, maps }))
    }
}

impl<R: Read> Source<Maps> for RawReader<R> {
    type Error = RawError;

    fn next_input(&mut self) -> Result<Option<Input<Maps>>, RawError> {
        let mut tag = [0];
        if self.from.read(&mut tag)? == 0 {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.from.read_exact(&mut length).map_err(|_| self.damaged("the file ends within its length"))?;
        let payload = self.payload(u32::from_le_bytes(length) as usize)?;
        let input = match tag[0] {
            b'R' => Input::Records(payload),
            b'S' => self.space(&payload)?,
            b'W' => Input::Refused(self.parsed(&payload, "its refused processes cannot be parsed")?),
            b'C' => {
                let mut counters: KernelCounters = [0; Counter::ALL.len()];
                for (counter, bytes) in counters.iter_mut().zip(payload.chunks_exact(8)) {
                    *counter = bytes.try_into().map_or(0, u64::from_le_bytes);
                }
                Input::Counters(counters)
            }
            b'N' => {
                let counts = payload.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok());
                Input::SiteCounts(counts.map(u64::from_le_bytes).collect())
            }
            b'F' => {
                let numbers = payload.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok());
                Input::SitesFreed(numbers.map(u32::from_le_bytes).collect())
            }
            b'E' => {
                let time = payload
                    .try_into()
                    .map_err(|_| self.damaged("the end of its calls has the wrong size"))?;
                Input::CallsEnd(u64::from_le_bytes(time))
            }
            b'P' => {
                let stored: Vec<StoredSite> = self.parsed(&payload, "its probes cannot be parsed")?;
                Input::Sites(stored.into_iter().map(SiteInfo::from).collect())
            }
            b'K' => Input::Recovered(self.parsed(&payload, "its kernels cannot be parsed")?),
            b'L' => Input::Lines(self.parsed(&payload, "its lines of device code cannot be parsed")?),
            b'T' => Input::DutyWindow(self.parsed(&payload, "its duty window cannot be parsed")?),
            b'M' => Input::System(self.parsed(&payload, "what the machine did cannot be parsed")?),
            _ => return Err(self.damaged("its tag is unknown")),
        };
        self.block += 1;
        Ok(Some(input))
    }
}

#[cfg(test)]
mod tests {
    use deepctx_events::{GpuCall, LaunchCall};
    use proptest::prelude::*;

    use super::*;

    use deepctx_pipeline::input::{
        CodeFacts, CubinLines, ProcessRefusal, RecoveredKernel, Refusals, RefusedProcess,
    };
    use deepctx_pipeline::system::{SystemSample, SystemValue};

    const MAPS: &str = "\
55d0a0000000-55d0a0001000 r-xp 00001000 fe:01 42 /usr/bin/a b
7f0000000000-7f0000002000 r-xp 00000000 fe:01 43 /tmp/gone\\012line (deleted)
7f0000010000-7f0000011000 rwxp 00000000 00:00 0 
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]
";

    fn inputs() -> Vec<Input<Maps>> {
        let maps = maps::parse(MAPS.as_bytes(), LineFilter::Executable);
        assert_eq!(maps.mappings.len(), 4);
        vec![
            Input::Space(SpaceUpdate { pid: 7, time_ns: 5, name: "a \"b\"\n".into(), maps }),
            Input::Records(vec![1, 2, 3]),
            Input::Refused(Refusals {
                processes: [ProcessRefusal::NoRoom, ProcessRefusal::OverShare, ProcessRefusal::GaveWay]
                    .map(|refusal| RefusedProcess { pid: u32::MAX, since_ns: u64::MAX, refusal })
                    .into(),
                left_out: u64::MAX,
            }),
            Input::Counters([9; Counter::ALL.len()]),
            Input::SiteCounts(vec![0, 7, u64::MAX]),
            Input::SitesFreed(vec![0, 7, u32::MAX]),
            Input::CallsEnd(u64::MAX - 1),
            Input::Lines(vec![CubinLines {
                pid: 7,
                crc: u64::MAX,
                because: String::new(),
                files: vec!["/a;b.cu".into()],
                functions: [("_Z4gemmPf".to_owned(), vec![(0, 0, 5), (16, 0, 0)])].into(),
                waits: [("_Z4gemmPf".to_owned(), vec![(16, vec![0], 0), (32, Vec::new(), 1)])].into(),
                waits_left_out: u64::MAX,
            }]),
            Input::Recovered(vec![RecoveredKernel {
                pid: 7,
                handle: u64::MAX,
                asked_ns: 5,
                read_ns: 6,
                name: "_Z4gemmPf".into(),
                code: CodeFacts { arch: Some(80), registers: Some(10), static_shared: None },
            }]),
            Input::Sites(vec![SiteInfo {
                site: 3,
                event: Event::Gpu(GpuCall::Launch(LaunchCall::KernelEx)),
                symbol: "cuLaunchKernelEx_ptsz".into(),
                family: Family::CudaDriver,
                roles: vec![Role::Config, Role::Function, Role::GridX],
            }]),
            Input::System(SystemSample {
                from_ns: 5,
                to_ns: u64::MAX,
                values: vec![SystemValue {
                    resource: "cpu 3".into(),
                    metric: "of a newer one".into(),
                    value: 7,
                }],
            }),
            Input::Records(Vec::new()),
        ]
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = RawWriter::new(&mut bytes).unwrap();
        inputs().iter().for_each(|input| writer.write(input).unwrap());
        writer.finish().unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Input<Maps>>, RawError> {
        let mut reader = RawReader::new(bytes)?;
        let mut inputs = Vec::new();
        while let Some(input) = reader.next_input()? {
            inputs.push(input);
        }
        Ok(inputs)
    }

    #[test]
    fn written_input_is_read_back() {
        assert_eq!(read(&written()).unwrap(), inputs());
    }

    /// Every kind of block, as earlier versions wrote them.
    const FIXTURE: &[u8] = include_bytes!("../fixtures/every_block.raw");

    #[test]
    fn raw_captures_of_earlier_versions_are_read() {
        let inputs = read(FIXTURE).unwrap();
        let [
            Input::Space(space),
            Input::Sites(sites),
            Input::Records(records),
            Input::SiteCounts(counts),
            Input::Recovered(kernels),
            Input::Lines(lines),
            Input::DutyWindow(window),
            Input::CallsEnd(40),
            Input::Counters(counters),
        ] = &inputs[..]
        else {
            panic!("{inputs:?}")
        };
        assert_eq!((space.pid, space.name.as_str(), space.maps.mappings.len()), (7, "train", 1));
        assert_eq!(sites[0].event.number(), 257);
        assert_eq!(
            (sites[0].family, &sites[0].roles[..]),
            (Family::CudaDriver, &[Role::Function, Role::GridX][..])
        );
        assert_eq!((sites[1].event, records.len(), &counts[..]), (Event::User, 3 * 48, &[3, 1][..]));
        assert_eq!((kernels[0].handle, kernels[0].name.as_str()), (4096, "_Z4gemmPf"));
        assert_eq!(lines[0].at("_Z4gemmPf", 4).map(|(file, line)| (file, line.get())), Some(("/a.cu", 5)));
        assert_eq!((window.watched, window.what.as_str(), counters[0]), (true, "operators", 3));
    }

    #[test]
    fn retired_event_is_read_as_user_probe() {
        let retired = 17 << 8 | 8;
        let site = format!(
            r#"[{{"site":0,"event":{retired},"symbol":"train.py:step","family":"user","roles":[1]}}]"#
        );
        let length = (site.len() as u32).to_le_bytes();
        let inputs = read(&[MAGIC, b"P", &length, site.as_bytes()].concat()).unwrap();
        let [Input::Sites(sites)] = &inputs[..] else { panic!("{inputs:?}") };
        assert_eq!((sites[0].event, sites[0].symbol.as_str()), (Event::User, "train.py:step"));
    }

    #[test]
    fn refusals_keep_their_form() {
        let read_block = |json: &str| {
            let length = (json.len() as u32).to_le_bytes();
            read(&[MAGIC, b"W", &length, json.as_bytes()].concat())
        };
        let check = |word: &str, refusal: ProcessRefusal| {
            let json = format!(r#"{{"processes":[{{"pid":7,"since_ns":5,"refusal":"{word}"}}]}}"#);
            let processes = vec![RefusedProcess { pid: 7, since_ns: 5, refusal }];
            assert_eq!(read_block(&json).unwrap(), [Input::Refused(Refusals { processes, left_out: 0 })]);
        };
        check("no-room", ProcessRefusal::NoRoom);
        check("over-share", ProcessRefusal::OverShare);
        check("gave-way", ProcessRefusal::GaveWay);
        let deep = format!(r#"{{"newer":{}"#, "[".repeat(1 << 20));
        for damaged in ["", r#"{"processes":[{"pid":7}]}"#, deep.as_str()] {
            assert!(matches!(read_block(damaged), Err(RawError::Damaged { block: 0, .. })));
        }
    }

    #[test]
    fn truncated_files_are_reported() {
        let bytes = written();
        assert!(matches!(read(&bytes[..5]), Err(RawError::NotRaw)));
        assert!(matches!(read(&bytes[..bytes.len() - 1]), Err(RawError::Damaged { .. })));
        assert!(matches!(read(b"deepctx-raw 1\nX\0\0\0\0"), Err(RawError::Damaged { block: 0, .. })));
        assert!(matches!(read(b"deepctx-raw 1\nR\xff\xff\xff\xff"), Err(RawError::Damaged { block: 0, .. })));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..400, value: u8) {
            let _ = read(&[MAGIC, &bytes].concat());
            let mut damaged = written();
            let at = at % damaged.len();
            damaged[at] = value;
            let _ = read(&damaged);
        }
    }
}
