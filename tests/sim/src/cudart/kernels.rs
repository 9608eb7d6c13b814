//! Kernels by the stubs that stand for them.
//!
//! Owns: what compiled programs announce at their start (`__cudaRegisterFatBinary`, `__cudaRegisterFunction`), and
//! launches. Because: the runtime is where a host function becomes a kernel. Does not: load device code before a kernel
//! of it is launched.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::check;
use super::{INVALID_FUNCTION, ready};
use crate::api::{Code, Dim3, HostFunction, In, Out, Raw, Status, api};

/// Device code registered by the program.
#[derive(Debug)]
struct Binary {
    image: usize,
    /// The driver's library, once loaded.
    library: usize,
}

#[derive(Debug)]
struct Stub {
    /// Index of the binary.
    binary: usize,
    name: CString,
    kernel: usize,
}

#[derive(Debug)]
struct State {
    binaries: Vec<Option<Binary>>,
    stubs: BTreeMap<usize, Stub>,
    /// Kernel functions; 0 until first use.
    kernels: BTreeMap<usize, usize>,
}

static STATE: Mutex<State> =
    Mutex::new(State { binaries: Vec::new(), stubs: BTreeMap::new(), kernels: BTreeMap::new() });

/// Handles of binaries; the real runtime uses pointers.
const FIRST_HANDLE: usize = 0x1000;
/// The wrapper around device code: its magic number, and the position of the pointer to the code.
const WRAPPER: u32 = 0x4662_43b1;
const WRAPPED_AT: usize = 8;

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Device code without its wrapper.
fn unwrapped(image: usize) -> usize {
    let at = std::ptr::with_exposed_provenance::<u32>(image);
    if In::at(at).get() != Ok(WRAPPER) {
        return image;
    }
    In::at(std::ptr::with_exposed_provenance::<usize>(image + WRAPPED_AT)).get().unwrap_or(image)
}

/// The driver's kernel for a stub, or for a kernel that we gave to the program.
fn kernel(function: usize) -> Result<usize, Code> {
    let driver = ready()?;
    let mut state = state();
    if state.kernels.contains_key(&function) {
        return Ok(function);
    }
    let State { binaries, stubs, kernels } = &mut *state;
    let stub = stubs.get_mut(&function).ok_or(INVALID_FUNCTION)?;
    if stub.kernel == 0 {
        let binary = binaries.get_mut(stub.binary).and_then(Option::as_mut).ok_or(INVALID_FUNCTION)?;
        if binary.library == 0 {
            check((driver.cuLibraryLoadData)(&raw mut binary.library, binary.image, 0, 0, 0, 0, 0, 0))?;
        }
        check((driver.cuLibraryGetKernel)(&raw mut stub.kernel, binary.library, stub.name.as_ptr()))
            .map_err(|_| INVALID_FUNCTION)?;
        kernels.insert(stub.kernel, 0);
    }
    Ok(stub.kernel)
}

/// The driver's function for a stub.
pub(crate) fn function(stub: usize) -> Result<usize, Code> {
    let kernel = kernel(stub)?;
    if let Some(known) = state().kernels.get(&kernel).copied().filter(|function| *function != 0) {
        return Ok(known);
    }
    let mut function = 0;
    check((ready()?.cuKernelGetFunction)(&raw mut function, kernel))?;
    state().kernels.insert(kernel, function);
    Ok(function)
}

fn launch(
    stub: usize,
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Raw,
    arguments: Raw,
    per_thread: bool,
) -> Status {
    let shared = u32::try_from(shared).map_err(|_| Code::INVALID_VALUE)?;
    let launch = ready()?.cuLaunchKernel[usize::from(per_thread)];
    let function = function(stub)?;
    check(launch(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, 0))
}

/// `cudaLaunchConfig_t`, without its attributes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

/// The configuration that `<<<…>>>` pushes and the stub pops.
#[derive(Clone, Copy)]
struct LaunchConfiguration(Dim3, Dim3, usize, usize);

