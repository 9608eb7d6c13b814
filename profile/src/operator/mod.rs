//! Operators: the operands of a framework's operator, and how much work it does.
//!
//! Owns: the text of its arguments ([`operand`]) and the arithmetic of its sizes ([`work`]). Because: the recorder of
//! operators and the readers of profiles must agree on both. Does not: observe operators; the pipeline does.

pub mod operand;
pub mod work;
