//! Triton's cache: where the kernels that a program writes in Python stand.
//!
//! Owns: which entries have a kernel of a name, and reading its line out of Triton's own code. Because: a device knows such a
//! kernel by the name of its function alone, and every program may have one of that name. Does not: know which entry a
//! process loaded: where entries of a name disagree, only what they all say is told.
//!
//! ```text
//! CACHE/HASH/scale.json    scale.ttir    …
//!                          tt.func public @scale(%x: !tt.ptr<f32> loc("x"(#loc)), …) {
//!                            …
//!                          } loc(#loc)
//!                          #loc = loc("/srv/net.py":8:1)
//! ```

use std::sync::Arc;

use deepctx_names::inductor::is_generated;
use rustc_hash::{FxHashMap, FxHashSet};

use super::device::written_at;
use super::folder::Folder;
use super::inductor::operators_in_name;
use super::{Answer, Compiler, Kernel, Line, NoKernel, Op, Settings};

/// Most entries of the cache that are looked at: beyond that it is not known whether a name has another one.
const ENTRIES_MAX: usize = 1 << 13;
/// Most entries of one name that are read: one for each specialization.
const SAME_NAME_MAX: usize = 256;
/// Largest text that is read: tens of kilobytes are usual.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Most names by which one place goes before it is told.
const ALIASES_MAX: usize = 8;
/// Shortest time between two looks at the folder.
const LOOK_NS: u64 = 1_000_000_000;
/// Of the file that names all others of an entry; written last.
const GROUP: &str = "__grp__";
/// The forms in which a kernel's code has its own lines, the better one first.
const FORMS: [&str; 2] = ["ttir", "source"];

/// What is known of one process.
#[derive(Debug)]
pub(super) struct Process {
    folder: Option<Folder>,
    /// Entries by the names of their kernels.
    entries: FxHashMap<String, Vec<String>>,
    /// Answers that were given, with how many entries they are of.
    known: FxHashMap<String, (usize, Answer)>,
    seen: FxHashSet<String>,
    /// There are more entries than are looked at.
    too_many: bool,
    looked_at_ns: Option<u64>,
}

impl Process {
    pub(super) fn new(pid: u32, settings: &Settings) -> Self {
        Self {
            folder: settings.triton.as_ref().and_then(|path| Folder::open(pid, path)),
            entries: FxHashMap::default(),
            known: FxHashMap::default(),
            seen: FxHashSet::default(),
            too_many: false,
            looked_at_ns: None,
        }
    }

    /// The kernel of a name.
    pub(super) fn kernel(&mut self, time_ns: u64, name: &str) -> Answer {
        self.look(time_ns);
        let Some(folder) = &self.folder else { return Err(NoKernel::NoFiles) };
        if self.too_many {
            return Err(NoKernel::Ambiguous);
        }
        let entries = self.entries.get(name).ok_or(NoKernel::NotThere)?;
        if let Some((_, answer)) = self.known.get(name).filter(|(of, _)| *of == entries.len()) {
            return answer.clone();
        }
        let answer = if entries.len() > SAME_NAME_MAX {
            Err(NoKernel::Ambiguous)
        } else {
            told(folder, name, entries)
        };
        self.known.insert(name.to_owned(), (entries.len(), answer.clone()));
        answer
    }

    /// Looks for entries that are new.
    fn look(&mut self, time_ns: u64) {
        if self.looked_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < LOOK_NS) {
            return;
        }
        self.looked_at_ns = Some(time_ns);
        let Some(folder) = &self.folder else { return };
        for entry in folder.names() {
            if entry.starts_with('.') || self.seen.contains(&entry) {
                continue;
            }
            if self.seen.len() >= ENTRIES_MAX {
                self.too_many = true;
                return;
            }
            let Some(inner) = folder.inner(&entry) else { continue };
            let names = inner.names();
            let kernel = names.iter().find_map(|name| name.strip_prefix(GROUP)?.strip_suffix(".json"));
            // Of what is not whole yet more is to come; a library is all that its entry has.
            if kernel.is_some() || names.iter().any(|name| name.ends_with(".so")) {
                if let Some(kernel) = kernel {
                    self.entries.entry(kernel.to_owned()).or_default().push(entry.clone());
                }
                self.seen.insert(entry);
            }
        }
    }
}

