//! Tensor arguments of operators: their sizes and types.
//!
//! Owns: the rows for the operators that are requested, and the offsets in them, read from each function's own code.
//! Because: an operator's function reads the dispatch keys of each tensor, and their offset is the one that differs
//! between versions. Does not: guess: a parameter on which the code and the mangled name disagree gives no row.
//!
//! The wanted fields precede the keys at fixed distances in 1.13 to 2.15 (c10/core/TensorImpl.h; `0xb8` up to 2.2,
//! `0xb0` up to 2.12, `0xa8` since):
//!
//! | field | bytes before the keys |
//! |---|---|
//! | number of sizes | `0x70` |
//! | sizes, five of them in place | `0x68` |
//! | strides, five of them in place | `0x40` |
//! | type of the elements | `0x08` |
//!
//! At most [`ARGUMENTS_MAX`] values are fetched per call. Sizes precede strides, and required tensors precede optional
//! ones, which are nearly always vectors.

use deepctx_address_space::FileOffset;
use deepctx_common::call::ARGUMENTS_MAX;
use deepctx_events::{Event, Family, OperatorEvent, Role};
use deepctx_names::{demangle, framework};

use super::dataflow::{ArgumentReads, ArrayBranch, KEYS, PRESENT};
use super::signature::{ArgumentRegister, ParameterKind, parameters};
use crate::abi::{Argument, Location, Register, Scalar};
use crate::locate::elf::{ByteSource, Image, Symbol};
use crate::locate::instruction::{EmulatedInstruction, ProbeCost, ProbePoint};
use crate::locate::reason::NoProbe;
use crate::locate::site::{MissingProbe, ProbePlan, Site};
use crate::row::Row;

/// Maximum number of probed operators: all overloads of a few dozen.
const OPERATORS_MAX: usize = 256;
/// Maximum number of tensors read per operator; fewer for a convolution, which needs other arguments too.
const TENSORS_MAX: usize = 3;
const TENSORS_OF_CONVOLUTION: usize = 2;
/// Sizes that a tensor stores inline.
const SIZES: usize = 5;
/// Number of strides read of an optional tensor.
const STRIDES_OF_OPTIONAL: usize = 1;
/// Maximum spatial dimensions of a convolution, without batch and channels.
const SPATIAL: i16 = 3;
/// With the first offset, types are numbered as in 1.13.
const KEYS_OLD: i16 = KEYS[0];
/// Bytes of a function to follow: all tensors are read before the first call.
const CODE_BYTES: u64 = 1024;

/// The probes of these operators, and those without one, with the reason.
///
/// # Errors
/// The file has no symbols.
pub(crate) fn plan<S: ByteSource + ?Sized>(
    image: &Image<'_, S>,
    names: &[String],
) -> Result<ProbePlan, NoProbe> {
    let mut plan = ProbePlan::default();
    let prefixes: Vec<Vec<String>> = names
        .iter()
        .map(|name| framework::aten_identifiers(name).iter().map(|id| prefix_of(id)).collect())
        .collect();
    let all: Vec<String> = prefixes.iter().flatten().cloned().collect();
    let found = image.exported_code(&all, OPERATORS_MAX).map_err(NoProbe::File)?;
    for (name, prefixes) in names.iter().zip(&prefixes) {
        if !found.iter().any(|(symbol, _)| prefixes.iter().any(|prefix| symbol.starts_with(prefix))) {
            plan.missing.push(MissingProbe::of(unplaced(name), NoProbe::NotExported));
        }
    }
    for (name, symbol) in found {
        let length = if symbol.size > 0 { symbol.size.min(CODE_BYTES) } else { CODE_BYTES };
        let code = image.code(symbol.svma, length);
        match code.and_then(|(entry, code)| Some((entry, placed(&name, &code)?))) {
            Some((entry, OperatorReads { arguments, array })) => {
                let row = row(name, arguments);
                match array {
                    Some(array) => plan.sites.push(at_array(row, &symbol, entry, array)),
                    None => plan.rows.push(row),
                }
            }
            None => plan.missing.push(MissingProbe::of(unplaced(&name), NoProbe::NotCalibrated)),
        }
    }
    Ok(plan)
}

