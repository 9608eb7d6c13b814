//! `libamdhip64.so`: AMD's runtime.
//!
//! Owns: HIP's functions over the same simulated device. Because: HIP is one library where CUDA is two, and has
//! launches of its own kind (in threads instead of blocks). Does not: simulate AMD's tracing; nothing here reports
//! activities.

mod kernels;
mod memory;
mod streams;

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::Arc;

use crate::api::{Code, In, Out, Status, api};
use crate::cuda::context;
use crate::cuda::stream::{self, Stream};

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/hip.rs"));
}

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// The device whose context this thread uses, plus one.
    static READY: Cell<i32> = const { Cell::new(0) };
}

/// Starts the runtime on first use, with the thread's device.
fn ready() -> Status {
    let device = DEVICE.get();
    if READY.get() != device + 1 {
        context::start(false)?;
        context::set_current(Some(context::retain(device)?));
        READY.set(device + 1);
    }
    Ok(())
}

/// The stream of a handle.
fn find(handle: usize, per_thread: bool) -> Result<Arc<Stream>, Code> {
    ready()?;
    stream::find(handle, per_thread)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    match code {
        0 => c"hipSuccess",
        1 => c"hipErrorInvalidValue",
        2 => c"hipErrorOutOfMemory",
        98 => c"hipErrorInvalidDeviceFunction",
        100 => c"hipErrorNoDevice",
        101 => c"hipErrorInvalidDevice",
        400 => c"hipErrorInvalidHandle",
        600 => c"hipErrorNotReady",
        801 => c"hipErrorNotSupported",
        _ => c"hipErrorUnknown",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: i32) -> *const c_char {
    hipGetErrorName(code)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> i32 {
    0
}

api! { Hip;
    fn hipInit(_flags: u32) { context::start(false) }
    fn hipDriverGetVersion(version: Out<i32>) { version.put(60_443_484) }
    fn hipRuntimeGetVersion(version: Out<i32>) { version.put(60_443_484) }
    fn hipGetDeviceCount(count: Out<i32>) { count.put(context::devices().cast_signed()) }
    fn hipSetDevice(device: i32) {
        if u32::try_from(device).is_ok_and(|device| device < context::devices()) {
            DEVICE.set(device);
            return ready();
        }
        Err(Code::INVALID_DEVICE)
    }
    fn hipGetDevice(device: Out<i32>) { device.put(DEVICE.get()) }
    fn hipDeviceGetName(name: Out<c_char>, room: i32, _device: i32) { context::put_text(name, room, context::name()) }
    fn hipDeviceGetAttribute(value: Out<i32>, attribute: i32, _device: i32) {
        value.put(context::attribute(attribute).ok_or(Code::INVALID_VALUE)?)
    }
    fn hipDeviceSynchronize() { ready()?; stream::synchronize_context() }
    fn hipCtxSynchronize() { ready()?; stream::synchronize_context() }
    fn hipGetProcAddress(name: In<c_char>, out: Out<usize>, _version: i32, _flags: u64, status: Out<u32>) {
        let own = crate::symbols::Library::of(hipInit as *const std::ffi::c_void);
        let found = own.and_then(|library| library.symbol(name.text().ok()?));
        status.put_if_wanted(u32::from(found.is_none()));
        out.put(found.unwrap_or(0))
    }
}
