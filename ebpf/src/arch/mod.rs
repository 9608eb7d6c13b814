//! Machine-dependent facts: how the kernel saves a thread's registers.
//!
//! Owns: the selection of the machine's file (`bpf_target_arch`, set by `cargo xtask ebpf`). Because: only the kernel's
//! `pt_regs`, its marks for user mode and system calls, and the registers that a walk needs depend on the machine. Does
//! not: walk.
//!
//! Each file offers `UserRegs`, `LAST_ARGUMENTS`, `SYSTEM_CALL`, `RETURN_ADDRESS_BYTES`, `in_kernel`, `copy`,
//! `in_system_call`, `system_call`, `mode`, `begin`, `register`, `arguments` and `result`.

use deepctx_common::end::WalkEnd;

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;

#[cfg(bpf_target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;

/// Mode in which registers were saved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// 64-bit code in user space.
    User,
    /// 32-bit code in user space, which is not walked.
    Compat,
    /// Kernel code.
    Kernel,
}

impl Mode {
    /// Why no user stack can be walked from such registers.
    #[inline(always)]
    pub fn walkable(self) -> Result<(), WalkEnd> {
        match self {
            Self::User => Ok(()),
            Self::Compat => Err(WalkEnd::CompatMode),
            Self::Kernel => Err(WalkEnd::NoRegisters),
        }
    }
}
