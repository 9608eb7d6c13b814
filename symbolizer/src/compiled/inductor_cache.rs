//! Inductor's cache folder of a process.
//!
//! Owns: which files are read when, and which wrapper a library belongs to. Because: the folder grows while the program
//! compiles, and contains the files of other programs of the same user. Does not: parse files (`inductor`).

use std::path::Path;
use std::sync::Arc;

use deepctx_address_space::Folder;
use deepctx_names::inductor::STEM_BYTES;
use rustc_hash::{FxHashMap, FxHashSet};

use super::device_kernels::{FileLaunches, Launch};
use super::inductor::{
    Graph, Wrapper, WrapperKernel, operator_name, operators_in_name, parse_graph, parse_wrapper,
};
use super::inductor_comment::{Comment, LaunchSite};
use super::{Compiler, KernelOrigin, NoOrigin, Operator, OriginResult, SourceLine};

/// Largest file read.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Most files read per scan; the next scan continues.
const FILES_PER_SCAN: usize = 1024;
/// A file counts as another one for each of these many bytes: 256 MiB per scan.
const FILE_BYTES: usize = 256 << 10;
/// Most names of folders listed per scan: a user may have filled them with any number.
const NAMES_PER_SCAN: usize = 1 << 18;
/// Of graphs, however many other names there are.
const GRAPH_NAMES_PER_SCAN: usize = 1 << 17;
/// Most files and kernels of one process.
const FILES_MAX: usize = 1 << 14;
/// Shortest time between two scans of the folder.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;

/// The cache folder of one process, with the files read so far.
#[derive(Debug, Default)]
pub(super) struct Process {
    folder: Option<(String, Option<Folder>)>,
    /// Kernels, each with the wrapper that defines it.
    kernels: Vec<(Arc<str>, WrapperKernel)>,
    /// Graphs by the wrapper that was generated from each.
    graphs: FxHashMap<Arc<str>, Graph>,
    seen: FxHashSet<String>,
    scanned_at_ns: Option<u64>,
    /// When only graphs were scanned.
    graphs_at_ns: Option<u64>,
    /// Where the next scan begins: the folders of wrappers, and those of graphs, at which the last one ended.
    next_part: NextFolder,
    next_graphs: NextFolder,
}

/// The folder of several with which a scan begins, so that each is read where one scan cannot list all.
#[derive(Debug, Default)]
struct NextFolder(String);

impl NextFolder {
    /// These folders, from the one where the last scan ended.
    fn order(&self, mut names: Vec<String>) -> Vec<String> {
        names.sort_unstable();
        let begin = names.partition_point(|name| *name < self.0);
        names.rotate_left(begin);
        names
    }

    /// Whether a scan goes on with its folder number `n`. The last one may have been listed in part, so the next scan
    /// begins with it, unless it alone takes a whole scan.
    fn goes_on(&mut self, n: usize, name: &str, budget: &ScanBudget) -> bool {
        let has_budget = budget.names > 0;
        if has_budget || n == 1 {
            name.clone_into(&mut self.0);
        }
        has_budget
    }
}

/// What may still be read in a scan.
#[derive(Debug)]
struct ScanBudget {
    files: usize,
    names: usize,
}

impl ScanBudget {
    fn new() -> Self {
        Self { files: FILES_PER_SCAN, names: NAMES_PER_SCAN }
    }

    /// The names in a folder; none when no more may be listed.
    fn list(&mut self, folder: &Folder) -> Vec<String> {
        if self.names == 0 {
            return Vec::new();
        }
        let names = folder.names();
        self.names = self.names.saturating_sub(names.len());
        names
    }

    /// A file of so many bytes was read; it counts as one already.
    fn pay(&mut self, bytes: usize) {
        self.files = self.files.saturating_sub(bytes / FILE_BYTES);
    }
}

impl Process {
    fn open(&mut self, pid: u32, root: &str) {
        if self.folder.as_ref().is_none_or(|(of, _)| of != root) {
            let folder = Folder::open(pid, Path::new(root));
            *self = Self { folder: Some((root.to_owned(), folder)), ..Self::default() };
        }
    }

