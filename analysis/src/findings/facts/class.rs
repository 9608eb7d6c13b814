//! Classes of frames: what a frame's name says about the time below it.
//!
//! Owns: [`Class`] and the names that identify it. Because: frames are far fewer than contexts, so names are compared
//! once and rules test bits. Does not: know shares, thresholds, or phases (`deepctx_profile::context::phase`).

use deepctx_profile::context::phase::is_import;
use deepctx_profile::frame::{Frame, is_spinning};
use deepctx_profile::intern::Strings;
use deepctx_profile::trace::Call;

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A class of frames; a context is in the classes of all its frames.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Class { $($(#[$doc])* $name,)* }

        #[cfg(test)]
        impl Class {
            /// Every class, in order.
            pub(crate) const ALL: &[Class] = &[$(Class::$name,)*];
        }
    };
}

classes! {
    /// A thread busy-waits for others.
    Spin,
    /// A thread waits for Python's global interpreter lock.
    GilWait,
    /// Python modules are imported.
    Import,
    /// Tensor elements change layout or type.
    Conversion,
    /// Batches are fetched by the code that a loader worker would run.
    Fetch,
    /// A loader without workers makes a batch.
    SingleProcessLoader,
    /// A batch of a loader is requested, by PyTorch's name for the range.
    Loader,
    /// A runnable thread waits for a CPU.
    CpuQueue,
    /// The backward pass of the operator above.
    Backward,
    /// A matrix product or a convolution in single precision, without tensor cores.
    SinglePrecision,
    /// A copy that blocks its caller.
    BlockingCopy,
    /// Bytes are copied between host and device, or within one.
    Transfer,
    /// An operator that indexes or slices.
    Indexing,
    /// A matrix product that first copies its addend into its result.
    AddingProduct,
    /// Code of an interpreter without symbols.
    UnnamedInterpreter,
    /// A timed wait for a condition, as the interpreter's wait for its lock.
    TimedWait,
    /// Code of an interpreter without symbols that waits as for the interpreter's lock, but possibly for something
    /// else: the frames above decide.
    PossibleGilWait,
    /// Code of PyTorch's data loader.
    LoaderCode,
    /// The loop of the thread that pins a loader's batches.
    PinningLoop,
    /// A call that waits for a device.
    DeviceWait,
    /// A checkpoint is read.
    CheckpointRead,
    /// A copy within a device or between devices.
    DeviceCopy,
    /// A copy from or to host memory that the operating system may move.
    PageableCopy,
    /// A copy from or to host memory of unknown kind.
    UnknownHostCopy,
    /// A model goes to a device, or to another type.
    ModelMove,
    /// The host waits for the value of an array of JAX, which may be computed still.
    ArrayWait,
}

/// Several classes as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Classes(u32);

impl Classes {
    /// The union.
    pub(crate) const fn with(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }

    /// These without one.
    pub(crate) const fn without(self, class: Class) -> Classes {
        Classes(self.0 & !(1 << class as u8))
    }

    /// Whether a class is among them.
    pub(crate) const fn has(self, class: Class) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    /// The classes in order.
    #[cfg(test)]
    fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.iter().copied().filter(move |class| self.has(*class))
    }
}

impl From<Class> for Classes {
    fn from(class: Class) -> Self {
        Classes(1 << class as u8)
    }
}

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        Classes(classes.into_iter().fold(0, |bits, class| bits | 1 << class as u8))
    }
}

/// The classes of a frame alone.
pub(crate) fn of(frame: &Frame, strings: &Strings) -> Classes {
    let text = |id| strings.get(id);
    match *frame {
        Frame::Python { function, file, .. } => of_python(text(file), text(function)),
        Frame::Native { symbol, .. } => of_native(text(symbol)).with(of_range(text(symbol))),
        Frame::NativeUnnamed { module, .. } => one(Class::UnnamedInterpreter, is_interpreter(text(module))),
        Frame::Operator { name } => of_operator(text(name)).with(of_range(text(name))),
        Frame::Range { name } => of_range(text(name)),
        Frame::GpuApi { name } => {
            let transfer = one(Class::Transfer, is_transfer(text(name)));
            let waits = one(Class::DeviceWait, Call::of(text(name)).waits());
            one(Class::BlockingCopy, is_blocking_copy(text(name))).with(transfer).with(waits)
        }
        Frame::GpuKernel { name } => of_gpu_kernel(text(name)),
        Frame::Wait { reason } => one(Class::CpuQueue, text(reason) == "waiting for a CPU"),
        _ => Classes::default(),
    }
}

