//! The files that Inductor (`torch.compile`) writes.
//!
//! Owns: parsing generated wrappers and the text of graphs, and splitting a kernel's name into operators. Because: a
//! fused kernel is called `kernel` in a library of its own, and only the wrapper with the same source identifies it.
//! Does not: run or import anything, open files, or choose between two ways to split a name.
//!
//! ```text
//! wrapper  # Topologically Sorted Source Nodes: [h], Original ATen: [aten.relu]     before Triton kernels
//!          cpp_fused_mul_tanh_0 = async_compile.cpp_pybinding([…], r'''SOURCE''')
//!          triton_poi_fused_relu_1.run(buf0, 4096, stream=raw_stream0)
//! graph    # File: /srv/net.py:9 in forward, code: h = torch.tanh(h) * h
//!          tanh: "f32[8]" = torch.ops.aten.tanh.default(addmm)
//! ```

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::SourceLine;
use super::inductor_comment::{Comment, LaunchSite, Node, is_identifier, launched_kernel};

/// Most kernels, and most launches, of a wrapper.
const KERNELS_MAX: usize = 1 << 14;
/// Most different operators of a graph.
const OPERATORS_MAX: usize = 1 << 12;
/// Most nodes of a graph.
const NODES_MAX: usize = 1 << 16;
/// Most lines kept of one operator of a graph; with more than one, none is certain.
const LINES_MAX: usize = 4;
/// Longest name and path kept.
const NAME_BYTES_MAX: usize = 1024;
/// The quotes around the source of a kernel.
const QUOTES: &str = "'''";
/// Most operators in the name of a kernel: Inductor lists ten.
const NAMED_MAX: usize = 32;

/// A kernel of a generated wrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrapperKernel {
    /// `cpp_fused_mul_tanh_0`, `triton_poi_fused_relu_1`.
    pub name: String,
    /// Its source text.
    pub source: String,
    /// The comment before it.
    pub comment: Comment,
}

impl WrapperKernel {
    /// The name of the kernel on the device: the function in its source, if that is Triton.
    pub fn device_name(&self) -> Option<&str> {
        let (_, after) = self.source.split_once("@triton.jit")?;
        let (name, _) = after.trim_start().strip_prefix("def ")?.split_once('(')?;
        is_identifier(name).then_some(name)
    }
}

/// A generated wrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrapper {
    /// Defined kernels.
    pub kernels: Vec<WrapperKernel>,
    /// Launches of Triton kernels.
    pub sites: Vec<LaunchSite>,
}

/// Parses a generated wrapper.
pub fn parse_wrapper(text: &str) -> Wrapper {
    let mut wrapper = Wrapper::default();
    let mut comment = Comment::default();
    let (mut at, mut number) = (0, 0_u32);
    while at < text.len() {
        let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
        let line = &text[at..end];
        let begin = std::mem::replace(&mut at, end + 1);
        number = number.saturating_add(1);
        if line.trim_start().starts_with('#') {
            comment.add_line(line.trim_start());
            continue;
        }
        let Some((name, _)) = line.split_once(" = async_compile.") else {
            if let Some(kernel) = launched_kernel(line) {
                let comment = std::mem::take(&mut comment);
                if wrapper.sites.len() < KERNELS_MAX && kernel.len() <= NAME_BYTES_MAX {
                    wrapper.sites.push(LaunchSite { line: number, kernel: kernel.to_owned(), comment });
                }
            } else if line.contains("extern_kernels.") {
                comment = Comment::default();
            }
            continue;
        };
        // The source starts on this line and may end on a later one.
        let Some(quotes) = line.find(QUOTES).map(|quotes| begin + quotes + QUOTES.len()) else { continue };
        let Some(length) = text[quotes..].find(QUOTES) else { break };
        at = quotes + length + QUOTES.len();
        // The text after the closing quotes is parsed as a line with their line number.
        let lines = text[begin..at].bytes().filter(|b| *b == b'\n').count();
        number = number.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX)).saturating_sub(1);
        let comment = std::mem::take(&mut comment);
        if is_identifier(name) && name.len() <= NAME_BYTES_MAX && wrapper.kernels.len() < KERNELS_MAX {
            let source = text[quotes..quotes + length].trim().to_owned();
            wrapper.kernels.push(WrapperKernel { name: name.to_owned(), source, comment });
        }
    }
    wrapper
}