fn row(symbol: String, arguments: Vec<Argument>) -> Row {
    Row::placed(Family::Torch, Event::Operator(OperatorEvent::Tensors), symbol, arguments)
}

/// A row for an operator that the file lacks, or whose code has an unknown form.
pub(crate) fn unplaced(name: &str) -> Row {
    row(name.to_owned(), Vec::new())
}

/// Prefix of the mangled name of an operator's function.
fn prefix_of(identifier: &str) -> String {
    format!("_ZN2at4_ops{}{identifier}4callE", identifier.len())
}

/// A probe at the jump where a list is known to be an array, which is cheap.
fn at_array(row: Row, symbol: &Symbol, entry: FileOffset, array: ArrayBranch) -> Site {
    let ArrayBranch { offset, frame, .. } = array;
    Site {
        symbol: row.names[0].symbol.clone().into_owned(),
        row,
        aliases: Vec::new(),
        version: None,
        svma: symbol.svma,
        entry,
        offset: FileOffset(entry.0 + u64::from(offset)),
        point: ProbePoint { offset, frame, cost: ProbeCost::Emulated(EmulatedInstruction::ConditionalJump) },
        counter: None,
    }
}

/// Operands of an operator to read, and where: at its entry, or where a list is known to be an array.
#[derive(Debug, PartialEq)]
struct OperatorReads {
    arguments: Vec<Argument>,
    array: Option<ArrayBranch>,
}

/// An operand to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Tensor(Register),
    Optional(Register),
    /// An array: its address and its length.
    List(Register, Location),
}

/// The reads for an operator with this mangled name and code.
fn placed(symbol: &str, code: &[u8]) -> Option<OperatorReads> {
    let name = demangle(symbol);
    let read = ArgumentReads::of(code);
    let keys = read.keys?;
    // A function that returns an object gets its address in the first register.
    let shifts = [1, 0].map(|first| parameters(&name, first));
    let parameters = shifts.into_iter().find(|parameters| agree(parameters, &read.reads))?;
    let identifier = name.strip_prefix("at::_ops::").and_then(|name| name.split("::").next())?;
    let of_convolution = matches!(identifier, "convolution" | "conv1d" | "conv2d" | "conv3d");
    let (mut operands, array) = operands(&parameters, &read);
    if of_convolution {
        operands.retain(|operand| matches!(operand, Operand::Tensor(_)));
    }
    operands.truncate(if of_convolution { TENSORS_OF_CONVOLUTION } else { TENSORS_MAX });
    if operands.is_empty() {
        return None;
    }
    let mut more = Vec::new();
    if of_convolution {
        convolution(&parameters, &mut more);
    }
    let room = ARGUMENTS_MAX.checked_sub(more.len())?;
    let mut arguments = fields(&operands, rank_max(identifier), keys, room)?;
    arguments.append(&mut more);
    Some(OperatorReads { arguments, array })
}

/// The operands among these parameters, and the jump at which to read them, if not the entry: there, registers of other
/// parameters may have changed.
fn operands(
    parameters: &[(ParameterKind, ArgumentRegister)],
    read: &ArgumentReads,
) -> (Vec<Operand>, Option<ArrayBranch>) {
    if let Some(array) = read.array {
        let length = Location::BehindRegister { register: array.list, offset: 8 };
        return (vec![Operand::List(array.items, length)], Some(array));
    }
    let follows = |register| read.reads.contains(&(register, 1));
    let operands = parameters.iter().filter_map(|parameter| match *parameter {
        (ParameterKind::Tensor, ArgumentRegister::Register(register)) => Some(Operand::Tensor(register)),
        (ParameterKind::Optional, ArgumentRegister::Register(register)) => (follows(register)
            && read.presence_checks.contains(&register))
        .then_some(Operand::Optional(register)),
        (ParameterKind::List, ArgumentRegister::Register(register)) => {
            let length = Location::in_register(second(register)?);
            follows(register).then_some(Operand::List(register, length))
        }
        _ => None,
    });
    (operands.collect(), None)
}

