//! The binary form of a module (protocol buffers), anywhere in a file.
//!
//! Owns: finding modules in a dump or a serialized executable, and the object files beside them. Because: a
//! compilation cache wraps a module in messages that change with each version of JAX and XLA, while the field numbers
//! of the module itself are stable. Does not: parse the wrapping messages: a module is a message of the expected
//! form, preceded by its length.
//!
//! Field numbers: `xla/service/hlo.proto` and `xla/xla_data.proto` of XLA, as `descriptor` printed them.

use super::{
    COMPUTATIONS_MAX, ComputationId, Frame, Hlo, INSTRUCTIONS_MAX, Instruction, LOCATIONS_MAX, Location,
    Metadata, truncated,
};

/// Most modules taken from one file.
const MODULES_MAX: usize = 64;
/// Most passes over the bytes of a file in search of modules: nearly every instruction starts like one.
const PASSES_MAX: usize = 8;
/// Most object files taken from one file.
const OBJECTS_MAX: usize = 1 << 14;
/// Most bytes of a length.
const LENGTH_BYTES_MAX: usize = 5;

/// The modules in a file.
pub fn find_modules(bytes: &[u8]) -> Vec<Hlo> {
    let mut modules = Vec::new();
    let mut left = bytes.len().saturating_mul(PASSES_MAX);
    let mut at = 0;
    // A module starts with its name (field 1) and the name of its entry computation (field 2).
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0x0a)) {
        let begin = at + found;
        at = begin + 1;
        if !is_named(&bytes[begin..]) {
            continue;
        }
        for end in lengths_before(bytes, begin) {
            let Some(rest) = left.checked_sub(end - begin) else { return modules };
            left = rest;
            if let Some(hlo) = module(&bytes[begin..end]) {
                modules.push(hlo);
                at = end;
                break;
            }
        }
        if modules.len() >= MODULES_MAX {
            break;
        }
    }
    modules
}

/// The object files (ELF) in a file, each with the length that precedes it.
pub fn objects(bytes: &[u8]) -> Vec<&[u8]> {
    let mut objects = Vec::new();
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| find(rest, b"\x7fELF")) {
        let begin = at + found;
        at = begin + 4;
        if objects.len() >= OBJECTS_MAX {
            break;
        }
        // If several numbers could precede it, the longest is the one that was written.
        if let Some(end) = lengths_before(bytes, begin).last() {
            objects.push(&bytes[begin..end]);
            at = end.max(at);
        }
    }
    objects
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Possible ends of a message that starts here: the number before it is its length, in one to five bytes.
fn lengths_before(bytes: &[u8], begin: usize) -> impl Iterator<Item = usize> {
    (1..=LENGTH_BYTES_MAX).filter_map(move |size| {
        let number = bytes.get(begin.checked_sub(size)?..begin)?;
        let (last, before) = number.split_last()?;
        if last & 0x80 != 0 || before.iter().any(|b| b & 0x80 == 0) {
            return None;
        }
        let (length, _) = varint(number)?;
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        (end > begin && end <= bytes.len()).then_some(end)
    })
}

/// Whether a short name is here, followed by another text field.
fn is_named(bytes: &[u8]) -> bool {
    let length = usize::from(bytes.get(1).copied().unwrap_or(0));
    let name = bytes.get(2..2 + length).unwrap_or_default();
    (1..0x80).contains(&length)
        && name.len() == length
        && is_name(name)
        && bytes.get(2 + length) == Some(&0x12)
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|b| b.is_ascii_graphic())
}

/// A module, if the bytes are exactly one.
fn module(bytes: &[u8]) -> Option<Hlo> {
    let mut hlo = Hlo::default();
    let mut fields = Fields::new(bytes);
    let mut entry = false;
    for (number, value) in fields.by_ref() {
        match (number, value) {
            (1, Value::Bytes(name)) => hlo.name = text(name),
            (2, Value::Bytes(name)) => entry = is_name(name),
            (3, Value::Bytes(computation)) => add_computation(&mut hlo, computation)?,
            (17, Value::Bytes(tables)) if hlo.locations.frames.is_empty() => add_locations(&mut hlo, tables),
            _ => {}
        }
    }
    (fields.is_complete() && entry && !hlo.instructions.is_empty()).then_some(hlo)
}