/// The source lines of the operators of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Lines by ATen operator.
    lines: FxHashMap<String, Vec<SourceLine>>,
    /// Operator and line by node; `None` for a name that two nodes have.
    nodes: FxHashMap<String, Option<(String, SourceLine)>>,
}

impl Graph {
    /// The only line of an operator (`mul`); `None` when there is none, or more than one.
    pub fn line(&self, operator: &str) -> Option<&SourceLine> {
        match self.lines.get(operator).map(Vec::as_slice) {
            Some([line]) => Some(line),
            _ => None,
        }
    }

    /// The line of a node, if the node here calls the same operator.
    pub fn line_of(&self, node: &Node) -> Option<&SourceLine> {
        let (operator, line) = self.nodes.get(&node.name)?.as_ref()?;
        (*operator == node.operator).then_some(line)
    }

    /// True without operators.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Parses the text of a graph from an entry of Inductor's cache, which contains it among other data.
pub fn parse_graph(bytes: &[u8]) -> Graph {
    const PLACE: &[u8] = b"File: ";
    let mut graph = Graph::default();
    let mut at: Option<SourceLine> = None;
    for line in bytes.split(|b| *b == b'\n') {
        let code = line.trim_ascii_start();
        if code.starts_with(b"#") {
            at = find(code, PLACE).and_then(|begin| location(&code[begin + PLACE.len()..]));
            continue;
        }
        let Some(node) = assigned(code) else {
            // The lines of a graph follow each other; any other line ends the scope of a comment.
            at = None;
            continue;
        };
        if let Some((operator, line)) = called(code).zip(at.as_ref()) {
            graph.add(node, &operator, line);
        }
    }
    graph
}

impl Graph {
    fn add(&mut self, node: &str, operator: &str, line: &SourceLine) {
        if self.nodes.len() < NODES_MAX || self.nodes.contains_key(node) {
            let known = Some((operator.to_owned(), line.clone()));
            let kept = self.nodes.entry(node.to_owned()).or_insert_with(|| known.clone());
            if *kept != known {
                *kept = None;
            }
        }
        let Some(name) = operator.strip_prefix("aten.") else { return };
        if self.lines.len() < OPERATORS_MAX || self.lines.contains_key(name) {
            let lines = self.lines.entry(name.to_owned()).or_default();
            if lines.len() < LINES_MAX && !lines.contains(line) {
                lines.push(line.clone());
            }
        }
    }
}

/// The node that a line assigns: `relu` in `relu: "f32[8]" = …`.
fn assigned(code: &[u8]) -> Option<&str> {
    let end = code.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    let is_assignment = code[end..].starts_with(b": ") || code[end..].starts_with(b" = ");
    let node = str::from_utf8(&code[..end]).ok()?;
    (is_assignment && is_identifier(node) && node.len() <= NAME_BYTES_MAX).then_some(node)
}

/// The operator that a line calls: `aten.relu` in `… = torch.ops.aten.relu.default(…)`.
fn called(code: &[u8]) -> Option<String> {
    const CALL: &[u8] = b" = torch.ops.";
    let begin = find(code, CALL)? + CALL.len();
    let mut parts = code[begin..].splitn(3, |b| *b == b'.');
    let mut part = || {
        let part = parts.next()?;
        let end = part.iter().position(|b| *b == b'(').unwrap_or(part.len());
        let part = str::from_utf8(&part[..end]).ok()?;
        (is_identifier(part) && part.len() <= NAME_BYTES_MAX).then_some(part)
    };
    Some(format!("{}.{}", part()?, part()?))
}

/// `/srv/net.py:9 in forward, code: …`
fn location(text: &[u8]) -> Option<SourceLine> {
    let text = str::from_utf8(&text[..text.len().min(2 * NAME_BYTES_MAX)]).ok()?;
    let (location, rest) = text.split_once(" in ")?;
    let (file, line) = location.rsplit_once(':')?;
    let function = rest.split(", code:").next().unwrap_or_default();
    let line = line.parse().ok().filter(|line| *line > 0)?;
    (!file.is_empty()).then(|| SourceLine { file: file.into(), function: function.trim().into(), line })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The operators in the name of a kernel: `mul`, `tanh` in `cpp_fused_mul_tanh_0`. `None` when the name can be split
/// in more than one way, or in none.
pub fn operators_in_name(kernel: &str) -> Option<Vec<&'static str>> {
    let (_, rest) = kernel.split_once("fused_")?;
    let (names, number) = rest.rsplit_once('_')?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) || names.len() > NAME_BYTES_MAX {
        return None;
    }
    // Inductor sorts the names and lists each once, so a split is a rising sequence of names. The search ends at the
    // second complete split.
    let mut open: Vec<(usize, Vec<&'static str>)> = vec![(0, Vec::new())];
    let mut complete: Vec<Vec<&'static str>> = Vec::new();
    while let Some((at, read)) = open.pop() {
        let rest = &names[at..];
        for end in rest.match_indices('_').map(|(end, _)| end).chain([rest.len()]) {
            let Some(name) = deepctx_names::framework::aten_base_name(&rest[..end]) else { continue };
            if read.last().is_some_and(|last| *last >= name) || read.len() >= NAMED_MAX {
                continue;
            }
            let mut read = read.clone();
            read.push(name);
            if end == rest.len() {
                complete.push(read);
            } else {
                open.push((at + end + 1, read));
            }
        }
        if complete.len() > 1 || open.len() > 256 {
            return None;
        }
    }
    complete.pop()
}

/// `aten::relu` for `aten.relu`.
pub(super) fn operator_name(original: &str) -> Arc<str> {
    match original.split_once('.') {
        Some((space @ ("aten" | "prims"), name)) => format!("{space}::{name}").into(),
        _ => original.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A wrapper and the cache entry that torch 2.15 wrote for a network of two layers, shortened.
    const WRAPPER: &str = include_str!("../../tests/fixtures/inductor/wrapper.py");
    const ENTRY: &[u8] = include_bytes!("../../tests/fixtures/inductor/graph.txt");

    #[test]
    fn kernels_of_a_generated_wrapper_are_parsed() {
        let kernels = parse_wrapper(WRAPPER).kernels;
        let names: Vec<_> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["cpp_fused_mul_sigmoid_tanh_0", "cpp_fused__softmax_add_1"]);
        assert!(kernels[0].source.starts_with("#include <torch/csrc/inductor/cpp_prefix.h>"));
        assert!(kernels[1].source.ends_with('}') && kernels[1].comment.original.is_empty());
    }

    #[test]
    fn a_comment_before_a_kernel_lists_its_operators() {
        let text = "# kernel path: /tmp/x/cab.py\n\
            # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.add, aten.relu]\n\
            # Source node to ATen node mapping:\n#   x => add\n\
            triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''\nimport triton\n''', device_str='cuda')\n\
            \n\
            triton_poi_fused_mul_1 = async_compile.triton('triton_poi_fused_mul_1', '''\nimport triton # = async_compile.x(\n''')\n\
            # Topologically Sorted Source Nodes: [h], Original ATen: [aten.mm]\n\
            extern_kernels.mm(a, b)\n\
            cpp_fused_x_2 = async_compile.cpp([], '''no end";
        let kernels = parse_wrapper(text).kernels;
        let original: Vec<_> =
            kernels.iter().map(|k| (k.name.as_str(), k.comment.original.join(" "))).collect();
        assert_eq!(
            original,
            [
                ("triton_poi_fused_add_relu_0", "aten.add aten.relu".to_owned()),
                ("triton_poi_fused_mul_1", String::new())
            ]
        );
    }

    /// A wrapper that torch 2.15 generated for an NVIDIA device, of the same kind of network, and its graph.
    const DEVICE_WRAPPER: &str = include_str!("../../tests/fixtures/inductor/device_wrapper.py");
    const DEVICE_GRAPH: &[u8] = include_bytes!("../../tests/fixtures/inductor/device_graph.txt");

    #[test]
    fn nodes_of_a_kernel_have_lines_from_the_graph() {
        let wrapper = parse_wrapper(DEVICE_WRAPPER);
        let graph = parse_graph(DEVICE_GRAPH);
        let nodes: Vec<_> = wrapper
            .kernels
            .iter()
            .map(|kernel| {
                let nodes = kernel.comment.nodes.iter();
                let line = |node| graph.line_of(node).map(|line| line.line);
                (
                    kernel.device_name().unwrap(),
                    nodes.map(|node| (node.operator.as_str(), line(node))).collect(),
                )
            })
            .collect();
        let first: Vec<_> = vec![("aten.add", Some(11)), ("aten.add", Some(12)), ("aten.relu", Some(12))];
        let second: Vec<_> = vec![
            ("aten.add", Some(13)),
            ("aten.sigmoid", Some(14)),
            ("aten.mul", Some(14)),
            ("prims.prepare_softmax_online", None),
            ("aten.sub", Some(15)),
            ("aten.exp", Some(15)),
            ("aten.div", Some(15)),
        ];
        assert_eq!(
            nodes,
            [
                ("triton_poi_fused_add_0", first),
                ("triton_per_fused_add_exp_prepare_softmax_online_sub_1", second)
            ]
        );
        let sites: Vec<_> =
            wrapper.sites.iter().map(|site| (site.kernel.as_str(), &site.comment.original)).collect();
        assert_eq!(sites.len(), 2);
        for (site, kernel) in wrapper.sites.iter().zip(&wrapper.kernels) {
            let line = DEVICE_WRAPPER.lines().nth(site.line as usize - 1).unwrap();
            assert!(line.trim_start().starts_with(&format!("{}.run(", kernel.name)), "{line}");
            assert_eq!((&site.kernel, &site.comment.original), (&kernel.name, &kernel.comment.original));
        }
    }

    #[test]
    fn a_node_of_two_graphs_has_their_common_line() {
        let graph = |line: u32| {
            format!("# File: /n.py:{line} in f, code: x\nadd: \"f32[8]\" = torch.ops.aten.add.Tensor(a, b)\n")
        };
        let node = |operator: &str| Node { name: "add".into(), operator: operator.into() };
        let line =
            |text: String, operator| parse_graph(text.as_bytes()).line_of(&node(operator)).map(|at| at.line);
        assert_eq!(line(graph(3) + &graph(3), "aten.add"), Some(3));
        assert_eq!(line(graph(3) + &graph(4), "aten.add"), None);
        assert_eq!(line(graph(3), "aten.sub"), None);
    }

    #[test]
    fn the_graph_has_the_lines_of_operators() {
        let graph = parse_graph(ENTRY);
        let line = |operator| graph.line(operator).map(|line| (&*line.function, line.line));
        assert_eq!(line("tanh"), Some(("forward", 9)));
        assert_eq!(line("sigmoid"), Some(("forward", 9)));
        assert_eq!(line("exp"), Some(("forward", 11)));
        // Two lines call it.
        assert_eq!(line("addmm"), None);
        assert_eq!(line("conv2d"), None);
    }

    fn check(name: &str, expect: &[&str]) {
        assert_eq!(operators_in_name(name).unwrap_or_default(), expect, "{name}");
    }

    #[test]
    fn kernel_names_are_split_if_unambiguous() {
        check("cpp_fused_mul_sigmoid_tanh_0", &["mul", "sigmoid", "tanh"]);
        check("cpp_fused__softmax_add_1", &["_softmax", "add"]);
        check("cpp_fused__softmax_backward_data_0", &["_softmax_backward_data"]);
        check(
            "cpp_fused_add_mul_sigmoid_sigmoid_backward_sum_tanh_tanh_backward_1",
            &["add", "mul", "sigmoid", "sigmoid_backward", "sum", "tanh", "tanh_backward"],
        );
        check("triton_red_fused_native_layer_norm_12", &["native_layer_norm"]);
        for name in ["kernel", "cpp_fused_0", "cpp_fused_nothing_0", "cpp_fused_mul", "cpp_fused_mul_x"] {
            check(name, &[]);
        }
        check(&format!("cpp_fused_{}0", "add_".repeat(200)), &[]);
    }

    proptest! {
        #[test]
        fn any_text_gives_kernels_from_it(text in r"([a-z_#' =.\n]|''' ?|x = async_compile\.|x\.run\(|@triton\.jit|def |\[|\]|é){0,80}") {
            let wrapper = parse_wrapper(&text);
            for kernel in &wrapper.kernels {
                prop_assert!(text.contains(&kernel.source) && text.contains(&kernel.name));
                let _ = kernel.device_name();
            }
            for site in &wrapper.sites {
                let line = text.split('\n').nth(site.line as usize - 1).unwrap_or_default();
                prop_assert!(line.contains(&format!("{}.run(", site.kernel)), "{site:?}");
            }
            let _ = parse_graph(text.as_bytes());
            let _ = operators_in_name(&text);
        }
    }
}
