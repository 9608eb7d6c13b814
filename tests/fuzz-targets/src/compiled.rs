//! Files that compilers write about compiled code, as arbitrary bytes: object files, modules of XLA in both forms,
//! Inductor's files and Triton's.
//!
//! The first byte selects the format of the rest. Beyond "no panic, no hang, bounded memory": results lie within the
//! input.

use deepctx_symbolizer::compiled::hlo::{find_modules, objects, parse_text};
use deepctx_symbolizer::compiled::inductor::{operators_in_name, parse_graph, parse_wrapper};
use deepctx_symbolizer::compiled::triton_cache::parse_location;
use deepctx_symbolizer::jit::functions;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    match kind % 7 {
        0 => {
            for function in functions(data) {
                assert!(function.size > 0 && function.address.checked_add(function.size).is_some());
            }
        }
        1 => {
            if let Some(module) = parse_text(&text) {
                // Kernels are looked up by names that the process supplies.
                for name in text.split([' ', '%', '=', '(']).take(64) {
                    let _ = module.kernel(name, &|other| other.len() > name.len());
                }
                assert!(module.device_names().all(|name| !name.contains(['.', '-'])));
            }
        }
        2 => {
            for module in find_modules(data) {
                let _ = module.kernel("fusion", &|_| false);
            }
            assert!(objects(data).iter().map(|object| object.len()).sum::<usize>() <= data.len());
        }
        3 => {
            let wrapper = parse_wrapper(&text);
            for kernel in &wrapper.kernels {
                assert!(text.contains(&kernel.source) && text.contains(&kernel.name));
                assert!(kernel.device_name().is_none_or(|name| kernel.source.contains(name)));
            }
            let lines = text.lines().count();
            for site in &wrapper.sites {
                assert!(text.contains(&site.kernel) && (1..=lines).contains(&(site.line as usize)));
            }
            // The nodes of a wrapper are looked up in graphs of arbitrary content.
            let graph = parse_graph(data);
            for node in wrapper.sites.iter().flat_map(|site| &site.comment.nodes) {
                assert!(graph.line_of(node).is_none_or(|line| text.contains(&*line.file)));
            }
        }
        4 => _ = parse_graph(data),
        5 => {
            let (name, code) = text.split_once('\n').unwrap_or_default();
            assert!(parse_location(code, name).is_none_or(|line| code.contains(&*line.file)));
        }
        _ => {
            for operator in operators_in_name(&text).unwrap_or_default() {
                assert!(text.contains(operator));
            }
        }
    }
}
