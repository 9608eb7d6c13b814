//! CUPTI, as far as it is used.
//!
//! Owns: finding the library that the process uses, its functions, numbers and results. Because: versions differ in
//! which functions they have, and a missing one is an answer. Does not: lay out records ([`deepctx_common::cupti`]).
//!
//! Source: `cupti_activity.h`, `cupti_callbacks.h` and `cupti_result.h` of CUPTI 12.0 to 13.5.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

mod calls;
mod sampler;
pub(crate) mod sampler_layout;

pub(crate) use calls::Error;
use calls::{checked, functions, symbol};
pub(crate) use sampler::Sampler;

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
pub(crate) const DRIVER: u32 = 1;
/// `CUPTI_CB_DOMAIN_RESOURCE`.
pub(crate) const RESOURCE: u32 = 3;
/// `CUPTI_CBID_RESOURCE_CONTEXT_CREATED` and `CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING`.
pub(crate) const CONTEXT_CREATED: u32 = 1;
pub(crate) const CONTEXT_ENDS: u32 = 2;
/// `CUPTI_CBID_RESOURCE_MODULE_LOADED` and `CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING`.
pub(crate) const MODULE_LOADED: u32 = 6;
pub(crate) const MODULE_UNLOADS: u32 = 7;
/// `CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED` and `CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED`.
pub(crate) const NODE_CREATED: u32 = 13;
pub(crate) const NODE_CLONED: u32 = 20;

/// `CUpti_CallbackData`, to the last member that is used.
#[repr(C)]
pub(crate) struct CallbackData {
    /// 0 when the call begins, 1 when it ends.
    pub(crate) site: u32,
    function_name: *const c_char,
    parameters: *const c_void,
    result: *mut c_void,
    symbol: *const c_char,
    pub(crate) context: *mut c_void,
    context_number: u32,
    data: *mut u64,
    pub(crate) correlation: u32,
}

/// `CUpti_ResourceData`.
#[repr(C)]
pub(crate) struct ResourceData {
    pub(crate) context: *mut c_void,
    resource: *mut c_void,
    /// For graphs and their nodes: [`GraphData`]; for modules: their code.
    pub(crate) descriptor: *const c_void,
}

/// `CUpti_GraphData`, to the last member that is used.
#[repr(C)]
pub(crate) struct GraphData {
    graph: *mut c_void,
    original_graph: *mut c_void,
    pub(crate) node: *mut c_void,
    pub(crate) original_node: *mut c_void,
    pub(crate) node_type: u32,
}

/// `CUpti_SubscriberParams`.
#[repr(C)]
struct SubscriberParameters {
    size: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_room: usize,
    multiple: u8,
    padding: [u8; 7],
}

/// `CUpti_SubscriberHandle`; 0 for functions of the first version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber(pub(crate) usize);

pub(crate) type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);
type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type RequestSecond = extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
type BufferCompleted = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type CompleteSecond = extern "C" fn(*mut u8, usize, usize, *const c_void);

/// The buffer functions of both versions.
#[derive(Clone, Copy)]
pub(crate) struct BufferFunctions {
    pub(crate) request: Request,
    pub(crate) request_second: RequestSecond,
    pub(crate) complete: BufferCompleted,
    pub(crate) complete_second: CompleteSecond,
}

