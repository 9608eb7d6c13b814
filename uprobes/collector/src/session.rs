//! One collection: from the first listener to the last.
//!
//! Owns: the subscription, what CUPTI calls us with, and the way of a record to the probe. Because: only what is
//! enabled costs, and all of it must be disabled again. Does not: decide when ([`crate::listen`]).

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use deepctx_common::activity::{Activity, BATCH_MAX, state};
use deepctx_common::cupti::kind;
use deepctx_common::device::of_cupti::KIND as DEVICES;

use crate::convert::{ConvertedRecord, convert};
use crate::cupti::{
    BufferFunctions, CONTEXT_CREATED, CONTEXT_ENDS, CallbackData, Cupti, DRIVER, Error, GraphData,
    MODULE_LOADED, MODULE_UNLOADS, NODE_CLONED, NODE_CREATED, RESOURCE, ResourceData, Subscriber,
};
use crate::names::Lookup;
use crate::{buffers, devices, fork, guard, probe, sampling};

/// Enabled kinds. Graph nodes appear as separate kernels and copies as long as `GRAPH` is not enabled.
const KINDS: [u32; 6] =
    [kind::CONCURRENT_KERNEL, kind::COPY, kind::PEER_COPY, kind::FILL, kind::SYNC, kind::OVERHEAD];
/// How often CUPTI delivers its records.
const FLUSH_MS: u32 = 100;
/// Callback ids are numbered from 1 without gaps; 13.5 has fewer than 900.
const CALLBACKS_MAX: u32 = 4096;
/// Gaps tolerated before the ids are considered exhausted.
const GAP_MAX: u32 = 64;

/// Calls that put work on a device. Only driver calls: every runtime call makes one, with the same id.
const LAUNCHES: [&CStr; 4] = [c"cuLaunch", c"cuMemcpy", c"cuMemset", c"cuGraphLaunch"];
/// The one of these calls that puts a host function into a stream.
const HOST_FUNCTIONS: &CStr = c"cuLaunchHostFunc";

/// Whether calls of a driver function get ids.
fn puts_work_on_a_device(function: &CStr) -> bool {
    let begins_with = |begin: &CStr| function.to_bytes().starts_with(begin.to_bytes());
    LAUNCHES.into_iter().any(begins_with) && !begins_with(HOST_FUNCTIONS)
}

/// What CUPTI is to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionStart {
    /// Everything: the driver is starting, and must not be called.
    DriverStart,
    /// From now on, including existing objects.
    Now,
}

/// The running collection, for callbacks.
static CURRENT: RwLock<Option<Arc<Collection>>> = RwLock::new(None);

/// A collection.
pub(crate) struct Collection {
    cupti: Cupti,
    subscriber: Subscriber,
    skipped: AtomicU64,
    /// By kind: record size in this version; 0 while unknown.
    sizes: [AtomicUsize; KINDS_MAX],
}

/// Kinds whose record size is cached; 13.5 has 59.
const KINDS_MAX: usize = 128;

/// The running collection.
fn current() -> Option<Arc<Collection>> {
    if fork::is_child() {
        return None;
    }
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

extern "C" fn on_call(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if probe::listeners() == 0 || fork::is_child() {
        return;
    }
    match domain {
        DRIVER => {}
        RESOURCE => return guard(|| on_resource(id, data)),
        _ => return,
    }
    // SAFETY: in this domain CUPTI passes this structure, or null.
    let Some(data) = (unsafe { data.cast::<CallbackData>().as_ref() }) else { return };
    if data.site == 0 {
        guard(|| {
            probe::correlation(data.correlation, domain, id);
            sampling::launched(data.context.addr());
        });
    }
}

/// Handles a resource that was created or loaded, or is about to be destroyed.
fn on_resource(id: u32, data: *const c_void) {
    // SAFETY: in this domain CUPTI passes this structure, or null.
    let Some(resource) = (unsafe { data.cast::<ResourceData>().as_ref() }) else { return };
    let Some(collection) = current() else { return };
    match id {
        NODE_CREATED | NODE_CLONED => on_node(id, resource, &collection.cupti),
        _ => sampling::on_resource(&collection.cupti, id, resource),
    }
}

/// Handles a graph node that was created or cloned.
fn on_node(id: u32, resource: &ResourceData, cupti: &Cupti) {
    // SAFETY: for nodes it points to this structure, or is null.
    let Some(graph) = (unsafe { resource.descriptor.cast::<GraphData>().as_ref() }) else { return };
    let Some(number) = cupti.node_number(graph.node) else { return };
    match id {
        NODE_CREATED => probe::node(number, 0, graph.node_type),
        NODE_CLONED => {
            if let Some(of) = cupti.node_number(graph.original_node) {
                probe::node(number, of, graph.node_type);
            }
        }
        _ => {}
    }
}

extern "C" fn on_request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let mut taken = std::ptr::null_mut();
    guard(|| {
        if current().is_some() {
            taken = buffers::take();
        }
    });
    // SAFETY: CUPTI passes three addresses to write to.
    unsafe {
        buffer.write(taken);
        size.write(if taken.is_null() { 0 } else { buffers::BYTES });
        records.write(0);
    }
}

