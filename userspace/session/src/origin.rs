//! Origin: the answer to a question about native code, with what the code was compiled from.
//!
//! Owns: the order in an answer: the compiler's unit, the lines that asked for the code, its operators, its functions. Because:
//! compiled code runs on threads of a compiler's runtime, where nothing else says which line of the program it is. Does
//! not: look anything up.

use deepctx_symbolizer::compiled::{self, Kernel, NoKernel};
use deepctx_symbolizer::native::Named;

use crate::reason::no_symbol;
use deepctx_pipeline::symbols::{Answer, Name};

/// Shown for a function of which only the line is known.
const NO_FUNCTION: &str = "[line]";

/// Tells the functions at an address, or why there are none, and before them what they were compiled from. True when that
/// may be known later.
pub(crate) fn tell(
    n: usize,
    named: &Named,
    module: &str,
    offset: u64,
    compiled: &mut dyn FnMut(&str) -> compiled::Answer,
    answer: &mut Answer<'_>,
) -> bool {
    let frames = match named {
        Ok(frames) => frames,
        Err(reason) => {
            answer(n, &[Name::NativeUnnamed { module, offset, reason: no_symbol(*reason) }]);
            return false;
        }
    };
    let origin = frames.first().map_or(Err(NoKernel::NotCompiled), |frame| compiled(&frame.name));
    let functions = frames.iter().map(|frame| Name::Native {
        symbol: &frame.name,
        module,
        file: frame.file.as_deref().unwrap_or(""),
        line: frame.line,
        inlined: frame.inlined,
    });
    let functions: Vec<_> = functions.collect();
    match &origin {
        Ok(kernel) => tell_kernel(kernel, &mut |names| answer(n, &[names, &functions].concat())),
        Err(_) => answer(n, &functions),
    }
    matches!(origin, Err(NoKernel::NotThere))
}

/// Tells what a kernel was compiled from, outermost first.
pub(crate) fn tell_kernel(kernel: &Kernel, answer: &mut dyn FnMut(&[Name<'_>])) {
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
