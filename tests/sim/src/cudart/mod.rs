//! `libcudart.so`: the runtime.
//!
//! Owns: its own state (devices of threads, kernels by their stubs, the last error); everything else it asks the driver
//! for, through functions that the driver hands out. Because: this is how the real one works, and why a program's
//! launches are seen in both. Does not: touch a device.

mod driver;
mod graphs;
mod kernels;
mod memory;
mod streams;

use std::cell::Cell;
use std::ffi::c_char;

use crate::api::{Code, In, Out, Raw, Status, api};
use driver::{check, driver};

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/cudart.rs"));
}

/// `cudaErrorInvalidDeviceFunction`.
pub(crate) const INVALID_FUNCTION: Code = Code(98);

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
    /// The device whose context this thread uses, plus one.
    static READY: Cell<i32> = const { Cell::new(0) };
}

/// Stores an error for `cudaGetLastError`.
pub(crate) fn remember(result: i32) {
    // "Not ready" is no error.
    if result != 0 && Code(result) != Code::NOT_READY {
        LAST_ERROR.set(result);
    }
}

/// The thread's device; the runtime starts on first use.
pub(crate) fn ready() -> Result<&'static driver::Functions, Code> {
    let driver = driver()?;
    let device = DEVICE.get();
    if READY.get() != device + 1 {
        check((driver.cuInit)(0))?;
        let mut context = 0;
        check((driver.cuDevicePrimaryCtxRetain)(&raw mut context, device))?;
        check((driver.cuCtxSetCurrent)(context))?;
        READY.set(device + 1);
    }
    Ok(driver)
}

fn set_device(device: i32) -> Status {
    let driver = driver()?;
    check((driver.cuInit)(0))?;
    let mut found = 0;
    check((driver.cuDeviceGet)(&raw mut found, device))?;
    DEVICE.set(device);
    ready().map(drop)
}

/// Name and sentence of an error.
const fn error(code: i32) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    match code {
        0 => (c"cudaSuccess", c"no error"),
        1 => (c"cudaErrorInvalidValue", c"invalid argument"),
        2 => (c"cudaErrorMemoryAllocation", c"out of memory"),
        3 => (c"cudaErrorInitializationError", c"initialization error"),
        98 => (c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
        100 => (c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
        101 => (c"cudaErrorInvalidDevice", c"invalid device ordinal"),
        400 => (c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
        600 => (c"cudaErrorNotReady", c"device not ready"),
        801 => (c"cudaErrorNotSupported", c"operation not supported"),
        _ => (c"cudaErrorUnknown", c"unknown error"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    error(code).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    error(code).1.as_ptr()
}

// Not announced: their results are not failures of their own.
#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> i32 {
    LAST_ERROR.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST_ERROR.get()
}

api! { Runtime;
    fn cudaGetDeviceCount(count: Out<i32>) {
        let driver = driver()?;
        check((driver.cuInit)(0))?;
        let mut found = 0;
        check((driver.cuDeviceGetCount)(&raw mut found))?;
        count.put(found)
    }
    fn cudaSetDevice(device: i32) { set_device(device) }
    fn cudaInitDevice(device: i32, _device_flags: u32, _flags: u32) { set_device(device) }
    fn cudaGetDevice(device: Out<i32>) { device.put(DEVICE.get()) }
    fn cudaRuntimeGetVersion(version: Out<i32>) { version.put(driver::version()) }
    fn cudaDriverGetVersion(version: Out<i32>) {
        let mut found = 0;
        check((driver()?.cuDriverGetVersion)(&raw mut found))?;
        version.put(found)
    }
    fn cudaDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) {
        let mut found = 0;
        check((ready()?.cuDeviceGetAttribute)(&raw mut found, attribute, device))?;
        value.put(found)
    }
    fn cudaDeviceSynchronize() { check((ready()?.cuCtxSynchronize)()) }
    fn cudaDeviceReset() { check((ready()?.cuCtxSynchronize)()) }
    fn cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    }
    fn cudaGetDriverEntryPoint | cudaGetDriverEntryPoint_ptsz(name: In<c_char>, out: Out<Raw>, flags: u64, status: Out<u32>) {
        give(name, out, driver::version(), if PER_THREAD { 2 } else { flags }, status)
    }
    fn cudaGetDriverEntryPointByVersion | cudaGetDriverEntryPointByVersion_ptsz(name: In<c_char>, out: Out<Raw>, version: u32, flags: u64, status: Out<u32>) {
        give(name, out, version.cast_signed(), if PER_THREAD { 2 } else { flags }, status)
    }
}

/// Gives a driver function to a program.
fn give(name: In<c_char>, out: Out<Raw>, version: i32, flags: u64, status: Out<u32>) -> Status {
    let found = driver::procedure(name.text()?, version, flags);
    status.put_if_wanted(u32::from(found.is_none()));
    out.put(found.unwrap_or(0))
}
