//! The collectives' own kernels.
//!
//! Owns: loading and launching them. Because: NCCL finds the driver at run time and launches as everybody does. Does
//! not: start the driver: whoever has a stream did.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use crate::symbols::Library;

/// By operation number; the names resemble the real ones and include the duration.
const KERNELS: [&CStr; 7] = [
    c"ncclDevKernel_AllReduce_Sum_f32_RING_LL_40us",
    c"ncclDevKernel_Reduce_Sum_f32_RING_LL_30us",
    c"ncclDevKernel_Broadcast_RING_LL_25us",
    c"ncclDevKernel_AllGather_RING_LL_35us",
    c"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL_35us",
    c"ncclDevKernel_SendRecv_20us",
    c"ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE_20000us",
];

type Launch = extern "C" fn(usize, u32, u32, u32, u32, u32, u32, u32, usize, usize, usize) -> i32;
type Load = extern "C" fn(*mut usize, *const c_void, usize, usize, u32, usize, usize, u32) -> i32;
type ByName = extern "C" fn(*mut usize, usize, *const c_char) -> i32;

struct LoadedKernels {
    launch: Launch,
    kernels: [usize; KERNELS.len()],
}

fn load() -> Option<LoadedKernels> {
    let driver = Library::open(c"libcuda.so.1")?;
    // SAFETY: the symbols of these names have these types in every libcuda from 12.0 on.
    let (launch, load, by_name) = unsafe {
        (
            std::mem::transmute::<usize, Launch>(driver.symbol(c"cuLaunchKernel")?),
            std::mem::transmute::<usize, Load>(driver.symbol(c"cuLibraryLoadData")?),
            std::mem::transmute::<usize, ByName>(driver.symbol(c"cuLibraryGetKernel")?),
        )
    };
    // An image without names: every name is found in it.
    let mut library = 0;
    if load(&raw mut library, c"collectives".as_ptr().cast(), 0, 0, 0, 0, 0, 0) != 0 {
        return None;
    }
    let mut kernels = [0; KERNELS.len()];
    for (kernel, name) in kernels.iter_mut().zip(KERNELS) {
        if by_name(kernel, library, name.as_ptr()) != 0 {
            return None;
        }
    }
    Some(LoadedKernels { launch, kernels })
}

/// Launches the kernel of an operation; `None` when the driver fails.
pub(super) fn launch(operation: usize, stream: usize) -> Option<()> {
    static LOADED: OnceLock<Option<LoadedKernels>> = OnceLock::new();
    let loaded = LOADED.get_or_init(load).as_ref()?;
    let kernel = *loaded.kernels.get(operation)?;
    ((loaded.launch)(kernel, 2, 1, 1, 512, 1, 1, 0, stream, 0, 0) == 0).then_some(())
}
