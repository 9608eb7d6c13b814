//! Kernels, by stubs and by name, and their launches.
//!
//! Owns: what compiled programs announce at their start. Because: HIP's launches take a stub, a function, or sizes in
//! threads. Does not: support launches on several devices at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

use super::{find, ready};
use crate::api::{Code, Dim3, HostFunction, In, Out, Raw, Status, api};
use crate::cuda::module::{self, Function};
use crate::cuda::{launch, stream};
use crate::device::work::{HostCall, Work};

/// `hipErrorInvalidDeviceFunction`.
const INVALID_FUNCTION: Code = Code(98);
/// The wrapper around device code: its magic number ("HIPF"), and the position of the pointer to the code.
const WRAPPER: u32 = 0x4849_5046;
const WRAPPED_AT: usize = 8;

/// Functions by stub.
static STUBS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

thread_local!(static PUSHED: RefCell<Vec<(Dim3, Dim3, usize, usize)>> = const { RefCell::new(Vec::new()) });

/// The kernel of a stub; a function's own handle is accepted too.
pub(super) fn kernel(stub: usize) -> Result<Arc<Function>, Code> {
    ready()?;
    let known = STUBS.lock().unwrap_or_else(PoisonError::into_inner).get(&stub).copied();
    module::function(known.unwrap_or(stub)).map_err(|_| INVALID_FUNCTION)
}

fn start(
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
    stream: Raw,
    per_thread: bool,
) -> Status {
    let shared = u32::try_from(shared).map_err(|_| Code::INVALID_VALUE)?;
    launch::launch(&*kernel(function)?, grid, block, shared, &*find(stream, per_thread)?)
}

/// Number of blocks, from all threads and the threads of a block.
fn blocks(threads: [u32; 3], block: [u32; 3]) -> Result<[u32; 3], Code> {
    if block.contains(&0) {
        return Err(Code::INVALID_VALUE);
    }
    Ok([0, 1, 2].map(|i| threads[i].div_ceil(block[i])))
}

#[unsafe(no_mangle)]
extern "C" fn __hipRegisterFatBinary(image: usize) -> usize {
    let magic = In::at(std::ptr::with_exposed_provenance::<u32>(image)).get();
    let code = match magic {
        Ok(WRAPPER) => In::at(std::ptr::with_exposed_provenance::<usize>(image + WRAPPED_AT)).get(),
        _ => Ok(image),
    };
    code.and_then(module::load).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn __hipUnregisterFatBinary(module: usize) {
    if let Ok(()) = module::unload(module) {
        let mut stubs = STUBS.lock().unwrap_or_else(PoisonError::into_inner);
        stubs.retain(|_, function| module::function(*function).is_ok());
    }
}

#[unsafe(no_mangle)]
extern "C" fn __hipRegisterFunction(
    module: usize,
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
    if let Ok(function) = name.text().and_then(|name| module::by_name(module, name)) {
        STUBS.lock().unwrap_or_else(PoisonError::into_inner).insert(stub, function);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __hipPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> i32 {
    PUSHED.with_borrow_mut(|pushed| pushed.push((grid, block, shared, stream)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __hipPopCallConfiguration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared: Out<usize>,
    stream: Out<usize>,
) -> i32 {
    let Some(pushed) = PUSHED.with_borrow_mut(Vec::pop) else { return 1 };
    crate::api::code_of(
        grid.put(pushed.0).and(block.put(pushed.1)).and(shared.put(pushed.2)).and(stream.put(pushed.3)),
    )
}

api! { Hip;
    fn hipLaunchKernel | hipLaunchKernel_spt(stub: Raw, grid: Dim3, block: Dim3, _arguments: Raw, shared: usize, stream: Raw) {
        start(stub, grid.into(), block.into(), shared, stream, PER_THREAD)
    }
    fn hipExtLaunchKernel(stub: Raw, grid: Dim3, block: Dim3, _arguments: Raw, shared: usize, stream: Raw, before: Raw, after: Raw, _flags: i32) {
        record(before, stream)?;
        start(stub, grid.into(), block.into(), shared, stream, PER_THREAD)?;
        record(after, stream)
    }
    fn hipLaunchCooperativeKernel | hipLaunchCooperativeKernel_spt(stub: Raw, grid: Dim3, block: Dim3, _arguments: Raw, shared: u32, stream: Raw) {
        start(stub, grid.into(), block.into(), shared as usize, stream, PER_THREAD)
    }
    fn hipModuleLaunchKernel(function: Raw, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Raw, _arguments: Raw, _extra: Raw) {
        start(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared as usize, stream, PER_THREAD)
    }
    fn hipModuleLaunchCooperativeKernel(function: Raw, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Raw, _arguments: Raw) {
        start(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared as usize, stream, PER_THREAD)
    }
    fn hipExtModuleLaunchKernel(function: Raw, x: u32, y: u32, z: u32, block_x: u32, block_y: u32, block_z: u32, shared: usize, stream: Raw, _arguments: Raw, _extra: Raw, before: Raw, after: Raw, _flags: u32) {
        let block = [block_x, block_y, block_z];
        record(before, stream)?;
        start(function, blocks([x, y, z], block)?, block, shared, stream, PER_THREAD)?;
        record(after, stream)
    }
    fn hipHccModuleLaunchKernel(function: Raw, x: u32, y: u32, z: u32, block_x: u32, block_y: u32, block_z: u32, shared: usize, stream: Raw, _arguments: Raw, _extra: Raw, before: Raw, after: Raw) {
        let block = [block_x, block_y, block_z];
        record(before, stream)?;
        start(function, blocks([x, y, z], block)?, block, shared, stream, PER_THREAD)?;
        record(after, stream)
    }
    fn hipLaunchHostFunc | hipLaunchHostFunc_spt(stream: Raw, function: Option<HostFunction>, data: Raw) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        find(stream, PER_THREAD)?.put(Work::Host(HostCall::Plain(function, data))).map(drop)
    }
    fn hipStreamAddCallback | hipStreamAddCallback_spt(stream: Raw, function: Option<stream::StreamCallback>, data: Raw, _flags: u32) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        find(stream, PER_THREAD)?.put(Work::Host(HostCall::WithStatus(function, stream, data))).map(drop)
    }
    fn hipModuleLoadData(out: Out<Raw>, image: Raw) { ready()?; out.put(module::load(image)?) }
    fn hipModuleLoadDataEx(out: Out<Raw>, image: Raw, _count: u32, _options: Raw, _values: Raw) { ready()?; out.put(module::load(image)?) }
    fn hipModuleUnload(module: Raw) { module::unload(module) }
    fn hipModuleGetFunction(out: Out<Raw>, module: Raw, name: In<c_char>) { out.put(module::by_name(module, name.text()?)?) }
    fn hipGetFuncBySymbol(out: Out<Raw>, stub: Raw) {
        let known = STUBS.lock().unwrap_or_else(PoisonError::into_inner).get(&stub).copied();
        out.put(known.ok_or(INVALID_FUNCTION)?)
    }
}

/// Records an event before or after a launch, if given.
fn record(event: usize, stream: Raw) -> Status {
    if event == 0 { Ok(()) } else { stream::EVENTS.get(event)?.record(&*find(stream, false)?) }
}