thread_local!(static PUSHED: RefCell<Vec<LaunchConfiguration>> = const { RefCell::new(Vec::new()) });

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(image: usize) -> usize {
    let mut state = state();
    state.binaries.push(Some(Binary { image: unwrapped(image), library: 0 }));
    FIRST_HANDLE + state.binaries.len() - 1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: usize) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(binary: usize) {
    let index = binary.wrapping_sub(FIRST_HANDLE);
    let mut state = state();
    let gone = state.binaries.get_mut(index).and_then(Option::take);
    state.stubs.retain(|_, stub| stub.binary != index);
    drop(state);
    if let (Some(Binary { library, .. }), Ok(driver)) = (gone, super::driver::driver())
        && library != 0
    {
        // Usually the program is about to end, and the driver with it.
        let _ = (driver.cuLibraryUnload)(library);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    binary: usize,
    stub: usize,
    _device_function: usize,
    name: In<c_char>,
    _thread_limit: i32,
    _thread: usize,
    _block: usize,
    _block_size: usize,
    _grid_size: usize,
    _warp_size: usize,
) {
    if let Ok(name) = name.text() {
        let name = name.into();
        state().stubs.insert(stub, Stub { binary: binary.wrapping_sub(FIRST_HANDLE), name, kernel: 0 });
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> u32 {
    PUSHED.with_borrow_mut(|pushed| pushed.push(LaunchConfiguration(grid, block, shared, stream)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared: Out<usize>,
    stream: Out<usize>,
) -> i32 {
    let Some(pushed) = PUSHED.with_borrow_mut(Vec::pop) else { return 1 };
    let put = grid.put(pushed.0).and(block.put(pushed.1)).and(shared.put(pushed.2)).and(stream.put(pushed.3));
    crate::api::code_of(put)
}

api! { Runtime;
    fn cudaLaunchKernel | cudaLaunchKernel_ptsz(stub: Raw, grid: Dim3, block: Dim3, arguments: Raw, shared: usize, stream: Raw) {
        launch(stub, grid, block, shared, stream, arguments, PER_THREAD)
    }
    fn __cudaLaunchKernel | __cudaLaunchKernel_ptsz(stub: Raw, grid: Dim3, block: Dim3, arguments: Raw, shared: usize, stream: Raw) {
        launch(stub, grid, block, shared, stream, arguments, PER_THREAD)
    }
    fn cudaLaunchKernelExC | cudaLaunchKernelExC_ptsz(config: In<Config>, stub: Raw, arguments: Raw) {
        let config = config.get()?;
        launch(stub, config.grid, config.block, config.shared, config.stream, arguments, PER_THREAD)
    }
    fn cudaLaunchCooperativeKernel | cudaLaunchCooperativeKernel_ptsz(stub: Raw, grid: Dim3, block: Dim3, arguments: Raw, shared: usize, stream: Raw) {
        let launch = ready()?.cuLaunchCooperativeKernel[usize::from(PER_THREAD)];
        let function = function(stub)?;
        check(launch(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared as u32, stream, arguments))
    }
    fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz(stream: Raw, function: Option<HostFunction>, data: Raw) {
        check((ready()?.cuLaunchHostFunc[usize::from(PER_THREAD)])(stream, function, data))
    }
    fn cudaGetKernel(out: Out<Raw>, stub: Raw) { out.put(kernel(stub)?) }
    fn __cudaGetKernel(out: Out<Raw>, stub: Raw) { out.put(kernel(stub)?) }
    fn cudaGetFuncBySymbol(out: Out<Raw>, stub: Raw) { out.put(function(stub)?) }
    fn cudaLibraryLoadData(library: Out<Raw>, image: Raw, _options: Raw, _values: Raw, _count: u32, _library_options: Raw, _library_values: Raw, _library_count: u32) {
        let mut found = 0;
        check((ready()?.cuLibraryLoadData)(&raw mut found, unwrapped(image), 0, 0, 0, 0, 0, 0))?;
        library.put(found)
    }
    fn cudaLibraryGetKernel(out: Out<Raw>, library: Raw, name: In<c_char>) {
        let mut kernel = 0;
        check((ready()?.cuLibraryGetKernel)(&raw mut kernel, library, name.text()?.as_ptr()))?;
        state().kernels.insert(kernel, 0);
        out.put(kernel)
    }
    fn cudaLibraryUnload(library: Raw) { check((ready()?.cuLibraryUnload)(library)) }
}
