//! Streams, events, and waiting for them.
//!
//! Owns: which stream a handle means. Because: the default stream has two meanings and three handles. Does not: decide
//! when work runs.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use super::capture::Capture;
use super::context::{Context, announce_with, working};
use super::registry::Registry;
use super::{MASKS, clock_offset_ns, next_number};
use crate::api::{Code, HostFunction, Out, Raw, Status, api};
use crate::device::work::{HostCall, Work};
use crate::device::{Lane, Tags, Ticket, log, monotonic_ns, thread_number};
use crate::link::{self, Record, kind};

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Arc<Context>,
    pub(crate) lane: Lane,
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    pub(crate) capture: Mutex<Option<Capture>>,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) number: u32,
    times: bool,
    recorded: Mutex<EventState>,
}

/// What an event marks.
#[derive(Clone, Debug, Default)]
enum EventState {
    #[default]
    Nothing,
    Work(Ticket),
    /// A position in a graph under capture.
    Capture(Capture),
}

pub(crate) static STREAMS: Registry<Stream> = Registry::new();
pub(crate) static EVENTS: Registry<Event> = Registry::new();
static EVENT_NUMBERS: AtomicU32 = AtomicU32::new(0);

/// Special handles: the shared default stream and the per-thread one.
const LEGACY: usize = 1;
const OF_THREAD: usize = 2;

/// `CUpti_ActivitySynchronizationType`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Event = 1,
    Stream = 3,
    Context = 4,
}

/// The stream of a handle on this thread.
pub(crate) fn find(handle: usize, per_thread: bool) -> Result<Arc<Stream>, Code> {
    // For each context, the default stream and the thread's own.
    type OwnStreams = Vec<(u32, bool, Arc<Stream>)>;
    thread_local!(static OWN: RefCell<OwnStreams> = const { RefCell::new(Vec::new()) });
    let of_thread = match handle {
        0 => per_thread,
        LEGACY => false,
        OF_THREAD => true,
        _ => {
            super::context::started()?;
            return STREAMS.get(handle);
        }
    };
    let context = working()?;
    OWN.with_borrow_mut(|own| {
        let known = own.iter().find(|(number, thread, _)| (*number, *thread) == (context.number, of_thread));
        if let Some((.., stream)) = known {
            return Ok(stream.clone());
        }
        let lane = if of_thread { context.device.open(true) } else { crate::device::DEFAULT };
        let stream =
            Stream { context: context.clone(), lane, blocking: true, priority: 0, capture: Mutex::new(None) };
        let stream = Arc::new(stream);
        own.push((context.number, of_thread, stream.clone()));
        Ok(stream)
    })
}

/// A new stream in the current context.
pub(crate) fn create(flags: u32, priority: i32) -> Result<usize, Code> {
    let context = working()?;
    // 1 excludes it from the order of the default stream.
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let (blocking, in_context) = (flags & 1 == 0, context.handle());
    let lane = context.device.open(blocking);
    let stream = Arc::new(Stream { context, lane, blocking, priority, capture: Mutex::new(None) });
    let handle = STREAMS.add(stream);
    announce_with(3, in_context, handle, 0);
    Ok(handle)
}

/// Destroys a stream; pending work still completes.
pub(crate) fn destroy(handle: usize) -> Status {
    let stream = STREAMS.get(handle)?;
    announce_with(4, stream.context.handle(), handle, 0);
    STREAMS.remove(handle)?;
    stream.context.device.close(stream.lane);
    Ok(())
}

impl Stream {
    /// The tags of work that this thread submits now.
    pub(crate) fn tags(&self) -> Tags {
        Tags {
            correlation: link::correlation(),
            device: self.context.device.number,
            context: self.context.number,
            stream: self.lane.0,
            thread: thread_number(),
            ..Tags::default()
        }
    }

    /// Appends work to the stream or to the graph under capture; the latter has no ticket.
    pub(crate) fn put(&self, work: Work) -> Result<Option<Ticket>, Code> {
        super::context::started()?;
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(capture) = capture.as_mut() {
            capture.add(work)?;
            return Ok(None);
        }
        drop(capture);
        Ok(Some(self.context.device.submit(self.lane, work, self.tags())))
    }

