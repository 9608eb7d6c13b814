//! Raw sink: copies the input of a session into a raw capture.
//!
//! Owns: that a copy that failed once ends there. Because: a block that follows a half-written one cannot be read.
//! Does not: know the format, see [`crate::raw`].

use std::io::{self, Write};

use deepctx_pipeline::input::Input;
use deepctx_symbolizer::maps::Maps;

use super::{Sink, SinkError, State};
use crate::raw::RawWriter;

/// Copies all input to a file, to be replayed.
#[derive(Debug)]
pub struct RawSink<W: Write> {
    /// `None` once a write has failed.
    writer: Option<RawWriter<W>>,
}

impl<W: Write> RawSink<W> {
    /// Begins a raw capture.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self { writer: Some(RawWriter::new(out)?) })
    }
}

impl<W: Write + std::fmt::Debug + Send> Sink for RawSink<W> {
    fn on_input(&mut self, input: &Input<Maps>) -> Result<(), SinkError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write(input).map_err(|error| {
            self.writer = None;
            SinkError::Raw(error)
        })
    }

    fn on_finish(&mut self, _state: &State<'_>) -> Result<(), SinkError> {
        self.writer.take().map_or(Ok(()), RawWriter::finish).map_err(SinkError::Raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes and no more.
    #[derive(Debug)]
    struct FullDisk(usize);

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn raw_copy_ends_with_its_first_error() {
        let mut sink = RawSink::new(FullDisk(24)).unwrap();
        let records = Input::Records(vec![0; 8]);
        let failed = sink.on_input(&records);
        assert!(matches!(failed, Err(SinkError::Raw(error)) if error.kind() == io::ErrorKind::StorageFull));
        assert!(sink.on_input(&records).is_ok(), "reported once");
    }
}
