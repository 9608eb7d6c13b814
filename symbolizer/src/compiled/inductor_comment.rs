//! Comments of a generated wrapper: the graph nodes that a kernel, or one launch of it, was compiled from.
//!
//! Owns: parsing them line by line, and the launch sites of kernels. Because: equal kernels are defined once and
//! launched from several lines for different nodes, and only the comment before a launch says for which. Does not:
//! know source lines of the program (the graph does).
//!
//! ```text
//! # Topologically Sorted Source Nodes: [h], Original ATen: [aten.add, aten.relu]
//! # Graph fragment:
//! #   %relu : Tensor "f32[8]"[num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%add,), kwargs = {})
//!             triton_poi_fused_add_relu_0.run(buf1, arg0, 4096, stream=raw_stream0)
//! ```

/// Most operators in a comment, and most nodes of a fragment.
const LISTED_MAX: usize = 256;
/// Longest name kept.
const NAME_BYTES_MAX: usize = 1024;
/// The call that launches a Triton kernel.
const RUN: &str = ".run(";

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name in the graph: `relu_1`.
    pub name: String,
    /// Operator that it calls: `aten.relu`.
    pub operator: String,
}

/// The content of a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comment {
    /// Nodes of the source graph, as listed. They distinguish two launches of a kernel.
    pub source: String,
    /// Operators before decomposition: `aten.relu`.
    pub original: Vec<String>,
    /// Nodes of the compiled graph; only in comments before a kernel definition.
    pub nodes: Vec<Node>,
}

/// A launch of a kernel in a wrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSite {
    /// Line number, from 1.
    pub line: u32,
    /// Name of the kernel in the wrapper.
    pub kernel: String,
    /// The comment before the launch.
    pub comment: Comment,
}

impl Comment {
    /// Adds a line that starts with `#`. The first line of a comment replaces the previous comment.
    pub(super) fn add_line(&mut self, line: &str) {
        if let Some(comment) = first_line(line) {
            *self = comment;
        } else if let Some(node) = node(line).filter(|_| self.nodes.len() < LISTED_MAX) {
            self.nodes.push(node);
        }
    }
}

/// `# Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.add, aten.relu]`
fn first_line(line: &str) -> Option<Comment> {
    let (before, listed) = line.split_once("Original ATen: [")?;
    let (listed, _) = listed.split_once(']')?;
    let (_, source) = before.split_once("Source Nodes: [")?;
    let (source, _) = source.split_once(']')?;
    let names = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
    let original = names.take(LISTED_MAX).map(truncated).collect();
    Some(Comment { source: truncated(source), original, nodes: Vec::new() })
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
        .then(|| Node { name: name.to_owned(), operator: truncated(&operator) })
}

/// The kernel that a line of a wrapper launches.
pub(super) fn launched_kernel(line: &str) -> Option<&str> {
    let (kernel, _) = line.trim_start().split_once(RUN)?;
    is_identifier(kernel).then_some(kernel)
}

pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn truncated(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}
