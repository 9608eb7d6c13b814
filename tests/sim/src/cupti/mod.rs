//! `libcupti.so`: the profiling interface.
//!
//! Owns: who subscribed to what, and nothing else is delivered. Because: a look-alike that reports everything to
//! everybody hides that something was never asked for. Does not: know the device; all it learns comes over
//! [`crate::link`].
//!
//! The file is `libcupti.so.12` (12.9, one subscriber) or `libcupti.so.13` (13.5, several that use the `_v2`
//! functions).

mod activity;
mod buffers;
mod callbacks;
mod client;
mod misbehaviour;
mod records;
mod sampling;

use std::sync::OnceLock;

use crate::api::{Code, In, Out, Status, api};
use crate::{link, symbols};

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/cupti.rs"));
}

/// CUPTI's results.
pub(crate) mod result {
    use crate::api::Code;

    pub(crate) const INVALID_PARAMETER: Code = Code(1);
    pub(crate) const INVALID_CONTEXT: Code = Code(3);
    pub(crate) const INVALID_OPERATION: Code = Code(7);
    pub(crate) const OUT_OF_MEMORY: Code = Code(8);
    pub(crate) const MAX_LIMIT_REACHED: Code = Code(12);
    pub(crate) const NOT_INITIALIZED: Code = Code(15);
    pub(crate) const INVALID_STREAM: Code = Code(20);
    pub(crate) const INVALID_KIND: Code = Code(21);
    pub(crate) const NOT_SUPPORTED: Code = Code(27);
    pub(crate) const INSUFFICIENT_PRIVILEGES: Code = Code(35);
    pub(crate) const MULTIPLE_SUBSCRIBERS: Code = Code(39);
}

/// CUPTI version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 12.9.
    Twelve,
    /// 13.5.
    Thirteen,
}

/// From the name of the file that contains this code.
pub(crate) fn version() -> Version {
    static VERSION: OnceLock<Version> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let path = symbols::path_of((&raw const VERSION).cast()).map(|path| path.to_bytes());
        if path.is_some_and(|path| path.ends_with(b".12")) { Version::Twelve } else { Version::Thirteen }
    })
}

/// The driver, which every function here needs.
pub(crate) fn driver() -> Result<&'static link::Driver, Code> {
    link::driver().ok_or(result::NOT_INITIALIZED)
}

/// A number that the driver knows for a handle.
fn number<T: TryFrom<u64>>(what: u32, handle: usize, missing: Code, out: Out<T>) -> Status {
    let number = (driver()?.table.number)(what, handle);
    let found = T::try_from(number).ok().filter(|_| number != 0).ok_or(missing)?;
    out.put(found).map_err(|_| result::INVALID_PARAMETER)
}

/// The message for a result.
const fn sentence(code: i32) -> &'static std::ffi::CStr {
    match code {
        0 => c"CUPTI_SUCCESS",
        1 => c"CUPTI_ERROR_INVALID_PARAMETER",
        12 => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        15 => c"CUPTI_ERROR_NOT_INITIALIZED",
        21 => c"CUPTI_ERROR_INVALID_KIND",
        35 => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        39 => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    }
}

api! { Tool;
    fn cuptiGetVersion(version: Out<u32>) {
        let real = match self::version() {
            Version::Twelve => 28,
            Version::Thirteen => 130_500,
        };
        version.put(if misbehaviour::get().skew { 990_000 } else { real })
    }
    fn cuptiGetResultString(code: i32, text: Out<In<std::ffi::c_char>>) { text.put(In::at(sentence(code).as_ptr())) }
    fn cuptiGetErrorMessage(code: i32, text: Out<In<std::ffi::c_char>>) { text.put(In::at(sentence(code).as_ptr())) }
    fn cuptiGetTimestamp(time: Out<u64>) { time.put(client::LEGACY.timestamp()?).map_err(|_| result::INVALID_PARAMETER) }
    fn cuptiGetTimestamp_v2(subscriber: usize, time: Out<u64>) {
        time.put(client::find(subscriber)?.timestamp()?).map_err(|_| result::INVALID_PARAMETER)
    }
    fn cuptiGetContextId(context: usize, id: Out<u32>) { number(link::ask::CONTEXT, context, result::INVALID_CONTEXT, id) }
    fn cuptiGetStreamId(_context: usize, stream: usize, id: Out<u32>) { number(link::ask::STREAM, stream, result::INVALID_STREAM, id) }
    fn cuptiGetStreamIdEx(_context: usize, stream: usize, per_thread: u8, id: Out<u32>) {
        let what = if per_thread == 0 { link::ask::STREAM } else { link::ask::THREAD_STREAM };
        number(what, stream, result::INVALID_STREAM, id)
    }
    fn cuptiGetDeviceId(context: usize, id: Out<u32>) {
        let table = driver()?.table;
        let context = if context == 0 { (table.number)(link::ask::CURRENT_CONTEXT, 0) as usize } else { context };
        // The number plus one, so that 0 means none.
        let number = (table.number)(link::ask::DEVICE_OF_CONTEXT, context);
        id.put(u32::try_from(number.checked_sub(1).ok_or(Code(2))?).map_err(|_| Code(2))?)
    }
    fn cuptiGetGraphNodeId(node: usize, id: Out<u64>) { number(link::ask::NODE, node, result::INVALID_PARAMETER, id) }
    fn cuptiGetGraphId(graph: usize, id: Out<u32>) { number(link::ask::GRAPH, graph, result::INVALID_PARAMETER, id) }
    fn cuptiGetGraphExecId(exec: usize, id: Out<u32>) { number(link::ask::GRAPH_EXEC, exec, result::INVALID_PARAMETER, id) }
    fn cuptiGetCudaEventId(event: usize, id: Out<u32>) { number(link::ask::EVENT, event, result::INVALID_PARAMETER, id) }
    fn cuptiFinalize() { client::finalize() }
}