/// Maximum number of dimensions of an operator's tensors.
fn rank_max(identifier: &str) -> usize {
    match identifier {
        "mm" | "addmm" => 2,
        "bmm" | "baddbmm" => 3,
        _ if identifier.starts_with("_scaled_dot_product") => 4,
        _ => SIZES,
    }
}

/// The reads for these operands, as many as fit.
fn fields(operands: &[Operand], rank: usize, keys: i16, room: usize) -> Option<Vec<Argument>> {
    // The first list gets the rest of the room.
    let is_list = |operand: &&Operand| matches!(operand, Operand::List(..));
    let items = 1 + TENSORS_MAX - operands.len();
    let first_list = operands.iter().position(|operand| is_list(&operand));
    let optional = operands.iter().filter(|operand| matches!(operand, Operand::Optional(_))).count();
    let lists = operands.iter().filter(is_list).count();
    let tensors = operands.len() + first_list.map_or(0, |_| items - 1);
    let without_strides = tensors * (2 + rank) + optional + lists;
    let left = room.checked_sub(without_strides)?;
    // One stride of each optional tensor, as many as possible of the others; the first ones get the remainder.
    let of_optional = STRIDES_OF_OPTIONAL.min(left.checked_div(tensors).unwrap_or(0));
    let others = tensors - optional;
    let left = left - of_optional * optional;
    let mut at = 0;
    let mut strides = |is_optional: bool| {
        if is_optional {
            return of_optional;
        }
        at += 1;
        let over = usize::from(at <= left.checked_rem(others).unwrap_or(0));
        (left.checked_div(others).unwrap_or(0) + over).min(rank)
    };
    let mut out = Vec::new();
    for (number, operand) in operands.iter().enumerate() {
        match *operand {
            Operand::Tensor(register) => {
                let tensor = Fields { register, at: 0, keys, sizes: rank, strides: strides(false) };
                tensor.read(Role::TensorRank, &mut out);
            }
            Operand::Optional(register) => {
                let present = Location::BehindRegister { register, offset: i32::from(PRESENT) };
                out.push(Argument::new(Role::TensorThere, Scalar::U8, present));
                let tensor = Fields { register, at: 0, keys, sizes: rank, strides: strides(true) };
                tensor.read(Role::TensorRank, &mut out);
            }
            Operand::List(register, length) => {
                out.push(Argument::word(Role::ListLength, length));
                for item in 0..if Some(number) == first_list { items } else { 1 } {
                    let at = 8 * item as i16;
                    let tensor = Fields { register, at, keys, sizes: rank, strides: strides(false) };
                    tensor.read(Role::ItemRank, &mut out);
                }
            }
        }
    }
    Some(out)
}

/// Whether the code reads the keys of exactly these parameters: of each tensor in a register, and otherwise only of
/// parameters that may hold tensors.
fn agree(parameters: &[(ParameterKind, ArgumentRegister)], read: &[(Register, u8)]) -> bool {
    let mut known = 0;
    for parameter in parameters {
        let ArgumentRegister::Register(register) = parameter.1 else { continue };
        let follows = |depth| read.contains(&(register, depth));
        match parameter.0 {
            ParameterKind::Tensor if !follows(1) => return false,
            ParameterKind::Tensor | ParameterKind::Optional | ParameterKind::List | ParameterKind::Holder => {
                known += usize::from(follows(1))
            }
            ParameterKind::Lists => known += usize::from(follows(2)),
            _ => {}
        }
    }
    // The code also reads the methods of a tensor.
    let tensors =
        |register| parameters.contains(&(ParameterKind::Lists, ArgumentRegister::Register(register)));
    let readable = read.iter().filter(|(register, depth)| *depth == 1 || tensors(*register)).count();
    known > 0 && known == readable
}

/// The next register for passing a number.
fn second(register: Register) -> Option<Register> {
    Register::ARGUMENTS.into_iter().skip_while(|one| *one != register).nth(1)
}

/// The reads for one tensor, whose address is `at` bytes after the value of a register.
struct Fields {
    register: Register,
    at: i16,
    keys: i16,
    sizes: usize,
    strides: usize,
}

