//! How the libraries talk to one another.
//!
//! Owns: the table that `libcuda` hands out by `cuGetExportTable`, the announcement of calls, and the record of what a
//! device did. Because: the real libraries are bound by such tables, not by the dynamic linker, and a tool sees only
//! what it asked for. Does not: know CUPTI's interface or layouts.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::api::{ApiFunction, Domain, Status, code_of, is_announced};
use crate::symbols;

/// Number of callback domains, in CUPTI's order: none, driver, runtime, resource, synchronize.
pub(crate) const DOMAINS: usize = 5;
/// Maximum callback ids of a domain; CUPTI 13.5 has 876.
pub(crate) const CALLBACKS: usize = 1024;
/// CUPTI's number of the resource domain.
pub(crate) const RESOURCE: u32 = 3;

/// The table's id, made up.
pub(crate) static TABLE_ID: [u8; 16] = *b"deepctx-sim-1.0\0";

/// The id under which programs find the kinds of activities that are requested, as CUPTI numbers them: a word with bit
/// `n` for kind `n`.
pub(crate) static KINDS_ID: [u8; 16] = *b"deepctx-kinds-1\0";

/// Hooks of a tool.
#[repr(C)]
pub(crate) struct Hooks {
    /// Domain, callback id, data of the domain.
    pub(crate) callback: extern "C" fn(u32, u32, *const c_void),
    /// Receives an event that has a record kind.
    pub(crate) activity: extern "C" fn(*const Record),
}

/// Requests of clients.
pub(crate) struct Masks {
    /// By domain and callback id: number of clients that want it.
    pub(crate) callbacks: [[AtomicU8; CALLBACKS]; DOMAINS],
    /// Bit `n`: activities of CUPTI's kind `n` are requested.
    pub(crate) kinds: AtomicU64,
    /// Hooks to call.
    pub(crate) hooks: AtomicPtr<Hooks>,
}

impl Masks {
    pub(crate) const fn new() -> Self {
        Self {
            callbacks: [const { [const { AtomicU8::new(0) }; CALLBACKS] }; DOMAINS],
            kinds: AtomicU64::new(0),
            hooks: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn wants(&self, domain: u32, id: u32) -> bool {
        let callbacks = self.callbacks.get(domain as usize).and_then(|ids| ids.get(id as usize));
        callbacks.is_some_and(|wanted| wanted.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn wants_kind(&self, kind: u32) -> bool {
        self.kinds.load(Ordering::Relaxed) >> kind & 1 == 1
    }

    fn hooks(&self) -> Option<&'static Hooks> {
        // SAFETY: null, or the address of a tool's static.
        unsafe { self.hooks.load(Ordering::Acquire).as_ref() }
    }

    /// Removes the hooks.
    pub(crate) fn forget_tool(&self) {
        self.hooks.store(ptr::null_mut(), Ordering::Release);
    }

    pub(crate) fn tell(&self, domain: u32, id: u32, data: *const c_void) {
        if let Some(hooks) = self.hooks() {
            (hooks.callback)(domain, id, data);
        }
    }

    pub(crate) fn record(&self, record: &Record) {
        if self.wants_kind(record.kind)
            && let Some(hooks) = self.hooks()
        {
            (hooks.activity)(record);
        }
    }
}

/// Id of an image in samples of its instructions. CUPTI's own checksum is undocumented; this one is FNV-1a.
pub(crate) fn crc(image: &[u8]) -> u64 {
    let sum =
        image.iter().fold(0x811c_9dc5u32, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(sum.max(1))
}

/// The simulated subset of CUPTI's record kinds.
pub(crate) mod kind {
    pub(crate) const COPY: u32 = 1;
    pub(crate) const FILL: u32 = 2;
    pub(crate) const KERNEL: u32 = 3;
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const RUNTIME: u32 = 5;
    pub(crate) const DEVICE: u32 = 8;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const PEER_COPY: u32 = 22;
    pub(crate) const SYNC: u32 = 38;
    pub(crate) const GRAPH: u32 = 51;
}

/// One event. Times are of the device's clock, in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// One of [`kind`].
    pub(crate) kind: u32,
    /// For a copy its `CUpti_ActivityMemcpyKind`, for a wait its type, for a call its callback id.
    pub(crate) detail: u32,
    pub(crate) correlation: u32,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) graph: u32,
    pub(crate) source_graph: u32,
    pub(crate) node: u64,
    pub(crate) source_node: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) bytes: u64,
    /// Kinds of memory, `CUpti_ActivityMemoryKind`.
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) is_async: u8,
    pub(crate) reserved: u8,
    /// For a fill the value, for a call the result.
    pub(crate) value: u32,
    pub(crate) peer: u32,
    /// Requesting thread.
    pub(crate) thread: u32,
    pub(crate) name: *const c_char,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) registers: u32,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) event: u32,
    pub(crate) code: crate::device::work::Code,
}

