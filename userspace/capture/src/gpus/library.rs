//! Library: calls of NVIDIA's management library (NVML), which is loaded at run time.
//!
//! Owns: where the library is searched, its initialization, and the calls that give one reading of every GPU.
//! Because: it comes with the driver, so machines without one lack it. Does not: run in the privileged process
//! ([`super::reader`]), or judge what it reports.
//!
//! Signatures and structures are those of `nvml-wrapper-sys`, which are generated from NVIDIA's header. Functions are
//! looked up by name: an older library lacks some, and then only those figures are missing.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::path::Path;

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlClockType_enum_NVML_CLOCK_MEM, nvmlClockType_enum_NVML_CLOCK_SM, nvmlClockType_t,
    nvmlDevice_t, nvmlMemory_t, nvmlReturn_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU,
    nvmlTemperatureSensors_t, nvmlUtilization_t,
};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::code::Code;
use super::protocol::{Figure, GPUS_MAX, GpuReading, Readings, Refusal, uuid_of};
use super::{CONTROL, LIBRARY};

/// Folders where some systems keep the driver's libraries, and which the dynamic loader does not search: Windows'
/// subsystem for Linux, NixOS, and containers of Google's clusters. All of them are root's.
const FOLDERS: [&str; 3] = ["/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/local/nvidia/lib64"];

/// Calls a function of the library if it exists: `Err` with its code on failure.
macro_rules! call {
    ($library:expr, $function:ident($($argument:expr),*)) => {
        match &$library.$function {
            Some(function) => {
                // SAFETY: the signature is the header's. Pointers are to values that outlive the call, with room for
                // what is written there; handles come from the library, which never takes one back.
                Code(unsafe { function($($argument),*) }).check()
            }
            None => Err(Code::FUNCTION_NOT_FOUND),
        }
    };
}

/// The functions that are called. The crate's own loader looks up all 300 of the header and keeps an error for each
/// missing one, which adds a hundredth to this program.
macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the library's names")]
        struct Functions {
            $($name: Option<unsafe extern "C" fn($($argument),*) -> nvmlReturn_t>,)*
            _library: libloading::Library,
        }

        impl Functions {
            /// Loads the library of that name.
            ///
            /// # Safety
            ///
            /// Its initialisers run, and each of its functions must have the signature of NVIDIA's header.
            unsafe fn load(path: &Path) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's.
                let library = unsafe { libloading::Library::new(path) }?;
                Ok(Self {
                    // SAFETY: the signature is the header's (below). The library is kept as long as the function.
                    $($name: unsafe { library.get(stringify!($name).as_bytes()) }.ok().map(|found| *found),)*
                    _library: library,
                })
            }
        }

        /// Compiles only while each signature is that of the header.
        const _: fn(&NvmlLib) = |header| {
            $(let _: &Result<unsafe extern "C" fn($($argument),*) -> nvmlReturn_t, _> = &header.$name;)*
        };
    };
}

functions! {
    nvmlInit_v2();
    nvmlDeviceGetCount_v2(*mut c_uint);
    nvmlDeviceGetHandleByIndex_v2(c_uint, *mut nvmlDevice_t);
    nvmlDeviceGetUUID(nvmlDevice_t, *mut c_char, c_uint);
    nvmlDeviceGetUtilizationRates(nvmlDevice_t, *mut nvmlUtilization_t);
    nvmlDeviceGetMemoryInfo(nvmlDevice_t, *mut nvmlMemory_t);
    nvmlDeviceGetPowerUsage(nvmlDevice_t, *mut c_uint);
    nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, *mut c_uint);
    nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t, *mut c_uint);
    nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t, *mut c_ulonglong);
}

/// The initialized library, and its GPUs.
pub(super) struct Library {
    functions: Functions,
    gpus: Vec<Gpu>,
    left_out: u32,
}

/// The figures of one call.
type CallResult<const FIGURES: usize> = Result<[(Figure, u64); FIGURES], Code>;

struct Gpu {
    index: u32,
    uuid: String,
    /// The GPU's handle, or why there is none.
    handle: Result<nvmlDevice_t, Code>,
}

impl Library {
    /// Loads and initializes the library.
    pub(super) fn open() -> Result<Self, Refusal> {
        let functions = load().ok_or(Refusal::NoLibrary)?;
        let count = begin(&functions).map_err(why_not)?;
        let gpus = (0..count.min(GPUS_MAX as u32)).map(|index| Gpu::of(&functions, index)).collect();
        Ok(Self { functions, gpus, left_out: count.saturating_sub(GPUS_MAX as u32) })
    }

    /// Reads every GPU once.
    pub(super) fn read(&self) -> Readings {
        let gpus = self.gpus.iter().map(|gpu| self.read_gpu(gpu)).collect();
        Readings { gpus, left_out: self.left_out }
    }

    fn read_gpu(&self, gpu: &Gpu) -> GpuReading {
        let mut reading = GpuReading { index: gpu.index, uuid: gpu.uuid.clone(), ..GpuReading::default() };
        let device = match gpu.handle {
            Ok(device) => device,
            Err(code) => {
                reading.failed = Some(code);
                return reading;
            }
        };
        add(&mut reading, || self.utilization(device));
        add(&mut reading, || self.memory(device));
        add(&mut reading, || self.power(device));
        add(&mut reading, || self.temperature(device));
        let (processors, memory) = (nvmlClockType_enum_NVML_CLOCK_SM, nvmlClockType_enum_NVML_CLOCK_MEM);
        add(&mut reading, || self.clock(device, processors, Figure::ClockMegahertz));
        add(&mut reading, || self.clock(device, memory, Figure::MemoryClockMegahertz));
        add(&mut reading, || self.clock_reasons(device));
        reading
    }