fn one(class: Class, is: bool) -> Classes {
    is.then_some(class).into_iter().collect()
}

fn of_python(file: &str, function: &str) -> Classes {
    let is = [
        (Class::Import, is_import(file, function)),
        (Class::Fetch, file.ends_with("/torch/utils/data/_utils/fetch.py")),
        (Class::SingleProcessLoader, function.contains("_SingleProcessDataLoaderIter")),
        (Class::LoaderCode, file.contains("/torch/utils/data/")),
        (
            Class::PinningLoop,
            function.ends_with("_pin_memory_loop")
                && file.ends_with("/torch/utils/data/_utils/pin_memory.py"),
        ),
        (Class::CheckpointRead, is_checkpoint_read(file, function)),
        (Class::ModelMove, function.ends_with("_apply") && file.ends_with("/torch/nn/modules/module.py")),
        (Class::ArrayWait, is_array_wait(file, function)),
    ];
    is.into_iter().filter_map(|(class, is)| is.then_some(class)).collect()
}

fn is_checkpoint_read(file: &str, function: &str) -> bool {
    const FILES: [&str; 2] = ["/torch/serialization.py", "/safetensors/torch.py"];
    let reads = function.trim_start_matches('_').starts_with("load");
    let of_torch =
        FILES.iter().any(|end| file.ends_with(end)) || file.contains("/torch/distributed/checkpoint/");
    reads && of_torch || is_checkpoint_read_of_jax(file, function)
}

/// Libraries of JAX have methods that read.
fn is_checkpoint_read_of_jax(file: &str, function: &str) -> bool {
    const FILES: [&str; 2] = ["/flax/serialization.py", "/flax/training/checkpoints.py"];
    const FOLDERS: [&str; 2] = ["/orbax/checkpoint/", "/jax/experimental/array_serialization/"];
    const READS: [&str; 7] = [
        "load",
        "restore",
        "deserialize",
        "async_deserialize",
        "run_deserialization",
        "from_bytes",
        "msgpack_restore",
    ];
    let is_of_jax =
        FILES.iter().any(|end| file.ends_with(end)) || FOLDERS.iter().any(|folder| file.contains(folder));
    let name = last_part(function).trim_start_matches('_');
    is_of_jax && READS.iter().any(|begin| name.starts_with(begin))
}

/// All conversions of an array ask for its `_value`: `float(x)`, `x.item()`, `np.asarray(x)`, `print(x)`.
fn is_array_wait(file: &str, function: &str) -> bool {
    const CONVERTS: [&str; 5] = ["_value", "__array__", "__float__", "item", "block_until_ready"];
    let name = last_part(function);
    file.ends_with("/jax/_src/array.py") && CONVERTS.contains(&name)
        || file.ends_with("/jax/_src/api.py") && name == "block_until_ready"
}

