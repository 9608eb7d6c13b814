//! What Inductor left of the kernels that a process runs.
//!
//! Owns: Inductor's folder of a process: which files are read when, and which wrapper a library belongs to. Because: the folder
//! grows while the program compiles, and holds what other programs of the same user compiled. Does not: parse
//! (`inductor`).

use std::path::Path;
use std::sync::Arc;

use deepctx_names::inductor::STEM_BYTES;
use rustc_hash::{FxHashMap, FxHashSet};

use super::comment::{Comment, Site};
use super::device::{Launched, Launches};
use super::folder::Folder;
use super::inductor::{
    Graph, Wrapper, WrapperKernel, operator_name, operators_in_name, parse_graph, parse_wrapper,
};
use super::{Answer, Compiler, Kernel, Line, NoKernel, Op};

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Most files read at one look; the next look goes on.
const FILES_TOGETHER: usize = 1024;
/// Most files and kernels of one process.
const FILES_MAX: usize = 1 << 14;
/// Shortest time between two looks at the folder.
const LOOK_NS: u64 = 1_000_000_000;

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
    /// When graphs were looked for alone.
    graphs_at_ns: Option<u64>,
}

impl Process {
    fn open(&mut self, pid: u32, root: &str) {
        if self.folder.as_ref().is_none_or(|(of, _)| of != root) {
            let folder = Folder::open(pid, Path::new(root));
            *self = Self { folder: Some((root.to_owned(), folder)), ..Self::default() };
        }
    }

    /// What a wrapper in Inductor's folder launches.
    pub(super) fn launches(
        &mut self,
        pid: u32,
        time_ns: u64,
        root: &str,
        stem: &str,
    ) -> Result<Launches, NoKernel> {
        self.open(pid, root);
        let Some((_, Some(folder))) = &self.folder else { return Err(NoKernel::NoFiles) };
        let (part, name) = stem.split_once('/').ok_or(NoKernel::NotCompiled)?;
        let text = folder.inner(part).and_then(|part| part.read(&format!("{name}.py"), FILE_BYTES_MAX));
        let wrapper = parse_wrapper(&String::from_utf8_lossy(&text.ok_or(NoKernel::NotThere)?));
        let due = self.graphs_at_ns.is_none_or(|at| time_ns.saturating_sub(at) >= LOOK_NS);
        if due && !self.graphs.contains_key(name) {
            self.graphs_at_ns = Some(time_ns);
            if let Some((root, Some(folder))) = self.folder.take() {
                self.look_for_graphs(&folder, &mut { FILES_TOGETHER });
                self.folder = Some((root, Some(folder)));
            }
        }
        let graph = self.graphs.get(name);
        Ok(Launches { launched: launches(&wrapper, graph), complete: graph.is_some() })
    }

    /// The kernel of a library in Inductor's folder.
    pub(super) fn kernel(&mut self, pid: u32, time_ns: u64, root: &str, stem: &str) -> Answer {
        self.open(pid, root);
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
        ops_of(&kernel.name, &kernel.comment, self.graphs.get(wrapper))
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
                    let kernels = parse_wrapper(&String::from_utf8_lossy(&text)).kernels;
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

/// The operators of a kernel: the nodes that its comment has, else the operators that it lists, else those in the name.
fn ops_of(name: &str, comment: &Comment, graph: Option<&Graph>) -> Vec<Op> {
    let only = |operator: &str| graph.and_then(|graph| graph.line(operator));
    let mut ops: Vec<Op> = Vec::new();
    let mut add = |operator: Arc<str>, line: Option<&Line>| {
        let op = Op { name: operator, stack: line.into_iter().cloned().collect() };
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

/// What each place of a wrapper launches.
fn launches(wrapper: &Wrapper, graph: Option<&Graph>) -> Vec<Launched> {
    let mut launched = Vec::new();
    for kernel in &wrapper.kernels {
        let Some(name) = kernel.device_name() else { continue };
        let mut add = |line: u32, comment: &Comment| {
            let ops = ops_of(&kernel.name, comment, graph);
            let unit = kernel.name.as_str().into();
            let kernel = Arc::new(Kernel { compiler: Compiler::Inductor, unit, ops, others: Vec::new() });
            launched.push(Launched { name: name.to_owned(), line, kernel });
        };
        let sites = wrapper.sites.iter().filter(|site| site.kernel == kernel.name);
        let mut sites: Vec<&Site> = sites.collect();
        if sites.is_empty() {
            add(0, &kernel.comment);
        }
        // The comment before the kernel is that of its first launch, with the nodes.
        for (n, site) in sites.drain(..).enumerate() {
            let own = &site.comment;
            let same = own.original == kernel.comment.original
                && own.source == kernel.comment.source
                && (n == 0 || !own.source.is_empty());
            add(site.line, if same { &kernel.comment } else { own });
        }
    }
    launched
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
    use deepctx_names::inductor;

    use super::*;

    const STEM: &str = "cb3wc4wyxywkgyi4z3cjy33xy4yxg4docatly5ghvdqw3xbolhx3";

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
    fn each_launch_of_a_kernel_has_the_nodes_of_its_own_comment() {
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
        let ask =
            |process: &mut Process, time| process.launches(std::process::id(), time, root, stem).unwrap();
        let mut process = Process::default();
        let without = ask(&mut process, 0);
        assert!(!without.complete && without.launched.len() == 3);
        let entry = format!("\x04cache_key\x0494{STEM}\u{c}source_code\n{GRAPH}\n");
        std::fs::write(folder.path().join("fxgraph/xy/key/entry"), entry).unwrap();
        assert!(!ask(&mut process, 1).complete, "not looked again yet");
        let launches = ask(&mut process, LOOK_NS);
        assert!(launches.complete);
        let text = format!("{WRAPPER}{again}");
        let sites = text.lines().enumerate().filter(|(_, line)| line.contains("add_0.run("));
        let told: Vec<_> = sites
            .map(|(at, _)| {
                let kernel =
                    &launches.launched.iter().find(|launched| launched.line == at as u32 + 1).unwrap().kernel;
                (kernel.unit_label(), kernel.operators().unwrap())
            })
            .collect();
        let unit = "[inductor triton_poi_fused_add_0]".to_owned();
        let first = "aten::add net.py:11, aten::add net.py:12, aten::relu net.py:12".to_owned();
        assert_eq!(told, [(unit.clone(), first), (unit, "aten::div".to_owned())]);
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
