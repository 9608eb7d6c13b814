//! Start, devices and contexts.
//!
//! Owns: `cuInit`, and which context a thread is in. Because: everything else needs a context. Does not: start threads
//! before the first context asks for a device.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use super::registry::{Registry, handle_of};
use super::{next_number, tell};
use crate::api::{Code, In, Out, Raw, Status, api};
use crate::device::{Device, log, memory};
use crate::{link, symbols};

/// The driver's version: that of CUDA 13.0.
const VERSION: i32 = 13_000;
/// Maximum number of devices.
const DEVICES_MAX: usize = 8;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// CUPTI's number.
    pub(crate) number: u32,
    pub(crate) device: DeviceRef,
}

/// A device, displayed by number.
#[derive(Clone)]
pub(crate) struct DeviceRef(Arc<Device>);

impl std::ops::Deref for DeviceRef {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

impl std::fmt::Debug for DeviceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {}", self.number)
    }
}

impl Context {
    pub(crate) fn handle(self: &Arc<Self>) -> usize {
        handle_of(self)
    }
}

/// All contexts.
pub(crate) static CONTEXTS: Registry<Context> = Registry::new();
static NUMBERS: AtomicU32 = AtomicU32::new(0);
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Set in a child: the parent's threads do not exist there.
static FORKED: AtomicBool = AtomicBool::new(false);
/// A context with its reference count.
type RetainedContext = Option<(Arc<Context>, u32)>;
/// Primary contexts by device.
static PRIMARY: Mutex<[RetainedContext; DEVICES_MAX]> = Mutex::new([const { None }; DEVICES_MAX]);

thread_local! {
    static CURRENT: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// Number of devices: `DEEPCTX_SIM_DEVICES`, else one.
pub(crate) fn devices() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let asked = std::env::var("DEEPCTX_SIM_DEVICES").ok().and_then(|text| text.parse().ok());
        asked.unwrap_or(1).min(DEVICES_MAX as u32)
    })
}

/// A device, started on first use.
fn device(number: u32) -> DeviceRef {
    static DEVICES: [OnceLock<Arc<Device>>; DEVICES_MAX] = [const { OnceLock::new() }; DEVICES_MAX];
    DeviceRef(DEVICES[number as usize % DEVICES_MAX].get_or_init(|| Device::running(number, tell)).clone())
}

/// Waits for all started devices.
pub(crate) fn settle() {
    let primary = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let devices: Vec<_> = primary.iter().flatten().map(|(context, _)| context.device.clone()).collect();
    drop(primary);
    for device in devices {
        for tail in device.tails() {
            device.wait(&tail);
        }
    }
}

fn valid_device(number: i32) -> Result<u32, Code> {
    let number = u32::try_from(number).map_err(|_| Code::INVALID_DEVICE)?;
    if number < devices() { Ok(number) } else { Err(Code::INVALID_DEVICE) }
}

/// An error unless this process has started the driver.
pub(crate) fn started() -> Status {
    if INITIALIZED.load(Ordering::Relaxed) && !FORKED.load(Ordering::Relaxed) {
        Ok(())
    } else {
        Err(Code::NOT_INITIALIZED)
    }
}

/// Starts the driver and loads the user's tool.
pub(crate) fn start(injects: bool) -> Status {
    extern "C" fn child() {
        FORKED.store(true, Ordering::Relaxed);
        // A thread of the parent may have held one of the tool's locks, which would never be released in the child.
        super::MASKS.forget_tool();
    }
    static ONCE: Once = Once::new();
    if FORKED.load(Ordering::Relaxed) && INITIALIZED.load(Ordering::Relaxed) {
        return Err(Code::NOT_INITIALIZED);
    }
    ONCE.call_once(|| {
        FORKED.store(false, Ordering::Relaxed);
        log::open();
        if let Some(number) =
            std::env::var("DEEPCTX_SIM_FIRST_CORRELATION").ok().and_then(|text| text.parse().ok())
        {
            link::count_calls_from(number);
        }
        // SAFETY: the function touches two atomics.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
        INITIALIZED.store(true, Ordering::Relaxed);
        if injects {
            inject();
        }
    });
    started()
}

static STARTING: AtomicBool = AtomicBool::new(false);

/// The driver's documented way to load a tool: the library in `CUDA_INJECTION64_PATH` and its `InitializeInjection`,
/// whose result is ignored.
fn inject() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) else {
        return;
    };
    let Ok(path) = CString::new(path.into_encoded_bytes()) else { return };
    let address = symbols::Library::open(&path).and_then(|library| library.symbol(c"InitializeInjection"));
    if let Some(address) = address {
        // SAFETY: the documented type of a function of this name.
        let initialize: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address) };
        STARTING.store(true, Ordering::Relaxed);
        initialize();
        STARTING.store(false, Ordering::Relaxed);
    }
}

