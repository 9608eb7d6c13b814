//! What Inductor left of the kernels that a process runs.
//!
//! Owns: Inductor's folder of a process: which files are read when, and which wrapper a library belongs to. Because: the folder
//! grows while the program compiles, and holds what other programs of the same user compiled. Does not: parse
//! (`inductor`).

use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::folder::Folder;
use super::inductor::{Graph, WrapperKernel, operator_name, operators_in_name, parse_graph, parse_wrapper};
use super::{Answer, Compiler, Kernel, NoKernel, Op};

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Most files read at one look; the next look goes on.
const FILES_TOGETHER: usize = 1024;
/// Most files and kernels of one process.
const FILES_MAX: usize = 1 << 14;
/// Shortest time between two looks at the folder.
const LOOK_NS: u64 = 1_000_000_000;
/// Length of the names of Inductor's files, which are hashes, with their first letter.
const STEM_BYTES: usize = 52;

/// What is known of one process.
#[derive(Debug, Default)]
pub(super) struct Process {
    folder: Option<(String, Option<Folder>)>,
    /// Kernels with the wrapper that has each.
    kernels: Vec<(Arc<str>, WrapperKernel)>,
    /// Graphs by the wrapper that was made from each.
    graphs: FxHashMap<Arc<str>, Graph>,
    seen: FxHashSet<String>,
    looked_at_ns: Option<u64>,
}

/// The folder of Inductor and the file of a library in it, of the code of a kernel: `…/ab/cab….main.so`.
pub(super) fn library<'p>(path: &'p str, symbol: &str) -> Option<(&'p str, &'p str)> {
    let is_kernel = symbol == "kernel" || symbol.starts_with("kernel.") || symbol.starts_with("kernel(");
    let stem = path.strip_suffix(".so").filter(|_| is_kernel)?;
    let (folder, name) = stem.rsplit_once('/')?;
    let (root, part) = folder.rsplit_once('/')?;
    let hash = name.strip_suffix(".main").unwrap_or(name);
    let is_hash = hash.len() == STEM_BYTES && hash.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_hash && hash.get(1..3) == Some(part)).then(|| (root, &path[root.len() + 1..stem.len()]))
}

impl Process {
    /// The kernel of a library in Inductor's folder.
    pub(super) fn kernel(&mut self, pid: u32, time_ns: u64, root: &str, stem: &str) -> Answer {
        if self.folder.as_ref().is_none_or(|(of, _)| of != root) {
            let folder = Folder::open(pid, Path::new(root));
            *self = Self { folder: Some((root.to_owned(), folder)), ..Self::default() };
        }
        let Some((_, Some(folder))) = &self.folder else { return Err(NoKernel::NoFiles) };
        let (part, name) = stem.split_once('/').ok_or(NoKernel::NotCompiled)?;
        let source = folder.inner(part).and_then(|part| part.read(&format!("{name}.cpp"), FILE_BYTES_MAX));
        let source = source.ok_or(NoKernel::NotThere)?;
        let source = String::from_utf8_lossy(&source);
        if !self.has(&source) {
            self.look(time_ns);
        }
        self.answer(&source)
    }

    fn of<'s>(&'s self, source: &'s str) -> impl Iterator<Item = &'s (Arc<str>, WrapperKernel)> {
        let source = source.trim_start();
        self.kernels.iter().filter(move |(_, k)| !k.source.is_empty() && source.starts_with(&k.source))
    }

    fn has(&self, source: &str) -> bool {
        self.of(source).next().is_some()
    }

    fn answer(&self, source: &str) -> Answer {
        let mut found: Option<Kernel> = None;
        for (wrapper, kernel) in self.of(source) {
            let ops = self.ops(wrapper, kernel);
            match &mut found {
                None => {
                    let unit = kernel.name.as_str().into();
                    found = Some(Kernel { compiler: Compiler::Inductor, unit, ops, others: Vec::new() });
                }
                Some(found) if found.ops == ops => {}
                // The same code was compiled of other lines, or other operators, too.
                Some(_) => return Err(NoKernel::Ambiguous),
            }
        }
        found.map(Arc::new).ok_or(NoKernel::NotThere)
    }

