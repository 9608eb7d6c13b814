//! Families: the libraries whose functions the catalogue lists.
//!
//! Owns: [`Family`], and the file names by which a library is recognized. Because: a call means what its library says
//! it means, so interpreting a call needs its library. Does not: open files; it sees only names.

use std::fmt;

/// The library of a catalogue row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// NVIDIA's driver, `libcuda.so.1`.
    CudaDriver,
    /// NVIDIA's runtime, `libcudart.so`, also linked into other files as an archive.
    CudaRuntime,
    /// AMD's runtime, `libamdhip64.so`.
    Hip,
    /// NVIDIA's collectives, `libnccl.so`.
    Nccl,
    /// AMD's collectives, `librccl.so`.
    Rccl,
    /// NVIDIA's profiling interface, `libcupti.so`: probed, never called.
    Cupti,
    /// PyTorch's `libtorch_cpu.so`: operators, autograd nodes, ranges.
    Torch,
    /// PyTorch's `libc10.so`: tensor memory on the host, and reports of device allocators.
    C10,
    /// PyTorch's `libc10_cuda.so`: tensor memory on NVIDIA devices.
    C10Cuda,
    /// NVIDIA's ranges, `libnvToolsExt.so`.
    Nvtx,
    /// PyTorch's `libtorch_python.so`, with NVTX compiled in.
    TorchPython,
    /// AMD's ranges, `libroctx64.so`.
    Roctx,
    /// AMD's ranges in newer ROCm, `librocprofiler-sdk-roctx.so`.
    RoctxSdk,
    /// GNU's OpenMP runtime, `libgomp.so`.
    GnuOpenMp,
    /// LLVM's OpenMP runtime, `libomp.so`.
    LlvmOpenMp,
    /// Intel's OpenMP runtime, `libiomp5.so`: LLVM's under another name.
    IntelOpenMp,
    /// JAX's `libjax_common.so`, which contains XLA's CPU runtime: thunks.
    Jax,
    /// The same library up to jaxlib 0.5, `xla_extension.so`.
    XlaExtension,
    /// A library that a user names.
    User,
}

impl Family {
    /// The families of the catalogue, in display order.
    pub const ALL: [Self; 18] = [
        Self::CudaDriver,
        Self::CudaRuntime,
        Self::Hip,
        Self::Nccl,
        Self::Rccl,
        Self::Cupti,
        Self::Torch,
        Self::C10,
        Self::C10Cuda,
        Self::Nvtx,
        Self::TorchPython,
        Self::Roctx,
        Self::RoctxSdk,
        Self::GnuOpenMp,
        Self::LlvmOpenMp,
        Self::IntelOpenMp,
        Self::Jax,
        Self::XlaExtension,
    ];

    /// True for OpenMP runtimes.
    pub fn is_openmp(self) -> bool {
        matches!(self, Self::GnuOpenMp | Self::LlvmOpenMp | Self::IntelOpenMp)
    }

    /// The library's file name without the version.
    pub const fn library(self) -> &'static str {
        match self {
            Self::CudaDriver => "libcuda.so",
            Self::CudaRuntime => "libcudart.so",
            Self::Hip => "libamdhip64.so",
            Self::Nccl => "libnccl.so",
            Self::Rccl => "librccl.so",
            Self::Cupti => "libcupti.so",
            Self::Torch => "libtorch_cpu.so",
            Self::C10 => "libc10.so",
            Self::C10Cuda => "libc10_cuda.so",
            Self::Nvtx => "libnvToolsExt.so",
            Self::TorchPython => "libtorch_python.so",
            Self::Roctx => "libroctx64.so",
            Self::RoctxSdk => "librocprofiler-sdk-roctx.so",
            Self::GnuOpenMp => "libgomp.so",
            Self::LlvmOpenMp => "libomp.so",
            Self::IntelOpenMp => "libiomp5.so",
            Self::Jax => "libjax_common.so",
            Self::XlaExtension => "xla_extension.so",
            Self::User => "user",
        }
    }

    /// True when a file name belongs to this library: `libcuda.so.1`, `libcuda.so.550.163.01`, and the names that
    /// wheels give bundled copies (`libcudart-9335f6a2.so.12.9.79`).
    pub fn is_named(self, file_name: &[u8]) -> bool {
        if self == Self::User {
            return false;
        }
        let stem = self.library().trim_end_matches(".so").as_bytes();
        let Some(rest) = file_name.strip_prefix(stem) else { return false };
        let rest = match rest.strip_prefix(b"-") {
            // The hash that auditwheel inserts before the extension.
            Some(tagged) => {
                let hash = tagged.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                if hash < 8 {
                    return false;
                }
                &tagged[hash..]
            }
            None => rest,
        };
        rest.strip_prefix(b".so").is_some_and(|version| {
            version.is_empty()
                || version[0] == b'.' && version.iter().all(|b| b.is_ascii_digit() || *b == b'.')
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.library())
    }
}

#[cfg(test)]
mod tests {
    use super::Family;

    #[test]
    fn a_library_is_known_by_its_file_name() {
        for (name, family) in [
            ("libcuda.so.1", Some(Family::CudaDriver)),
            ("libcuda.so.550.163.01", Some(Family::CudaDriver)),
            ("libcudart.so.12", Some(Family::CudaRuntime)),
            ("libcudart-9335f6a2.so.12.9.79", Some(Family::CudaRuntime)),
            ("libamdhip64.so", Some(Family::Hip)),
            ("libnccl.so.2", Some(Family::Nccl)),
            ("librccl.so.1.0", Some(Family::Rccl)),
            ("libcupti.so.13", Some(Family::Cupti)),
            ("libtorch_cpu.so", Some(Family::Torch)),
            ("libtorch.so", None),
            ("libc10.so", Some(Family::C10)),
            ("libc10_cuda.so", Some(Family::C10Cuda)),
            ("libnvToolsExt.so.1", Some(Family::Nvtx)),
            ("libtorch_python.so", Some(Family::TorchPython)),
            ("libroctx64.so.4", Some(Family::Roctx)),
            ("librocprofiler-sdk-roctx.so.1", Some(Family::RoctxSdk)),
            ("libjax_common.so", Some(Family::Jax)),
            ("xla_extension.so", Some(Family::XlaExtension)),
            ("libcudadebugger.so.1", None),
            ("libcuda-notahash.so.1", None),
            ("libcuda.so.1.backup", None),
            ("libcuda.so1", None),
            ("cuda.so", None),
            ("", None),
        ] {
            let found = Family::ALL.into_iter().find(|f| f.is_named(name.as_bytes()));
            assert_eq!(found, family, "{name}");
        }
    }
}