    /// The launches of a wrapper in the folder.
    pub(super) fn launches(
        &mut self,
        pid: u32,
        time_ns: u64,
        root: &str,
        stem: &str,
    ) -> Result<FileLaunches, NoOrigin> {
        self.open(pid, root);
        let Some((_, Some(folder))) = &self.folder else { return Err(NoOrigin::NoFiles) };
        let (part, name) = stem.split_once('/').ok_or(NoOrigin::NotCompiled)?;
        let text = folder.subfolder(part).and_then(|part| part.read(&format!("{name}.py"), FILE_BYTES_MAX));
        let wrapper = parse_wrapper(&String::from_utf8_lossy(&text.ok_or(NoOrigin::NotFound)?));
        let due = self.graphs_at_ns.is_none_or(|at| time_ns.saturating_sub(at) >= SCAN_INTERVAL_NS);
        if due && !self.graphs.contains_key(name) {
            self.graphs_at_ns = Some(time_ns);
            if let Some((root, Some(folder))) = self.folder.take() {
                self.scan_graphs(&folder, &mut ScanBudget::new());
                self.folder = Some((root, Some(folder)));
            }
        }
        let graph = self.graphs.get(name);
        Ok(FileLaunches { launches: launches(&wrapper, graph), complete: graph.is_some() })
    }

    /// The origin of the kernel of a library in the folder.
    pub(super) fn kernel(&mut self, pid: u32, time_ns: u64, root: &str, stem: &str) -> OriginResult {
        self.open(pid, root);
        let Some((_, Some(folder))) = &self.folder else { return Err(NoOrigin::NoFiles) };
        let (part, name) = stem.split_once('/').ok_or(NoOrigin::NotCompiled)?;
        let source =
            folder.subfolder(part).and_then(|part| part.read(&format!("{name}.cpp"), FILE_BYTES_MAX));
        let source = source.ok_or(NoOrigin::NotFound)?;
        let source = String::from_utf8_lossy(&source);
        if !self.has_kernel(&source) {
            self.scan(time_ns);
        }
        self.origin(&source)
    }

    fn kernels_of<'s>(&'s self, source: &'s str) -> impl Iterator<Item = &'s (Arc<str>, WrapperKernel)> {
        let source = source.trim_start();
        self.kernels.iter().filter(move |(_, k)| !k.source.is_empty() && source.starts_with(&k.source))
    }

    fn has_kernel(&self, source: &str) -> bool {
        self.kernels_of(source).next().is_some()
    }

    fn origin(&self, source: &str) -> OriginResult {
        let mut found: Option<KernelOrigin> = None;
        for (wrapper, kernel) in self.kernels_of(source) {
            let ops = self.ops(wrapper, kernel);
            match &mut found {
                None => {
                    let unit = kernel.name.as_str().into();
                    found =
                        Some(KernelOrigin { compiler: Compiler::Inductor, unit, ops, others: Vec::new() });
                }
                Some(found) if found.ops == ops => {}
                // The same code was also compiled from other lines or operators.
                Some(_) => return Err(NoOrigin::Ambiguous),
            }
        }
        found.map(Arc::new).ok_or(NoOrigin::NotFound)
    }

    fn ops(&self, wrapper: &Arc<str>, kernel: &WrapperKernel) -> Vec<Operator> {
        ops_of(&kernel.name, &kernel.comment, self.graphs.get(wrapper))
    }