functions!(
    /// Functions that every version has.
    First {
        version: c"cuptiGetVersion" fn(*mut u32);
        subscribe: c"cuptiSubscribe" fn(*mut usize, Callback, *mut c_void);
        unsubscribe: c"cuptiUnsubscribe" fn(usize);
        enable_callback: c"cuptiEnableCallback" fn(u32, usize, u32, u32);
        callback_name: c"cuptiGetCallbackName" fn(u32, u32, *mut *const c_char);
        register: c"cuptiActivityRegisterCallbacks" fn(Request, BufferCompleted);
        enable: c"cuptiActivityEnable" fn(u32);
        disable: c"cuptiActivityDisable" fn(u32);
        flush: c"cuptiActivityFlushAll" fn(u32);
        next: c"cuptiActivityGetNextRecord" fn(*mut u8, usize, *mut *mut u8);
        dropped: c"cuptiActivityGetNumDroppedRecords" fn(*mut c_void, u32, *mut usize);
        timestamp: c"cuptiGetTimestamp" fn(*mut u64);
    }
);
functions!(
    /// Functions of the second version, for several subscribers.
    Second {
        subscribe: c"cuptiSubscribe_v2" fn(*mut usize, Callback, *mut c_void, *const SubscriberParameters);
        register: c"cuptiActivityRegisterCallbacks_v2" fn(usize, RequestSecond, CompleteSecond);
        enable: c"cuptiActivityEnable_v2" fn(usize, u32, *const c_void);
        disable: c"cuptiActivityDisable_v2" fn(usize, u32, *const c_void);
        next: c"cuptiActivityGetNextRecord_v2" fn(usize, *mut u8, usize, *mut *mut u8);
        dropped: c"cuptiActivityGetNumDroppedRecords_v2" fn(usize, *mut c_void, u32, *mut usize);
        timestamp: c"cuptiGetTimestamp_v2" fn(usize, *mut u64);
    }
);
functions!(
    /// Optional functions: the flush period.
    Period {
        flush_period: c"cuptiActivityFlushPeriod" fn(u32);
    }
);
functions!(
    /// Optional functions, with records of existing objects.
    Existing {
        enable: c"cuptiActivityEnableAndDump" fn(u32);
    }
);
functions!(
    /// The same for the second version.
    ExistingSecond {
        enable: c"cuptiActivityEnableAndDump_v2" fn(usize, u32, *const c_void);
    }
);
functions!(
    /// Optional functions: graph nodes.
    Nodes {
        node_number: c"cuptiGetGraphNodeId" fn(*mut c_void, *mut u64);
    }
);

/// One loaded CUPTI.
#[derive(Clone, Copy)]
pub(crate) struct Cupti {
    first: First,
    second: Option<Second>,
    period: Option<Period>,
    existing: Option<Existing>,
    existing_second: Option<ExistingSecond>,
    nodes: Option<Nodes>,
    sampler: Option<Sampler>,
}

/// Names of the library, the latest first.
const NAMES: [&CStr; 4] = [c"libcupti.so.13", c"libcupti.so.12", c"libcupti.so.11.8", c"libcupti.so"];
/// Where CUDA installs it, for processes that do not use CUPTI themselves.
const PLACES: [&CStr; 2] =
    [c"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", c"/usr/local/cuda/lib64/libcupti.so"];

fn open(name: &CStr, flags: i32) -> Option<NonNull<c_void>> {
    // SAFETY: a NUL-terminated name; CUPTI's own constructors run.
    NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) })
}

impl Cupti {
    /// The copy that the process has loaded, else the one that its linker finds, else the installed one.
    pub(crate) fn find() -> Result<Self, Error> {
        let loaded = NAMES.iter().find_map(|name| open(name, libc::RTLD_NOLOAD));
        let library = loaded
            .or_else(|| NAMES.iter().chain(&PLACES).find_map(|name| open(name, 0)))
            .ok_or(Error::ABSENT)?;
        Ok(Self {
            first: First::load(library).ok_or(Error::INCOMPLETE)?,
            second: Second::load(library),
            period: Period::load(library),
            existing: Existing::load(library),
            existing_second: ExistingSecond::load(library),
            nodes: Nodes::load(library),
            sampler: Sampler::load(library),
        })
    }

    /// The version number: 130500 is 13.5; before 13 an interface count.
    pub(crate) fn version(&self) -> u32 {
        let mut version = 0;
        match checked((self.first.version)(&raw mut version)) {
            Ok(()) => version,
            Err(_) => 0,
        }
    }

    /// Subscribes, beside other subscribers if this version supports that.
    pub(crate) fn subscribe(&mut self, callback: Callback) -> Result<Subscriber, Error> {
        let mut handle = 0;
        if let Some(second) = &self.second {
            let parameters = SubscriberParameters {
                size: size_of::<SubscriberParameters>(),
                name: c"deepctx".as_ptr(),
                old_name: std::ptr::null_mut(),
                old_room: 0,
                multiple: 1,
                padding: [0; 7],
            };
            let null = std::ptr::null_mut();
            checked((second.subscribe)(&raw mut handle, callback, null, &raw const parameters))?;
        } else {
            checked((self.first.subscribe)(&raw mut handle, callback, std::ptr::null_mut()))?;
        }
        Ok(Subscriber(handle))
    }

