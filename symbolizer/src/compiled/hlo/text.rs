//! The text form of a module, from XLA's dump.
//!
//! Owns: extracting the needed facts from each line. Because: the text is meant for people, changes between versions,
//! and is the default form of a dump. Does not: reject a module: lines of another form are ignored.

use super::{
    COMPUTATIONS_MAX, ComputationId, Frame, Hlo, INSTRUCTIONS_MAX, Instruction, LOCATIONS_MAX, Location,
    Metadata, truncated,
};

/// Attributes by which an instruction calls a computation that is compiled with it.
const CALLS: [&str; 2] = ["calls=", "to_apply="];

/// The table that the lines belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Files,
    Functions,
    Locations,
    Frames,
    Code,
}

/// Parses a module. `None` when the text is not a module.
pub fn parse_text(text: &str) -> Option<Hlo> {
    let mut lines = text.lines();
    let head = lines.by_ref().find_map(|line| line.strip_prefix("HloModule "))?;
    let name = head.split([',', ' ']).next().unwrap_or_default();
    let mut hlo = Hlo { name: truncated(name), ..Hlo::default() };
    let mut part = Part::Code;
    let mut open: Option<(String, usize)> = None;
    for line in lines {
        let in_computation = line.starts_with("  ");
        match line.trim_end() {
            "FileNames" => part = Part::Files,
            "FunctionNames" => part = Part::Functions,
            "FileLocations" => part = Part::Locations,
            "StackFrames" => part = Part::Frames,
            "}" => {
                if let Some((name, begin)) = open.take() {
                    close(&mut hlo, name, begin);
                }
            }
            line if in_computation => {
                let room = INSTRUCTIONS_MAX - hlo.instructions.len();
                hlo.instructions.extend(instruction(line.trim_start()).filter(|_| room > 0));
            }
            line if line.ends_with('{') && line.contains('(') => {
                part = Part::Code;
                let line = line.strip_prefix("ENTRY ").unwrap_or(line);
                let name = line.split([' ', '(']).next().unwrap_or_default();
                open = Some((truncated(name.strip_prefix('%').unwrap_or(name)), hlo.instructions.len()));
            }
            line if part != Part::Code => row(&mut hlo, part, line),
            _ => {}
        }
    }
    Some(hlo)
}

fn close(hlo: &mut Hlo, name: String, start: usize) {
    if hlo.computations.len() < COMPUTATIONS_MAX {
        let range = start..hlo.instructions.len();
        hlo.computations.insert(ComputationId::Name(name.clone()), (name, range));
    }
}

/// A row of a table: `3 "loss"`, `3 {file_name_id=1 function_name_id=3 line=15 …}`. Rows count from 1 without gaps.
fn row(hlo: &mut Hlo, part: Part, line: &str) {
    let Some((number, rest)) = line.split_once(' ') else { return };
    let tables = &mut hlo.locations;
    let rows = match part {
        Part::Files => tables.files.len(),
        Part::Functions => tables.functions.len(),
        Part::Locations => tables.locations.len(),
        Part::Frames => tables.frames.len(),
        Part::Code => return,
    };
    if number.parse() != Ok(rows + 1) || rows >= LOCATIONS_MAX {
        return;
    }
    let field = |name: &str| {
        let fields = rest.trim_matches(['{', '}']).split([' ', ',']);
        let value = fields.filter_map(|field| field.split_once('=')).find(|(key, _)| *key == name);
        value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    match part {
        Part::Files => tables.files.push(quoted(rest).0),
        Part::Functions => tables.functions.push(quoted(rest).0),
        Part::Locations => tables.locations.push(Location {
            file: field("file_name_id"),
            function: field("function_name_id"),
            line: field("line"),
        }),
        Part::Frames => tables
            .frames
            .push(Frame { location: field("file_location_id"), parent: field("parent_frame_id") }),
        Part::Code => {}
    }
}

/// `ROOT %name = shape opcode(operands), attribute=…, metadata={…}`
fn instruction(line: &str) -> Option<Instruction> {
    let line = line.strip_prefix("ROOT ").unwrap_or(line);
    let (name, rest) = line.split_once(" = ")?;
    let name = name.strip_prefix('%').unwrap_or(name);
    let (code, metadata) = match rest.split_once(", metadata={") {
        Some((code, rest)) => (code, metadata(rest)),
        None => (rest, Metadata::default()),
    };
    let called = CALLS.iter().filter_map(|key| {
        let (before, value) = code.split_once(key)?;
        let value = value.strip_prefix('%').unwrap_or(value);
        let name = value.split([',', ' ', '}', ')']).next()?;
        (before.ends_with([' ', ',']) && !name.is_empty()).then(|| ComputationId::Name(truncated(name)))
    });
    let called = called.collect();
    Some(Instruction { name: truncated(name), is_parameter: code.contains(" parameter("), metadata, called })
}

/// `op_name="jit(f)/mul" stack_frame_id=3}…`
fn metadata(mut text: &str) -> Metadata {
    let mut metadata = Metadata::default();
    while let Some((key, rest)) = text.trim_start_matches([' ', ',']).split_once('=') {
        if key.starts_with('}') {
            break;
        }
        let number = |rest: &str| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().unwrap_or(0)
        };
        let (value, after) = if rest.starts_with('"') { quoted(rest) } else { (String::new(), rest) };
        match key {
            "op_name" => metadata.op_name = truncated(&value),
            "source_file" => metadata.source_file = truncated(&value),
            "source_line" => metadata.source_line = number(rest),
            "stack_frame_id" => metadata.frame = number(rest),
            _ => {}
        }
        let end = after.find([' ', '}', ',']).unwrap_or(after.len());
        if after[end..].starts_with('}') {
            break;
        }
        text = &after[end..];
    }
    metadata
}

/// The quoted text at the start, and the text after it.
fn quoted(text: &str) -> (String, &str) {
    let Some(rest) = text.strip_prefix('"') else { return (String::new(), text) };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '"' if !escaped => return (truncated(&value), &rest[at + 1..]),
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ => value.push(c),
        }
        escaped = false;
    }
    (truncated(&value), "")
}