    /// Reads new wrappers and graphs.
    fn scan(&mut self, time_ns: u64) {
        if self.scanned_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < SCAN_INTERVAL_NS) {
            return;
        }
        self.scanned_at_ns = Some(time_ns);
        let Some((root, Some(folder))) = self.folder.take() else { return };
        let mut budget = ScanBudget::new();
        let mut parts = budget.list(&folder);
        // Folders of two letters contain generated files; the others are caches and locks.
        parts.retain(|part| part.len() == 2 && part != "..");
        for (n, part) in self.next_part.order(parts).into_iter().enumerate() {
            if !self.next_part.goes_on(n, &part, &budget) {
                break;
            }
            let Some(inner) = folder.subfolder(&part) else { continue };
            for name in budget.list(&inner) {
                if name.ends_with(".py") && self.is_new(&name, &mut budget) {
                    let Some(text) = inner.read(&name, FILE_BYTES_MAX) else { continue };
                    budget.pay(text.len());
                    let wrapper: Arc<str> = name.trim_end_matches(".py").into();
                    let kernels = parse_wrapper(&String::from_utf8_lossy(&text)).kernels;
                    let room = FILES_MAX.saturating_sub(self.kernels.len());
                    self.kernels.extend(kernels.into_iter().take(room).map(|k| (Arc::clone(&wrapper), k)));
                }
            }
        }
        budget.names = budget.names.max(GRAPH_NAMES_PER_SCAN);
        self.scan_graphs(&folder, &mut budget);
        self.folder = Some((root, Some(folder)));
    }

    /// `fxgraph/PART/KEY/ENTRY`
    fn scan_graphs(&mut self, folder: &Folder, budget: &mut ScanBudget) {
        let inner = |folder: &Folder, budget: &mut ScanBudget| -> Vec<Folder> {
            let names = budget.list(folder).into_iter().filter(|name| name != "." && name != "..");
            names.filter_map(|name| folder.subfolder(&name)).take(FILES_PER_SCAN).collect()
        };
        let Some(graphs) = folder.subfolder("fxgraph") else { return };
        let mut parts = budget.list(&graphs);
        parts.retain(|part| part != "." && part != "..");
        for (n, part) in self.next_graphs.order(parts).into_iter().enumerate() {
            if !self.next_graphs.goes_on(n, &part, budget) {
                break;
            }
            let Some(part) = graphs.subfolder(&part) else { continue };
            for entries in inner(&part, budget) {
                for name in budget.list(&entries) {
                    if name != "." && name != ".." && self.is_new(&name, budget) {
                        self.read_graph(&entries, &name, budget);
                    }
                }
            }
        }
    }

    fn read_graph(&mut self, entries: &Folder, name: &str, budget: &mut ScanBudget) {
        let Some(entry) = entries.read(name, FILE_BYTES_MAX) else { return };
        budget.pay(entry.len());
        if let Some(wrapper) = wrapper_of(&entry) {
            self.graphs.insert(wrapper, parse_graph(&entry));
        }
    }

    fn is_new(&mut self, name: &str, budget: &mut ScanBudget) -> bool {
        let room = budget.files > 0 && self.seen.len() < FILES_MAX;
        let new = room && self.seen.insert(name.to_owned());
        budget.files -= usize::from(new);
        new
    }
}

/// The operators of a kernel: the nodes in its comment, else the operators listed there, else those in its name.
fn ops_of(name: &str, comment: &Comment, graph: Option<&Graph>) -> Vec<Operator> {
    let only = |operator: &str| graph.and_then(|graph| graph.line(operator));
    let mut ops: Vec<Operator> = Vec::new();
    let mut add = |operator: Arc<str>, line: Option<&SourceLine>| {
        let op = Operator { name: operator, stack: line.into_iter().cloned().collect() };
        if !ops.contains(&op) {
            ops.push(op);
        }
    };
    if !comment.nodes.is_empty() {
        for node in &comment.nodes {
            let line = graph.and_then(|graph| graph.line_of(node));
            add(operator_name(&node.operator), line.or_else(|| only(node.operator.strip_prefix("aten.")?)));
        }
    } else if comment.original.is_empty() {
        for name in operators_in_name(name).unwrap_or_default() {
            add(format!("aten::{name}").into(), only(name));
        }
    } else {
        for name in &comment.original {
            add(operator_name(name), only(name.strip_prefix("aten.").unwrap_or(name)));
        }
    }
    ops
}

