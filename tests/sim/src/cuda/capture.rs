//! Recording the work of streams into a graph instead of doing it.
//!
//! Owns: which nodes the next one comes after, through forks and joins of streams. Because: frameworks make their
//! graphs this way. Does not: launch them.

use std::sync::{Arc, PoisonError};

use super::graph::{self, Graph};
use super::registry::handle_of;
use super::stream::{self, Stream};
use crate::api::{Code, Out, Raw, Status, api};
use crate::device::work::Work;

/// One stream's part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    graph: Arc<Graph>,
    /// The nodes that precede the next one, by index.
    tail: Vec<usize>,
    /// False for streams that joined: only the first one can end the capture.
    origin: bool,
}

impl Capture {
    pub(crate) fn begin(graph: Arc<Graph>) -> Self {
        Self { graph, tail: Vec::new(), origin: true }
    }

    /// The same position, in another stream.
    pub(crate) fn fork(&self) -> Self {
        Self { origin: false, ..self.clone() }
    }

    pub(crate) fn add(&mut self, work: Work) -> Status {
        let node = self.graph.add(work, self.tail.clone())?;
        self.tail = vec![node];
        Ok(())
    }

    /// Makes the next node also follow the other stream's position.
    pub(crate) fn join(&mut self, other: &Self) -> Status {
        if !Arc::ptr_eq(&self.graph, &other.graph) {
            return Err(Code::CAPTURE_UNMATCHED);
        }
        self.tail
            .extend(other.tail.iter().filter(|node| !self.tail.contains(node)).copied().collect::<Vec<_>>());
        Ok(())
    }
}

/// Begins to capture a stream.
pub(crate) fn begin(stream: &Stream, graph: Arc<Graph>) -> Status {
    if stream.lane == crate::device::DEFAULT {
        // The default stream cannot be captured.
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    let mut capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
    if capture.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    *capture = Some(Capture::begin(graph));
    Ok(())
}

/// Ends the capture; returns the graph.
pub(crate) fn end(stream: &Stream) -> Result<Arc<Graph>, Code> {
    let mut capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
    match capture.take() {
        None => Err(Code::ILLEGAL_STATE),
        Some(ended) if !ended.origin => {
            *capture = Some(ended);
            Err(Code::CAPTURE_UNMATCHED)
        }
        Some(ended) => {
            drop(capture);
            let unjoined = stream::STREAMS.take_captures_of(&ended.graph, &ended.tail);
            if unjoined { Err(Code::CAPTURE_UNJOINED) } else { Ok(ended.graph) }
        }
    }
}

impl super::registry::Registry<Stream> {
    /// Ends the part of every stream in a capture; true when one of them did not join its origin again.
    fn take_captures_of(&self, graph: &Arc<Graph>, tail: &[usize]) -> bool {
        let mut unjoined = false;
        for stream in self.all() {
            let mut capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(part) = capture.take_if(|part| Arc::ptr_eq(&part.graph, graph)) {
                unjoined |= part.tail.iter().any(|&node| !graph.leads_to(node, tail));
            }
        }
        unjoined
    }
}

api! { Driver;
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz(stream: Raw) {
        begin(&*stream::find(stream, PER_THREAD)?, graph::create())
    }
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(stream: Raw, _mode: u32) {
        begin(&*stream::find(stream, PER_THREAD)?, graph::create())
    }
    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz(stream: Raw, graph: Raw, _after: Raw, _edges: Raw, _count: usize, _mode: u32) {
        begin(&*stream::find(stream, PER_THREAD)?, graph::GRAPHS.get(graph)?)
    }
    fn cuStreamEndCapture | cuStreamEndCapture_ptsz(stream: Raw, graph: Out<Raw>) {
        let ended = end(&*stream::find(stream, PER_THREAD)?);
        graph.put_if_wanted(ended.as_ref().map_or(0, handle_of));
        ended.map(drop)
    }
    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz(stream: Raw, status: Out<u32>) {
        let stream = stream::find(stream, PER_THREAD)?;
        let capturing = stream.capture.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        status.put(capturing.into())
    }
    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) { mode.put(0) }
}