extern "C" fn on_request_second(
    buffer: *mut *mut u8,
    size: *mut usize,
    records: *mut usize,
    _: *const c_void,
) {
    on_request(buffer, size, records);
}

extern "C" fn on_complete(_: *mut c_void, _: u32, buffer: *mut u8, _size: usize, valid: usize) {
    if fork::is_child() {
        return;
    }
    guard(|| {
        if let Some(collection) = current() {
            collection.read(buffer, valid.min(buffers::BYTES));
        }
        buffers::put_back(buffer);
    });
}

extern "C" fn on_complete_second(buffer: *mut u8, size: usize, valid: usize, _: *const c_void) {
    on_complete(std::ptr::null_mut(), 0, buffer, size, valid);
}

impl Collection {
    /// Begins to collect.
    pub(crate) fn begin(since: CollectionStart) -> Result<Arc<Self>, Error> {
        let mut cupti = Cupti::find()?;
        let subscriber = cupti.subscribe(on_call)?;
        let collection = Arc::new(Self {
            cupti,
            subscriber,
            skipped: AtomicU64::new(0),
            sizes: [const { AtomicUsize::new(0) }; KINDS_MAX],
        });
        // Before enabling anything: CUPTI requests buffers at once.
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(collection.clone());
        if let Err(error) = collection.enable(since) {
            collection.end();
            return Err(error);
        }
        Ok(collection)
    }

    fn enable(&self, since: CollectionStart) -> Result<(), Error> {
        let functions = BufferFunctions {
            request: on_request,
            request_second: on_request_second,
            complete: on_complete,
            complete_second: on_complete_second,
        };
        self.cupti.register(self.subscriber, functions)?;
        self.enable_callbacks();
        // First, so that devices are known before their work is reported. Without it they only have numbers.
        let _ = match since {
            CollectionStart::DriverStart => self.cupti.enable(self.subscriber, DEVICES),
            CollectionStart::Now => self.cupti.enable_existing(self.subscriber, DEVICES),
        };
        // Kernels are required; kinds that this version or device lacks are skipped.
        self.cupti.enable(self.subscriber, KINDS[0])?;
        for kind in &KINDS[1..] {
            let _ = self.cupti.enable(self.subscriber, *kind);
        }
        self.cupti.flush_every(FLUSH_MS);
        Ok(())
    }

    /// Enables callbacks of every call that puts work on a device in this version.
    fn enable_callbacks(&self) {
        for id in [NODE_CREATED, NODE_CLONED] {
            // Without them, graph nodes are matched by order.
            let _ = self.cupti.enable_callback(self.subscriber, RESOURCE, id);
        }
        let mut gap = 0;
        for id in 1..CALLBACKS_MAX {
            match self.cupti.callback_name(id) {
                Some(name) => {
                    gap = 0;
                    if puts_work_on_a_device(name) {
                        // If this fails, the calls have no id; the join counts them.
                        let _ = self.cupti.enable_callback(self.subscriber, DRIVER, id);
                    }
                }
                None => gap += 1,
            }
            if gap > GAP_MAX {
                break;
            }
        }
    }

    /// Starts or stops instruction sampling by the number of its listeners; `before` is the previous number.
    pub(crate) fn sample(&self, listeners: u16, before: u16) {
        const OF_SAMPLES: [u32; 4] = [CONTEXT_CREATED, CONTEXT_ENDS, MODULE_LOADED, MODULE_UNLOADS];
        match (before, listeners) {
            (0, 1..) => {
                sampling::begin(&self.cupti);
                for id in OF_SAMPLES {
                    // Without them, contexts are sampled at their next launch, and instructions have no lines.
                    let _ = self.cupti.enable_callback(self.subscriber, RESOURCE, id);
                }
            }
            (1.., 0) => {
                for id in OF_SAMPLES {
                    let _ = self.cupti.disable_callback(self.subscriber, RESOURCE, id);
                }
                sampling::end();
            }
            (before, listeners) if listeners > before => sampling::report_again(),
            _ => {}
        }
        sampling::read(&self.cupti);
    }