impl Fields {
    fn read(&self, rank: Role, out: &mut Vec<Argument>) {
        let Self { register, at, keys, sizes, strides } = *self;
        let field = |role, before: i16, scalar| {
            Argument::new(role, scalar, Location::BehindPointer { register, at, offset: keys - before })
        };
        out.push(field(rank, 0x70, Scalar::U64));
        let kind = if keys == KEYS_OLD { Role::TensorTypeOld } else { Role::TensorType };
        out.push(field(kind, 0x08, Scalar::U16));
        out.extend((0..sizes).map(|at| field(Role::TensorSize, 0x68 - 8 * at as i16, Scalar::U64)));
        out.extend((0..strides).map(|at| field(Role::TensorStride, 0x40 - 8 * at as i16, Scalar::U64)));
    }
}

/// The other inputs to the work of a convolution: three lists of numbers, whether it is transposed, groups.
fn convolution(parameters: &[(ParameterKind, ArgumentRegister)], out: &mut Vec<Argument>) {
    let mut lists = parameters.iter().filter(|(kind, _)| *kind == ParameterKind::Numbers).map(|(_, at)| *at);
    for role in [Role::Stride, Role::Padding, Role::Dilation] {
        let Some(at) = lists.next() else { return };
        let length = match at {
            ArgumentRegister::Register(register) => {
                second(register).map_or(Location::Unreadable, Location::in_register)
            }
            ArgumentRegister::Stack(stack) => Location::Stack(stack + 8),
            ArgumentRegister::Nowhere => Location::Unreadable,
        };
        out.push(Argument::word(role, length));
        out.extend((0..SPATIAL).map(|n| Argument::word(role, after(at, 8 * n))));
    }
    for (kind, at) in parameters {
        match (kind, at) {
            (ParameterKind::Flag, ArgumentRegister::Register(register)) => {
                out.push(Argument::new(Role::Transposed, Scalar::U8, Location::in_register(*register)));
            }
            (ParameterKind::Flag, ArgumentRegister::Stack(at)) => {
                out.push(Argument::new(Role::Transposed, Scalar::U8, Location::Stack(*at)));
            }
            (ParameterKind::Number, at) => out.push(Argument::word(Role::Groups, after(*at, 0))),
            _ => {}
        }
    }
}

