//! The driver's functions, as the runtime has them.
//!
//! Owns: fetching them by `cuGetProcAddress`, each for both kinds of default stream. Because: the real runtime does, so
//! nothing that is hooked into the dynamic linker sees its calls, and everything that is put on the code itself does.
//! Does not: fail when one is missing until it is needed: then all of it has no driver.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use crate::api::{Code, HostFunction, Status};
use crate::symbols::{self, Library};

/// The runtime's version, from the name of the file that contains this code.
pub(crate) fn version() -> i32 {
    static VERSION: OnceLock<i32> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let path = symbols::path_of((&raw const VERSION).cast()).map(CStr::to_bytes);
        if path.is_some_and(|path| path.ends_with(b".12")) { 12_090 } else { 13_000 }
    })
}

/// The driver's `cuGetProcAddress_v2`: name, address, version, flags, status.
type Procedure = extern "C" fn(*const c_char, *mut usize, i32, u64, *mut u32) -> i32;

/// A driver function, if it exists.
pub(crate) fn procedure(name: &CStr, version: i32, flags: u64) -> Option<usize> {
    static GET: OnceLock<Option<Procedure>> = OnceLock::new();
    let get = GET.get_or_init(|| {
        let address = Library::open(c"libcuda.so.1")?.symbol(c"cuGetProcAddress_v2")?;
        // SAFETY: the symbol of this name has this type in every libcuda.
        Some(unsafe { std::mem::transmute::<usize, Procedure>(address) })
    });
    let (mut address, mut status) = (0, 0);
    let result = (*get)?(name.as_ptr(), &raw mut address, version, flags, &raw mut status);
    (result == 0 && address != 0).then_some(address)
}

/// Converts a result code.
pub(crate) fn check(result: i32) -> Status {
    if result == 0 { Ok(()) } else { Err(Code(result)) }
}

macro_rules! functions {
    (
        plain { $($plain:ident($($argument:ty),*);)* }
        streams { $($both:ident($($both_argument:ty),*);)* }
    ) => {
        /// The used functions. A function with a stream has two forms: with the shared default stream and with the
        /// per-thread one.
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $plain: extern "C" fn($($argument),*) -> i32,)*
            $(pub(crate) $both: [extern "C" fn($($both_argument),*) -> i32; 2],)*
        }

        impl Functions {
            fn fetch() -> Option<Self> {
                let fetch = |name: &str, flags| {
                    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
                    procedure(name, version(), flags)
                };
                // SAFETY: the driver's functions of these names have these types, from CUDA 12 on.
                unsafe {
                    Some(Self {
                        $($plain: std::mem::transmute::<usize, extern "C" fn($($argument),*) -> i32>(
                            fetch(concat!(stringify!($plain), "\0"), 0)?,
                        ),)*
                        $($both: [
                            std::mem::transmute::<usize, extern "C" fn($($both_argument),*) -> i32>(
                                fetch(concat!(stringify!($both), "\0"), 1)?,
                            ),
                            std::mem::transmute::<usize, extern "C" fn($($both_argument),*) -> i32>(
                                fetch(concat!(stringify!($both), "\0"), 2)?,
                            ),
                        ],)*
                    })
                }
            }
        }
    };
}

/// Handles of any kind.
type Handle = usize;

functions! {
    plain {
        cuInit(u32);
        cuDriverGetVersion(*mut i32);
        cuDeviceGetCount(*mut i32);
        cuDeviceGet(*mut i32, i32);
        cuDeviceGetAttribute(*mut i32, i32, i32);
        cuDevicePrimaryCtxRetain(*mut Handle, i32);
        cuCtxSetCurrent(Handle);
        cuCtxSynchronize();
        cuMemAlloc(*mut u64, usize);
        cuMemAllocPitch(*mut u64, *mut usize, usize, usize, u32);
        cuMemAllocManaged(*mut u64, usize, u32);
        cuMemHostAlloc(*mut u64, usize, u32);
        cuMemFree(u64);
        cuMemFreeHost(u64);
        cuMemHostRegister(u64, usize, u32);
        cuMemHostUnregister(u64);
        cuMemGetInfo(*mut usize, *mut usize);
        cuStreamCreateWithPriority(*mut Handle, u32, i32);
        cuStreamDestroy(Handle);
        cuEventCreate(*mut Handle, u32);
        cuEventDestroy(Handle);
        cuEventQuery(Handle);
        cuEventSynchronize(Handle);
        cuEventElapsedTime(*mut f32, Handle, Handle);
        cuLibraryLoadData(*mut Handle, Handle, Handle, Handle, u32, Handle, Handle, u32);
        cuLibraryUnload(Handle);
        cuLibraryGetKernel(*mut Handle, Handle, *const c_char);
        cuKernelGetFunction(*mut Handle, Handle);
        cuGraphCreate(*mut Handle, u32);
        cuGraphDestroy(Handle);
        cuGraphInstantiateWithFlags(*mut Handle, Handle, u64);
        cuGraphExecDestroy(Handle);
        cuGraphAddKernelNode(*mut Handle, Handle, *const Handle, usize, *const c_void);
    }
    streams {
        cuLaunchKernel(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Handle, Handle);
        cuLaunchCooperativeKernel(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Handle);
        cuLaunchHostFunc(Handle, Option<HostFunction>, Handle);
        cuStreamAddCallback(Handle, Handle, Handle, u32);
        cuMemcpy(u64, u64, usize);
        cuMemcpyAsync(u64, u64, usize, Handle);
        cuMemcpy2D(*const c_void);
        cuMemcpy2DAsync(*const c_void, Handle);
        cuMemsetD8(u64, u8, usize);
        cuMemsetD8Async(u64, u8, usize, Handle);
        cuMemsetD2D8(u64, usize, u8, usize, usize);
        cuMemsetD2D8Async(u64, usize, u8, usize, usize, Handle);
        cuMemAllocAsync(*mut u64, usize, Handle);
        cuMemFreeAsync(u64, Handle);
        cuStreamSynchronize(Handle);
        cuStreamQuery(Handle);
        cuStreamWaitEvent(Handle, Handle, u32);
        cuEventRecord(Handle, Handle);
        cuStreamBeginCapture(Handle, u32);
        cuStreamEndCapture(Handle, *mut Handle);
        cuStreamIsCapturing(Handle, *mut u32);
        cuGraphLaunch(Handle, Handle);
        cuGraphUpload(Handle, Handle);
    }
}

/// The driver.
pub(crate) fn driver() -> Result<&'static Functions, Code> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(Functions::fetch).as_ref().ok_or(Code::NO_DEVICE)
}
