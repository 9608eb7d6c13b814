//! The comments of a generated wrapper: which nodes of the graph a kernel, or one call of it, was made from.
//!
//! Owns: reading them line by line, and the places that launch kernels. Because: equal kernels are defined once and launched from
//! several lines, each for other nodes, and only the comment before a call says for which. Does not: know lines of the
//! program (the graph does).
//!
//! ```text
//! # Topologically Sorted Source Nodes: [h], Original ATen: [aten.add, aten.relu]
//! # Graph fragment:
//! #   %relu : Tensor "f32[8]"[num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%add,), kwargs = {})
//!             triton_poi_fused_add_relu_0.run(buf1, arg0, 4096, stream=raw_stream0)
//! ```

/// Most operators in a comment, and most nodes of a fragment.
const LISTED_MAX: usize = 256;
/// Longest name that is kept.
const NAME_BYTES_MAX: usize = 1024;
/// How a kernel of Triton is launched.
const RUN: &str = ".run(";

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name in the graph: `relu_1`.
    pub name: String,
    /// What it calls: `aten.relu`.
    pub operator: String,
}

/// What a comment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comment {
    /// Nodes of the program's graph, as the comment lists them. They tell two calls of a kernel apart.
    pub source: String,
    /// Operators before they were taken apart: `aten.relu`.
    pub original: Vec<String>,
    /// Nodes of the compiled graph. Only comments before a kernel have them.
    pub nodes: Vec<Node>,
}

/// A place in a wrapper that launches a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its line, from 1.
    pub line: u32,
    /// The kernel, as the wrapper calls it.
    pub kernel: String,
    /// The comment before it.
    pub comment: Comment,
}

impl Comment {
    /// Takes in a line that begins with `#`. One that begins a comment ends the one before.
    pub(super) fn read(&mut self, line: &str) {
        if let Some(begun) = begun(line) {
            *self = begun;
        } else if let Some(node) = node(line).filter(|_| self.nodes.len() < LISTED_MAX) {
            self.nodes.push(node);
        }
    }
}

/// `# Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.add, aten.relu]`
fn begun(line: &str) -> Option<Comment> {
    let (before, listed) = line.split_once("Original ATen: [")?;
    let (listed, _) = listed.split_once(']')?;
    let (_, source) = before.split_once("Source Nodes: [")?;
    let (source, _) = source.split_once(']')?;
    let names = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
    let original = names.take(LISTED_MAX).map(cut).collect();
    Some(Comment { source: cut(source), original, nodes: Vec::new() })
}

/// `#   %relu : … = call_function[target=torch.ops.aten.relu.default](…)`
fn node(line: &str) -> Option<Node> {
    let line = line.trim_start_matches('#').trim_start().strip_prefix('%')?;
    let (name, rest) = line.split_once(' ')?;
    let (_, target) = rest.split_once("call_function[target=torch.ops.")?;
    let (target, _) = target.split_once(']')?;
    let mut parts = target.split('.');
    let operator = format!("{}.{}", parts.next()?, parts.next()?);
    (is_identifier(name) && name.len() <= NAME_BYTES_MAX)
        .then(|| Node { name: name.to_owned(), operator: cut(&operator) })
}

/// The kernel that a line of a wrapper launches.
pub(super) fn launched(line: &str) -> Option<&str> {
    let (kernel, _) = line.trim_start().split_once(RUN)?;
    is_identifier(kernel).then_some(kernel)
}

pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn cut(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}