    fn utilization(&self, device: nvmlDevice_t) -> CallResult<2> {
        let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
        call!(self.functions, nvmlDeviceGetUtilizationRates(device, &mut rates))?;
        let (busy, memory_busy) = (rates.gpu.into(), rates.memory.into());
        Ok([(Figure::BusyPercent, busy), (Figure::MemoryBusyPercent, memory_busy)])
    }

    fn memory(&self, device: nvmlDevice_t) -> CallResult<2> {
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        call!(self.functions, nvmlDeviceGetMemoryInfo(device, &mut memory))?;
        Ok([(Figure::MemoryUsedBytes, memory.used), (Figure::MemoryTotalBytes, memory.total)])
    }

    fn power(&self, device: nvmlDevice_t) -> CallResult<1> {
        let mut milliwatts = 0;
        call!(self.functions, nvmlDeviceGetPowerUsage(device, &mut milliwatts))?;
        Ok([(Figure::PowerMilliwatts, milliwatts.into())])
    }

    fn temperature(&self, device: nvmlDevice_t) -> CallResult<1> {
        let (sensor, mut celsius) = (nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU, 0);
        call!(self.functions, nvmlDeviceGetTemperature(device, sensor, &mut celsius))?;
        Ok([(Figure::TemperatureCelsius, celsius.into())])
    }

    fn clock(&self, device: nvmlDevice_t, of: nvmlClockType_t, figure: Figure) -> CallResult<1> {
        let mut megahertz = 0;
        call!(self.functions, nvmlDeviceGetClockInfo(device, of, &mut megahertz))?;
        Ok([(figure, megahertz.into())])
    }

    /// Uses the name that every driver has; later ones also have another.
    fn clock_reasons(&self, device: nvmlDevice_t) -> CallResult<1> {
        let mut reasons = 0;
        call!(self.functions, nvmlDeviceGetCurrentClocksThrottleReasons(device, &mut reasons))?;
        Ok([(Figure::ClockReasons, reasons)])
    }
}

/// Adds the figures of a call. A lost GPU is not queried further: each call would take its time.
fn add<const FIGURES: usize>(reading: &mut GpuReading, call: impl FnOnce() -> CallResult<FIGURES>) {
    if reading.failed == Some(Code::GPU_IS_LOST) {
        return;
    }
    match call() {
        Ok(figures) => figures.into_iter().for_each(|(figure, value)| reading.set(figure, value)),
        Err(code) if code.is_absence() => {}
        Err(Code::GPU_IS_LOST) => reading.failed = Some(Code::GPU_IS_LOST),
        Err(code) => reading.failed = reading.failed.or(Some(code)),
    }
}

impl Gpu {
    fn of(functions: &Functions, index: u32) -> Self {
        let mut device = std::ptr::null_mut();
        let handle = call!(functions, nvmlDeviceGetHandleByIndex_v2(index, &mut device)).map(|()| device);
        let mut uuid: [c_char; 96] = [0; 96];
        if let Ok(device) = handle {
            // Without a UUID the GPU is named by its number.
            let _ = call!(functions, nvmlDeviceGetUUID(device, uuid.as_mut_ptr(), uuid.len() as u32));
        }
        let bytes = uuid.map(|byte| byte.to_ne_bytes()[0]);
        Self { index, uuid: uuid_of(&bytes), handle }
    }
}

/// The library, from the dynamic loader's search path, or else from a folder of root's.
fn load() -> Option<Functions> {
    let elsewhere = FOLDERS.iter().map(|folder| format!("{folder}/{LIBRARY}"));
    std::iter::once(LIBRARY.to_owned()).chain(elsewhere).find_map(|path| {
        // SAFETY: loading runs the library's initialisers and each of its functions has the signature of NVIDIA's
        // header if it is what its name says. If it is something else, this process has nothing to lose.
        unsafe { Functions::load(Path::new(&path)) }.ok()
    })
}

/// Initializes the library, and returns the number of GPUs. It is never shut down: it ends with the process.
fn begin(functions: &Functions) -> Result<u32, Code> {
    call!(functions, nvmlInit_v2())?;
    let mut count = 0;
    call!(functions, nvmlDeviceGetCount_v2(&mut count))?;
    Ok(count)
}

/// Why the library could not be initialized: its code does not distinguish a driver that is not loaded from one without
/// permission.
fn why_not(code: Code) -> Refusal {
    match access(CONTROL, Access::READ_OK | Access::WRITE_OK) {
        Err(Errno::ACCESS | Errno::PERM) => Refusal::NoAccess,
        _ => Refusal::NoInit(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_a_gpu_lacks_is_no_failure() {
        let mut reading = GpuReading::default();
        add(&mut reading, || CallResult::<1>::Err(Code::NOT_SUPPORTED));
        add(&mut reading, || Ok([(Figure::PowerMilliwatts, 5)]));
        assert_eq!((reading.failed, reading.get(Figure::PowerMilliwatts)), (None, Some(5)));
    }

    #[test]
    fn a_lost_gpu_is_asked_nothing_more() {
        let mut reading = GpuReading::default();
        add(&mut reading, || CallResult::<1>::Err(Code(999)));
        add(&mut reading, || Ok([(Figure::PowerMilliwatts, 5)]));
        assert_eq!(reading.failed, Some(Code(999)));
        add(&mut reading, || CallResult::<1>::Err(Code::GPU_IS_LOST));
        add(&mut reading, || -> CallResult<1> { panic!("it is asked") });
        assert_eq!(
            (reading.failed, reading.get(Figure::PowerMilliwatts)),
            (Some(Code::GPU_IS_LOST), Some(5))
        );
    }
}