/// What all entries of a name say of it.
fn told(folder: &Folder, name: &str, entries: &[String]) -> Answer {
    let mut lines: Vec<Line> = Vec::new();
    for entry in entries {
        let inner = folder.inner(entry);
        let read = |form: &&str| inner.as_ref()?.read(&format!("{name}.{form}"), TEXT_BYTES_MAX);
        let line = FORMS.iter().find_map(|form| parse_place(&String::from_utf8_lossy(&read(form)?), name));
        // What one entry does not tell may be another place.
        let line = line.ok_or(NoKernel::Ambiguous)?;
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let (first, rest) = lines.split_first().ok_or(NoKernel::NotThere)?;
    if lines.iter().all(|line| is_generated(&line.file)) {
        // Inductor wrote it: its name has its operators, whichever it is.
        let ops = operators_in_name(name).unwrap_or_default();
        let op = |operator| Op { name: format!("aten::{operator}").into(), stack: Vec::new() };
        let ops = ops.into_iter().map(op).collect();
        return Ok(Arc::new(Kernel {
            compiler: Compiler::Inductor,
            unit: name.into(),
            ops,
            others: Vec::new(),
        }));
    }
    if rest.is_empty() {
        return Ok(Arc::new(written_at(name, first.clone())));
    }
    if rest.iter().all(|line| line.file == first.file) {
        // The file was edited since one of them was compiled.
        return Ok(Arc::new(written_at(name, Line { line: 0, ..first.clone() })));
    }
    let kernel = |line: &Line| {
        let file = line.file.rsplit('/').next().unwrap_or_default();
        Arc::new(written_at(&format!("{file}:{name}"), line.clone()))
    };
    let kernels: Vec<_> = lines.iter().map(kernel).collect();
    super::device::among(Compiler::Triton, &kernels)
}

/// Where a kernel stands, by Triton's code of it.
pub fn parse_place(text: &str, name: &str) -> Option<Line> {
    let mut lines = text.lines();
    let is_function = |line: &str| {
        let (_, after) = line.split_once("tt.func ")?;
        let (_, after) = after.split_once('@')?;
        after.strip_prefix(name)?.starts_with('(').then(|| line.len() - line.trim_start().len())
    };
    let indent = lines.by_ref().find_map(is_function)?;
    // It ends at the brace that stands below its first letter.
    let end = lines.find_map(|line| {
        let (space, code) = line.split_at_checked(indent)?;
        space.trim().is_empty().then_some(code)?.strip_prefix("} loc(")
    })?;
    let mut place = end.strip_suffix(')')?;
    for _ in 0..ALIASES_MAX {
        if let Some(line) = file_and_line(place) {
            return Some(Line { function: name.into(), ..line });
        }
        let alias = place.strip_prefix('#')?;
        let named = |line: &'_ str| {
            line.strip_prefix('#')?.strip_prefix(alias)?.strip_prefix(" = loc(").map(str::len)
        };
        let stated = text.lines().find(|line| named(line).is_some())?;
        place = stated.get(stated.len() - named(stated)?..)?.strip_suffix(')')?;
    }
    None
}

/// `"/srv/net.py":8:1`
fn file_and_line(place: &str) -> Option<Line> {
    const PATH_BYTES_MAX: usize = 4096;
    let (file, rest) = place.strip_prefix('"')?.split_once("\":")?;
    let (line, _) = rest.split_once(':')?;
    let line = line.parse().ok().filter(|line| *line > 0)?;
    let known = !file.is_empty() && file != "<unknown>" && file.len() <= PATH_BYTES_MAX;
    known.then(|| Line { file: file.into(), function: "".into(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Triton 3.9 made of a kernel, with the folder of its file made shorter.
    const TTIR: &str = include_str!("../../tests/fixtures/triton/scale_shift.ttir");

    #[test]
    fn a_kernel_stands_where_its_function_is_defined() {
        let line = parse_place(TTIR, "scale_shift").unwrap();
        assert_eq!((&*line.file, &*line.function, line.line), ("/srv/scale.py", "scale_shift", 8));
        assert_eq!(parse_place(TTIR, "scale"), None);
        assert_eq!(parse_place(TTIR, ""), None);
        assert_eq!(
            parse_place(
                &TTIR.replace("#loc = loc(\"/srv/scale.py\":8:1)", "#loc = loc(unknown)"),
                "scale_shift"
            ),
            None
        );
        assert_eq!(
            parse_place(
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
    fn entries_of_a_name_tell_what_all_of_them_say() {
        let scale = ("scale", "/srv/a.py", 8);
        check(&[scale, ("other", "/srv/b.py", 3)], "scale", "[triton scale]", Some(("/srv/a.py", 8)), "");
        check(&[scale, scale], "scale", "[triton scale]", Some(("/srv/a.py", 8)), "");
        check(&[scale, ("scale", "/srv/a.py", 9)], "scale", "[triton scale]", Some(("/srv/a.py", 0)), "");
        check(&[scale, ("scale", "/srv/b.py", 8)], "scale", "[triton a.py:scale or b.py:scale]", None, "");
        const WRITTEN: &str =
            "/tmp/torchinductor_me/y7/cy7oyaxvmmvair25e3xb2owvvvhbgl4y2kdhqbk6dkmjogrpuddv.py";
        let fused = ("triton_poi_fused_add_relu_0", WRITTEN, 18);
        check(&[fused], fused.0, "[inductor triton_poi_fused_add_relu_0]", None, "aten::add, aten::relu");
        let (_folder, mut process) = cache(&[scale]);
        assert_eq!(process.kernel(0, "none"), Err(NoKernel::NotThere));
        assert_eq!(Process::new(1, &Settings::default()).kernel(0, "x"), Err(NoKernel::NoFiles));
    }

    #[test]
    fn an_entry_is_used_once_it_is_whole() {
        let (folder, mut process) = cache(&[]);
        let entry = folder.path().join("NEW");
        std::fs::create_dir_all(&entry).unwrap();
        std::fs::write(entry.join("scale_shift.ttir"), TTIR).unwrap();
        assert_eq!(process.kernel(0, "scale_shift"), Err(NoKernel::NotThere));
        std::fs::write(entry.join("__grp__scale_shift.json"), "{}").unwrap();
        assert_eq!(process.kernel(1, "scale_shift"), Err(NoKernel::NotThere), "not looked again yet");
        assert!(process.kernel(LOOK_NS, "scale_shift").is_ok());
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_place_that_is_in_it(text in r#"([a-z@#" =.\n]|tt\.func |@f\(|\} loc\(|#a|#a = loc\(|"f":7:1\)|é){0,60}"#) {
            if let Some(line) = parse_place(&text, "f") {
                proptest::prop_assert!(text.contains(&*line.file) && line.line > 0);
            }
        }
    }
}
