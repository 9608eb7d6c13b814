//! Files: the text of source files, for the source view.
//!
//! Owns: finding a file in the mount namespace of its process, reading it off the screen's thread, and saying why
//! that failed. Because: the paths come from another process, which may run in a container, name a device, or lie.
//! Does not: show anything.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use deepctx_profile::view::Request;
use deepctx_profile::view::snapshot::{NoText, Snapshot, Snapshots, SourcePlace, SourceText};
use deepctx_symbolizer::{NoSymbol, maps};
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Maximum file size. Hand-written source files are far smaller, and generated code of this size is not read line by
/// line.
const BYTES_MAX: u64 = 8 << 20;
/// Bytes that are checked for binary content.
const LOOKED_AT: usize = 8 << 10;

/// How to find files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Whether process ids belong to running processes, so that their file system view can be used.
    pub running: bool,
    /// Start of the capture, in nanoseconds since 1970 UTC: a file changed later is not the one that ran.
    pub began_ns: u64,
}

/// Reads files on a separate thread.
#[derive(Debug)]
pub(crate) struct Files {
    requests: Sender<SourcePlace>,
    answers: Receiver<(SourcePlace, Arc<SourceText>)>,
    asked: Option<SourcePlace>,
}

impl Files {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be created.
    pub(crate) fn start(places: Places) -> std::io::Result<Self> {
        // One request per opened file; only the newest is answered.
        let (requests, received) = unbounded::<SourcePlace>();
        let (answer, answers) = bounded(1);
        std::thread::Builder::new().name("files".into()).spawn(move || {
            while let Ok(first) = received.recv() {
                let place = received.try_iter().last().unwrap_or(first);
                let text = Arc::new(read(&place, places));
                if answer.send((place, text)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers, asked: None })
    }

    fn text(&mut self, place: &SourcePlace) -> Option<Arc<SourceText>> {
        let same = |other: &SourcePlace| other.file == place.file && other.pid == place.pid;
        if !self.asked.as_ref().is_some_and(same) {
            self.asked = Some(place.clone());
            // The thread lives as long as this value; once it ends, no screen waits for an answer.
            let _ = self.requests.send(place.clone());
        }
        let answer = self.answers.try_iter().filter(|(of, _)| same(of)).last();
        if answer.is_some() {
            // Read again when opened again: it may have changed.
            self.asked = None;
        }
        answer.map(|(_, text)| text)
    }
}

/// Snapshots of another source, with source files added.
#[derive(Debug)]
pub(crate) struct SourceFileSnapshots<S> {
    /// Source of the snapshots.
    pub pictures: S,
    /// Source of the file texts.
    pub files: Files,
}

impl<S: Snapshots> Snapshots for SourceFileSnapshots<S> {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        self.pictures.latest(request)
    }

    fn text(&mut self, place: &SourcePlace) -> Option<Arc<SourceText>> {
        self.files.text(place)
    }

    fn live(&self) -> bool {
        self.pictures.live()
    }
}

/// Reads a source file, or returns why it cannot.
pub(crate) fn read(place: &SourcePlace, places: Places) -> SourceText {
    match try_read(place, places) {
        Ok(text) => text,
        Err(reason) => SourceText::Missing(reason),
    }
}

fn try_read(place: &SourcePlace, places: Places) -> Result<SourceText, NoText> {
    let path = &*place.file;
    // `<string>`, `<frozen importlib._bootstrap>`, `[vdso]`.
    if path.is_empty() || path.starts_with(['<', '[']) || path.contains('\0') {
        return Err(NoText::NotAFile);
    }
    let seen_by_it = if places.running && place.pid != 0 { open_in(place.pid, path) } else { None };
    let file = match seen_by_it {
        Some(opened) => opened.map_err(reason_in)?,
        // The process has ended or ran on another machine: this machine's file of that name is the best available.
        None => File::from(openat(CWD, path, FLAGS, Mode::empty()).map_err(reason)?),
    };
    let facts = file.metadata().map_err(|_| NoText::Unreadable)?;
    if !facts.is_file() {
        return Err(NoText::NotRegular);
    }
    if facts.len() > BYTES_MAX {
        return Err(NoText::TooLarge);
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(|_| NoText::Unreadable)?;
    if bytes.iter().take(LOOKED_AT).any(|byte| *byte == 0) {
        return Err(NoText::Binary);
    }
    let seconds = u64::try_from(facts.mtime()).unwrap_or(0);
    let modified_ns = seconds.saturating_mul(1_000_000_000);
    let lines = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
    Ok(SourceText::Lines { lines, changed: places.began_ns > 0 && modified_ns > places.began_ns })
}

/// Flags for files named by a process: a pipe or device must not block the thread or become our controlling terminal.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a path as a process sees it: below its root, which neither links nor `..` can escape, and relative to its
/// working folder; never waits for a user's file server. `None` when the process has ended.
fn open_in(pid: u32, path: &str) -> Option<Result<File, NoSymbol>> {
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    Some(maps::open_below_root(pid, &folder.join(path)))
}

fn reason_in(error: NoSymbol) -> NoText {
    match error {
        NoSymbol::ModuleMissing => NoText::NotFound,
        NoSymbol::NotRegularFile => NoText::NotRegular,
        _ => NoText::Unreadable,
    }
}

fn reason(error: rustix::io::Errno) -> NoText {
    match error {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => NoText::NotFound,
        // A socket, or a device without a driver.
        rustix::io::Errno::NXIO | rustix::io::Errno::NODEV => NoText::NotRegular,
        _ => NoText::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn at(path: &Path, pid: u32) -> SourcePlace {
        SourcePlace { file: path.to_string_lossy().into(), line: 1, pid }
    }

    const NOW: Places = Places { running: true, began_ns: 0 };

    #[test]
    fn source_lines_are_read_even_from_invalid_utf_8() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.py");
        fs::write(&path, b"one\n\ttwo \xff\nthree").unwrap();
        let SourceText::Lines { lines, changed } = read(&at(&path, 0), NOW) else { panic!("no text") };
        assert_eq!((lines, changed), (vec!["one".into(), "\ttwo \u{fffd}".into(), "three".into()], false));
        let long_ago = Places { running: false, began_ns: 1 };
        assert!(matches!(read(&at(&path, 0), long_ago), SourceText::Lines { changed: true, .. }));
    }

    #[test]
    fn a_path_is_looked_up_as_its_process_sees_it() {
        let pid = std::process::id();
        let absolute = std::env::current_dir().unwrap().join("Cargo.toml");
        for path in [absolute.as_path(), Path::new("Cargo.toml")] {
            assert!(matches!(read(&at(path, pid), NOW), SourceText::Lines { .. }), "{}", path.display());
        }
    }

    #[test]
    fn unreadable_sources_are_reported_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path, expected| {
            for pid in [0, std::process::id()] {
                assert_eq!(read(&at(path, pid), NOW), SourceText::Missing(expected), "{}", path.display());
            }
        };
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let binary = folder.path().join("binary");
        fs::write(&binary, b"\x7fELF\0\0").unwrap();
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(BYTES_MAX + 1).unwrap();
        check(&pipe, NoText::NotRegular);
        check(&binary, NoText::Binary);
        check(&large, NoText::TooLarge);
        check(folder.path(), NoText::NotRegular);
        check(&folder.path().join("none"), NoText::NotFound);
        check(Path::new("<frozen importlib._bootstrap>"), NoText::NotAFile);
        check(Path::new("/dev/zero"), NoText::NotRegular);
        check(Path::new("a\0b"), NoText::NotAFile);
        check(Path::new(""), NoText::NotAFile);
    }
}