    pub(crate) fn unsubscribe(&self, Subscriber(handle): Subscriber) -> Result<(), Error> {
        checked((self.first.unsubscribe)(handle))
    }

    pub(crate) fn enable_callback(
        &self,
        Subscriber(handle): Subscriber,
        domain: u32,
        id: u32,
    ) -> Result<(), Error> {
        checked((self.first.enable_callback)(1, handle, domain, id))
    }

    pub(crate) fn disable_callback(
        &self,
        Subscriber(handle): Subscriber,
        domain: u32,
        id: u32,
    ) -> Result<(), Error> {
        checked((self.first.enable_callback)(0, handle, domain, id))
    }

    /// The id of a graph node as it appears in records.
    pub(crate) fn node_number(&self, node: *mut c_void) -> Option<u64> {
        let mut number = 0;
        let result = (self.nodes?.node_number)(node, &raw mut number);
        (result == 0 && number != 0).then_some(number)
    }

    /// The functions for PC sampling.
    pub(crate) fn sampler(&self) -> Option<Sampler> {
        self.sampler
    }

    /// The name of a driver callback.
    pub(crate) fn callback_name(&self, id: u32) -> Option<&'static CStr> {
        let mut name = std::ptr::null();
        checked((self.first.callback_name)(DRIVER, id, &raw mut name)).ok()?;
        // SAFETY: on success it is null or one of CUPTI's own constants.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }

    pub(crate) fn register(
        &self,
        Subscriber(handle): Subscriber,
        functions: BufferFunctions,
    ) -> Result<(), Error> {
        checked(match &self.second {
            Some(second) => (second.register)(handle, functions.request_second, functions.complete_second),
            None => (self.first.register)(functions.request, functions.complete),
        })
    }

    pub(crate) fn enable(&self, Subscriber(handle): Subscriber, kind: u32) -> Result<(), Error> {
        checked(match &self.second {
            Some(second) => (second.enable)(handle, kind, std::ptr::null()),
            None => (self.first.enable)(kind),
        })
    }

    /// Enables a kind whose objects may exist already: their records are delivered now.
    pub(crate) fn enable_existing(&self, subscriber: Subscriber, kind: u32) -> Result<(), Error> {
        match (&self.second, &self.existing, &self.existing_second) {
            (Some(_), _, Some(existing)) => checked((existing.enable)(subscriber.0, kind, std::ptr::null())),
            (None, Some(existing), _) => checked((existing.enable)(kind)),
            _ => self.enable(subscriber, kind),
        }
    }

    pub(crate) fn disable(&self, Subscriber(handle): Subscriber, kind: u32) -> Result<(), Error> {
        checked(match &self.second {
            Some(second) => (second.disable)(handle, kind, std::ptr::null()),
            None => (self.first.disable)(kind),
        })
    }

    /// Makes CUPTI deliver all complete records now.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        checked((self.first.flush)(0))
    }

    /// Makes CUPTI deliver partly filled buffers periodically.
    pub(crate) fn flush_every(&self, milliseconds: u32) -> bool {
        self.period.is_some_and(|period| checked((period.flush_period)(milliseconds)).is_ok())
    }

    /// The record after `record`, or the first; an error at the end.
    pub(crate) fn next(
        &self,
        Subscriber(handle): Subscriber,
        buffer: *mut u8,
        valid: usize,
        record: &mut *mut u8,
    ) -> Result<(), Error> {
        checked(match &self.second {
            Some(second) => (second.next)(handle, buffer, valid, record),
            None => (self.first.next)(buffer, valid, record),
        })
    }

    /// Records dropped since the last call.
    pub(crate) fn dropped(&self, Subscriber(handle): Subscriber) -> u64 {
        let mut count = 0;
        let null = std::ptr::null_mut();
        let result = match &self.second {
            Some(second) => (second.dropped)(handle, null, 0, &raw mut count),
            None => (self.first.dropped)(null, 0, &raw mut count),
        };
        if result == 0 { count as u64 } else { 0 }
    }

    /// The current time of the clock that records use.
    pub(crate) fn timestamp(&self, Subscriber(handle): Subscriber) -> Option<u64> {
        let mut time = 0;
        let result = match &self.second {
            Some(second) => (second.timestamp)(handle, &raw mut time),
            None => (self.first.timestamp)(&raw mut time),
        };
        (result == 0 && time != 0).then_some(time)
    }
}