/// The own name of a function: `f` of `C.f`.
fn last_part(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// Only the interpreter's own symbols have `take_gil`; every interpreter exports the others, which only take its lock.
fn is_gil_wait(symbol: &str) -> bool {
    const EXPORTED: [&str; 2] = ["PyEval_RestoreThread", "PyEval_AcquireThread"];
    symbol == "take_gil" || symbol.starts_with("take_gil.") || EXPORTED.contains(&symbol)
}

/// `python3.11`, `libpython3.11.so.1.0`, by its path.
fn is_interpreter(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or(module);
    name.strip_prefix("lib").unwrap_or(name).starts_with("python")
}

fn of_native(symbol: &str) -> Classes {
    const TIMED_WAITS: [&str; 2] = ["pthread_cond_timedwait", "pthread_cond_clockwait"];
    // `x.block_until_ready()`, and `np.asarray(x)` of an array in memory of the host, without a function in Python.
    const ARRAY_WAITS: [&str; 3] = ["PyArray::BlockUntilReady", "AwaitBuffersReady", "PyArray_bf_getbuffer"];
    let is = [
        (Class::Spin, is_spinning(symbol)),
        (Class::Transfer, is_transfer(symbol)),
        (Class::GilWait, is_gil_wait(symbol)),
        (Class::DeviceWait, Call::of(symbol).waits()),
        (Class::TimedWait, TIMED_WAITS.iter().any(|name| symbol.contains(name))),
        (Class::ArrayWait, ARRAY_WAITS.iter().any(|name| symbol.contains(name))),
    ];
    is.into_iter().filter_map(|(class, is)| is.then_some(class)).collect()
}

/// Whether an operator's frame stands for all operators of a compiled kernel, which also stands below it: a unit of a
/// compiler, several operators, or one with what was fused into it. `last` is the last part of its path.
fn is_fused(name: &str, last: &str) -> bool {
    const UNITS: [&str; 3] = ["[inductor ", "[xla ", "[triton "];
    // A unit is named after what it has: `[inductor triton_poi_fused__to_copy_add_0]`, `[xla jit_copy_params]`.
    UNITS.iter().any(|begin| name.starts_with(begin))
        || name.contains(" [fused: ")
        || last.contains("fus")
        || last.contains(", ")
}

fn of_operator(full: &str) -> Classes {
    // Operands follow a space; JAX names a path, whose last part is the operator.
    let name = full.split(" [").next().unwrap_or(full);
    let last = name.rsplit('/').next().unwrap_or(name);
    const INDEX: [&str; 6] =
        ["aten::select", "aten::slice", "aten::index", "aten::index_put_", "aten::narrow", "aten::unbind"];
    const ADD: [&str; 4] = ["aten::addmm", "aten::addmv", "aten::addbmm", "aten::baddbmm"];
    // A view of the same bytes.
    const VIEWS: [&str; 2] = ["aten::transpose", "aten::transpose_"];
    let base = last.split('.').next().unwrap_or(last);
    let is = [
        (Class::Conversion, is_conversion(last) && !VIEWS.contains(&base) && !is_fused(full, last)),
        (Class::Backward, name == "[backward]"),
        (Class::Indexing, INDEX.contains(&base)),
        (Class::AddingProduct, ADD.contains(&base)),
    ];
    is.into_iter().filter_map(|(class, is)| is.then_some(class)).collect()
}

/// PyTorch's names for the ranges of its loaders and optimizers, also in traces of other tools.
fn of_range(name: &str) -> Classes {
    one(Class::SingleProcessLoader, name.starts_with("enumerate(DataLoader)#_SingleProcess"))
        .with(one(Class::Loader, name.starts_with("enumerate(DataLoader)")))
}

fn of_gpu_kernel(name: &str) -> Classes {
    // Names of products on tensor cores contain the computation type.
    const CORES: [&str; 6] = ["tf32", "s1688", "s16816", "f16", "fp16", "tensorop"];
    let single = ["sgemm", "scudnn", "f32f32_f32f32"].iter().any(|part| name.contains(part));
    let lower = single && !CORES.iter().any(|part| name.contains(part));
    // A fused kernel converts on its way, without a further pass over memory.
    let fused = name.contains("fus");
    one(Class::Conversion, !fused && is_conversion(name))
        .with(one(Class::SinglePrecision, lower))
        .with(of_copy(name))
}

/// Copies have names such as `memcpy HtoD pageable`, and `Memcpy HtoD (Pageable -> Device)` in traces of Kineto.
fn of_copy(name: &str) -> Classes {
    const WITHIN_DEVICES: [&str; 5] = ["dtod", "dtoa", "atod", "atoa", "ptop"];
    const WITH_HOST: [&str; 4] = ["htod", "dtoh", "htoa", "atoh"];
    const KINDS: [&str; 3] = ["pageable", "pinned", "managed"];
    let name = name.to_ascii_lowercase();
    let Some(copy) = name.strip_prefix("memcpy ") else { return Classes::default() };
    let begins = |ends: &[&str]| ends.iter().any(|end| copy.starts_with(end));
    let with_host = begins(&WITH_HOST);
    let is_known = KINDS.iter().any(|kind| copy.contains(kind));
    one(Class::DeviceCopy, begins(&WITHIN_DEVICES))
        .with(one(Class::PageableCopy, with_host && copy.contains("pageable")))
        .with(one(Class::UnknownHostCopy, with_host && !is_known))
}

fn is_conversion(name: &str) -> bool {
    const WORDS: [&str; 4] = ["_to_copy", "copy_", "contiguous", "convert"];
    let lower = name.to_ascii_lowercase();
    // One layout is that in which a kernel works, such as a normalization; a conversion names both.
    let changes_layout = lower.contains("nchw") && lower.contains("nhwc");
    let transposes = lower.contains("transpose") && !lower.contains("conv_transpose");
    // Elements that move to other memory are copied, not converted; also those that are concatenated.
    let moved = ["index_copy_", "masked_copy", "catarray"].iter().any(|word| lower.contains(word));
    // Names of convolutions and poolings contain their layout.
    let works = ["gemm", "conv_", "wgrad", "dgrad", "fprop", "pool"].iter().any(|word| lower.contains(word));
    (changes_layout || transposes || WORDS.iter().any(|word| lower.contains(word))) && !moved && !works
}

fn is_transfer(name: &str) -> bool {
    ["cudaMemcpy", "cuMemcpy", "hipMemcpy"].iter().any(|begin| name.starts_with(begin))
}

/// Names end in a version, or in a suffix of default streams per thread (`cuMemcpyHtoD_v2_ptds`). Copies within devices
/// do not block.
fn is_blocking_copy(name: &str) -> bool {
    const OTHERS: [&str; 8] = ["Async", "Batch", "Peer", "DtoD", "DtoA", "AtoD", "AtoA", "ArrayToArray"];
    is_transfer(name) && !OTHERS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepctx_profile::text;

    #[track_caller]
    fn check(frame: &str, expect: &[Class]) {
        let mut profile = text::parse("").unwrap();
        let id = text::parse_frame(&mut profile, frame).unwrap();
        let found: Vec<Class> = of(&profile.frames.get(id), &profile.strings).iter().collect();
        assert_eq!(found, expect, "{frame}");
    }

    #[test]
    fn names_tell_the_class_of_a_frame() {
        check("n gomp_team_barrier_wait_end@libgomp.so.1", &[Class::Spin]);
        for name in ["take_gil", "take_gil.cold", "PyEval_RestoreThread"] {
            check(&format!("n {name}"), &[Class::GilWait]);
        }
        check("n ___pthread_cond_timedwait64", &[Class::TimedWait]);
        check("n PyEval_SaveThread", &[]);
        check("y <frozen importlib._bootstrap>:_find_and_load", &[Class::Import]);
        check(
            "n enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            &[Class::SingleProcessLoader, Class::Loader],
        );
        check("o aten::select.int", &[Class::Indexing]);
        check("o aten::addmm", &[Class::AddingProduct]);
        check("a cudaMemcpy", &[Class::BlockingCopy, Class::Transfer]);
        check("a cudaMemcpyAsync", &[Class::Transfer]);
        check("y /v/torch/nn/modules/module.py:Module._apply", &[Class::ModelMove]);
        check("n pthread_barrier_wait", &[]);
        check(
            "y /v/torch/utils/data/_utils/pin_memory.py:_pin_memory_loop",
            &[Class::LoaderCode, Class::PinningLoop],
        );
        check("y /v/safetensors/torch.py:load_file", &[Class::CheckpointRead]);
        check("y /v/safetensors/torch.py:save_file", &[]);
        check("y /a/mine.py:load_file", &[]);
    }

    #[test]
    fn checkpoints_of_jax_are_read_by_methods() {
        for reads in [
            "y /v/flax/serialization.py:from_bytes",
            "y /v/flax/training/checkpoints.py:restore_checkpoint",
            "y /v/orbax/checkpoint/checkpoint_manager.py:CheckpointManager.restore",
            "y /v/jax/experimental/array_serialization/serialization.py:run_deserialization",
        ] {
            check(reads, &[Class::CheckpointRead]);
        }
        for other in [
            "y /v/flax/serialization.py:to_bytes",
            "y /v/orbax/checkpoint/checkpoint_manager.py:CheckpointManager.save",
            "y /v/jax/experimental/array_serialization/serialization.py:run_serialization",
            "y /a/mine.py:Manager.restore",
        ] {
            check(other, &[]);
        }
    }

    #[test]
    fn what_waits_for_an_array_of_jax_is_known() {
        for waits in [
            "y /v/jax/_src/array.py:ArrayImpl.__float__",
            "y /v/jax/_src/array.py:ArrayImpl._value",
            "y /v/jax/_src/api.py:block_until_ready",
            "n jax::PyArray::BlockUntilReady() const",
            "n xla::(anonymous namespace)::PyArray_bf_getbuffer(_object*, Py_buffer*, int)",
        ] {
            check(waits, &[Class::ArrayWait]);
        }
        for other in [
            "y /v/jax/_src/array.py:ArrayImpl.__getitem__",
            "y /v/jax/_src/api.py:grad",
            "y /a/array.py:Mine._value",
            "n xla::PyArray::Copy() const",
        ] {
            check(other, &[]);
        }
    }

    #[test]
    fn only_functions_that_wait_for_a_device_are_device_waits() {
        for call in [
            "cudaStreamSynchronize",
            "cudaStreamSynchronize_ptsz",
            "cudaDeviceSynchronize_v3020",
            "cudaEventSynchronize",
            "cuStreamSynchronize_ptsz",
            "cuCtxSynchronize",
            "cuCtxSynchronize_v2",
            "cuEventSynchronize",
            "hipDeviceSynchronize",
        ] {
            check(&format!("a {call}"), &[Class::DeviceWait]);
            check(&format!("n {call}"), &[Class::DeviceWait]);
        }
        for other in ["cutlass::Pipeline::Synchronize()", "curlSynchronizer::run()", "cudaStreamWaitEvent"] {
            check(&format!("n {other}"), &[]);
        }
    }

    #[test]
    fn copies_that_block_are_known_by_their_calls() {
        for call in [
            "cuMemcpyDtoH_v2_ptds",
            "cuMemcpyHtoD",
            "cudaMemcpy_ptds",
            "cudaMemcpyToSymbol",
            "cudaMemcpy3D",
            "hipMemcpy_spt",
            "hipMemcpyWithStream",
        ] {
            check(&format!("a {call}"), &[Class::BlockingCopy, Class::Transfer]);
        }
        for call in ["cudaMemcpyAsync_ptsz", "cuMemcpyDtoD_v2", "cudaMemcpyPeer", "cudaMemcpyBatchAsync"] {
            check(&format!("a {call}"), &[Class::Transfer]);
        }
    }

    #[test]
    fn names_of_copies_tell_the_memory_of_the_host() {
        for name in ["memcpy HtoD pageable", "Memcpy DtoH (Device -> Pageable)"] {
            check(&format!("g {name}"), &[Class::PageableCopy]);
        }
        for name in ["memcpy HtoD", "memcpy DtoH", "Memcpy HtoD (Host -> Device)"] {
            check(&format!("g {name}"), &[Class::UnknownHostCopy]);
        }
        for name in ["memcpy HtoD pinned", "Memcpy HtoD (Managed -> Device)", "memcpy HtoH", "memcpy unified"]
        {
            check(&format!("g {name}"), &[]);
        }
        for name in ["memcpy DtoD", "Memcpy PtoP (Device -> Device)"] {
            check(&format!("g {name}"), &[Class::DeviceCopy]);
        }
    }

    #[test]
    fn an_interpreter_is_known_by_its_file() {
        let check = |module: &str, expect: bool| assert_eq!(is_interpreter(module), expect, "{module}");
        check("/usr/bin/python3.11", true);
        check("/opt/lib/libpython3.13t.so.1.0", true);
        check("/v/torch/lib/libtorch_python.so", false);
        check("", false);
    }

    #[test]
    fn names_of_useful_work_are_no_conversions() {
        for frame in [
            "o aten::_to_copy",
            "o aten::_to_copy [32x64, none] f32",
            "o aten::contiguous",
            "o jit(f)/diffusion/convert_element_type",
            "g cudnn::nchwToNhwcKernel<float>",
        ] {
            check(frame, &[Class::Conversion]);
        }
        for frame in [
            "o aten::conv_transpose2d",
            "o aten::transpose.int",
            "o jit(f)/transpose(jvp(gate))/mul",
            "o aten::index_copy_",
            "g sm80_xmma_fprop_implicit_gemm_bf16_nhwc",
            "g loop_convert_fusion",
            "o [inductor triton_poi_fused__to_copy_add_0]",
            "o [xla jit_copy_params]",
            "o [triton copy_rows]",
            "o aten::_to_copy, aten::add",
            "o aten::_to_copy net.py:7, aten::add net.py:8",
            "o jit(f)/convert_element_type [fused: add, exp net.py:8]",
            "o convert_add_fusion.1",
            "g void at::native::max_pool_forward_nchw<float, float>(int, float const*)",
            "g void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct, float const*)",
            "g void at::native::upsample_nearest2d_nhwc_out_frame<float>(float const*)",
            "g void at::native::CatArrayBatchedCopy_aligned16_contig<float, unsigned int, 2>(float*)",
        ] {
            check(frame, &[]);
        }
    }

    #[test]
    fn single_precision_products_are_recognised() {
        check("g volta_sgemm_128x64_nn", &[Class::SinglePrecision]);
        check("g ampere_sgemm_tf32_128x64", &[]);
        check("g sm80_xmma_gemm_f32f32_tf32f32", &[]);
        check("g ampere_bf16_s16816gemm", &[]);
        check("g volta_fp16_sgemm_fp16_64x64_nn", &[]);
    }
}