    fn ops(&self, wrapper: &Arc<str>, kernel: &WrapperKernel) -> Vec<Op> {
        let graph = self.graphs.get(wrapper);
        let op = |name: Arc<str>, operator: &str| {
            let line = graph.and_then(|graph| graph.line(operator)).cloned();
            Op { name, stack: line.into_iter().collect() }
        };
        if kernel.original.is_empty() {
            let names = operators_in_name(&kernel.name).unwrap_or_default();
            return names.into_iter().map(|name| op(format!("aten::{name}").into(), name)).collect();
        }
        let original = kernel.original.iter();
        original.map(|name| op(operator_name(name), name.strip_prefix("aten.").unwrap_or(name))).collect()
    }

    /// Reads wrappers and graphs that are new.
    fn look(&mut self, time_ns: u64) {
        if self.looked_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < LOOK_NS) {
            return;
        }
        self.looked_at_ns = Some(time_ns);
        let Some((root, Some(folder))) = self.folder.take() else { return };
        let mut left = FILES_TOGETHER;
        for part in folder.names() {
            // Folders of two letters hold what is named so; the others are caches and locks.
            if part.len() != 2 || part == ".." {
                continue;
            }
            let Some(inner) = folder.inner(&part) else { continue };
            for name in inner.names() {
                if name.ends_with(".py") && self.is_new(&name, &mut left) {
                    let Some(text) = inner.read(&name, FILE_BYTES_MAX) else { continue };
                    let wrapper: Arc<str> = name.trim_end_matches(".py").into();
                    let kernels = parse_wrapper(&String::from_utf8_lossy(&text));
                    let room = FILES_MAX.saturating_sub(self.kernels.len());
                    self.kernels.extend(kernels.into_iter().take(room).map(|k| (Arc::clone(&wrapper), k)));
                }
            }
        }
        self.look_for_graphs(&folder, &mut left);
        self.folder = Some((root, Some(folder)));
    }

    /// `fxgraph/PART/KEY/ENTRY`
    fn look_for_graphs(&mut self, folder: &Folder, left: &mut usize) {
        let inner = |folder: &Folder| -> Vec<Folder> {
            let names = folder.names().into_iter().filter(|name| name != "." && name != "..");
            names.filter_map(|name| folder.inner(&name)).take(FILES_TOGETHER).collect()
        };
        let Some(graphs) = folder.inner("fxgraph") else { return };
        for entries in inner(&graphs).iter().flat_map(inner) {
            for name in entries.names() {
                if name == "." || name == ".." || !self.is_new(&name, left) {
                    continue;
                }
                let Some(entry) = entries.read(&name, FILE_BYTES_MAX) else { continue };
                if let Some(wrapper) = wrapper_of(&entry) {
                    self.graphs.insert(wrapper, parse_graph(&entry));
                }
            }
        }
    }

    fn is_new(&mut self, name: &str, left: &mut usize) -> bool {
        let room = *left > 0 && self.seen.len() < FILES_MAX;
        let new = room && self.seen.insert(name.to_owned());
        *left -= usize::from(new);
        new
    }
}

