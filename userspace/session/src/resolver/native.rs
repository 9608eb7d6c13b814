//! Native: names of native code and of the kernel, and what generated code was compiled from.
//!
//! Owns: the order in an answer: the compilation unit, the source lines it comes from, its operators, its functions.
//! Because: compiled code runs on threads of a compiler's runtime, where nothing else says which line of the program
//! it is. Does not: look anything up; the symbolizer does.

use deepctx_capture::PROCESS_MAPPINGS_MAX;
use deepctx_pipeline::symbols::{CodeAddress, Name, NameReceiver};
use deepctx_symbolizer::compiled::{KernelOrigin, NoOrigin, OriginResult};
use deepctx_symbolizer::native::SymbolResult;
use deepctx_symbolizer::{Avma, CodeLocation, KernelAddr, Lookup, Symbolizer};
use rustc_hash::FxHashMap;

use super::processes::ProcessPeriod;

/// Shown for a function if only the line is known.
const NO_FUNCTION: &str = "[line]";

/// A code address within its file.
#[derive(Clone, Copy, Debug)]
struct Location<'a> {
    /// Path of the file; empty when unknown.
    module: &'a str,
    /// Address in the file, or in the process if the file is unknown.
    offset: u64,
}

/// Names user addresses of a process, each as of the time at its place: runtimes put other code at the same address.
/// True if an unnamed one may get a name later.
pub(super) fn name_user(
    symbolizer: &mut Symbolizer,
    period: ProcessPeriod,
    addresses: &[CodeAddress],
    times_ns: &[u64],
    answer: &mut NameReceiver<'_>,
) -> bool {
    let ProcessPeriod { pid, first_ns, .. } = period;
    let mut in_modules: FxHashMap<_, Vec<_>> = FxHashMap::default();
    let mut later = false;
    for (n, address) in addresses.iter().enumerate() {
        let (address, lookup) = split(*address);
        let time_ns = period.nearest(times_ns.get(n).copied().unwrap_or(first_ns));
        let code = symbolizer.locate(pid, time_ns, Avma(address), lookup);
        match code {
            CodeLocation::Native { module, address } => {
                in_modules.entry(module).or_default().push((n, address))
            }
            CodeLocation::Jit(_) | CodeLocation::Kernel(_) | CodeLocation::Unknown(_) => {
                let named = symbolizer.name(code);
                let location = Location { module: "", offset: address };
                let compiled = &mut |symbol: &str| symbolizer.kernel_origin(pid, time_ns, code, symbol);
                later |= answer_native(&named, location, compiled, &mut |names| answer(n, names));
            }
        }
    }
    for (module, questions) in in_modules {
        let stated: Vec<_> = questions.iter().map(|(_, address)| *address).collect();
        let named = symbolizer.names(module, &stated);
        later |= symbolizer.is_awaited(module);
        // All addresses of a function without a name are one frame: its beginning.
        let unnamed = || stated.iter().zip(&named).filter(|(_, named)| named.is_err()).map(|(at, _)| *at);
        let starts = symbolizer.function_starts(module, &unnamed().collect::<Vec<_>>());
        let starts: FxHashMap<_, _> = unnamed().zip(starts).collect();
        let path = symbolizer.modules().get(module).map_or("", |module| module.path()).to_owned();
        for ((n, address), named) in questions.iter().zip(&named) {
            let code = CodeLocation::Native { module, address: *address };
            let shown = starts.get(address).copied().flatten().unwrap_or(*address);
            let location = Location { module: &path, offset: shown.0 };
            let compiled = &mut |symbol: &str| symbolizer.kernel_origin(pid, first_ns, code, symbol);
            later |= answer_native(named, location, compiled, &mut |names| answer(*n, names));
        }
    }
    later
}

