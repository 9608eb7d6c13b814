//! What compilers leave of compiled code, as arbitrary bytes: object files, modules of XLA in both forms, Inductor's files.
//!
//! The first byte says what the rest is. Beyond "no panic, no hang, bounded memory": what is found is within what went in.
#![no_main]

use deepctx_symbolizer::compiled::hlo::{find_modules, objects, parse_text};
use deepctx_symbolizer::compiled::inductor::{operators_in_name, parse_graph, parse_wrapper};
use deepctx_symbolizer::jit::functions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    match kind % 6 {
        0 => {
            for function in functions(data) {
                assert!(function.size > 0 && function.address.checked_add(function.size).is_some());
            }
        }
        1 => {
            if let Some(module) = parse_text(&text) {
                // Kernels are asked for by names that the process says.
                for name in text.split([' ', '%', '=', '(']).take(64) {
                    let _ = module.kernel(name, &|other| other.len() > name.len());
                }
            }
        }
        2 => {
            for module in find_modules(data) {
                let _ = module.kernel("fusion", &|_| false);
            }
            assert!(objects(data).iter().map(|object| object.len()).sum::<usize>() <= data.len());
        }
        3 => {
            for kernel in parse_wrapper(&text) {
                assert!(text.contains(&kernel.source) && text.contains(&kernel.name));
            }
        }
        4 => _ = parse_graph(data),
        _ => {
            for operator in operators_in_name(&text).unwrap_or_default() {
                assert!(text.contains(operator));
            }
        }
    }
});
