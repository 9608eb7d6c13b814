//! Parameter locations of an operator's function, from its demangled name.
//!
//! Owns: the parameter types of operators, as far as passing them is concerned. Because: a mangled name gives the
//! parameters of a function, and the calling convention their locations. Does not: guess: after an unknown type no
//! parameter has a location.
//!
//! Source of the rules for types: System V ABI, 3.2.3, and "Itanium C++ ABI", 3.1.2.3 (an object that is not trivial is
//! passed by its address); `c10::SymInt` is one.

use crate::abi::Register;

/// Kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterKind {
    /// The address of a tensor.
    Tensor,
    /// The address of an optional tensor.
    Optional,
    /// A list of tensors: address and length.
    List,
    /// The address of a list of tensors that may be of several kinds.
    Lists,
    /// The address of another object that may hold tensors.
    Holder,
    /// A list of numbers: address and length.
    Numbers,
    /// The address of a number (`c10::SymInt`).
    Number,
    /// `bool`.
    Flag,
    /// Something else.
    Other,
}

/// Location of its first eight bytes when the function is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentRegister {
    Register(Register),
    /// Bytes above the stack pointer, where the return address is at 0.
    Stack(u16),
    /// In a vector register.
    Nowhere,
}

/// The parameters of `at::_ops::X::call(…)`, up to the first of an unknown type. `first`: number of registers taken
/// before them, for the address of a result.
pub(super) fn parameters(demangled: &str, first: usize) -> Vec<(ParameterKind, ArgumentRegister)> {
    let mut out = Vec::new();
    let Some(list) = demangled.split_once("::call(").and_then(|(_, rest)| rest.strip_suffix(')')) else {
        return out;
    };
    let (mut registers, mut stack) = (first, 8);
    for text in split(list) {
        let Some((kind, need)) = class(text) else { break };
        let at = match need {
            ParameterPassing::Vector => ArgumentRegister::Nowhere,
            ParameterPassing::Registers(n) => match Register::ARGUMENTS.get(registers..registers + n) {
                Some(free) => {
                    registers += n;
                    ArgumentRegister::Register(free[0])
                }
                None => on_stack(&mut stack, n),
            },
            // The flag of an optional number takes a general register.
            ParameterPassing::VectorAndRegister => {
                if registers < Register::ARGUMENTS.len() {
                    registers += 1;
                    ArgumentRegister::Nowhere
                } else {
                    on_stack(&mut stack, 2)
                }
            }
            ParameterPassing::Memory(words) => on_stack(&mut stack, words),
        };
        out.push((kind, at));
    }
    out
}

fn on_stack(stack: &mut u16, words: usize) -> ArgumentRegister {
    let at = *stack;
    *stack = stack.saturating_add(8 * words as u16);
    ArgumentRegister::Stack(at)
}

/// How a parameter is passed.
enum ParameterPassing {
    Registers(usize),
    Vector,
    VectorAndRegister,
    /// This many words on the stack.
    Memory(usize),
}