/// Whether a tool that the driver has loaded is in its `InitializeInjection`.
pub(crate) fn is_starting() -> bool {
    STARTING.load(Ordering::Relaxed)
}

/// The thread's context.
pub(crate) fn current() -> Result<Arc<Context>, Code> {
    CURRENT.try_with(|stack| stack.borrow().last().cloned()).ok().flatten().ok_or(Code::INVALID_CONTEXT)
}

/// The thread's context, for functions that need one.
pub(crate) fn working() -> Result<Arc<Context>, Code> {
    started()?;
    current()
}

fn create(number: u32) -> Arc<Context> {
    let context = Arc::new(Context { number: next_number(&NUMBERS), device: device(number) });
    let handle = CONTEXTS.add(context.clone());
    announce(1, handle);
    context
}

/// `CUpti_ResourceData` of a context or stream.
#[repr(C)]
struct ResourceData {
    context: usize,
    handle: usize,
    descriptor: usize,
}

/// Notifies tools of an object that was created or is about to be destroyed.
pub(crate) fn announce(id: u32, context: usize) {
    announce_with(id, context, 0, 0);
}

/// The same, for a stream or with a separate structure.
pub(crate) fn announce_with(id: u32, context: usize, handle: usize, descriptor: usize) {
    if super::MASKS.wants(link::RESOURCE, id) {
        let data = ResourceData { context, handle, descriptor };
        link::tell(link::RESOURCE, id, (&raw const data).cast());
    }
}

/// The primary context of a device, created on first retain.
pub(crate) fn retain(number: i32) -> Result<Arc<Context>, Code> {
    started()?;
    let number = valid_device(number)?;
    let mut primary = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let slot = &mut primary[number as usize];
    if let Some((context, count)) = slot {
        *count += 1;
        return Ok(context.clone());
    }
    drop(primary);
    // Without the lock, because creation calls tools.
    let context = create(number);
    let mut primary = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let (context, count) = primary[number as usize].get_or_insert((context, 0));
    *count += 1;
    Ok(context.clone())
}

/// Sets the thread's context; `None` clears it.
pub(crate) fn set_current(context: Option<Arc<Context>>) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(context);
    });
}

/// The most requested capabilities and limits, by `CUdevice_attribute`.
pub(crate) const fn attribute(number: i32) -> Option<i32> {
    Some(match number {
        1 => 1024,              // threads of a block
        2 | 3 => 1024,          // of these in x and y
        4 => 64,                // in z
        5 => 0x7fff_ffff,       // blocks in x
        6 | 7 => 0xffff,        // in y and z
        8 => 48 << 10,          // shared memory of a block
        10 => 32,               // threads of a warp
        12 => 64 << 10,         // registers of a block
        13 => 1_500_000,        // clock, kHz
        16 => 108,              // multiprocessors
        31 | 40 | 41 | 83 => 1, // concurrent kernels, engines, unified addresses, managed memory
        36 => 1_500_000,        // memory clock
        37 => 5120,             // bus width
        38 => 40 << 20,         // second-level cache
        39 => 2048,             // threads of a multiprocessor
        75 => 9,                // compute capability
        76 => 0,
        81 => 100 << 10, // shared memory of a multiprocessor
        97 => 99 << 10,  // shared memory of a block that opts in
        115 => 1,        // memory pools
        0..=200 => 0,
        _ => return None,
    })
}

/// Devices are instances of one partitioned device: `DEEPCTX_SIM_MIG`.
pub(crate) fn divided() -> bool {
    std::env::var_os("DEEPCTX_SIM_MIG").is_some_and(|value| value != "0")
}

/// Name of the devices.
pub(crate) fn name() -> &'static CStr {
    if divided() { c"deepctx simulated device MIG 1g.10gb" } else { c"deepctx simulated device" }
}

/// Copies a text into a caller's array.
pub(crate) fn put_text(out: Out<c_char>, room: i32, text: &CStr) -> Status {
    let bytes = text.to_bytes_with_nul();
    let room = usize::try_from(room).unwrap_or(0);
    for (i, &byte) in bytes.iter().take(room).enumerate() {
        let end = i + 1 == room;
        out.put_at(i, if end { 0 } else { byte as c_char })?;
    }
    Ok(())
}

