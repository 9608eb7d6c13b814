//! Triton's cache: the source lines of Triton kernels.
//!
//! Owns: which entries have a kernel of a name, and parsing its line from Triton's IR. Because: on a device such a
//! kernel has only the name of its function, and every program may have one of that name. Does not: know which entry
//! a process loaded: if the entries of a name differ, only their common part is used.
//!
//! ```text
//! CACHE/HASH/scale.json    scale.ttir    …
//!                          tt.func public @scale(%x: !tt.ptr<f32> loc("x"(#loc)), …) {
//!                            …
//!                          } loc(#loc)
//!                          #loc = loc("/srv/net.py":8:1)
//! ```

use std::sync::Arc;

use deepctx_address_space::Folder;
use deepctx_names::inductor::is_generated;
use rustc_hash::{FxHashMap, FxHashSet};

use super::device_kernels::{among, defined_at};
use super::inductor::operators_in_name;
use super::{Compiler, KernelOrigin, NoOrigin, Operator, OriginResult, Settings, SourceLine};

/// Most entries of the cache read: beyond that a name may have further entries.
const ENTRIES_MAX: usize = 1 << 13;
/// Most names of files looked at per scan: a user may have filled each entry with any number of them.
const NAMES_PER_SCAN: usize = 1 << 18;
/// Most entries of one name: one per specialization.
const SAME_NAME_MAX: usize = 256;
/// Largest file read: tens of kilobytes are usual.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Most aliases followed to a location.
const ALIASES_MAX: usize = 8;
/// Shortest time between two scans of the folder.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;
/// Prefix of the file that lists all others of an entry; written last.
const GROUP: &str = "__grp__";
/// The IR files with source lines, the preferred one first.
const FORMS: [&str; 2] = ["ttir", "source"];

/// The cache of one process.
#[derive(Debug)]
pub(super) struct Process {
    folder: Option<Folder>,
    /// Entries by the names of their kernels.
    entries: FxHashMap<String, Vec<String>>,
    /// Origins by name, with the number of entries that they were derived from.
    origins: FxHashMap<String, (usize, OriginResult)>,
    seen: FxHashSet<String>,
    /// There are more entries than are read.
    too_many: bool,
    /// The last scan ended before the last entry; the next one goes on.
    is_cut_off: bool,
    /// Most names looked at per scan.
    names_per_scan: usize,
    scanned_at_ns: Option<u64>,
}

impl Process {
    pub(super) fn new(pid: u32, settings: &Settings) -> Self {
        Self {
            folder: settings.triton.as_ref().and_then(|path| Folder::open(pid, path)),
            entries: FxHashMap::default(),
            origins: FxHashMap::default(),
            seen: FxHashSet::default(),
            too_many: false,
            is_cut_off: false,
            names_per_scan: NAMES_PER_SCAN,
            scanned_at_ns: None,
        }
    }

    /// The origin of the kernel with this name.
    pub(super) fn kernel(&mut self, time_ns: u64, name: &str) -> OriginResult {
        self.scan(time_ns);
        let Some(folder) = &self.folder else { return Err(NoOrigin::NoFiles) };
        // There may be another entry of this name.
        if self.too_many || self.is_cut_off {
            return Err(NoOrigin::Ambiguous);
        }
        let entries = self.entries.get(name).ok_or(NoOrigin::NotFound)?;
        if let Some((_, origin)) = self.origins.get(name).filter(|(of, _)| *of == entries.len()) {
            return origin.clone();
        }
        let origin = if entries.len() > SAME_NAME_MAX {
            Err(NoOrigin::Ambiguous)
        } else {
            common_origin(folder, name, entries)
        };
        self.origins.insert(name.to_owned(), (entries.len(), origin.clone()));
        origin
    }

    /// Scans for new entries.
    fn scan(&mut self, time_ns: u64) {
        if self.scanned_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < SCAN_INTERVAL_NS) {
            return;
        }
        self.scanned_at_ns = Some(time_ns);
        let Some(folder) = &self.folder else { return };
        self.is_cut_off = false;
        let mut names_read = 0;
        for entry in folder.names() {
            if entry.starts_with('.') || self.seen.contains(&entry) {
                continue;
            }
            self.too_many |= self.seen.len() >= ENTRIES_MAX;
            self.is_cut_off = names_read >= self.names_per_scan;
            if self.too_many || self.is_cut_off {
                return;
            }
            let Some(inner) = folder.subfolder(&entry) else { continue };
            let names = inner.names();
            names_read += names.len();
            let kernel = names.iter().find_map(|name| name.strip_prefix(GROUP)?.strip_suffix(".json"));
            // An incomplete entry is scanned again; an entry with a library has nothing else.
            if kernel.is_some() || names.iter().any(|name| name.ends_with(".so")) {
                if let Some(kernel) = kernel {
                    self.entries.entry(kernel.to_owned()).or_default().push(entry.clone());
                }
                self.seen.insert(entry);
            }
        }
    }
}

