//! The contract between the kernel programs and user space: every byte that crosses is defined here, once.
//!
//! Owns: record headers and bodies, map keys and values, numbered reasons, limits, names of maps and programs.
//! Because: the kernel programs, the decoder, the tests and the fuzzers must agree on every bit.
//! Does not: allocate, use `std`, decide policy. Numbers are append-only; a retired number is never reused.
//!
//! Layout rules: `repr(C)`, explicit padding, sizes and offsets asserted in [`layout`]. Every type is plain old data
//! (any bit pattern is a value), so user space may view bytes as these types after a length check:
//!
//! ```
//! use deepctx_common::Plain;
//! use deepctx_common::record::{RecordHeader, kind};
//!
//! let header = RecordHeader { kind: kind::FORK, sequence: 7, ..RecordHeader::default() };
//! let bytes = header.as_bytes().to_vec();
//! assert_eq!(RecordHeader::read_from(&bytes), Some(header));
//! assert_eq!(RecordHeader::read_from(&bytes[1..]), None, "a record that is cut is no record");
//! ```
#![no_std]

pub mod activity;
pub mod call;
pub mod config;
pub mod cupti;
pub mod device;
pub mod end;
pub mod layout;
pub mod memory;
pub mod plain;
pub mod process;
pub mod python;
pub mod reason;
pub mod record;
pub mod samples;
pub mod thread;
pub mod unwind;

pub use plain::Plain;