impl Default for Record {
    fn default() -> Self {
        // SAFETY: integers, arrays of them and a raw pointer: all zeroes are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

/// Queries about a driver handle.
pub(crate) mod ask {
    pub(crate) const CONTEXT: u32 = 1;
    pub(crate) const STREAM: u32 = 2;
    pub(crate) const GRAPH: u32 = 3;
    pub(crate) const GRAPH_EXEC: u32 = 4;
    pub(crate) const NODE: u32 = 5;
    pub(crate) const EVENT: u32 = 6;
    pub(crate) const DEVICE_OF_CONTEXT: u32 = 7;
    pub(crate) const THREAD_STREAM: u32 = 8;
    pub(crate) const CURRENT_CONTEXT: u32 = 9;
    /// Number of devices; no handle.
    pub(crate) const DEVICES: u32 = 10;
    /// 1 while the driver starts and calls the tools it loads; no handle.
    pub(crate) const STARTING: u32 = 11;
}

/// Functions of `libcuda` for the other libraries.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) size: usize,
    pub(crate) enter: extern "C" fn(*mut Frame),
    pub(crate) exit: extern "C" fn(*mut Frame, i32),
    pub(crate) masks: *const Masks,
    /// The current time of the device's clock.
    pub(crate) now: extern "C" fn() -> u64,
    /// [`ask`], handle: the number, or 0.
    pub(crate) number: extern "C" fn(u32, usize) -> u64,
    /// Waits until the devices are idle.
    pub(crate) settle: extern "C" fn(),
}

// SAFETY: functions, and the address of a static of atomics.
unsafe impl Sync for Table {}

/// A call in progress.
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) domain: u32,
    pub(crate) id: u32,
    pub(crate) name: *const c_char,
    pub(crate) parameters: *const c_void,
    pub(crate) correlation: u32,
    pub(crate) result: i32,
    /// The tool's number, kept between the two callbacks.
    pub(crate) data: u64,
    pub(crate) start_ns: u64,
}

/// `CUpti_CallbackData`.
#[repr(C)]
pub(crate) struct CallbackData {
    pub(crate) site: u32,
    pub(crate) function_name: *const c_char,
    pub(crate) parameters: *const c_void,
    pub(crate) result: *mut c_void,
    pub(crate) symbol: *const c_char,
    pub(crate) context: usize,
    pub(crate) context_number: u32,
    pub(crate) data: *mut u64,
    pub(crate) correlation: u32,
}