/// The origin that all entries of a name have in common.
fn common_origin(folder: &Folder, name: &str, entries: &[String]) -> OriginResult {
    let mut lines: Vec<SourceLine> = Vec::new();
    for entry in entries {
        let inner = folder.subfolder(entry);
        let read = |form: &&str| inner.as_ref()?.read(&format!("{name}.{form}"), TEXT_BYTES_MAX);
        let line = FORMS.iter().find_map(|form| parse_location(&String::from_utf8_lossy(&read(form)?), name));
        // An entry without a line may be from another location.
        let line = line.ok_or(NoOrigin::Ambiguous)?;
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let (first, rest) = lines.split_first().ok_or(NoOrigin::NotFound)?;
    if lines.iter().all(|line| is_generated(&line.file)) {
        // Inductor generated it: its name contains its operators in any case.
        let ops = operators_in_name(name).unwrap_or_default();
        let op = |operator| Operator { name: format!("aten::{operator}").into(), stack: Vec::new() };
        let ops = ops.into_iter().map(op).collect();
        return Ok(Arc::new(KernelOrigin {
            compiler: Compiler::Inductor,
            unit: name.into(),
            ops,
            others: Vec::new(),
        }));
    }
    if rest.is_empty() {
        return Ok(Arc::new(defined_at(name, first.clone())));
    }
    if rest.iter().all(|line| line.file == first.file) {
        // The file was edited after one of them was compiled.
        return Ok(Arc::new(defined_at(name, SourceLine { line: 0, ..first.clone() })));
    }
    let kernel = |line: &SourceLine| {
        let file = line.file.rsplit('/').next().unwrap_or_default();
        Arc::new(defined_at(&format!("{file}:{name}"), line.clone()))
    };
    let kernels: Vec<_> = lines.iter().map(kernel).collect();
    among(Compiler::Triton, &kernels)
}

/// The source line where a kernel is defined, from its IR.
pub fn parse_location(text: &str, name: &str) -> Option<SourceLine> {
    let mut lines = text.lines();
    let is_function = |line: &str| {
        let (_, after) = line.split_once("tt.func ")?;
        let (_, after) = after.split_once('@')?;
        after.strip_prefix(name)?.starts_with('(').then(|| line.len() - line.trim_start().len())
    };
    let indent = lines.by_ref().find_map(is_function)?;
    // It ends at the brace in the column of its first letter.
    let end = lines.find_map(|line| {
        let (space, code) = line.split_at_checked(indent)?;
        space.trim().is_empty().then_some(code)?.strip_prefix("} loc(")
    })?;
    let mut location = end.strip_suffix(')')?;
    for _ in 0..ALIASES_MAX {
        if let Some(line) = file_and_line(location) {
            return Some(SourceLine { function: name.into(), ..line });
        }
        let alias = location.strip_prefix('#')?;
        let named = |line: &'_ str| {
            line.strip_prefix('#')?.strip_prefix(alias)?.strip_prefix(" = loc(").map(str::len)
        };
        let stated = text.lines().find(|line| named(line).is_some())?;
        location = stated.get(stated.len() - named(stated)?..)?.strip_suffix(')')?;
    }
    None
}

