//! Functions that hand out functions, and names of results.
//!
//! Owns: `cuGetProcAddress` and `cuGetExportTable`. Because: runtimes and compilers fetch the driver's functions
//! here, not from the dynamic linker. Does not: hand out what is not exported: each address is that of the symbol.

use std::ffi::{CStr, CString, c_char, c_void};

use super::{CATALOGUE, MASKS, TABLE};
use crate::api::{Code, In, Out, Raw, api};
use crate::link::{KINDS_ID, TABLE_ID};
use crate::symbols::Library;

/// Flag that requests functions with per-thread default streams.
const PER_THREAD_FLAG: u64 = 2;

/// Name and sentence of a result.
pub(crate) const fn error(code: i32) -> (&'static CStr, &'static CStr) {
    match code {
        0 => (c"CUDA_SUCCESS", c"no error"),
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        200 => (c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
        201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        301 => (c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
        400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        401 => (c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        600 => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        900 => {
            (c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing")
        }
        903 => (c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"capture was not initiated in this stream"),
        904 => (c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
        _ => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
    }
}

/// The first version with a function; functions outside of the catalogue have always existed.
fn since(symbol: &str) -> u32 {
    CATALOGUE.iter().find(|(known, _)| *known == symbol).map_or(0, |(_, since)| *since)
}

/// The symbol of a name for a program of this version.
fn address(name: &CStr, version: u32, per_thread: bool) -> Option<usize> {
    let own = Library::of((&raw const TABLE).cast())?;
    let name = name.to_str().ok()?;
    // Later versions of a function have a suffix, followed by the one for streams.
    for suffix in ["_v4", "_v3", "_v2", ""] {
        let base = format!("{name}{suffix}");
        for stream in if per_thread { &["_ptsz", "_ptds", ""][..] } else { &[""] } {
            let symbol = format!("{base}{stream}");
            if since(&symbol) <= version
                && let Some(address) = own.symbol(&CString::new(symbol).ok()?)
            {
                return Some(address);
            }
        }
    }
    None
}

/// Returns the address and a status: found, not found, or too new for the version.
fn give(
    name: In<c_char>,
    out: Out<Raw>,
    version: i32,
    flags: u64,
    status: Option<Out<u32>>,
) -> crate::api::Status {
    let found = address(name.text()?, version.unsigned_abs(), flags & PER_THREAD_FLAG != 0);
    if let Some(status) = status {
        status.put_if_wanted(u32::from(found.is_none()));
    }
    out.put(found.unwrap_or(0))?;
    found.map(drop).ok_or(Code::NOT_FOUND)
}

api! { Driver;
    fn cuGetProcAddress(name: In<c_char>, out: Out<Raw>, version: i32, flags: u64) { give(name, out, version, flags, None) }
    fn cuGetProcAddress_v2(name: In<c_char>, out: Out<Raw>, version: i32, flags: u64, status: Out<u32>) {
        give(name, out, version, flags, Some(status))
    }
    fn cuGetExportTable(table: Out<*const c_void>, id: In<[u8; 16]>) {
        match id.get()? {
            id if id == TABLE_ID => table.put((&raw const TABLE).cast()),
            id if id == KINDS_ID => table.put((&raw const MASKS.kinds).cast()),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
