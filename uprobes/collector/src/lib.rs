//! The collector: obtains from CUPTI, within the process that uses the device, what the device did and when.
//!
//! Owns: when CUPTI collects, what it collects, and the functions whose arguments a probe reads. Because: CUPTI gives
//! device times, and the launches they belong to, only to code in the process. Does not: keep, write or send anything:
//! no files, no sockets; without a listener it requests nothing. It never changes what the program computes, and no
//! failure leaves it.
//!
//! The driver loads it where `CUDA_INJECTION64_PATH` names it, and calls [`InitializeInjection`].
//!
//! The bindings to CUPTI are our own few and not `cudarc`'s, for three reasons: those fix the layout of records at
//! compile time while the process brings the version, they open a library of their own choice by name while the one
//! that matters is the one the process has, and they panic when a function is missing, which is normal here.

mod buffers;
mod clock;
mod convert;
mod cupti;
mod devices;
mod fork;
mod listen;
mod memory;
mod names;
mod probe;
mod sampling;
mod session;

/// Called by the driver within `cuInit`. Always returns 1, success.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    if !gains_privileges() {
        guard(listen::start);
    }
    1
}

/// Whether the program has more privileges than its caller (set-user-id, file capabilities). Then the caller's
/// environment must not make it do anything.
fn gains_privileges() -> bool {
    // SAFETY: no pointers are involved; an unknown entry is 0.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Keeps a panic from unwinding into code of the driver.
fn guard(body: impl FnOnce()) {
    // State left behind by a panic is only accessed through atomics and locks that ignore poisoning.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
}