/// Sixteen bytes unique to a device.
pub(crate) fn uuid(number: u32) -> [u8; 16] {
    let mut id = *b"deepctx-sim-dev0";
    id[15] = b'0' + number as u8;
    id
}

api! { Driver;
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if devices() == 0 {
            return Err(Code::NO_DEVICE);
        }
        start(true)
    }
    fn cuDriverGetVersion(version: Out<i32>) { version.put(VERSION) }
    fn cuDeviceGetCount(count: Out<i32>) { started()?; count.put(devices().cast_signed()) }
    fn cuDeviceGet(device: Out<i32>, number: i32) { started()?; valid_device(number)?; device.put(number) }
    fn cuDeviceGetName(name: Out<c_char>, room: i32, device: i32) {
        valid_device(device)?;
        put_text(name, room, self::name())
    }
    fn cuDeviceGetUuid | cuDeviceGetUuid_v2(id: Out<[u8; 16]>, device: i32) { id.put(uuid(valid_device(device)?)) }
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        valid_device(device)?;
        bytes.put(memory::TOTAL as usize)
    }
    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: i32) {
        valid_device(device)?;
        value.put(attribute(number).ok_or(Code::INVALID_VALUE)?)
    }
    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        valid_device(device)?;
        major.put(9)?;
        minor.put(0)
    }
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        valid_device(device)?;
        valid_device(peer)?;
        can.put((device != peer).into())
    }
    fn cuDevicePrimaryCtxRetain(context: Out<Raw>, device: i32) { context.put(retain(device)?.handle()) }
    fn cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2(device: i32) {
        // The context stays, because work may be pending.
        valid_device(device).map(drop)
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let number = valid_device(device)?;
        flags.put(0)?;
        active.put(PRIMARY.lock().unwrap_or_else(PoisonError::into_inner)[number as usize].is_some().into())
    }
    fn cuDevicePrimaryCtxSetFlags | cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) { valid_device(device).map(drop) }
    fn cuCtxCreate | cuCtxCreate_v2(context: Out<Raw>, _flags: u32, device: i32) {
        started()?;
        let made = create(valid_device(device)?);
        CURRENT.with_borrow_mut(|stack| stack.push(made.clone()));
        context.put(made.handle())
    }
    fn cuCtxCreate_v4(context: Out<Raw>, _parameters: Raw, _flags: u32, device: i32) {
        started()?;
        let made = create(valid_device(device)?);
        CURRENT.with_borrow_mut(|stack| stack.push(made.clone()));
        context.put(made.handle())
    }
    fn cuCtxDestroy | cuCtxDestroy_v2(context: Raw) {
        let gone = CONTEXTS.get(context)?;
        announce(2, context);
        for tail in gone.device.tails() {
            gone.device.wait(&tail);
        }
        CURRENT.with_borrow_mut(|stack| stack.retain(|other| !Arc::ptr_eq(other, &gone)));
        CONTEXTS.remove(context).map(drop)
    }
    fn cuCtxSetCurrent(context: Raw) {
        started()?;
        let context = if context == 0 { None } else { Some(CONTEXTS.get(context)?) };
        set_current(context);
        Ok(())
    }
    fn cuCtxGetCurrent(context: Out<Raw>) {
        started()?;
        context.put(current().map_or(0, |context| context.handle()))
    }
    fn cuCtxPushCurrent | cuCtxPushCurrent_v2(context: Raw) {
        let context = CONTEXTS.get(context)?;
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }
    fn cuCtxPopCurrent | cuCtxPopCurrent_v2(context: Out<Raw>) {
        let gone = CURRENT.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        context.put_if_wanted(gone.handle());
        Ok(())
    }
    fn cuCtxGetDevice(device: Out<i32>) { device.put(working()?.device.number.cast_signed()) }
    fn cuCtxGetFlags(flags: Out<u32>) { working()?; flags.put(0) }
    fn cuCtxGetApiVersion(_context: Raw, version: Out<u32>) { version.put(VERSION as u32) }
    fn cuCtxGetLimit(value: Out<usize>, _limit: u32) { value.put(1 << 20) }
    fn cuCtxSetLimit(_limit: u32, _value: usize) { working().map(drop) }
    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    }
    fn cuCtxGetId(context: Raw, number: Out<u64>) {
        let context = if context == 0 { working()? } else { CONTEXTS.get(context)? };
        number.put(context.number.into())
    }
    fn cuGetErrorName(code: i32, text: Out<In<c_char>>) { text.put(In::at(super::procedures::error(code).0.as_ptr())) }
    fn cuGetErrorString(code: i32, text: Out<In<c_char>>) { text.put(In::at(super::procedures::error(code).1.as_ptr())) }
}
