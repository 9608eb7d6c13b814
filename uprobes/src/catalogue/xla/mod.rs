//! XLA on the CPU: which thunk of which module begins.
//!
//! Owns: the rows for it. Because: XLA runs uncompiled operations in its own libraries (`DotThunk`, `SortThunk`), whose
//! stacks show only the class of the thunk; the object of each thunk has its name. Does not: know what the names mean:
//! the compiler's files do.
//!
//! | row | probe on | read there |
//! |---|---|---|
//! | [`XlaEvent::ThunkBegins`] | `Execute` of each class of thunk | the names in the object ([`fields`]; second argument: the first is where the result goes); the stack pointer, and the frames of the three next callers |
//!
//! Symbols are those of the published wheels of jaxlib 0.4.34 to 0.12, where they are local: a stripped library has
//! none.

mod fields;

use deepctx_events::xla::{UNIT_NAME_BYTES, execute_symbol};
use deepctx_events::{Event, Family, Role, XlaEvent};

use crate::abi::{Argument, Location, Register};
use crate::locate::elf::{ByteSource, Image, Symbol, SymbolKind};
use crate::locate::reason::NoProbe;
use crate::row::Row;
use fields::Fields;

/// The constructor that receives a thunk's names.
const CONSTRUCTOR: &str = "_ZN3xla3cpu5ThunkC2ENS1_4KindENS1_4InfoE";
/// Bytes of its code to read.
const CODE_BYTES: u64 = 512;
/// Classes of thunks, as in their symbols. Classes with a number of kernel arguments in their names follow.
const CLASSES: [&str; 26] = [
    "14AllGatherThunk",
    "14AllReduceThunk",
    "13AllToAllThunk",
    "9CallThunk",
    "22CollectivePermuteThunk",
    "16ConditionalThunk",
    "16ConvolutionThunk",
    "9CopyThunk",
    "15CustomCallThunk",
    "8DotThunk",
    "8FftThunk",
    "11InfeedThunk",
    "8internal14LogicalIdThunkILNS1_13LogicalIdKindE0EE",
    "8internal14LogicalIdThunkILNS1_13LogicalIdKindE1EE",
    "11KernelThunk",
    "17OneDnnFusionThunk",
    "13OneDnnOpThunk",
    "12OutfeedThunk",
    "18ReduceScatterThunk",
    "25RngGetAndUpdateStateThunk",
    "12RngSeedThunk",
    "9SortThunk",
    "9TopKThunk",
    "10WhileThunk",
    "14XnnFusionThunk",
    "14YnnFusionThunk",
];
/// Maximum arguments of kernels with a separate class.
const SMALL_MAX: usize = 16;
/// Start of a function with a frame pointer: `push %rbp; mov %rsp,%rbp`, possibly after a landing pad.
const KEEPS_FRAMES: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The rows for this library.
///
/// # Errors
/// Why there are none: it has no symbols for its own functions, or its thunks have an unknown form.
pub(crate) fn rows<S: ByteSource + ?Sized>(
    image: &Image<'_, S>,
    family: Family,
) -> Result<Vec<Row>, NoProbe> {
    let symbols = symbols();
    let wanted: Vec<&str> = [CONSTRUCTOR].into_iter().chain(symbols.iter().map(String::as_str)).collect();
    let found = image.find(&wanted).map_err(NoProbe::File)?;
    let is_code = |same: &Vec<Symbol>| same.first().is_some_and(|symbol| symbol.kind == SymbolKind::Code);
    if !found.iter().any(is_code) {
        let stripped = !image.has_section(".symtab");
        return Err(if stripped { NoProbe::Stripped } else { NoProbe::NotExported });
    }
    let code = |symbol: &Symbol, bytes| image.code(symbol.svma, bytes).map(|(_, code)| code);
    let fields = match found.first().map(Vec::as_slice) {
        Some([constructor]) => code(constructor, CODE_BYTES.min(constructor.size.max(1))),
        _ => None,
    };
    let fields = fields.and_then(|code| Fields::of(&code)).ok_or(NoProbe::NotCalibrated)?;
    let functions = symbols.into_iter().zip(found.iter().skip(1)).filter(|(_, same)| is_code(same));
    let row = |(symbol, same): (String, &Vec<Symbol>)| {
        let keeps = |symbol| {
            let begin = code(symbol, (LANDING_PAD.len() + KEEPS_FRAMES.len()) as u64).unwrap_or_default();
            begin.strip_prefix(&LANDING_PAD).unwrap_or(&begin).starts_with(&KEEPS_FRAMES)
        };
        let placed = arguments(fields, same.iter().all(keeps));
        Row::placed(family, Event::Xla(XlaEvent::ThunkBegins), symbol, placed)
    };
    Ok(functions.map(row).collect())
}

/// The row if the file was not read, or its code has an unknown form.
pub(crate) fn unplaced(family: Family) -> Vec<Row> {
    let symbol = execute_symbol("8DotThunk");
    vec![Row::placed(family, Event::Xla(XlaEvent::ThunkBegins), symbol, Vec::new())]
}

/// The functions of all classes.
fn symbols() -> Vec<String> {
    let small = (0..=SMALL_MAX).map(|arguments| format!("16SmallKernelThunkILl{arguments}ELl1EE"));
    let classes = CLASSES.into_iter().map(str::to_owned).chain(small);
    classes.map(|class| execute_symbol(&class)).collect()
}

/// Arguments read when a thunk begins. The frames of its callers are read if functions keep frame pointers.
fn arguments(fields: Fields, keeps_frames: bool) -> Vec<Argument> {
    let object = Register::Rsi;
    let field = |role, offset: i16| {
        Argument::word(role, Location::BehindRegister { register: object, offset: offset.into() })
    };
    let mut arguments = vec![
        field(Role::Name, fields.name),
        field(Role::NameBytes, fields.name + fields::LENGTH),
        field(Role::UnitNumber, fields.unit_number),
        field(Role::UnitNameBytes, fields.unit_name + fields::LENGTH),
    ];
    let words = (0..UNIT_NAME_BYTES as i16).step_by(8);
    arguments.extend(words.map(|offset| {
        Argument::word(
            Role::UnitName,
            Location::BehindPointer { register: object, at: fields.unit_name, offset },
        )
    }));
    arguments.push(Argument::word(Role::StackPointer, Location::in_register(Register::Rsp)));
    if keeps_frames {
        let register = Register::Rbp;
        for location in [
            Location::in_register(register),
            Location::BehindRegister { register, offset: 0 },
            Location::BehindPointer { register, at: 0, offset: 0 },
        ] {
            arguments.push(Argument::word(Role::FramePointer, location));
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use deepctx_events::xla::class_of;

    use super::*;

    #[test]
    fn every_symbol_names_a_class_of_thunks() {
        assert!(
            symbols().iter().all(|symbol| class_of(symbol).is_some_and(|class| class.ends_with("Thunk")))
        );
    }
}