    /// Appends work and waits for it.
    pub(crate) fn put_and_wait(&self, work: Work) -> Status {
        let ticket = self.put(work)?.ok_or(Code::CAPTURE_UNSUPPORTED)?;
        self.context.device.wait(&ticket);
        Ok(())
    }

    fn is_capturing(&self) -> bool {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Blocks until these are done, and reports the wait to tools.
    fn wait(&self, what: Wait, tickets: &[Ticket], event: u32) -> Status {
        if self.is_capturing() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let begin = monotonic_ns();
        for ticket in tickets {
            self.context.device.wait(ticket);
        }
        let (start_ns, end_ns) = (begin + clock_offset_ns(), monotonic_ns() + clock_offset_ns());
        let mut tags = self.tags();
        if !matches!(what, Wait::Stream) {
            // CUPTI's value for no stream.
            tags.stream = u32::MAX;
        }
        let name = match what {
            Wait::Event => "event",
            Wait::Stream => "stream",
            Wait::Context => "context",
        };
        log::write_wait(&tags, begin, (start_ns, end_ns), name);
        MASKS.record(&Record {
            kind: kind::SYNC,
            detail: what as u32,
            correlation: tags.correlation,
            context: tags.context,
            stream: tags.stream,
            thread: tags.thread,
            start_ns,
            end_ns,
            event,
            ..Record::default()
        });
        Ok(())
    }

    /// Waits for all submitted work.
    pub(crate) fn synchronize(&self) -> Status {
        self.wait(Wait::Stream, &[self.context.device.tail(self.lane)], 0)
    }
}

/// Waits for all streams of the thread's device.
pub(crate) fn synchronize_context() -> Status {
    let stream = find(LEGACY, false)?;
    stream.wait(Wait::Context, &stream.context.device.tails(), 0)
}

/// Creates an event; without times if the flags say so.
pub(crate) fn create_event(flags: u32) -> Result<usize, Code> {
    working()?;
    let number = next_number(&EVENT_NUMBERS);
    Ok(EVENTS.add(Arc::new(Event { number, times: flags & 2 == 0, recorded: Mutex::default() })))
}

impl Event {
    fn recorded(&self) -> EventState {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the event mark the work submitted to the stream so far.
    pub(crate) fn record(&self, stream: &Stream) -> Status {
        let captured = stream.capture.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = match captured {
            Some(capture) => EventState::Capture(capture),
            None => {
                let ticket = stream.put(Work::Marker)?.ok_or(Code::ILLEGAL_STATE)?;
                EventState::Work(ticket)
            }
        };
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    /// Makes later work of the stream wait for the event.
    pub(crate) fn hold(&self, stream: &Stream) -> Status {
        match self.recorded() {
            EventState::Nothing => {}
            EventState::Work(ticket) => stream.context.device.wait_for(stream.lane, ticket),
            EventState::Capture(other) => {
                let mut capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
                match capture.as_mut() {
                    Some(capture) => capture.join(&other)?,
                    // The stream joins the capture.
                    None => *capture = Some(other.fork()),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn query(&self) -> Status {
        match self.recorded() {
            EventState::Work(ticket) if !ticket.is_done() => Err(Code::NOT_READY),
            EventState::Capture(_) => Err(Code::CAPTURE_UNSUPPORTED),
            _ => Ok(()),
        }
    }

    pub(crate) fn synchronize(&self) -> Status {
        match self.recorded() {
            EventState::Nothing => Ok(()),
            EventState::Work(ticket) => find(LEGACY, false)?.wait(Wait::Event, &[ticket], self.number),
            EventState::Capture(_) => Err(Code::CAPTURE_UNSUPPORTED),
        }
    }

    /// Milliseconds from the other event to this one.
    pub(crate) fn since(&self, other: &Self) -> Result<f32, Code> {
        let end = |event: &Self| match event.recorded() {
            EventState::Work(ticket) if event.times => {
                if ticket.is_done() {
                    ticket.end_ns().ok_or(Code::NOT_READY)
                } else {
                    Err(Code::NOT_READY)
                }
            }
            _ => Err(Code::INVALID_HANDLE),
        };
        let (from, to) = (end(other)?, end(self)?);
        Ok((to as f64 - from as f64) as f32 / 1e6)
    }
}

/// `CUstreamCallback`.
pub(crate) type StreamCallback = extern "C" fn(usize, i32, *mut c_void);

api! { Driver;
    fn cuStreamCreate(stream: Out<Raw>, flags: u32) { stream.put(create(flags, 0)?) }
    fn cuStreamCreateWithPriority(stream: Out<Raw>, flags: u32, priority: i32) { stream.put(create(flags, priority)?) }
    fn cuStreamDestroy | cuStreamDestroy_v2(stream: Raw) { destroy(stream) }
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz(stream: Raw) { find(stream, PER_THREAD)?.synchronize() }
    fn cuStreamQuery | cuStreamQuery_ptsz(stream: Raw) {
        let stream = find(stream, PER_THREAD)?;
        if stream.context.device.tail(stream.lane).is_done() { Ok(()) } else { Err(Code::NOT_READY) }
    }
    fn cuStreamGetPriority | cuStreamGetPriority_ptsz(stream: Raw, priority: Out<i32>) {
        priority.put(find(stream, PER_THREAD)?.priority)
    }
    fn cuStreamGetFlags | cuStreamGetFlags_ptsz(stream: Raw, flags: Out<u32>) {
        flags.put((!find(stream, PER_THREAD)?.blocking).into())
    }
    fn cuStreamGetCtx | cuStreamGetCtx_ptsz(stream: Raw, context: Out<Raw>) {
        context.put(find(stream, PER_THREAD)?.context.handle())
    }
    fn cuStreamGetId | cuStreamGetId_ptsz(stream: Raw, number: Out<u64>) {
        number.put(find(stream, PER_THREAD)?.lane.0.into())
    }
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz(stream: Raw, event: Raw, _flags: u32) {
        EVENTS.get(event)?.hold(&*find(stream, PER_THREAD)?)
    }
    fn cuStreamAddCallback | cuStreamAddCallback_ptsz(stream: Raw, function: Option<StreamCallback>, data: Raw, _flags: u32) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let found = find(stream, PER_THREAD)?;
        found.put(Work::Host(HostCall::WithStatus(function, stream, data))).map(drop)
    }
    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz(stream: Raw, function: Option<HostFunction>, data: Raw) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        find(stream, PER_THREAD)?.put(Work::Host(HostCall::Plain(function, data))).map(drop)
    }
    fn cuStreamWriteValue32 | cuStreamWriteValue32_ptsz | cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz(stream: Raw, address: u64, value: u32, _flags: u32) {
        find(stream, PER_THREAD)?.put(Work::Write(address, value.into(), 4)).map(drop)
    }
    fn cuStreamWriteValue64 | cuStreamWriteValue64_ptsz | cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz(stream: Raw, address: u64, value: u64, _flags: u32) {
        find(stream, PER_THREAD)?.put(Work::Write(address, value, 8)).map(drop)
    }
    fn cuCtxSynchronize() { synchronize_context() }
    fn cuCtxSynchronize_v2(context: Raw) {
        let context = super::context::CONTEXTS.get(context)?;
        find(LEGACY, false)?.wait(Wait::Context, &context.device.tails(), 0)
    }
    fn cuEventCreate(event: Out<Raw>, flags: u32) { event.put(create_event(flags)?) }
    fn cuEventDestroy | cuEventDestroy_v2(event: Raw) { EVENTS.remove(event).map(drop) }
    fn cuEventRecord | cuEventRecord_ptsz(event: Raw, stream: Raw) {
        EVENTS.get(event)?.record(&*find(stream, PER_THREAD)?)
    }
    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(event: Raw, stream: Raw, _flags: u32) {
        EVENTS.get(event)?.record(&*find(stream, PER_THREAD)?)
    }
    fn cuEventQuery(event: Raw) { EVENTS.get(event)?.query() }
    fn cuEventSynchronize(event: Raw) { EVENTS.get(event)?.synchronize() }
    fn cuEventElapsedTime | cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Raw, end: Raw) {
        milliseconds.put(EVENTS.get(end)?.since(&*EVENTS.get(start)?)?)
    }
}