/// Kind and passing of a type; `None` if unknown.
fn class(text: &str) -> Option<(ParameterKind, ParameterPassing)> {
    let plain = text.trim_end_matches('&').trim_end().trim_end_matches(" const").trim_end();
    let holds = |inner: &str| inner.contains("at::Tensor");
    if text.ends_with('&') || text.ends_with('*') {
        let kind = match plain {
            "at::Tensor" => ParameterKind::Tensor,
            "std::optional<at::Tensor>" | "c10::optional<at::Tensor>" => ParameterKind::Optional,
            "c10::IListRef<at::Tensor>" => ParameterKind::Lists,
            _ if holds(plain) => ParameterKind::Holder,
            _ => ParameterKind::Other,
        };
        return Some((kind, ParameterPassing::Registers(1)));
    }
    let small = |inner: &str| {
        let enumeration = inner.strip_prefix("c10::").is_some_and(|name| {
            matches!(name, "ScalarType" | "Layout" | "MemoryFormat" | "Device" | "DeviceType")
        });
        inner == "bool" || enumeration
    };
    Some(match text {
        "bool" => (ParameterKind::Flag, ParameterPassing::Registers(1)),
        "long" | "int" | "unsigned long" | "unsigned int" => {
            (ParameterKind::Other, ParameterPassing::Registers(1))
        }
        "double" | "float" => (ParameterKind::Other, ParameterPassing::Vector),
        "c10::SymInt" => (ParameterKind::Number, ParameterPassing::Registers(1)),
        _ if small(text) => (ParameterKind::Other, ParameterPassing::Registers(1)),
        _ => {
            let (outer, inner) = text.split_once('<')?;
            let inner = inner.strip_suffix('>')?.trim_end();
            match outer {
                "c10::ArrayRef" if inner == "at::Tensor" => {
                    (ParameterKind::List, ParameterPassing::Registers(2))
                }
                "c10::ArrayRef" if holds(inner) => (ParameterKind::Holder, ParameterPassing::Registers(2)),
                "c10::ArrayRef" if matches!(inner, "c10::SymInt" | "long") => {
                    (ParameterKind::Numbers, ParameterPassing::Registers(2))
                }
                "c10::ArrayRef" | "std::basic_string_view" | "c10::basic_string_view" => {
                    (ParameterKind::Other, ParameterPassing::Registers(2))
                }
                "c10::OptionalArrayRef" => (ParameterKind::Other, ParameterPassing::Memory(3)),
                "std::optional" if small(inner) => (ParameterKind::Other, ParameterPassing::Registers(1)),
                "std::optional" if inner == "long" => (ParameterKind::Other, ParameterPassing::Registers(2)),
                "std::optional" if inner == "double" => {
                    (ParameterKind::Other, ParameterPassing::VectorAndRegister)
                }
                // Not trivially copyable.
                "std::optional" if inner == "c10::SymInt" => {
                    (ParameterKind::Other, ParameterPassing::Registers(1))
                }
                "std::array" if inner.starts_with("bool, ") => {
                    (ParameterKind::Other, ParameterPassing::Registers(1))
                }
                _ => return None,
            }
        }
    })
}

/// Splits at commas outside brackets.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut begin) = (0_i32, 0);
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    let last = list[begin..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parameters_: &str, expect: &str) {
        let found = parameters(&format!("at::_ops::x::call({parameters_})"), 1);
        let text: Vec<String> = found
            .iter()
            .map(|(kind, at)| match at {
                ArgumentRegister::Register(register) => format!("{kind:?} {}", register.name()),
                ArgumentRegister::Stack(at) => format!("{kind:?} {at}"),
                ArgumentRegister::Nowhere => format!("{kind:?} -"),
            })
            .collect();
        assert_eq!(text.join(", "), expect);
    }

    #[test]
    fn parameters_are_where_the_calling_convention_puts_them() {
        const T: &str = "at::Tensor const&";
        check("", "");
        check(&format!("{T}, {T}"), "Tensor rsi, Tensor rdx");
        check(
            "at::Tensor&, at::Tensor const&, c10::Scalar const&, double, bool",
            "Tensor rsi, Tensor rdx, Other rcx, Other -, Flag r8",
        );
        let numbers = "c10::ArrayRef<c10::SymInt>";
        check(
            &format!(
                "{T}, {T}, std::optional<at::Tensor> const&, {numbers}, {numbers}, {numbers}, bool, {numbers}, c10::SymInt"
            ),
            "Tensor rsi, Tensor rdx, Optional rcx, Numbers r8, Numbers 8, Numbers 24, Flag 40, Numbers 48, Number 64",
        );
        // A pair with only one register left goes to the stack, and the next parameter takes the register.
        check(
            &format!("{T}, {T}, {T}, {T}, {numbers}, bool"),
            "Tensor rsi, Tensor rdx, Tensor rcx, Tensor r8, Numbers 8, Flag r9",
        );
        check(
            &format!(
                "{T}, c10::OptionalArrayRef<long>, bool, std::optional<c10::ScalarType>, std::optional<long>"
            ),
            "Tensor rsi, Other 8, Flag rdx, Other rcx, Other r8",
        );
        check(
            &format!(
                "{T}, std::basic_string_view<char, std::char_traits<char> >, std::optional<double>, bool"
            ),
            "Tensor rsi, Other rdx, Other -, Flag r9",
        );
        check("c10::IListRef<at::Tensor> const&, long", "Lists rsi, Other rdx");
        check(
            "c10::ArrayRef<at::Tensor>, long, c10::List<std::optional<at::Tensor> > const&",
            "List rsi, Other rcx, Holder r8",
        );
    }

    #[test]
    fn nothing_is_placed_after_an_unknown_type() {
        check("at::Tensor const&, at::Dimname, at::Tensor const&", "Tensor rsi");
        check("std::optional<c10::string_view>, at::Tensor const&", "");
        assert!(parameters("at::_ops::x::redispatch(at::Tensor const&)", 0).is_empty());
        assert!(parameters("at::_ops::x::call(at::Tensor const&", 0).is_empty());
    }
}
