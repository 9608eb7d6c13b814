//! Where a thunk keeps its names.
//!
//! Owns: reading these offsets from the code of its constructor. Because: `xla::cpu::Thunk` is not a stable interface,
//! and a wrong offset would give a wrong name. Does not: follow branches: the constructor's code for either form of a
//! string leads to the same fields.
//!
//! ```text
//! Thunk(Kind, Info)            Info { std::string op_name; std::string module_name; int64_t module_id; }, by reference
//!   lea 0x20(this),a; mov a,0x10(this)     a string at 0x10: its pointer leads to its own bytes at first (libstdc++)
//!   mov 0x8(info),b;  mov b,0x18(this)     … whose length was that of the first string
//!   …                                      the same at 0x30 of the second
//!   mov 0x40(info),c; mov c,0x50(this)     the number after both
//! ```

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register,
};
use rustc_hash::FxHashMap;

/// Bytes of `std::string` (libstdc++), and the offsets of its length and of a short one's bytes.
const STRING: i64 = 32;
pub(super) const LENGTH: i16 = 8;
const SHORT: i64 = 16;
/// Largest plausible offset of a field in a thunk.
const FIELD_MAX: i64 = 1 << 12;

/// Offsets of the fields from the start of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// The string with the operator's name.
    pub(super) name: i16,
    /// The string with the module's name.
    pub(super) unit_name: i16,
    /// The module's number.
    pub(super) unit_number: i16,
}

/// Content of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// An address within the thunk.
    Thunk(i64),
    /// An address within the object that its names are copied from.
    Info(i64),
    /// The value at that address in it.
    Copied(i64),
}

impl Fields {
    /// Reads them from the constructor's code; `None` when it has another form.
    pub(super) fn of(code: &[u8]) -> Option<Self> {
        let stores = stores(code);
        let own = |at: i64| stores.contains(&(at, Value::Thunk(at + SHORT)));
        let mut strings: Vec<i64> = stores.iter().map(|(at, _)| *at).filter(|at| own(*at)).collect();
        strings.sort_unstable();
        strings.dedup();
        let [name, unit_name] = strings[..] else { return None };
        let (length, unit_number) = (i64::from(LENGTH), unit_name + STRING);
        let copied =
            [(name + length, length), (unit_name + length, STRING + length), (unit_number, 2 * STRING)];
        // Each of them, and no other store to their places.
        let all = copied.into_iter().all(|(to, from)| {
            let mut at = stores.iter().filter(|(at, _)| *at == to);
            at.next().is_some_and(|(_, value)| *value == Value::Copied(from)) && at.next().is_none()
        });
        let narrow = |at: i64| i16::try_from(at).ok().filter(|_| (8..FIELD_MAX).contains(&at));
        (all && name + STRING <= unit_name).then_some(())?;
        Some(Self { name: narrow(name)?, unit_name: narrow(unit_name)?, unit_number: narrow(unit_number)? })
    }
}

/// The stores of the constructor to the thunk: offsets and values.
fn stores(code: &[u8]) -> Vec<(i64, Value)> {
    let mut registers = Registers::new();
    let mut stores = Vec::new();
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let leaves = matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Call | FlowControl::IndirectCall
        );
        if instruction.is_invalid() || leaves {
            break;
        }
        match registers.stored(&instruction) {
            Some((at, value)) => stores.extend(value.map(|value| (at, value))),
            None => registers.write(&instruction),
        }
    }
    stores
}

/// Contents of registers, as far as known.
struct Registers {
    values: FxHashMap<Register, Value>,
    info: InstructionInfoFactory,
}

impl Registers {
    /// At the constructor's entry: the object, its kind, and a reference to its names.
    fn new() -> Self {
        let values = [(Register::RDI, Value::Thunk(0)), (Register::RDX, Value::Info(0))];
        Self { values: values.into_iter().collect(), info: InstructionInfoFactory::new() }
    }

    fn get(&self, register: Register) -> Option<Value> {
        self.values.get(&register).copied()
    }

    /// The object that the memory operand points into.
    fn pointee(&self, instruction: &Instruction) -> Option<Value> {
        let plain = instruction.memory_index() == Register::None;
        plain.then(|| self.get(instruction.memory_base())).flatten()
    }

    /// Offset and, if known, value of an instruction's store to the thunk; `None` if it has none.
    fn stored(&self, instruction: &Instruction) -> Option<(i64, Option<Value>)> {
        let is_copy =
            instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
        match (instruction.code(), self.pointee(instruction)) {
            (Code::Mov_rm64_r64, Some(Value::Thunk(at))) if !is_copy => {
                let at = at.wrapping_add(instruction.memory_displacement64().cast_signed());
                Some((at, self.get(instruction.op1_register())))
            }
            _ => None,
        }
    }