    /// Ends the collection: reads what CUPTI still has, then disables everything.
    pub(crate) fn end(&self) {
        sampling::end();
        // Errors are ignored: nothing else can be done.
        let _ = self.cupti.flush();
        for kind in KINDS.into_iter().chain([DEVICES]) {
            let _ = self.cupti.disable(self.subscriber, kind);
        }
        let _ = self.cupti.flush();
        let _ = self.cupti.unsubscribe(self.subscriber);
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// CUPTI's version.
    pub(crate) fn version(&self) -> u32 {
        self.cupti.version()
    }

    /// The current device clock.
    pub(crate) fn timestamp(&self) -> Option<u64> {
        self.cupti.timestamp(self.subscriber)
    }

    /// Reports losses since the last call.
    pub(crate) fn report_losses(&self) {
        let lost = self.cupti.dropped(self.subscriber);
        if lost > 0 {
            probe::state(state::LOST, lost);
        }
        let skipped = self.skipped.swap(0, Ordering::Relaxed);
        if skipped > 0 {
            probe::state(state::SKIPPED, skipped);
        }
    }

    /// Reports all records of a buffer.
    fn read(&self, buffer: *mut u8, valid: usize) {
        if buffer.is_null() {
            return;
        }
        // SAFETY: CUPTI has delivered the buffer and written `valid` bytes of it.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.cast_const(), valid) };
        let mut names = Lookup::new();
        let mut batch = [Activity::default(); BATCH_MAX];
        let mut count = 0;
        let mut at = 0;
        while let Some(record) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let is_device = record.first_chunk().is_some_and(|kind| u32::from_le_bytes(*kind) == DEVICES);
            match convert(record) {
                ConvertedRecord::Unknown if is_device && devices::add(record) => {}
                ConvertedRecord::Activity(mut activity, name) => {
                    if name != 0 {
                        activity.name = names.id(name);
                    }
                    batch[count] = activity;
                    count += 1;
                    if count == batch.len() {
                        probe::activities(&batch);
                        count = 0;
                    }
                }
                ConvertedRecord::Unknown | ConvertedRecord::Short => {
                    self.skipped.fetch_add(1, Ordering::Relaxed);
                }
            }
            match self.size_of(buffer, valid, at) {
                Some(size) => at += size,
                None => {
                    // The rest of the buffer cannot be read.
                    self.skipped.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        if count > 0 {
            probe::activities(&batch[..count]);
        }
    }

    /// Bytes of the record at `at`; `None` if it is invalid. Calls CUPTI once per kind, because a probe on CUPTI's
    /// next-record function reads records of other tools and must not take ours for theirs.
    fn size_of(&self, buffer: *mut u8, valid: usize, at: usize) -> Option<usize> {
        // SAFETY: within the written bytes; records start with a four-byte kind, and CUPTI's buffers are larger than
        // that.
        let kind = (valid - at >= 4).then(|| unsafe { buffer.add(at).cast::<u32>().read_unaligned() })?;
        let known = self.sizes.get(kind as usize);
        if let Some(size) = known.map(|size| size.load(Ordering::Relaxed)).filter(|size| *size > 0) {
            return Some(size);
        }
        let mut record = buffer.wrapping_add(at);
        let next = match self.cupti.next(self.subscriber, buffer, valid, &mut record) {
            Ok(()) => record.addr().wrapping_sub(buffer.addr()),
            Err(END) => valid,
            Err(_) => return None,
        };
        // No record is shorter than eight bytes or points backwards.
        let size = next.checked_sub(at).filter(|size| *size >= 8 && next <= valid)?;
        if let Some(known) = known {
            known.store(size, Ordering::Relaxed);
        }
        Some(size)
    }
}

/// Makes CUPTI deliver the remaining records when the program ends.
pub(crate) fn finish() {
    if let Some(collection) = current() {
        sampling::end();
        let _ = collection.cupti.flush();
        collection.report_losses();
    }
}

/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: the end of a buffer.
const END: Error = Error(12);
