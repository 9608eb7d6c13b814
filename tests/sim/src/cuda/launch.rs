//! Launches of kernels.
//!
//! Owns: what makes a launch valid. Because: there are a dozen ways to launch, and one set of rules. Does not: run
//! kernels.

use super::module::{self, Function};
use super::stream::{self, Stream};
use crate::api::{Code, In, Raw, Status, api};
use crate::device::work::{Kernel, Work};
use crate::link;

/// Maximum threads of a block.
const THREADS_MAX: u64 = 1024;
/// Maximum dynamic shared memory of a block.
const SHARED_MAX: u32 = 99 << 10;

/// The work of one launch.
pub(crate) fn kernel(
    function: &Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
) -> Result<Kernel, Code> {
    let threads = block.iter().map(|&n| u64::from(n)).product::<u64>();
    if grid.contains(&0) || threads == 0 || threads > THREADS_MAX || shared > SHARED_MAX {
        return Err(Code::INVALID_VALUE);
    }
    Ok(Kernel {
        name: function.name(),
        grid,
        block,
        registers: function.registers,
        static_shared: function.static_shared,
        dynamic_shared: shared,
        code: function.code,
    })
}

/// Launches on a stream.
pub(crate) fn launch(
    function: &Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: &Stream,
) -> Status {
    let kernel = kernel(function, grid, block, shared)?;
    link::launches(kernel.name);
    stream.put(Work::Kernel(kernel)).map(drop)
}

/// `CUlaunchConfig`, without its attributes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
}

api! { Driver;
    fn cuLaunchKernel | cuLaunchKernel_ptsz(function: Raw, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Raw, _arguments: Raw, _extra: Raw) {
        let stream = stream::find(stream, PER_THREAD)?;
        launch(&*module::function(function)?, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared, &stream)
    }
    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz(config: In<Config>, function: Raw, _arguments: Raw, _extra: Raw) {
        let config = config.get()?;
        let stream = stream::find(config.stream, PER_THREAD)?;
        launch(&*module::function(function)?, config.grid, config.block, config.shared, &stream)
    }
    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(function: Raw, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Raw, _arguments: Raw) {
        let stream = stream::find(stream, PER_THREAD)?;
        launch(&*module::function(function)?, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared, &stream)
    }
    fn cuFuncGetAttribute(value: crate::api::Out<i32>, attribute: u32, function: Raw) {
        let function = module::function(function)?;
        value.put(match attribute {
            0 => THREADS_MAX as i32,
            1 => function.static_shared.cast_signed(),
            4 => function.registers.cast_signed(),
            5 | 6 => 90,
            _ => 0,
        })
    }
    fn cuFuncSetAttribute(function: Raw, _attribute: u32, _value: i32) { module::function(function).map(drop) }
    fn cuFuncSetCacheConfig(function: Raw, _config: u32) { module::function(function).map(drop) }
    fn cuFuncGetName(name: crate::api::Out<In<std::ffi::c_char>>, function: Raw) {
        name.put(In::at(module::function(function)?.name().as_ptr()))
    }
    fn cuKernelGetName(name: crate::api::Out<In<std::ffi::c_char>>, kernel: Raw) {
        name.put(In::at(module::function(kernel)?.name().as_ptr()))
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: crate::api::Out<i32>, function: Raw, threads: i32, _shared: usize) {
        module::function(function)?;
        blocks.put(2048 / threads.clamp(1, 1024))
    }
}