/// `HloComputationProto`: name 1, instructions 2, id 5.
fn add_computation(hlo: &mut Hlo, bytes: &[u8]) -> Option<()> {
    let begin = hlo.instructions.len();
    let (mut name, mut id) = (String::new(), None);
    let mut fields = Fields::new(bytes);
    for (number, value) in fields.by_ref() {
        match (number, value) {
            (1, Value::Bytes(bytes)) => name = text(bytes),
            (2, Value::Bytes(bytes)) if hlo.instructions.len() < INSTRUCTIONS_MAX => {
                hlo.instructions.push(instruction(bytes)?);
            }
            (5, Value::Number(number)) => id = Some(number),
            _ => {}
        }
    }
    if !fields.is_complete() || name.is_empty() {
        return None;
    }
    if hlo.computations.len() < COMPUTATIONS_MAX {
        let key = id.map_or_else(|| ComputationId::Name(name.clone()), ComputationId::Number);
        hlo.computations.insert(key, (name, begin..hlo.instructions.len()));
    }
    Some(())
}

/// `HloInstructionProto`: name 1, opcode 2, metadata 7, called computations 38.
fn instruction(bytes: &[u8]) -> Option<Instruction> {
    let mut instruction = Instruction::default();
    let mut fields = Fields::new(bytes);
    let (mut opcode, mut called) = (&[][..], Vec::new());
    for (number, value) in fields.by_ref() {
        match (number, value) {
            (1, Value::Bytes(name)) => instruction.name = text(name),
            (2, Value::Bytes(name)) => opcode = name,
            (7, Value::Bytes(bytes)) => instruction.metadata = metadata(bytes),
            (38, Value::Number(id)) => called.push(ComputationId::Number(id)),
            (38, Value::Bytes(mut packed)) => {
                while let Some((id, rest)) = varint(packed) {
                    called.push(ComputationId::Number(id));
                    packed = rest;
                }
            }
            _ => {}
        }
    }
    if !fields.is_complete() || instruction.name.is_empty() {
        return None;
    }
    instruction.is_parameter = opcode == b"parameter";
    // The body of a loop or a branch is not part of the same kernel.
    if !matches!(opcode, b"while" | b"conditional" | b"call") {
        instruction.called = called;
    }
    Some(instruction)
}

/// `OpMetadata`: op_name 2, source_file 3, source_line 4, stack_frame_id 15.
fn metadata(bytes: &[u8]) -> Metadata {
    let mut metadata = Metadata::default();
    for (number, value) in Fields::new(bytes) {
        match (number, value) {
            (2, Value::Bytes(name)) => metadata.op_name = text(name),
            (3, Value::Bytes(name)) => metadata.source_file = text(name),
            (4, Value::Number(line)) => metadata.source_line = small(line),
            (15, Value::Number(frame)) => metadata.frame = small(frame),
            _ => {}
        }
    }
    metadata
}

/// `StackFrameIndexProto`: files 1, functions 2, locations 3, frames 4.
fn add_locations(hlo: &mut Hlo, bytes: &[u8]) {
    let tables = &mut hlo.locations;
    for (number, value) in Fields::new(bytes) {
        let Value::Bytes(value) = value else { continue };
        let field = |wanted: u64| {
            let number = Fields::new(value).find_map(|(number, value)| match value {
                Value::Number(value) if number == wanted => Some(value),
                _ => None,
            });
            small(number.unwrap_or(0))
        };
        match number {
            1 if tables.files.len() < LOCATIONS_MAX => tables.files.push(text(value)),
            2 if tables.functions.len() < LOCATIONS_MAX => tables.functions.push(text(value)),
            3 if tables.locations.len() < LOCATIONS_MAX => {
                tables.locations.push(Location { file: field(1), function: field(2), line: field(3) });
            }
            4 if tables.frames.len() < LOCATIONS_MAX => {
                tables.frames.push(Frame { location: field(1), parent: field(2) });
            }
            _ => {}
        }
    }
}

fn text(bytes: &[u8]) -> String {
    truncated(&String::from_utf8_lossy(bytes))
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Iterates over the fields of a message, up to the first malformed one.
struct Fields<'a> {
    rest: &'a [u8],
    is_malformed: bool,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_malformed: false }
    }

    /// Whether all of the bytes were fields.
    fn is_complete(&self) -> bool {
        self.rest.is_empty() && !self.is_malformed
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let (tag, rest) = varint(self.rest)?;
        let (value, rest) = match tag & 7 {
            0 => varint(rest).map(|(number, rest)| (Value::Number(number), rest))?,
            1 => (Value::Fixed, rest.get(8..)?),
            2 => {
                let (length, rest) = varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Value::Bytes(bytes), rest)
            }
            5 => (Value::Fixed, rest.get(4..)?),
            _ => return None,
        };
        self.rest = rest;
        (tag >> 3 != 0).then_some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.is_malformed {
            return None;
        }
        let field = self.field();
        self.is_malformed = field.is_none();
        field
    }
}

/// A number of variable length, and the bytes after it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (n, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * n).min(63);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[n + 1..]));
        }
    }
    None
}