/// A location this many bytes after the address in a parameter.
fn after(at: ArgumentRegister, offset: i16) -> Location {
    match at {
        ArgumentRegister::Register(register) => {
            Location::BehindRegister { register, offset: i32::from(offset) }
        }
        ArgumentRegister::Stack(stack) => Location::BehindStack { stack, offset: i32::from(offset) },
        ArgumentRegister::Nowhere => Location::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADDMM: &str = "_ZN2at4_ops5addmm4callERKNS_6TensorES4_S4_RKN3c106ScalarES8_";
    /// The argument handling of `at::_ops::addmm::call` of PyTorch 2.15.0, up to the last read of keys.
    const ADDMM_CODE: &[u8] = &[
        0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x4d, 0x89, 0xcf, 0x41, 0x56, 0x41, 0x55, 0x49, 0x89, 0xcd, 0x41,
        0x54, 0x49, 0x89, 0xd4, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x81, 0xec, 0xa8, 0, 0, 0, 0x48, 0x89, 0xb5,
        0x58, 0xff, 0xff, 0xff, 0x4c, 0x89, 0x85, 0x38, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x85, 0x58, 0xff, 0xff,
        0xff, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0x49, 0x8b, 0x04, 0x24, 0x48, 0x8b, 0x80,
        0xa8, 0, 0, 0, 0x49, 0x8b, 0x45, 0x00, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0xc3,
    ];

    const CAT: &str = "_ZN2at4_ops3cat4callERKN3c108IListRefINS_6TensorEEEl";
    /// The list handling of `at::_ops::cat::call` of PyTorch 2.15.0.
    const CAT_CODE: &[u8] = &[
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xb5, 0xc8, 0xfd, 0xff, 0xff, 0x48, 0x8b, 0x95, 0xc8, 0xfd, 0xff,
        0xff, 0x8b, 0x42, 0x10, 0x83, 0xf8, 0x01, 0x0f, 0x84, 0xe5, 0x01, 0, 0, 0x83, 0xf8, 0x02, 0x0f, 0x84,
        0xa4, 0x01, 0, 0, 0x85, 0xc0, 0x0f, 0x85, 0xc1, 0x04, 0, 0, 0x48, 0x8b, 0x42, 0x08, 0x48, 0x8b, 0x0a,
        0x48, 0x8d, 0x34, 0xc5, 0, 0, 0, 0, 0x48, 0x89, 0x85, 0xb8, 0xfd, 0xff, 0xff, 0x48, 0x8d, 0x04, 0x31,
        0x48, 0x39, 0xc1, 0x0f, 0x84, 0x89, 0x02, 0, 0, 0x48, 0x89, 0xc8, 0x48, 0x8b, 0x38, 0x48, 0x83, 0xc0,
        0x10, 0xf3, 0x0f, 0x7e, 0x87, 0xa8, 0, 0, 0,
    ];
    const LINEAR: &str = "_ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E";
    /// mov (%rsi),%rax; mov 0xa8(%rax),%rax; mov (%rdx),%rax; mov 0xa8(%rax),%rax; cmpb $0,0x8(%rcx); je; mov
    /// (%rcx),%rax; or 0xa8(%rax),%rbx
    const LINEAR_CODE: &[u8] = &[
        0x48, 0x8b, 0x06, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0x48, 0x8b, 0x02, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0,
        0x80, 0x79, 0x08, 0, 0x74, 0x0a, 0x48, 0x8b, 0x01, 0x48, 0x0b, 0x98, 0xa8, 0, 0, 0, 0xc3,
    ];

    fn text(arguments: &[Argument]) -> Vec<String> {
        arguments.iter().map(|a| format!("{} {}", a.role.name(), a.location)).collect()
    }

    /// The expected reads, one word per value.
    #[track_caller]
    fn check(symbol: &str, code: &[u8], expect: &str) {
        let placed = placed(symbol, code).unwrap();
        assert!(placed.arguments.len() <= ARGUMENTS_MAX);
        let mut counted: Vec<(&str, usize)> = Vec::new();
        for argument in &placed.arguments {
            match counted.last_mut() {
                Some((last, n)) if *last == argument.role.name() => *n += 1,
                _ => counted.push((argument.role.name(), 1)),
            }
        }
        let words: Vec<String> = counted
            .iter()
            .filter(|(word, _)| *word != "tensor-type")
            .map(|(word, n)| if *n == 1 { (*word).to_owned() } else { format!("{n} {word}") })
            .collect();
        assert_eq!(words.join(", "), expect);
    }

    #[test]
    fn an_operators_code_shows_which_registers_lead_to_tensors() {
        let followed = ArgumentReads::of(ADDMM_CODE);
        assert_eq!(followed.keys, Some(0xa8));
        assert_eq!(followed.reads, [(Register::Rcx, 1), (Register::Rdx, 1), (Register::Rsi, 1)]);
        let text = text(&placed(ADDMM, ADDMM_CODE).unwrap().arguments);
        assert_eq!(
            text[..6],
            [
                "tensor-rank [[rsi+0]+56]",
                "tensor-type [[rsi+0]+160]",
                "tensor-size [[rsi+0]+64]",
                "tensor-size [[rsi+0]+72]",
                "tensor-stride [[rsi+0]+104]",
                "tensor-stride [[rsi+0]+112]"
            ]
        );
        assert_eq!((text.len(), &*text[12]), (18, "tensor-rank [[rcx+0]+56]"));
    }

    #[test]
    fn tagged_list_is_read_where_it_holds_an_array() {
        let OperatorReads { arguments, array } = placed(CAT, CAT_CODE).unwrap();
        let array = array.unwrap();
        assert_eq!(
            (array.offset, array.frame, array.list, array.items),
            (76, 8, Register::Rdx, Register::Rcx)
        );
        let text = text(&arguments);
        assert_eq!((text.len(), &*text[0], &*text[1]), (28, "list-length [rdx+8]", "item-rank [[rcx+0]+56]"));
        assert_eq!(text[10], "item-rank [[rcx+8]+56]");
        // The jump is for the other outcome; the tag is overwritten; the list is no longer there.
        for (at, byte) in [(42, 0x84), (41 - 2, 0x31), (53, 0x12)] {
            let mut other = CAT_CODE.to_vec();
            other[at] = byte;
            assert_eq!(placed(CAT, &other), None, "{at}");
        }
    }

    #[test]
    fn what_is_optional_says_first_whether_it_is_there() {
        let sizes = "tensor-rank, 5 tensor-size";
        check(
            LINEAR,
            LINEAR_CODE,
            &format!(
                "{sizes}, 3 tensor-stride, {sizes}, 2 tensor-stride, tensor-there, {sizes}, tensor-stride"
            ),
        );
        // Its presence is not checked.
        let mut other = LINEAR_CODE.to_vec();
        other[23] = 1;
        check(LINEAR, &other, &format!("{sizes}, 5 tensor-stride, {sizes}, 5 tensor-stride"));
        // mov (%rsi),%rax; or 0xb0(%rax),%rbx: an array, whose length is in the next register.
        let stack = [0x48, 0x8b, 0x06, 0x48, 0x0b, 0x98, 0xb0, 0, 0, 0, 0xc3];
        let item = "item-rank, 5 tensor-size";
        check(
            "_ZN2at4_ops5stack4callEN3c108ArrayRefINS_6TensorEEEl",
            &stack,
            &format!(
                "list-length, {item}, 2 tensor-stride, {item}, 2 tensor-stride, {item}, 2 tensor-stride"
            ),
        );
    }

    #[test]
    fn code_and_name_that_do_not_agree_give_nothing() {
        // Two tensors in the name, three in the code; the code of another function; two different key offsets.
        assert_eq!(placed("_ZN2at4_ops2mm4callERKNS_6TensorES4_", ADDMM_CODE), None);
        assert_eq!(placed(ADDMM, &[0xc3]), None);
        assert_eq!(placed(ADDMM, &[0x48, 0x8b, 0x06, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0xc3]), None);
        let mut mixed = ADDMM_CODE.to_vec();
        let last = mixed.len() - 5;
        mixed[last] = 0xb0;
        assert_eq!(ArgumentReads::of(&mixed).keys, None);
        // add $-0x80,%rsp; mov %rdi,0x8(%rsp); mov 0x8(%rsp),%rax; mov (%rax),%rax; mov 0xa8(%rax),%r13
        let frame = [
            0x48, 0x83, 0xc4, 0x80, 0x48, 0x89, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x8b,
            0, 0x4c, 0x8b, 0xa8, 0xa8, 0, 0, 0,
        ];
        let of =
            ArgumentReads { reads: vec![(Register::Rdi, 1)], keys: Some(0xa8), ..ArgumentReads::default() };
        assert_eq!(ArgumentReads::of(&frame), of);
        // An in-place operator returns the address that it got.
        let one = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x80, 0xb0, 0, 0, 0, 0xc3];
        let placed = placed("_ZN2at4_ops5relu_4callERNS_6TensorE", &one).unwrap();
        assert_eq!(placed.arguments[0].location.to_string(), "[[rdi+0]+64]");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_breaks(code in proptest::collection::vec(any::<u8>(), 0..200)) {
            for symbol in [ADDMM, CAT, LINEAR] {
                let _ = placed(symbol, &code);
            }
        }

        #[test]
        fn whatever_is_changed_no_more_is_read_than_may_be(at in 0..100_usize, byte in any::<u8>()) {
            for (symbol, code) in [(ADDMM, ADDMM_CODE), (CAT, CAT_CODE), (LINEAR, LINEAR_CODE)] {
                let mut code = code.to_vec();
                let end = code.len();
                code[at % end] = byte;
                prop_assert!(placed(symbol, &code).is_none_or(|placed| placed.arguments.len() <= ARGUMENTS_MAX));
            }
        }
    }
}