thread_local! {
    /// This thread's depth of announced calls, and the correlation id of the outermost one.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static CORRELATION: Cell<u32> = const { Cell::new(0) };
    /// The kernel about to be launched, for the callback at the end of the call.
    static SYMBOL: Cell<usize> = const { Cell::new(0) };
    /// Set while a tool is being notified: its own calls are not announced.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

static LAST: AtomicU32 = AtomicU32::new(0);

/// The correlation id of the current call.
pub(crate) fn correlation() -> u32 {
    CORRELATION.get()
}

/// Stores the kernel that the current call launches.
pub(crate) fn launches(name: &'static CStr) {
    SYMBOL.set(name.as_ptr().addr());
}

/// `libcuda`'s side of a call's start.
pub(crate) extern "C" fn enter(frame: *mut Frame) {
    // SAFETY: `call` passes its own frame.
    let Some(frame) = (unsafe { frame.as_mut() }) else { return };
    if DEPTH.get() == 0 {
        // 0 is no correlation id; the counter may wrap around.
        let mut number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if number == 0 {
            number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        }
        CORRELATION.set(number);
        SYMBOL.set(0);
    }
    DEPTH.set(DEPTH.get() + 1);
    frame.correlation = CORRELATION.get();
    announce(frame, 0);
    let kind = if frame.domain == Domain::Driver as u32 { kind::DRIVER } else { kind::RUNTIME };
    if crate::cuda::MASKS.wants_kind(kind) {
        frame.start_ns = crate::cuda::now();
    }
}

/// The end of a call.
pub(crate) extern "C" fn exit(frame: *mut Frame, result: i32) {
    // SAFETY: as in `enter`.
    let Some(frame) = (unsafe { frame.as_mut() }) else { return };
    frame.result = result;
    if frame.start_ns > 0 && !TELLING.get() {
        let kind = if frame.domain == Domain::Driver as u32 { kind::DRIVER } else { kind::RUNTIME };
        crate::cuda::MASKS.record(&Record {
            kind,
            detail: frame.id,
            correlation: frame.correlation,
            start_ns: frame.start_ns,
            end_ns: crate::cuda::now(),
            value: frame.result.cast_unsigned(),
            thread: crate::device::thread_number(),
            ..Record::default()
        });
    }
    announce(frame, 1);
    DEPTH.set(DEPTH.get() - 1);
    if DEPTH.get() == 0 {
        CORRELATION.set(0);
    }
}

/// Starts correlation ids at this number, so that a test sees the counter wrap around.
pub(crate) fn count_calls_from(number: u32) {
    LAST.store(number, Ordering::Relaxed);
}

/// Notifies a tool, unless the tool itself called.
pub(crate) fn tell(domain: u32, id: u32, data: *const c_void) {
    if !TELLING.replace(true) {
        crate::cuda::MASKS.tell(domain, id, data);
        TELLING.set(false);
    }
}

fn announce(frame: &mut Frame, site: u32) {
    if frame.id == 0 || !crate::cuda::MASKS.wants(frame.domain, frame.id) || TELLING.get() {
        return;
    }
    let (context, context_number) = crate::cuda::current_for_callbacks();
    let data = CallbackData {
        site,
        function_name: frame.name,
        parameters: frame.parameters,
        result: if site == 1 { (&raw mut frame.result).cast() } else { ptr::null_mut() },
        symbol: ptr::with_exposed_provenance(SYMBOL.get()),
        context,
        context_number,
        data: &raw mut frame.data,
        correlation: frame.correlation,
    };
    tell(frame.domain, frame.id, (&raw const data).cast());
}

/// Runs the body of a function and announces it.
pub(crate) fn call(
    point: &'static ApiFunction,
    parameters: *const c_void,
    body: impl FnOnce() -> Status,
) -> i32 {
    if !is_announced(point.domain) {
        // Prevents identical functions from being merged: probes distinguish them by address.
        std::hint::black_box(point);
        return code_of(body());
    }
    let table = match point.domain {
        Domain::Driver | Domain::Hip => &crate::cuda::TABLE,
        _ => match driver() {
            Some(driver) => driver.table,
            None => return crate::api::Code::NO_DEVICE.0,
        },
    };
    let mut frame = Frame {
        domain: point.domain as u32,
        id: point.id,
        name: point.name.as_ptr().cast(),
        parameters,
        correlation: 0,
        result: 0,
        data: 0,
        start_ns: 0,
    };
    (table.enter)(&raw mut frame);
    let result = code_of(body());
    if point.domain == Domain::Runtime {
        crate::cudart::remember(result);
    }
    (table.exit)(&raw mut frame, result);
    result
}

/// `libcuda` as seen by the other libraries.
pub(crate) struct Driver {
    pub(crate) table: &'static Table,
}

impl Driver {
    /// Requests of tools.
    pub(crate) fn masks(&self) -> &'static Masks {
        // SAFETY: the address of a static of `libcuda`, which stays loaded.
        unsafe { &*self.table.masks }
    }
}

/// The driver; `None` when there is none, or when it is not simulated.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER
        .get_or_init(|| {
            let handle = symbols::Library::open(c"libcuda.so.1")?;
            let address = handle.symbol(c"cuGetExportTable")?;
            // SAFETY: the symbol of this name has this type in every libcuda.
            let get: extern "C" fn(*mut *const c_void, *const [u8; 16]) -> i32 =
                unsafe { std::mem::transmute(address) };
            let mut table = ptr::null();
            if get(&raw mut table, &raw const TABLE_ID) != 0 {
                return None;
            }
            // SAFETY: only our own libcuda knows this id, and returns the address of a static `Table`.
            let table: &Table = unsafe { table.cast::<Table>().as_ref() }?;
            (table.size == size_of::<Table>()).then_some(Driver { table })
        })
        .as_ref()
}
