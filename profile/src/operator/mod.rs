//! Operators: what a framework's operator works on, and how much work that is.
//!
//! Owns: the text of its arguments ([`operand`]) and the arithmetic of its sizes ([`work`]). Because: whoever records
//! operators and whoever reads profiles must agree on both. Does not: observe operators; the pipeline does.

pub mod operand;
pub mod work;