/// `"/srv/net.py":8:1`
fn file_and_line(location: &str) -> Option<SourceLine> {
    const PATH_BYTES_MAX: usize = 4096;
    let (file, rest) = location.strip_prefix('"')?.split_once("\":")?;
    let (line, _) = rest.split_once(':')?;
    let line = line.parse().ok().filter(|line| *line > 0)?;
    let known = !file.is_empty() && file != "<unknown>" && file.len() <= PATH_BYTES_MAX;
    known.then(|| SourceLine { file: file.into(), function: "".into(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The IR that Triton 3.9 wrote for a kernel, with the path of its file shortened.
    const TTIR: &str = include_str!("../../tests/fixtures/triton/scale_shift.ttir");

    #[test]
    fn the_line_of_a_kernel_is_that_of_its_function() {
        let line = parse_location(TTIR, "scale_shift").unwrap();
        assert_eq!((&*line.file, &*line.function, line.line), ("/srv/scale.py", "scale_shift", 8));
        assert_eq!(parse_location(TTIR, "scale"), None);
        assert_eq!(parse_location(TTIR, ""), None);
        assert_eq!(
            parse_location(
                &TTIR.replace("#loc = loc(\"/srv/scale.py\":8:1)", "#loc = loc(unknown)"),
                "scale_shift"
            ),
            None
        );
        assert_eq!(
            parse_location(
                &TTIR.replace("#loc = loc(\"/srv/scale.py\":8:1)", "#loc = loc(#loc)"),
                "scale_shift"
            ),
            None
        );
    }

    /// A cache with kernels of these names, files and lines.
    fn cache(kernels: &[(&str, &str, u32)]) -> (tempfile::TempDir, Process) {
        let folder = tempfile::tempdir().unwrap();
        for (n, (name, file, line)) in kernels.iter().enumerate() {
            let entry = folder.path().join(format!("ENTRY{n}"));
            std::fs::create_dir_all(&entry).unwrap();
            let text = TTIR
                .replace("scale_shift", name)
                .replace("/srv/scale.py\":8:1", &format!("{file}\":{line}:0"));
            std::fs::write(entry.join(format!("{name}.ttir")), text).unwrap();
            std::fs::write(entry.join(format!("{GROUP}{name}.json")), "{}").unwrap();
        }
        let settings = Settings { triton: Some(folder.path().to_owned()), ..Settings::default() };
        let process = Process::new(std::process::id(), &settings);
        (folder, process)
    }

    /// The unit, file and line, and the operators of a kernel of this name.
    fn check(
        kernels: &[(&str, &str, u32)],
        name: &str,
        unit: &str,
        place: Option<(&str, u32)>,
        operators: &str,
    ) {
        let (_folder, mut process) = cache(kernels);
        let kernel = process.kernel(0, name).unwrap();
        let at = kernel.stack().first().map(|line| (&*line.file, line.line));
        assert_eq!((kernel.unit_label().as_str(), at), (unit, place));
        assert_eq!(kernel.operators().unwrap_or_default(), operators);
    }

    #[test]
    fn entries_of_a_name_give_their_common_origin() {
        let scale = ("scale", "/srv/a.py", 8);
        check(&[scale, ("other", "/srv/b.py", 3)], "scale", "[triton scale]", Some(("/srv/a.py", 8)), "");
        check(&[scale, scale], "scale", "[triton scale]", Some(("/srv/a.py", 8)), "");
        check(&[scale, ("scale", "/srv/a.py", 9)], "scale", "[triton scale]", Some(("/srv/a.py", 0)), "");
        check(&[scale, ("scale", "/srv/b.py", 8)], "scale", "[triton a.py:scale or b.py:scale]", None, "");
        const GENERATED: &str =
            "/tmp/torchinductor_me/y7/cy7oyaxvmmvair25e3xb2owvvvhbgl4y2kdhqbk6dkmjogrpuddv.py";
        let fused = ("triton_poi_fused_add_relu_0", GENERATED, 18);
        check(&[fused], fused.0, "[inductor triton_poi_fused_add_relu_0]", None, "aten::add, aten::relu");
        let (_folder, mut process) = cache(&[scale]);
        assert_eq!(process.kernel(0, "none"), Err(NoOrigin::NotFound));
        assert_eq!(Process::new(1, &Settings::default()).kernel(0, "x"), Err(NoOrigin::NoFiles));
    }

    #[test]
    fn an_entry_is_used_once_it_is_complete() {
        let (folder, mut process) = cache(&[]);
        let entry = folder.path().join("NEW");
        std::fs::create_dir_all(&entry).unwrap();
        std::fs::write(entry.join("scale_shift.ttir"), TTIR).unwrap();
        assert_eq!(process.kernel(0, "scale_shift"), Err(NoOrigin::NotFound));
        std::fs::write(entry.join("__grp__scale_shift.json"), "{}").unwrap();
        assert_eq!(process.kernel(1, "scale_shift"), Err(NoOrigin::NotFound), "not scanned again yet");
        assert!(process.kernel(SCAN_INTERVAL_NS, "scale_shift").is_ok());
    }

    #[test]
    fn a_scan_goes_on_where_the_last_was_cut_off() {
        let scale = ("scale", "/srv/a.py", 8);
        let (_folder, mut process) = cache(&[scale, ("one", "/srv/b.py", 3), ("two", "/srv/c.py", 5)]);
        // Two files in each, `.` and `..`.
        process.names_per_scan = 5;
        assert_eq!(process.kernel(0, "scale"), Err(NoOrigin::Ambiguous), "the rest is unknown");
        assert_eq!(process.seen.len(), 2);
        assert!(process.kernel(SCAN_INTERVAL_NS, "scale").is_ok());
        assert_eq!(process.seen.len(), 3);
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_a_location_from_it(text in r#"([a-z@#" =.\n]|tt\.func |@f\(|\} loc\(|#a|#a = loc\(|"f":7:1\)|é){0,60}"#) {
            if let Some(line) = parse_location(&text, "f") {
                proptest::prop_assert!(text.contains(&*line.file) && line.line > 0);
            }
        }
    }
}
