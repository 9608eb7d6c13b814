//! Streams and events.
//!
//! Owns: their functions. Because: programs wait by them. Does not: keep any state; the driver has it.

use super::driver::check;
use super::ready;
use crate::api::{Out, Raw, api};

fn create(flags: u32, priority: i32) -> Result<usize, crate::api::Code> {
    let mut stream = 0;
    check((ready()?.cuStreamCreateWithPriority)(&raw mut stream, flags, priority))?;
    Ok(stream)
}

fn event(flags: u32) -> Result<usize, crate::api::Code> {
    let mut event = 0;
    check((ready()?.cuEventCreate)(&raw mut event, flags))?;
    Ok(event)
}

api! { Runtime;
    fn cudaStreamCreate(stream: Out<Raw>) { stream.put(create(0, 0)?) }
    fn cudaStreamCreateWithFlags(stream: Out<Raw>, flags: u32) { stream.put(create(flags, 0)?) }
    fn cudaStreamCreateWithPriority(stream: Out<Raw>, flags: u32, priority: i32) { stream.put(create(flags, priority)?) }
    fn cudaStreamDestroy(stream: Raw) { check((ready()?.cuStreamDestroy)(stream)) }
    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz(stream: Raw) {
        check((ready()?.cuStreamSynchronize[usize::from(PER_THREAD)])(stream))
    }
    fn cudaStreamQuery | cudaStreamQuery_ptsz(stream: Raw) {
        check((ready()?.cuStreamQuery[usize::from(PER_THREAD)])(stream))
    }
    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz(stream: Raw, event: Raw, flags: u32) {
        check((ready()?.cuStreamWaitEvent[usize::from(PER_THREAD)])(stream, event, flags))
    }
    fn cudaStreamAddCallback | cudaStreamAddCallback_ptsz(stream: Raw, function: Raw, data: Raw, flags: u32) {
        check((ready()?.cuStreamAddCallback[usize::from(PER_THREAD)])(stream, function, data, flags))
    }
    fn cudaEventCreate(out: Out<Raw>) { out.put(event(0)?) }
    fn cudaEventCreateWithFlags(out: Out<Raw>, flags: u32) { out.put(event(flags)?) }
    fn cudaEventDestroy(event: Raw) { check((ready()?.cuEventDestroy)(event)) }
    fn cudaEventRecord | cudaEventRecord_ptsz(event: Raw, stream: Raw) {
        check((ready()?.cuEventRecord[usize::from(PER_THREAD)])(event, stream))
    }
    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz(event: Raw, stream: Raw, _flags: u32) {
        check((ready()?.cuEventRecord[usize::from(PER_THREAD)])(event, stream))
    }
    fn cudaEventQuery(event: Raw) { check((ready()?.cuEventQuery)(event)) }
    fn cudaEventSynchronize(event: Raw) { check((ready()?.cuEventSynchronize)(event)) }
    fn cudaEventElapsedTime(milliseconds: Out<f32>, start: Raw, end: Raw) {
        let mut found = 0.0;
        check((ready()?.cuEventElapsedTime)(&raw mut found, start, end))?;
        milliseconds.put(found)
    }
}
