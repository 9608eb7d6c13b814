//! One context whose instructions are sampled.
//!
//! Owns: its buffers, and the way of its samples to the probe. Because: CUPTI keeps pointers into the buffers until
//! sampling ends. Does not: know when to read ([`super`]).

use deepctx_common::activity::state;
use deepctx_common::samples::{BATCH_MAX, Sample};

use super::{Setting, reasons};
use crate::cupti::sampler_layout::{
    Attribute, Data, PC_BYTES_OLD, Pc, Stall, WITH_CORRELATION, attribute, mode,
};
use crate::cupti::{Error, Sampler};
use crate::names::Lookup;
use crate::probe;

/// Instructions per read. With forty reasons, their buffer takes 700 KiB.
const PCS: usize = 2048;
/// Maximum number of consecutive reads, so that they do not delay the clock.
const ROUNDS_MAX: usize = 64;
/// `CUPTI_ERROR_OUT_OF_MEMORY`: the device's buffer was full. CUPTI takes no more samples until sampling restarts.
const OVERRUN: Error = Error(8);

/// One sampled context.
pub(super) struct SampledContext {
    pub(super) handle: usize,
    number: u32,
    sampler: Sampler,
    setting: Setting,
    /// CUPTI's numbers of the requested reasons, and ours.
    reasons: Vec<(u32, u32)>,
    /// Bytes from one [`Pc`] to the next in this CUPTI version.
    stride: usize,
    /// [`PCS`] entries in CUPTI's own layout.
    pcs: Box<[u64]>,
    /// For each instruction, one entry per reason.
    stalls: Box<[Stall]>,
    data: Box<Data>,
}

// SAFETY: its pointers lead into its own boxes; only the holder of the lock on all contexts uses it.
unsafe impl Send for SampledContext {}

impl SampledContext {
    /// Begins to sample.
    pub(super) fn begin(
        sampler: Sampler,
        version: u32,
        setting: Setting,
        handle: usize,
    ) -> Result<Self, Error> {
        sampler.enable(handle)?;
        let begun = Self::configured(sampler, version, setting, handle);
        if begun.is_err() {
            let _ = sampler.disable(handle);
        }
        begun
    }

    fn configured(sampler: Sampler, version: u32, setting: Setting, handle: usize) -> Result<Self, Error> {
        let reasons = reasons::wanted(&sampler.reasons(handle)?);
        let stride = if version < WITH_CORRELATION { PC_BYTES_OLD } else { size_of::<Pc>() };
        let mut this = Self {
            handle,
            number: sampler.context_number(handle),
            sampler,
            setting,
            stride,
            pcs: vec![0; PCS * stride / 8].into(),
            stalls: vec![Stall::default(); PCS * reasons.len().max(1)].into(),
            reasons,
            data: Box::new(Data {
                size: size_of::<Data>(),
                room: PCS,
                total: 0,
                dropped: 0,
                pcs: 0,
                remaining: 0,
                range: 0,
                pc: std::ptr::null_mut(),
                elsewhere: 0,
                full: 0,
            }),
        };
        this.data.pc = this.pcs.as_mut_ptr().cast();
        let each = this.reasons.len().max(1);
        for n in 0..PCS {
            // What CUPTI reads of each entry, written as words: before 12.4 entries are shorter than a `Pc`.
            let words = this.stride / 8;
            let pc = &mut this.pcs[n * words..][..words];
            pc[0] = this.stride as u64;
            pc[6] = (&raw mut this.stalls[n * each]).expose_provenance() as u64;
        }
        this.configure()?;
        Ok(this)
    }

    fn configure(&mut self) -> Result<(), Error> {
        let attribute = |kind, value| Attribute { kind, status: 0, value };
        let mut numbers: Vec<u32> = self.reasons.iter().map(|(number, _)| *number).collect();
        let mode = if self.setting.serialized { mode::SERIALIZED } else { mode::CONTINUOUS };
        let data = (&raw mut *self.data).expose_provenance() as u64;
        let mut attributes = vec![
            attribute(
                attribute::REASONS,
                [numbers.len() as u64, numbers.as_mut_ptr().expose_provenance() as u64, 0],
            ),
            attribute(attribute::BUFFER, [data, 0, 0]),
            attribute(attribute::MODE, [mode, 0, 0]),
        ];
        if let Some(period) = self.setting.period {
            attributes.push(attribute(attribute::PERIOD, [period.into(), 0, 0]));
        }
        self.sampler.configure(self.handle, &mut attributes)
    }

    /// The current period; 0 when unknown.
    pub(super) fn period(&self) -> u32 {
        self.sampler.period(self.handle).or(self.setting.period).unwrap_or(0)
    }

    /// Reads and reports CUPTI's samples.
    pub(super) fn read(&mut self) {
        // Samples that CUPTI's own flush wrote there.
        self.report();
        for _ in 0..ROUNDS_MAX {
            match self.sampler.read(self.handle, &raw mut *self.data) {
                Ok(()) => {}
                Err(OVERRUN) => return self.overrun(),
                Err(_) => return,
            }
            let more = self.data.remaining > 0 && self.data.pcs > 0;
            self.report();
            if !more {
                break;
            }
        }
    }

    fn overrun(&mut self) {
        probe::state(state::SAMPLES_OVERRUN, 1);
        let _ = self.sampler.disable(self.handle);
        self.report();
        let again = self.sampler.enable(self.handle).and_then(|()| self.configure());
        if let Err(Error(error)) = again {
            probe::state(state::SAMPLING_REFUSED, error.cast_unsigned().into());
        }
    }

    /// Ends sampling and reports the rest.
    pub(super) fn end(mut self) {
        self.read();
        let _ = self.sampler.disable(self.handle);
        self.report();
    }

    /// Reports the buffers and empties them.
    fn report(&mut self) {
        let data = &mut self.data;
        let count = std::mem::take(&mut data.pcs).min(PCS);
        let dropped = std::mem::take(&mut data.dropped);
        let elsewhere = std::mem::take(&mut data.elsewhere);
        (data.total, data.full) = (0, 0);
        for (what, number) in [(state::SAMPLES_DROPPED, dropped), (state::SAMPLES_ELSEWHERE, elsewhere)] {
            if number > 0 {
                probe::state(what, number);
            }
        }
        let mut names = Lookup::new();
        let mut batch = [Sample::default(); BATCH_MAX];
        let mut filled = 0;
        let (words, each) = (self.stride / 8, self.reasons.len().max(1));
        for n in 0..count {
            let pc = &self.pcs[n * words..][..words];
            let stalls = (pc[5] as usize).min(each);
            let correlation = if words * 8 >= size_of::<Pc>() { pc[7] as u32 } else { 0 };
            for stall in &self.stalls[n * each..][..stalls] {
                let reason = self.reasons.iter().find(|(number, _)| *number == stall.reason);
                let (Some((_, reason)), 1..) = (reason, stall.samples) else { continue };
                batch[filled] = Sample {
                    cubin: pc[1],
                    function: names.id(pc[4]),
                    offset: pc[2],
                    correlation,
                    reason: *reason,
                    samples: stall.samples,
                    context: self.number,
                };
                filled += 1;
                if filled == batch.len() {
                    probe::samples(&batch);
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            probe::samples(&batch[..filled]);
        }
    }
}
