//! The files that Inductor (`torch.compile`) writes: what they say of a kernel.
//!
//! Owns: reading generated wrappers and the text of graphs, and taking a kernel's name apart. Because: a fused kernel is called
//! `kernel` in a library of its own, and only the wrapper that has the same source tells which one it is. Does not: run or
//! import anything, open files, or choose between two ways to read a name.
//!
//! ```text
//! wrapper  # Topologically Sorted Source Nodes: [h], Original ATen: [aten.relu]     before kernels of Triton
//!          cpp_fused_mul_tanh_0 = async_compile.cpp_pybinding([…], r'''SOURCE''')
//! graph    # File: /srv/net.py:9 in forward, code: h = torch.tanh(h) * h
//!          tanh: "f32[8]" = torch.ops.aten.tanh.default(addmm)
//! ```

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Line;
use crate::framework;

/// Most kernels of a wrapper.
const KERNELS_MAX: usize = 1 << 14;
/// Most different operators of a graph.
const OPERATORS_MAX: usize = 1 << 12;
/// Most lines that are remembered of one operator of a graph; one with more has none that is certain anyway.
const LINES_MAX: usize = 4;
/// Longest name and path that are kept.
const NAME_BYTES_MAX: usize = 1024;
/// Around the source of a kernel.
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
    /// Operators, as the comment before it has them: `aten.relu`. Empty without a comment.
    pub original: Vec<String>,
}

/// The kernels that a generated wrapper defines.
pub fn parse_wrapper(text: &str) -> Vec<WrapperKernel> {
    let mut kernels = Vec::new();
    let mut original = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
        let line = &text[at..end];
        let begin = std::mem::replace(&mut at, end + 1);
        if line.starts_with('#') {
            if let Some(listed) = comment(line) {
                original = listed;
            }
            continue;
        }
        let Some((name, _)) = line.split_once(" = async_compile.") else {
            if !line.trim().is_empty() {
                original.clear();
            }
            continue;
        };
        // The source begins on this line and ends wherever it does.
        let Some(quotes) = line.find(QUOTES).map(|quotes| begin + quotes + QUOTES.len()) else { continue };
        let Some(length) = text[quotes..].find(QUOTES) else { break };
        at = quotes + length + QUOTES.len();
        if is_identifier(name) && name.len() <= NAME_BYTES_MAX && kernels.len() < KERNELS_MAX {
            let source = text[quotes..quotes + length].trim().to_owned();
            let original = std::mem::take(&mut original);
            kernels.push(WrapperKernel { name: name.to_owned(), source, original });
        }
    }
    kernels
}

/// The operators that a comment of Inductor lists.
fn comment(line: &str) -> Option<Vec<String>> {
    let (before, listed) = line.split_once("Original ATen: [")?;
    let (listed, _) = listed.split_once(']')?;
    if !before.contains("Source Nodes: [") {
        return None;
    }
    let names = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
    Some(names.take(NAMED_MAX).map(|name| name.chars().take(NAME_BYTES_MAX).collect()).collect())
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Which lines of the program asked for each operator of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    lines: FxHashMap<String, Vec<Line>>,
}