    /// An instruction writes registers.
    fn write(&mut self, instruction: &Instruction) {
        let value = self.computed(instruction);
        for used in self.info.info(instruction).used_registers() {
            if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None) {
                self.values.remove(&used.register().full_register());
            }
        }
        if let Some(value) = value {
            self.values.insert(instruction.op0_register(), value);
        }
    }

    /// The value that an instruction writes to its first operand, a register.
    fn computed(&self, instruction: &Instruction) -> Option<Value> {
        let displacement = instruction.memory_displacement64().cast_signed();
        let (to, from) = (instruction.op0_kind(), instruction.op1_kind());
        match (instruction.code(), self.pointee(instruction)) {
            (Code::Lea_r64_m, Some(value)) => value.moved(displacement),
            (Code::Add_rm64_imm8 | Code::Add_rm64_imm32, _) if to == OpKind::Register => {
                self.get(instruction.op0_register())?.moved(instruction.immediate(1).cast_signed())
            }
            (Code::Mov_r64_rm64, Some(Value::Info(at))) if from == OpKind::Memory => {
                Some(Value::Copied(at.wrapping_add(displacement)))
            }
            (Code::Mov_r64_rm64 | Code::Mov_rm64_r64, _)
                if to == OpKind::Register && from == OpKind::Register =>
            {
                self.get(instruction.op1_register())
            }
            _ => None,
        }
    }
}

impl Value {
    /// The address this many bytes further; `None` for a value that is not an address.
    fn moved(self, bytes: i64) -> Option<Self> {
        match self {
            Self::Thunk(at) => Some(Self::Thunk(at.wrapping_add(bytes))),
            Self::Info(at) => Some(Self::Info(at.wrapping_add(bytes))),
            Self::Copied(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// jaxlib 0.12.0.1, and 0.4.38 up to its call.
    const NEW: &str = "55 4889e5 488d057dbdc900 488907 897708 488d4f20 48894f10 488b32 488d4210 4839c6 740d 48897710 \
        488b08 48894f20 eb08 c5f81006 c5f81101 488b4a08 48894f18 488902 48c7420800000000 c6421000 488d4f40 48894f30 \
        488b7220 488d4230 4839c6 740d 48897730 488b08 48894f40 eb08 c5f81006 c5f81101 488b4a28 48894f38 48894220 \
        48c7422800000000 c6423000 488b4240 48894750 5d c3";

    fn bytes(text: &str) -> Vec<u8> {
        let digits: String = text.split_ascii_whitespace().collect();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn fields_are_those_that_the_constructor_fills() {
        let code = bytes(NEW);
        let expect = Fields { name: 0x10, unit_name: 0x30, unit_number: 0x50 };
        assert_eq!(Fields::of(&code), Some(expect));
        // 0.4.38 keeps the address of the first string in a register.
        let old = NEW.replace("48897710 488b08", "48 8933 488b08").replace("488d4f20", "488d5f10 488d4f20");
        assert_eq!(Fields::of(&bytes(&old)), Some(expect));
    }

    #[test]
    fn fields_are_found_in_what_another_compiler_makes() {
        // GCC 12, for a thunk with 32 bytes before its names; the code for short strings is after the return.
        let code = "55 660fefc0 4889e5 4155 4c8d6a10 4154 4989d4 53 4889fb 4883c740 4883ec08 488b05622d0000 0f1147d0 \
            48c747c800000000 4883c010 48c747e000000000 488947c0 8977e8 48897b30 488b02 4c39e8 747f 48894330 488b4210 \
            48894340 488b4208 488d7b60 48894338 4d892c24 4d8d6c2430 49c744240800000000 41c644241000 48897b50 \
            498b442420 4c39e8 7469 48894350 498b442430 48894360 498b442428 48894358 498b442440 4d896c2420 \
            49c744242800000000 41c644243000 48894370 4883c408 5b 415c 415d 5d c3";
        let expect = Fields { name: 0x30, unit_name: 0x50, unit_number: 0x70 };
        assert_eq!(Fields::of(&bytes(code)), Some(expect));
    }

    #[test]
    fn a_constructor_of_another_form_is_refused() {
        for (what, with) in [
            // One string; a length from elsewhere; a field that is set twice; no number.
            ("48894f30", "90"),
            ("488b4a28", "488b4a30"),
            ("48894750", "48894750 48897f50"),
            ("48894750", "90"),
            // It makes a call first.
            ("897708", "e800000000"),
        ] {
            assert!(NEW.contains(what));
            assert_eq!(Fields::of(&bytes(&NEW.replace(what, with))), None, "{what} {with}");
        }
        assert_eq!(Fields::of(&[]), None);
    }

    #[test]
    fn damaged_code_is_read_without_harm() {
        let code = bytes(NEW);
        for at in 0..code.len() {
            let _ = Fields::of(&code[..at]);
            for bit in 0..8 {
                let mut damaged = code.clone();
                damaged[at] ^= 1 << bit;
                let _ = Fields::of(&damaged);
            }
        }
    }
}
