//! Named ranges of a program: `record_function("…")`, which optimizers and data loaders also use.
//!
//! Owns: the rows for them. Because: PyTorch calls these functions whether or not a profiler is on. Does not: know
//! offsets of fields: a range is identified by the address of its record, an argument of both its begin and its end.
//!
//! | row | probe on | read there |
//! |---|---|---|
//! | [`RangeEvent::Named`] | `torch::autograd::profiler::record_function_enter_new` | the name: the first word of the `std::string` that the second argument points to (the first is where the result goes) |
//! | [`RangeEvent::Begins`] | `at::RecordFunction::RecordFunction(RecordScope)`, which that calls | the record, and the scope |
//! | [`RangeEvent::Ends`] | `at::RecordFunction::end` | the record |

use deepctx_events::{Event, Family, RangeEvent, Role};

use crate::abi::{Argument, Location, Register};
use crate::locate::elf::{ByteSource, Image, SymbolKind};
use crate::locate::reason::NoProbe;
use crate::row::Row;

/// Before 2.4, names with parameters of type `std::optional` had `c10::optional`.
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
pub(crate) fn rows<S: ByteSource + ?Sized>(image: &Image<'_, S>) -> Result<Vec<Row>, NoProbe> {
    let found = image.find(&[BEGINS, ENDS, NAMED[0], NAMED[1]]).map_err(NoProbe::File)?;
    let is_code = |at: usize| {
        let symbol = found.get(at).and_then(|same| same.first());
        symbol.is_some_and(|symbol| symbol.kind == SymbolKind::Code)
    };
    let named = NAMED.into_iter().zip(2..).find(|(_, at)| is_code(*at)).map(|(name, _)| name);
    match named {
        Some(named) if is_code(0) && is_code(1) => Ok(of(named)),
        _ => Err(NoProbe::NotExported),
    }
}

/// The rows if the file was not read, or lacks them.
pub(crate) fn unplaced() -> Vec<Row> {
    of(NAMED[0])
}

fn of(named: &'static str) -> Vec<Row> {
    let name = Argument::word(Role::Name, Location::BehindRegister { register: Register::Rsi, offset: 0 });
    let record = || Argument::word(Role::Handle, Location::in_register(Register::Rdi));
    let scope = Argument::word(Role::Kind, Location::in_register(Register::Rsi));
    let row = |event, symbol, arguments| Row::placed(Family::Torch, Event::Range(event), symbol, arguments);
    vec![
        row(RangeEvent::Named, named, vec![name]),
        row(RangeEvent::Begins, BEGINS, vec![record(), scope]),
        row(RangeEvent::Ends, ENDS, vec![record()]),
    ]
}