impl Graph {
    /// The only line that asked for an operator (`mul`); `None` when there is none, or more than one.
    pub fn line(&self, operator: &str) -> Option<&Line> {
        match self.lines.get(operator).map(Vec::as_slice) {
            Some([line]) => Some(line),
            _ => None,
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Reads the text of a graph out of an entry of Inductor's cache, which holds it as it is among other things.
pub fn parse_graph(bytes: &[u8]) -> Graph {
    const PLACE: &[u8] = b"File: ";
    const CALL: &[u8] = b" = torch.ops.aten.";
    let mut graph = Graph::default();
    let mut at: Option<Line> = None;
    for line in bytes.split(|b| *b == b'\n') {
        let code = line.trim_ascii_start();
        if code.starts_with(b"#") {
            at = find(code, PLACE).and_then(|begin| place(&code[begin + PLACE.len()..]));
            continue;
        }
        let Some(begin) = find(code, CALL) else {
            // A graph's lines follow each other; anything else ends what was said of a place.
            at = None;
            continue;
        };
        let name = &code[begin + CALL.len()..];
        let name = &name[..name.iter().position(|b| matches!(b, b'.' | b'(')).unwrap_or(0)];
        let Some((name, line)) = str::from_utf8(name).ok().zip(at.clone()) else { continue };
        if !is_identifier(name) || name.len() > NAME_BYTES_MAX {
            continue;
        }
        if graph.lines.len() < OPERATORS_MAX || graph.lines.contains_key(name) {
            let lines = graph.lines.entry(name.to_owned()).or_default();
            if lines.len() < LINES_MAX && !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    graph
}

/// `/srv/net.py:9 in forward, code: …`
fn place(text: &[u8]) -> Option<Line> {
    let text = str::from_utf8(&text[..text.len().min(2 * NAME_BYTES_MAX)]).ok()?;
    let (place, rest) = text.split_once(" in ")?;
    let (file, line) = place.rsplit_once(':')?;
    let function = rest.split(", code:").next().unwrap_or_default();
    let line = line.parse().ok().filter(|line| *line > 0)?;
    (!file.is_empty()).then(|| Line { file: file.into(), function: function.trim().into(), line })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The operators in the name of a kernel: `mul`, `tanh` of `cpp_fused_mul_tanh_0`. `None` when the name can be read in more
/// than one way, or in none.
pub fn operators_in_name(kernel: &str) -> Option<Vec<&'static str>> {
    let (_, rest) = kernel.split_once("fused_")?;
    let (names, number) = rest.rsplit_once('_')?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) || names.len() > NAME_BYTES_MAX {
        return None;
    }
    // How many ways there are to read the rest after each name: Inductor sorts them, and has each once. So a way is a rising
    // sequence of names, and the number of ways is bounded by keeping two at most.
    let mut ways: Vec<(usize, Vec<&'static str>)> = vec![(0, Vec::new())];
    let mut whole: Vec<Vec<&'static str>> = Vec::new();
    while let Some((at, read)) = ways.pop() {
        let rest = &names[at..];
        for end in rest.match_indices('_').map(|(end, _)| end).chain([rest.len()]) {
            let Some(name) = framework::base_name(&rest[..end]) else { continue };
            if read.last().is_some_and(|last| *last >= name) || read.len() >= NAMED_MAX {
                continue;
            }
            let mut read = read.clone();
            read.push(name);
            if end == rest.len() {
                whole.push(read);
            } else {
                ways.push((at + end + 1, read));
            }
        }
        if whole.len() > 1 || ways.len() > 256 {
            return None;
        }
    }
    whole.pop()
}

/// `aten::relu` of `aten.relu`, `aten.relu.default` and the like.
pub(super) fn operator_name(original: &str) -> Arc<str> {
    original.strip_prefix("aten.").map_or_else(|| original.into(), |name| format!("aten::{name}").into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A wrapper and the cache's entry that torch 2.15 wrote for a network of two layers, shortened.
    const WRAPPER: &str = include_str!("../../tests/fixtures/inductor/wrapper.py");
    const ENTRY: &[u8] = include_bytes!("../../tests/fixtures/inductor/graph.txt");

    #[test]
    fn kernels_of_a_generated_wrapper_are_found() {
        let kernels = parse_wrapper(WRAPPER);
        let names: Vec<_> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["cpp_fused_mul_sigmoid_tanh_0", "cpp_fused__softmax_add_1"]);
        assert!(kernels[0].source.starts_with("#include <torch/csrc/inductor/cpp_prefix.h>"));
        assert!(kernels[1].source.ends_with('}') && kernels[1].original.is_empty());
    }

    #[test]
    fn a_comment_before_a_kernel_names_its_operators() {
        let text = "# kernel path: /tmp/x/cab.py\n\
            # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.add, aten.relu]\n\
            # Source node to ATen node mapping:\n#   x => add\n\
            triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''\nimport triton\n''', device_str='cuda')\n\
            \n\
            triton_poi_fused_mul_1 = async_compile.triton('triton_poi_fused_mul_1', '''\nimport triton # = async_compile.x(\n''')\n\
            # Topologically Sorted Source Nodes: [h], Original ATen: [aten.mm]\n\
            extern_kernels.mm(a, b)\n\
            cpp_fused_x_2 = async_compile.cpp([], '''no end";
        let kernels = parse_wrapper(text);
        let original: Vec<_> = kernels.iter().map(|k| (k.name.as_str(), k.original.join(" "))).collect();
        assert_eq!(
            original,
            [
                ("triton_poi_fused_add_relu_0", "aten.add aten.relu".to_owned()),
                ("triton_poi_fused_mul_1", String::new())
            ]
        );
    }

    #[test]
    fn the_graph_tells_the_lines_of_operators() {
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
    fn names_of_kernels_are_taken_apart_where_there_is_one_way() {
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
        fn any_text_has_kernels_whose_source_is_in_it(text in r"([a-z_#' =.\n]|''' ?|x = async_compile\.|\[|\]|é){0,80}") {
            for kernel in parse_wrapper(&text) {
                prop_assert!(text.contains(&kernel.source) && text.contains(&kernel.name));
            }
            let _ = parse_graph(text.as_bytes());
            let _ = operators_in_name(&text);
        }
    }
}
