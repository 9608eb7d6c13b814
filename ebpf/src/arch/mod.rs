//! What the programs must know of the machine: how the kernel keeps a thread's registers.
//!
//! Owns: which machine's file is compiled in (`bpf_target_arch`, set by `cargo xtask ebpf`). Because: the kernel's
//! `pt_regs`, its marks for user mode and system calls, and the registers that a walk wants differ; nothing else does.
//! Does not: walk.
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

/// Where registers come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// 64-bit code in user space.
    User,
    /// 32-bit code in user space, which is not walked.
    Compat,
    /// The kernel's own.
    Kernel,
}

impl Mode {
    /// Why a user stack cannot be walked from such registers.
    #[inline(always)]
    pub fn walkable(self) -> Result<(), WalkEnd> {
        match self {
            Self::User => Ok(()),
            Self::Compat => Err(WalkEnd::CompatMode),
            Self::Kernel => Err(WalkEnd::NoRegisters),
        }
    }
}
