//! Named ranges of a program: `record_function("…")`, as optimizers and data loaders enter them by themselves.
//!
//! Owns: the rows for them. Because: PyTorch calls these functions whether or not anybody profiles. Does not: know offsets of
//! fields: a range is told by the address of its record, which its beginning and its end both get.
//!
//! | row | probe on | read there |
//! |---|---|---|
//! | [`RangeEvent::Named`] | `torch::autograd::profiler::record_function_enter_new` | the name: the first word of the `std::string` behind the second argument (the first is where the result goes) |
//! | [`RangeEvent::Begins`] | `at::RecordFunction::RecordFunction(RecordScope)`, which that calls | the record, and the scope |
//! | [`RangeEvent::Ends`] | `at::RecordFunction::end` | the record |

use deepctx_events::{Event, RangeEvent, Role};

use crate::abi::{Place, Register};
use crate::catalogue::Row;
use crate::image::{Image, Kind, Source};
use crate::reason::NoProbe;
use crate::torch::argument;

/// Names of parameters of `std::optional` before 2.4 were those of `c10::optional`.
const NAMED: [&str; 2] = [
    "_ZN5torch8autograd8profiler25record_function_enter_newERKNSt7__cxx1112basic_stringIcSt11char_traitsIcE\
     SaIcEEERKSt8optionalIS7_E",
    "_ZN5torch8autograd8profiler25record_function_enter_newERKNSt7__cxx1112basic_stringIcSt11char_traitsIcE\
     SaIcEEERKN3c108optionalIS7_EE",
];
const BEGINS: &str = "_ZN2at14RecordFunctionC1ENS_11RecordScopeE";
const ENDS: &str = "_ZN2at14RecordFunction3endEv";

/// The rows for this library.
///
/// # Errors
/// Why there are none: a function is missing.
pub(super) fn rows<S: Source + ?Sized>(image: &Image<'_, S>) -> Result<Vec<Row>, NoProbe> {
    let found = image.find(&[BEGINS, ENDS, NAMED[0], NAMED[1]]).map_err(NoProbe::File)?;
    let is_code = |at: usize| {
        let symbol = found.get(at).and_then(|same| same.first());
        symbol.is_some_and(|symbol| symbol.kind == Kind::Code)
    };
    let named = NAMED.into_iter().zip(2..).find(|(_, at)| is_code(*at)).map(|(name, _)| name);
    match named {
        Some(named) if is_code(0) && is_code(1) => Ok(of(named)),
        _ => Err(NoProbe::NotExported),
    }
}

/// The rows where the file was not looked at, or lacks them.
pub(super) fn unplaced() -> Vec<Row> {
    of(NAMED[0])
}

fn of(named: &'static str) -> Vec<Row> {
    let register = |role, register| argument(role, Place::Register { register, shift: 0 });
    let name = argument(Role::Name, Place::BehindRegister { register: Register::Rsi, offset: 0 });
    vec![
        Row::calibrated(Event::Range(RangeEvent::Named), &[named], vec![name]),
        Row::calibrated(
            Event::Range(RangeEvent::Begins),
            &[BEGINS],
            vec![register(Role::Handle, Register::Rdi), register(Role::Kind, Register::Rsi)],
        ),
        Row::calibrated(Event::Range(RangeEvent::Ends), &[ENDS], vec![register(Role::Handle, Register::Rdi)]),
    ]
}