/// The launches of a wrapper.
fn launches(wrapper: &Wrapper, graph: Option<&Graph>) -> Vec<Launch> {
    let mut launches = Vec::new();
    for kernel in &wrapper.kernels {
        let Some(name) = kernel.device_name() else { continue };
        let mut add = |line: u32, comment: &Comment| {
            let ops = ops_of(&kernel.name, comment, graph);
            let unit = kernel.name.as_str().into();
            let kernel =
                Arc::new(KernelOrigin { compiler: Compiler::Inductor, unit, ops, others: Vec::new() });
            launches.push(Launch { name: name.to_owned(), line, kernel });
        };
        let sites = wrapper.sites.iter().filter(|site| site.kernel == kernel.name);
        let mut sites: Vec<&LaunchSite> = sites.collect();
        if sites.is_empty() {
            add(0, &kernel.comment);
        }
        // The comment before the definition is that of the first launch, and has the nodes.
        for (n, site) in sites.drain(..).enumerate() {
            let own = &site.comment;
            let same = own.original == kernel.comment.original
                && own.source == kernel.comment.source
                && (n == 0 || !own.source.is_empty());
            add(site.line, if same { &kernel.comment } else { own });
        }
    }
    launches
}

/// The wrapper that a cache entry belongs to: the value after the field name.
fn wrapper_of(entry: &[u8]) -> Option<Arc<str>> {
    const FIELD: &[u8] = b"cache_key";
    /// Bytes of the pickle format between the name and the value.
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
    use deepctx_names::inductor;

    use super::*;

    const STEM: &str = "cb3wc4wyxywkgyi4z3cjy33xy4yxg4docatly5ghvdqw3xbolhx3";

    #[test]
    fn a_scan_lists_and_reads_no_more_than_its_budget() {
        let cache = tempfile::tempdir().unwrap();
        std::fs::write(cache.path().join("a.py"), "").unwrap();
        let opened = Folder::open(std::process::id(), cache.path()).unwrap();
        let mut budget = ScanBudget { files: 3, names: 2 };
        assert_eq!(budget.list(&opened).len(), 3, "a whole folder, with `.` and `..`");
        assert!(budget.list(&opened).is_empty());
        budget.pay(2 * FILE_BYTES);
        assert_eq!(budget.files, 1);
        budget.pay(FILE_BYTES_MAX as usize);
        assert_eq!(budget.files, 0);
    }

    #[test]
    fn scans_go_on_where_the_last_was_cut_off() {
        let cache = tempfile::tempdir().unwrap();
        for part in ["aa", "bb", "cc"] {
            let entry = cache.path().join(format!("fxgraph/{part}/key"));
            std::fs::create_dir_all(&entry).unwrap();
            let wrapper = format!("c{part}");
            let text = format!("\x04cache_key\x0494{wrapper:c<STEM_BYTES$}\u{c}source_code\n{GRAPH}\n");
            std::fs::write(entry.join(format!("entry of {part}")), text).unwrap();
        }
        let opened = Folder::open(std::process::id(), cache.path()).unwrap();
        let mut process = Process::default();
        for graphs in 0..3 {
            assert_eq!(process.graphs.len(), graphs);
            // Three folders, and one name in each of two, each with `.` and `..`: one folder and a part of the next.
            process.scan_graphs(&opened, &mut ScanBudget { files: 9, names: 5 + 3 + 3 + 1 });
        }
        assert_eq!(process.graphs.len(), 3);
    }

    #[test]
    fn a_folder_that_takes_a_whole_scan_is_passed() {
        let (mut next, none) = (NextFolder::default(), ScanBudget { files: 9, names: 0 });
        let names = || ["bb", "aa"].map(str::to_owned).to_vec();
        assert_eq!(next.order(names()), ["aa", "bb"]);
        assert!(next.goes_on(0, "aa", &ScanBudget::new()) && !next.goes_on(1, "bb", &none));
        assert_eq!(next.order(names()), ["bb", "aa"]);
    }

    /// A cache folder with one kernel in each of these wrappers.
    fn folder(wrappers: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let source = "#include <x>\nextern \"C\" void kernel(float* p) {}";
        for sub in ["b3", "aa"] {
            std::fs::create_dir_all(folder.path().join(sub)).unwrap();
        }
        std::fs::write(folder.path().join(format!("b3/{STEM}.main.cpp")), format!("{source}\n// wrapper"))
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

    fn origin_of(folder: &tempfile::TempDir) -> OriginResult {
        let root = folder.path().display().to_string();
        let stem = format!("b3/{STEM}.main");
        Process::default().kernel(std::process::id(), 0, &root, &stem)
    }

    const GRAPH: &str = "    # File: /srv/net.py:9 in forward, code: h\n    tanh: \"f32[8]\" = torch.ops.aten.tanh.default(x)";

    #[test]
    fn a_kernel_belongs_to_the_wrapper_with_its_source() {
        let kernel = origin_of(&folder(&[("cone", "cpp_fused_mul_tanh_0", GRAPH)])).unwrap();
        assert_eq!(
            (&*kernel.unit, kernel.operators().unwrap()),
            ("cpp_fused_mul_tanh_0", "aten::mul, aten::tanh net.py:9".into())
        );
        assert_eq!(origin_of(&folder(&[])), Err(NoOrigin::NotFound));
    }

    #[test]
    fn each_launch_has_the_nodes_of_its_own_comment() {
        let folder = tempfile::tempdir().unwrap();
        const WRAPPER: &str = include_str!("../../tests/fixtures/inductor/device_wrapper.py");
        const GRAPH: &str = include_str!("../../tests/fixtures/inductor/device_graph.txt");
        let again = "            # Topologically Sorted Source Nodes: [], Original ATen: [aten.div]\n            \
            triton_poi_fused_add_0.run(buf5, params_2, 4096, stream=raw_stream0)\n";
        std::fs::create_dir_all(folder.path().join("b3")).unwrap();
        std::fs::create_dir_all(folder.path().join("fxgraph/xy/key")).unwrap();
        let path = folder.path().join(format!("b3/{STEM}.py"));
        std::fs::write(&path, format!("{WRAPPER}{again}")).unwrap();
        let path = path.display().to_string();
        let (root, stem) = inductor::generated_file(&path).unwrap();
        let launches_at =
            |process: &mut Process, time| process.launches(std::process::id(), time, root, stem).unwrap();
        let mut process = Process::default();
        let without = launches_at(&mut process, 0);
        assert!(!without.complete && without.launches.len() == 3);
        let entry = format!("\x04cache_key\x0494{STEM}\u{c}source_code\n{GRAPH}\n");
        std::fs::write(folder.path().join("fxgraph/xy/key/entry"), entry).unwrap();
        assert!(!launches_at(&mut process, 1).complete, "not scanned again yet");
        let launches = launches_at(&mut process, SCAN_INTERVAL_NS);
        assert!(launches.complete);
        let text = format!("{WRAPPER}{again}");
        let sites = text.lines().enumerate().filter(|(_, line)| line.contains("add_0.run("));
        let origins: Vec<_> = sites
            .map(|(at, _)| {
                let kernel =
                    &launches.launches.iter().find(|launch| launch.line == at as u32 + 1).unwrap().kernel;
                (kernel.unit_label(), kernel.operators().unwrap())
            })
            .collect();
        let unit = "[inductor triton_poi_fused_add_0]".to_owned();
        let first = "aten::add net.py:11, aten::add net.py:12, aten::relu net.py:12".to_owned();
        assert_eq!(origins, [(unit.clone(), first), (unit, "aten::div".to_owned())]);
    }

    #[test]
    fn differing_wrappers_of_one_source_are_ambiguous() {
        let same = [("cone", "cpp_fused_tanh_0", GRAPH), ("ctwo", "cpp_fused_tanh_0", GRAPH)];
        assert!(origin_of(&folder(&same)).is_ok());
        let other = GRAPH.replace(":9", ":10");
        let differing = [("cone", "cpp_fused_tanh_0", GRAPH), ("ctwo", "cpp_fused_tanh_0", &other)];
        assert_eq!(origin_of(&folder(&differing)), Err(NoOrigin::Ambiguous));
    }
}
