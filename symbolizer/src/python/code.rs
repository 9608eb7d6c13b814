//! Code objects of another process, which name its frames.
//!
//! Owns: reading one code object, and checking whether it still is the sampled one. Because: the kernel program
//! records only its address and a checksum; names are read later, when it may have been freed. Does not: cache (see
//! [`super::names`]), or follow pointers other than the four it needs.

use std::sync::Arc;

use deepctx_common::python::{CODE_WORDS, NO_FIELD, TEXT_HASH};
use deepctx_common::reasons;
use deepctx_walk::python::code_checksum;

use super::layout::Layout;
use super::lines::LineRuns;
use super::text::{TextError, read_text};
use crate::memory::{ReadError, TargetMemory};

/// Most bytes read of a line table: a function of 100 000 lines has about this many.
pub const LINE_TABLE_MAX: u64 = 1 << 20;

/// Why a code object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeError {
    /// Its memory could not be read.
    Read(ReadError),
    /// The object at the address is not a complete code object.
    NotACodeObject,
    /// It changed during each attempt to read it.
    Torn,
}

impl CodeError {
    reasons! {
        class Unread, page "python-frames.md";
        /// Its key and sentence.
        pub fn reason(self) {
            Self::NotACodeObject => "no-code-object", "the object at the address is not a code object";
            Self::Torn => "code-object-torn", "the code object changed while it was read";
        } or {
            Self::Read(memory) => memory.reason();
        }
    }
}

impl From<ReadError> for CodeError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<TextError> for CodeError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Read(error) => Self::Read(error),
            TextError::NotText => Self::NotACodeObject,
        }
    }
}

/// Bits of `co_flags` (`Include/cpython/code.h`; the same from 3.8 to 3.15).
mod code_flag {
    /// `CO_COROUTINE`: an `async def`.
    pub(super) const COROUTINE: u32 = 0x80;
    /// `CO_ITERABLE_COROUTINE`: a generator that `types.coroutine` made awaitable.
    pub(super) const ITERABLE_COROUTINE: u32 = 0x100;
    /// `CO_ASYNC_GENERATOR`: an `async def` with a `yield`.
    pub(super) const ASYNC_GENERATOR: u32 = 0x200;
}

/// Distinguishes a code object from another that replaced it in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeIdentity {
    /// The checksum that the walker in the kernel computes.
    pub checksum: u32,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// `co_flags`.
    flags: u32,
    address: u64,
    filename: u64,
    name: u64,
    qualname: u64,
    lines: u64,
}

impl CodeIdentity {
    /// Whether what runs the code can be awaited, hence be a part of a task of asyncio. A generator (`CO_GENERATOR`
    /// without another of these flags) cannot.
    pub fn is_awaitable(&self) -> bool {
        self.flags & (code_flag::COROUTINE | code_flag::ITERABLE_COROUTINE | code_flag::ASYNC_GENERATOR) != 0
    }
}

/// The parts of a code object that name a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its identity.
    pub identity: CodeIdentity,
    /// `co_name`.
    pub name: Arc<str>,
    /// `co_qualname` where the version has it, else `co_name`.
    pub qualname: Arc<str>,
    /// `co_filename`.
    pub file: Arc<str>,
    /// Lines of its bytecode.
    pub lines: LineRuns,
    /// Offset in bytes of the first instruction after the function has started; `None` before 3.11.
    pub started: Option<i32>,
}

/// Reads the identity of the code object at `address`. `code_type` is the address of `PyCode_Type` in the process.
///
/// # Errors
/// [`CodeError::NotACodeObject`] when the object there has another type.
pub fn read_identity(
    memory: &dyn TargetMemory,
    layout: &Layout,
    code_type: u64,
    address: u64,
) -> Result<CodeIdentity, CodeError> {
    let (kernel, user) = (&layout.kernel, &layout.user);
    let identity = usize::from(kernel.code_identity);
    let object =
        memory.read_vec(address, (usize::from(user.code_lines) + 8).max(identity + 8 * CODE_WORDS))?;
    let u32_at = |offset: u16| {
        let offset = usize::from(offset);
        object.get(offset..offset + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let u64_at = |offset: u16| {
        let offset = usize::from(offset);
        object.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    if u64_at(user.object_type) != code_type {
        return Err(CodeError::NotACodeObject);
    }
    let first_line = u32_at(user.code_firstlineno);
    let words = std::array::from_fn(|n| u64_at(kernel.code_identity + 8 * n as u16));
    let name_hash = match kernel.code_name {
        0 => 0,
        // As the kernel programs do: an unreadable name counts as 0.
        _ => memory.read_u64(u64_at(user.code_name).wrapping_add(TEXT_HASH)).unwrap_or(0),
    };
    Ok(CodeIdentity {
        checksum: code_checksum(&words, kernel.code_identity_words, name_hash),
        first_line,
        flags: u32_at(user.code_flags),
        address,
        filename: u64_at(user.code_filename),
        name: u64_at(user.code_name),
        qualname: if user.code_qualname == NO_FIELD { 0 } else { u64_at(user.code_qualname) },
        lines: u64_at(user.code_lines),
    })
}

/// Reads the code object at `address` with the objects that it points to.
///
/// # Errors
/// As [`read_identity`]; [`CodeError::Torn`] when the object changed during two attempts.
pub fn read_code(
    memory: &dyn TargetMemory,
    layout: &Layout,
    code_type: u64,
    address: u64,
) -> Result<Code, CodeError> {
    for _ in 0..2 {
        let identity = read_identity(memory, layout, code_type, address)?;
        let parts = read_parts(memory, layout, &identity);
        if read_identity(memory, layout, code_type, address)? == identity {
            return parts;
        }
    }
    Err(CodeError::Torn)
}

fn read_parts(
    memory: &dyn TargetMemory,
    layout: &Layout,
    identity: &CodeIdentity,
) -> Result<Code, CodeError> {
    let user = &layout.user;
    let name: Arc<str> = read_text(memory, user, identity.name)?.into();
    let qualname = match identity.qualname {
        0 => name.clone(),
        pointer if pointer == identity.name => name.clone(),
        pointer => read_text(memory, user, pointer)?.into(),
    };
    let size = memory.read_u64(identity.lines.wrapping_add(u64::from(user.bytes_size)))?;
    if size > i64::MAX as u64 {
        return Err(CodeError::NotACodeObject);
    }
    let table = memory.read_vec(
        identity.lines.wrapping_add(u64::from(user.bytes_data)),
        size.min(LINE_TABLE_MAX) as usize,
    )?;
    let started = match user.code_first_traceable {
        NO_FIELD => None,
        field => {
            let mut bytes = [0; 4];
            memory.read(identity.address.wrapping_add(u64::from(field)), &mut bytes)?;
            Some(i32::from_le_bytes(bytes).saturating_mul(2))
        }
    };
    Ok(Code {
        started,
        identity: *identity,
        qualname,
        name,
        file: read_text(memory, user, identity.filename)?.into(),
        lines: LineRuns::decode(user.line_format, &table, identity.first_line),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_functions_and_generators_are_not_awaitable() {
        let code = |flags: u32| CodeIdentity {
            checksum: 0,
            first_line: 1,
            flags,
            address: 0,
            filename: 0,
            name: 0,
            qualname: 0,
            lines: 0,
        };
        // A function, a generator, a coroutine, one by `types.coroutine`, an asynchronous generator.
        for (flags, expect) in [(0x13, false), (0x33, false), (0x93, true), (0x133, true), (0x213, true)] {
            assert_eq!(code(flags).is_awaitable(), expect, "{flags:#x}");
        }
    }
}