/// The wrapper that an entry of the cache belongs to: the text after the name of the field that says so.
fn wrapper_of(entry: &[u8]) -> Option<Arc<str>> {
    const FIELD: &[u8] = b"cache_key";
    /// Of the marks of the pickle format between a name and its value.
    const BETWEEN_MAX: usize = 16;
    let at = entry.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let rest = entry.get(at..)?;
    let begin = rest.iter().take(BETWEEN_MAX).position(|b| *b == b'c')?;
    let stem = rest.get(begin..begin + STEM_BYTES)?;
    let is_hash = stem.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    is_hash.then(|| String::from_utf8_lossy(stem).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEM: &str = "cb3wc4wyxywkgyi4z3cjy33xy4yxg4docatly5ghvdqw3xbolhx3";

    #[test]
    fn libraries_of_kernels_are_known_by_their_paths() {
        let path = |rest: &str| format!("/tmp/torchinductor_me/b3/{STEM}{rest}");
        for (path, symbol, expect) in [
            (path(".main.so"), "kernel", true),
            (path(".main.so"), "kernel._omp_fn.0", true),
            (path(".so"), "kernel(float const*)", true),
            (path(".main.so"), "kernel_py", false),
            (path(".main.cpp"), "kernel", false),
            (format!("/tmp/b4/{STEM}.main.so"), "kernel", false),
            ("/usr/lib/libc.so".to_owned(), "kernel", false),
            ("kernel.so".to_owned(), "kernel", false),
        ] {
            let found = library(&path, symbol);
            assert_eq!(found.is_some(), expect, "{path} {symbol}");
            if let Some((root, stem)) = found {
                assert_eq!((root, stem.starts_with("b3/cb3")), ("/tmp/torchinductor_me", true));
            }
        }
    }

    /// A folder as Inductor makes it, with one kernel in each of these wrappers.
    fn folder(wrappers: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let source = "#include <x>\nextern \"C\" void kernel(float* p) {}";
        for sub in ["b3", "aa"] {
            std::fs::create_dir_all(folder.path().join(sub)).unwrap();
        }
        std::fs::write(folder.path().join(format!("b3/{STEM}.main.cpp")), format!("{source}\n// glue"))
            .unwrap();
        for (n, (wrapper, name, graph)) in wrappers.iter().enumerate() {
            let wrapper = format!("{wrapper:c<STEM_BYTES$}");
            let text = format!(
                "import torch\n{name} = async_compile.cpp_pybinding(['float*'], r'''\n{source}\n''')\n"
            );
            std::fs::write(folder.path().join(format!("aa/{wrapper}.py")), text).unwrap();
            let entry = folder.path().join(format!("fxgraph/xy/entry{n}"));
            std::fs::create_dir_all(&entry).unwrap();
            let text = format!("\x04cache_key\x0494{wrapper}\u{c}source_code\n{graph}\n");
            std::fs::write(entry.join(format!("e{n}")), text).unwrap();
        }
        folder
    }

    fn ask(folder: &tempfile::TempDir) -> Answer {
        let root = folder.path().display().to_string();
        let stem = format!("b3/{STEM}.main");
        Process::default().kernel(std::process::id(), 0, &root, &stem)
    }

    const GRAPH: &str = "    # File: /srv/net.py:9 in forward, code: h\n    tanh: \"f32[8]\" = torch.ops.aten.tanh.default(x)";

    #[test]
    fn a_kernel_is_named_by_the_wrapper_that_has_its_source() {
        let kernel = ask(&folder(&[("cone", "cpp_fused_mul_tanh_0", GRAPH)])).unwrap();
        assert_eq!(
            (&*kernel.unit, kernel.operators().unwrap()),
            ("cpp_fused_mul_tanh_0", "aten::mul, aten::tanh net.py:9".into())
        );
        assert_eq!(ask(&folder(&[])), Err(NoKernel::NotThere));
    }

    #[test]
    fn of_two_wrappers_that_mean_the_same_either_will_do_and_of_others_none() {
        let same = [("cone", "cpp_fused_tanh_0", GRAPH), ("ctwo", "cpp_fused_tanh_0", GRAPH)];
        assert!(ask(&folder(&same)).is_ok());
        let other = GRAPH.replace(":9", ":10");
        let differing = [("cone", "cpp_fused_tanh_0", GRAPH), ("ctwo", "cpp_fused_tanh_0", &other)];
        assert_eq!(ask(&folder(&differing)), Err(NoKernel::Ambiguous));
    }
}