/// Finds the user addresses of a process, each as of the time at its place, in mappings beyond those that the kernel
/// programs get.
pub(super) fn find_left_out(
    symbolizer: &Symbolizer,
    period: ProcessPeriod,
    addresses: &[CodeAddress],
    times_ns: &[u64],
    answer: &mut dyn FnMut(usize),
) {
    let ProcessPeriod { pid, first_ns, .. } = period;
    for (n, address) in addresses.iter().enumerate() {
        let (address, lookup) = split(*address);
        let time_ns = period.nearest(times_ns.get(n).copied().unwrap_or(first_ns));
        if symbolizer.is_beyond(pid, time_ns, PROCESS_MAPPINGS_MAX, Avma(address), lookup) {
            answer(n);
        }
    }
}

/// Names kernel addresses.
pub(super) fn name_kernel(
    symbolizer: &mut Symbolizer,
    addresses: &[CodeAddress],
    answer: &mut NameReceiver<'_>,
) {
    for (n, address) in addresses.iter().enumerate() {
        let (address, lookup) = split(*address);
        let code = Symbolizer::kernel_location(KernelAddr(address), lookup);
        match symbolizer.name(code) {
            Ok(frames) => {
                let names: Vec<_> = frames.iter().map(|frame| Name::Kernel { symbol: &frame.name }).collect();
                answer(n, &names);
            }
            Err(reason) => answer(n, &[Name::KernelUnnamed { reason: reason.reason() }]),
        }
    }
}

/// Answers with the origin of the code at a location and its functions, or the reason why there are none. True if they
/// may be known later.
fn answer_native(
    named: &SymbolResult,
    Location { module, offset }: Location<'_>,
    compiled: &mut dyn FnMut(&str) -> OriginResult,
    answer: &mut dyn FnMut(&[Name<'_>]),
) -> bool {
    let frames = match named {
        Ok(frames) => frames,
        Err(reason) => {
            answer(&[Name::NativeUnnamed { module, offset, reason: reason.reason() }]);
            return reason.may_be_named_later();
        }
    };
    let origin = frames.first().map_or(Err(NoOrigin::NotCompiled), |frame| compiled(&frame.name));
    let functions = frames.iter().map(|frame| Name::Native {
        symbol: &frame.name,
        module,
        file: frame.file.as_deref().unwrap_or(""),
        line: frame.line,
        inlined: frame.inlined,
    });
    let functions: Vec<_> = functions.collect();
    match &origin {
        Ok(kernel) => answer_compiled(kernel, &mut |names| answer(&[names, &functions].concat())),
        Err(_) => answer(&functions),
    }
    matches!(origin, Err(NoOrigin::NotFound | NoOrigin::OverShare))
}

/// Answers with the origin of a kernel, outermost first.
pub(super) fn answer_compiled(kernel: &KernelOrigin, answer: &mut dyn FnMut(&[Name<'_>])) {
    let (unit, operators) = (kernel.unit_label(), kernel.operators());
    let mut names = vec![Name::Compiled { name: &unit }];
    names.extend(kernel.stack().iter().map(|at| Name::Traced {
        function: if at.function.is_empty() { NO_FUNCTION } else { &at.function },
        file: &at.file,
        line: at.line,
    }));
    names.extend(operators.as_deref().map(|name| Name::Compiled { name }));
    answer(&names);
}

fn split(address: CodeAddress) -> (u64, Lookup) {
    match address {
        CodeAddress::Exact(address) => (address, Lookup::Exact),
        CodeAddress::Return(address) => (address, Lookup::Return),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use deepctx_symbolizer::native::Frame;

    use super::*;

    #[test]
    fn code_whose_origin_is_read_later_is_named_again() {
        let frame = Frame { name: "fusion".into(), file: None, line: 0, inlined: false };
        let named: SymbolResult = Ok(Arc::new([frame]));
        let later = |because: NoOrigin| {
            let location = Location { module: "", offset: 0 };
            answer_native(&named, location, &mut |_| Err(because), &mut |_| {})
        };
        assert!(later(NoOrigin::NotFound) && later(NoOrigin::OverShare));
        assert!(!later(NoOrigin::NotCompiled) && !later(NoOrigin::Ambiguous));
    }
}
